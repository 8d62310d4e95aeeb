"""Live display of a training run: a block redrawn in place, or plain lines elsewhere."""

from collections import deque
from collections.abc import Callable, Mapping
import contextlib
import math
import os
import sys
import time
from typing import Any, TextIO

from asyncppo_ros.learning.metrics import evaluation_row, METRICS

# Seconds between two drawings of the block, and between two plain lines.
REDRAW = 0.2
PLAIN_EVERY = 5.0
# Without a new row for this long [s] the display says so.
SILENCE = 10.0
# The time left follows the pace of this many rows.
PACE_ROWS = 50

# Label and text of each line of the block; no line is longer than 59 columns.
BLOCK = (
    ('env steps', '{env_steps} of {total}, {env_steps_per_s}/s'),
    ('training', 'return {return_mean}, max {return_max}{success}'),
    ('evaluation', '{evaluation}'),
    ('policy lag', 'mean {policy_lag_mean}, max {policy_lag_max} versions'),
    ('sample age', 'mean {sample_age_mean}, max {sample_age_max} ms'),
    ('waiting', 'learner {learner_wait}, actors {actor_wait} of the time'),
    ('actors', '{actors} alive, policy version {policy_version}'),
)
LINE = ('{done} | {env_steps} steps | {env_steps_per_s}/s | return {return_mean}{success} | '
        'evaluation {evaluation} | lag mean {policy_lag_mean} max {policy_lag_max} | '
        'age mean {sample_age_mean} max {sample_age_max} ms | '
        'waiting learner {learner_wait} actors {actor_wait} | {actors} actors | {left} left')


def significant(value: float) -> str:
    """Write about three significant digits: ``0.75``, ``-12.3``, ``4,321``."""
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2
    return f'{value:,.{digits}f}'


def duration(seconds: float) -> str:
    """Write a time span: ``1:05`` or ``2:00:09``; ``-`` where it is unknown."""
    if not math.isfinite(seconds):
        return '-'
    minutes, second = divmod(int(seconds + 0.5), 60)
    hours, minute = divmod(minutes, 60)
    return f'{hours}:{minute:02d}:{second:02d}' if hours else f'{minute}:{second:02d}'


def number(name: str, value: float) -> str:
    """Write a metric in the way of its unit; ``-`` where it is unknown."""
    if not math.isfinite(value):
        return '-'
    unit = METRICS[name].unit
    if unit == 'fraction':
        return f'{100 * value:.0f} %'
    whole = unit not in ('return', 'versions') or value == int(value)
    return f'{value:,.0f}' if whole else significant(value)


def bar(fraction: float, width: int, unicode: bool = True) -> str:
    """Draw a bar of `width` characters."""
    full = int(min(max(fraction, 0.0), 1.0) * width)
    return ('█' if unicode else '#') * full + ('░' if unicode else '-') * (width - full)


class View:
    """The newest value of every metric, and the texts made of them."""

    def __init__(self, total_env_steps: int) -> None:
        self.total = total_env_steps
        self.values: dict[str, float] = {}
        self._evaluated_at = math.nan
        self._pace: deque[tuple[float, float]] = deque(maxlen=PACE_ROWS)

    def update(self, row: Mapping[str, Any]) -> None:
        """Take the known numbers of a row."""
        self.values.update({name: float(value) for name, value in row.items()
                            if name in METRICS and value is not None})
        if 'evaluation_return_mean' in row:
            self._evaluated_at = self._value('env_steps')
        if 'env_steps' in row and 'time_s' in row:
            if self._pace and row['env_steps'] < self._pace[-1][1]:
                self._pace.clear()
            self._pace.append((row['time_s'], row['env_steps']))

    def evaluation(self, evaluation: Mapping[str, Any]) -> None:
        """Take a line of ``evaluations.jsonl``."""
        row = evaluation_row(evaluation)
        self._evaluated_at = row.get('env_steps', math.nan)
        self.values.update({name: float(value) for name, value in row.items()
                            if name.startswith('evaluation_')})

    def __getitem__(self, name: str) -> str:
        """Give the text of a name in `BLOCK` and `LINE`."""
        texts: dict[str, Callable[[], str]] = {
            'total': lambda: f'{self.total:,}',
            'done': lambda: f'{100 * self.fraction:.0f} %',
            'left': lambda: duration(self.seconds_left),
            'success': lambda: self._success('success_rate'),
            'evaluation': self._evaluation,
        }
        return texts[name]() if name in texts else number(name, self._value(name))

    @property
    def fraction(self) -> float:
        """Share of the training that is done."""
        return min(self.values.get('env_steps', 0.0) / self.total, 1.0)

    @property
    def seconds_left(self) -> float:
        """Time to the end at the pace of the last rows; NaN while it is unknown."""
        if self.fraction >= 1.0:
            return 0.0
        rate = self._value('env_steps_per_s')
        if len(self._pace) > 1 and self._pace[-1][0] > self._pace[0][0]:
            (start, before), (now, steps) = self._pace[0], self._pace[-1]
            rate = (steps - before) / (now - start)
        return (self.total - self._value('env_steps')) / rate if rate > 0 else math.nan

    def lines(self, columns: int, unicode: bool = True) -> list[str]:
        """Give the block: a bar, then lines of a label and what it says."""
        if not self.values:
            return ['waiting for the first update']
        rest = '{done:>6}, {left} left'.format_map(self)
        drawn = bar(self.fraction, min(max(columns - len(rest) - 3, 5), 50), unicode)
        texts = [f'{label:<12}{text.format_map(self)}' for label, text in BLOCK]
        return [f'[{drawn}]{rest}', *texts]

    def line(self) -> str:
        """Give one plain line."""
        return LINE.format_map(self)

    def _value(self, name: str) -> float:
        return self.values.get(name, math.nan)

    def _success(self, name: str) -> str:
        return f', success {self[name]}' if name in self.values else ''

    def _evaluation(self) -> str:
        if 'evaluation_return_mean' not in self.values:
            return 'none yet'
        at = '' if math.isnan(self._evaluated_at) else f' at {self._evaluated_at:,.0f}'
        return f'return {self["evaluation_return_mean"]}{self._success("evaluation_success")}{at}'


class Progress:
    """
    Show a run while it trains.

    Parameters
    ----------
    total_env_steps : int
        Where training ends.
    stream : text file, optional
        A terminal gets the block, anything else plain lines; standard error by default.
    clock : callable
        Monotonic time [s].

    """

    def __init__(self, total_env_steps: int, stream: TextIO | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.view = View(total_env_steps)
        self._stream = stream or sys.stderr
        self._clock = clock
        self._live = self._stream.isatty() and os.environ.get('TERM') not in (None, '', 'dumb')
        self._colour = self._live and not os.environ.get('NO_COLOR')
        self._drawn: list[str] = []
        self._note = ''
        self._last_draw = -math.inf
        self._last_row = clock()

    def update(self, row: Mapping[str, Any], note: str = '') -> None:
        """
        Take a row of metrics, and draw if it is time to.

        Call it with an empty row when there is none: the display then says how long nothing
        has come.  `note` stays under the numbers until the next one.
        """
        if row:
            self.view.update(row)
            self._last_row = self._clock()
        self._note = note or self._note
        every = REDRAW if self._live else PLAIN_EVERY
        if self._clock() - self._last_draw >= every and (self._live or self.view.values):
            self._draw()

    def evaluation(self, evaluation: Mapping[str, Any]) -> None:
        """Take a line of ``evaluations.jsonl``; the next `update` shows it."""
        self.view.evaluation(evaluation)

    def message(self, text: str) -> None:
        """Print a text that stays, above the block."""
        self._write(f'{self._erased()}{text}\n')
        if self._live:
            self._draw()

    def close(self) -> None:
        """Draw the last state and leave it there."""
        if self.view.values:
            self._draw()
        self._drawn = []

    def _draw(self) -> None:
        self._last_draw = self._clock()
        silent = self._last_draw - self._last_row
        notes = [f'no update for {duration(silent)}'] if silent >= SILENCE else []
        notes += [self._note] if self._note else []
        if not self._live:
            self._write(' | '.join([self.view.line(), *notes]) + '\n')
            return
        columns = self._columns()
        unicode = (self._stream.encoding or '').lower().replace('-', '') == 'utf8'
        # The last column stays free: some terminals wrap as soon as it is written to.
        lines = [line[:columns - 1] for line in self.view.lines(columns, unicode) + notes]
        block = ''.join(self._painted(line) + '\n' for line in lines)
        self._write(self._erased() + block)
        self._drawn = lines

    def _erased(self) -> str:
        if not self._drawn:
            return ''
        # A terminal that became narrower has wrapped the lines that are there.
        columns = self._columns()
        rows = sum(max(1, math.ceil(len(line) / columns)) for line in self._drawn)
        self._drawn = []
        return f'\x1b[{rows}A\r\x1b[J'

    def _painted(self, line: str) -> str:
        if not self._colour:
            return line
        if line.startswith('['):
            return f'\x1b[32m{line}\x1b[0m'
        return f'\x1b[2m{line[:12]}\x1b[0m{line[12:]}'

    def _columns(self) -> int:
        try:
            return max(os.get_terminal_size(self._stream.fileno()).columns, 20)
        except OSError:
            return 80

    def _write(self, text: str) -> None:
        # A terminal or a pipe that has gone must not end the training.
        with contextlib.suppress(OSError):
            self._stream.write(text)
            self._stream.flush()

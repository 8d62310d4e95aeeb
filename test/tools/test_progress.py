"""The texts of the display, and how a terminal receives them."""

import contextlib
import fcntl
import io
import os
import pty
import struct
import termios

import pytest

from asyncppo_ros.tools.progress import bar, duration, number, Progress, View

ROW = {
    'env_steps': 250_000, 'env_steps_per_s': 5812.4, 'policy_version': 31, 'time_s': 43.0,
    'return_mean': -12.345, 'return_max': -1.5, 'success_rate': 0.344, 'policy_lag_mean': 0.75,
    'policy_lag_max': 2, 'sample_age_mean': 212.3, 'sample_age_max': 480.9, 'learner_wait': 0.118,
    'actor_wait': 0.401, 'actors': 2,
}
EVALUATION = {'generation': 0, 'policy_version': 25, 'env_steps': 200_000, 'time_s': 34.0,
              'episodes': 20, 'return_mean': -8.0, 'return_std': 1.25, 'length_mean': 100.0,
              'success': 0.55}


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self):
        return self.now


class Terminal:
    """A text file on a pseudo-terminal, and what arrives at its other end."""

    def __init__(self, columns):
        self.screen, end = pty.openpty()
        self.resize(columns)
        settings = termios.tcgetattr(end)
        settings[1] &= ~termios.OPOST
        termios.tcsetattr(end, termios.TCSANOW, settings)
        os.set_blocking(self.screen, False)
        self.file = os.fdopen(end, 'w', encoding='utf-8')

    def resize(self, columns):
        fcntl.ioctl(self.screen, termios.TIOCSWINSZ, struct.pack('HHHH', 24, columns, 0, 0))

    def read(self):
        data = b''
        with contextlib.suppress(BlockingIOError):
            while True:
                data += os.read(self.screen, 100_000)
        return data.decode()

    def close(self):
        self.file.close()
        os.close(self.screen)


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv('TERM', 'xterm')
    monkeypatch.setenv('NO_COLOR', '1')
    terminal = Terminal(80)
    yield terminal
    terminal.close()


@pytest.mark.parametrize('seconds, text', [
    (0, '0:00'), (59.4, '0:59'), (59.6, '1:00'), (3599, '59:59'), (7209, '2:00:09'),
    (float('nan'), '-'), (float('inf'), '-')])
def test_duration(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize('name, value, text', [
    ('env_steps', 1234567.0, '1,234,567'), ('return_mean', 4321.4, '4,321'),
    ('return_mean', -12.345, '-12.3'), ('return_mean', 0.754, '0.75'),
    ('success_rate', 0.955, '96 %'), ('sample_age_mean', 212.3, '212'),
    ('policy_lag_mean', 0.754, '0.75'), ('policy_lag_max', 2.0, '2'),
    ('return_mean', float('nan'), '-')])
def test_number_follows_the_unit(name, value, text):
    assert number(name, value) == text


def test_bar():
    assert bar(0.5, 6) == '███░░░'
    assert bar(0.5, 6, unicode=False) == '###---'
    assert bar(2.0, 3) == '███'


def test_block():
    view = View(1_000_000)
    view.update(ROW)
    view.evaluation(EVALUATION)
    assert view.lines(60, unicode=False) == [
        '[##########------------------------------]  25 %, 2:09 left',
        'env steps   250,000 of 1,000,000, 5,812/s',
        'training    return -12.3, max -1.50, success 34 %',
        'evaluation  return -8, success 55 % at 200,000',
        'policy lag  mean 0.75, max 2 versions',
        'sample age  mean 212, max 481 ms',
        'waiting     learner 12 %, actors 40 % of the time',
        'actors      2 alive, policy version 31',
    ]


def test_line():
    view = View(1_000_000)
    view.update({name: value for name, value in ROW.items() if name != 'success_rate'})
    assert view.line() == (
        '25 % | 250,000 steps | 5,812/s | return -12.3 | evaluation none yet | '
        'lag mean 0.75 max 2 | age mean 212 max 481 ms | waiting learner 12 % actors 40 % | '
        '2 actors | 2:09 left')


def test_nothing_is_known_at_the_start():
    assert View(10).lines(60) == ['waiting for the first update']
    view = View(1000)
    view.update({'env_steps': 100, 'return_mean': None})
    assert view.lines(60, False)[0].endswith('  10 %, - left')
    assert 'training    return -, max -' in view.lines(60)


def test_time_left_follows_the_pace_of_the_last_rows_and_a_resume_starts_afresh():
    view = View(1000)
    view.update({'env_steps': 100, 'time_s': 10.0, 'env_steps_per_s': 1.0})
    assert view.seconds_left == 900.0
    view.update({'env_steps': 200, 'time_s': 20.0, 'env_steps_per_s': 1.0})
    # 100 steps in 10 s, 800 to go.
    assert view.seconds_left == 80.0
    view.update({'env_steps': 150, 'time_s': 30.0, 'env_steps_per_s': 5.0})
    assert view.seconds_left == 170.0
    view.update({'env_steps': 1001, 'time_s': 40.0})
    assert view.seconds_left == 0.0
    assert view['done'] == '100 %'


@pytest.mark.parametrize('columns', [20, 40, 60, 80, 200])
def test_widest_numbers_fit_sixty_columns_and_the_bar_never_wraps(columns):
    view = View(1_000_000_000)
    view.update(ROW | {'env_steps': 999_999_999, 'env_steps_per_s': 123_456, 'return_mean': -1e4,
                       'return_max': 1e4, 'success_rate': 1.0, 'sample_age_max': 12345})
    view.evaluation(EVALUATION | {'env_steps': 999_999_999, 'return_mean': -10_000})
    lines = view.lines(columns)
    assert all(len(line) < max(columns, 60) for line in lines)
    if columns >= 40:
        assert len(lines[0]) < columns


def test_plain_lines_come_soon_and_then_every_five_seconds(monkeypatch):
    clock, stream = Clock(), io.StringIO()
    progress = Progress(1_000_000, stream, clock)
    progress.update({})
    assert stream.getvalue() == ''
    for clock.now in (0.1, 1.0, 5.0, 5.2, 6.0):
        progress.update(ROW)
    assert len(stream.getvalue().splitlines()) == 2
    progress.message('learner restarted')
    progress.close()
    lines = stream.getvalue().splitlines()
    assert lines[2] == 'learner restarted'
    assert len(lines) == 4
    assert '\x1b' not in stream.getvalue()


def test_silence_is_said():
    clock, stream = Clock(), io.StringIO()
    progress = Progress(1_000_000, stream, clock)
    progress.update(ROW, note='paused')
    clock.now = 75.0
    progress.update({})
    assert stream.getvalue().endswith('2:09 left | no update for 1:15 | paused\n')


def test_block_is_redrawn_in_place_at_most_five_times_a_second(terminal):
    clock = Clock()
    progress = Progress(1_000_000, terminal.file, clock)
    progress.update(ROW)
    first = terminal.read()
    assert first.count('\n') == 8
    assert '\x1b' not in first
    clock.now = 0.1
    progress.update(ROW)
    assert terminal.read() == ''
    clock.now = 0.3
    progress.update(ROW, note='checkpoint written')
    second = terminal.read()
    assert second.startswith('\x1b[8A\r\x1b[J[')
    assert second.endswith('\ncheckpoint written\n')
    progress.message('hello')
    assert terminal.read().startswith('\x1b[9A\r\x1b[Jhello\n[')
    progress.close()
    terminal.read()
    progress.message('after')
    assert not terminal.read().startswith('\x1b')


def test_a_terminal_that_became_narrower_is_erased_whole(terminal):
    clock = Clock()
    progress = Progress(1_000_000, terminal.file, clock)
    progress.update(ROW)
    drawn = terminal.read().splitlines()
    terminal.resize(30)
    clock.now = 1.0
    progress.update(ROW)
    rows = sum(-(-len(line) // 30) for line in drawn)
    text = terminal.read()
    assert text.startswith(f'\x1b[{rows}A\r\x1b[J')
    assert all(len(line) < 30 for line in text.split('\x1b[J')[1].splitlines())


def test_colours_only_where_they_are_wanted(terminal, monkeypatch):
    monkeypatch.delenv('NO_COLOR')
    Progress(1_000_000, terminal.file).update(ROW)
    assert '\x1b[32m[' in terminal.read()
    monkeypatch.setenv('TERM', 'dumb')
    Progress(1_000_000, terminal.file).update(ROW)
    assert terminal.read().startswith('25 % | ')


def test_a_reader_that_went_away_does_not_end_the_training():
    reading, writing = os.pipe()
    stream = os.fdopen(writing, 'w')
    os.close(reading)
    progress = Progress(1_000_000, stream)
    progress.update(ROW)
    progress.close()
    with pytest.raises(BrokenPipeError):
        stream.close()

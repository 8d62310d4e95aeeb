"""
``asyncppo bench drift``: whether a training becomes slower while it goes on.

The training is `asyncppo train` as a user runs it; what counts is transitions that reached an
update.  Machines become slower and faster by themselves, so every `--every` seconds all processes
of the training stand still (SIGSTOP) while a bare loop of `mj_step` runs on every core, for
`--pause` seconds.  Each rate of the training is divided by the mean of the bare rates before and
after it.

Nothing else should run on the machine: what wants the cores all the time takes more of them from
a training than from loops that run for a second.

Standing still, and not running beside each other, because a bare loop beside the training would
take cores from it and get what the training leaves: it would measure the training.  A loop on
every core, because others on the machine slow down one thread and a training on all cores by
different amounts.  A pause is far shorter than the silence after which an actor loses its
permits (transport.heartbeat_timeout_s) and the supervisor's watch, which stands still as well;
that no actor was given up is checked.  Clocks of the training run on meanwhile, so the rates are
those of a clock of the bench that stands still with it.

The bare loop does the same work each time: what the first policy does.  How long a physics step
takes depends on the state, and a policy that learns comes into other states.  So the loop also
does the work of the newest policy, and the rates beside that are told, too.  Only a part of the
training is physics, so where its share by then is cheaper the first ratio hides a part of a fall
and the second makes one up; the two enclose what the training itself has lost.
"""

import bisect
from collections.abc import Iterator, Mapping, Sequence
import contextlib
import itertools
import json
import math
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
from typing import Any, NamedTuple

import numpy as np

from asyncppo_ros.config import Config
from asyncppo_ros.cores import usable_cores
from asyncppo_ros.errors import ConfigError, RunError
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.run import num_actors, resolve
from asyncppo_ros.settings import as_text, build, to_dict
from asyncppo_ros.tools.arguments import Parser, split_settings
from asyncppo_ros.tools.auto import settled
from asyncppo_ros.tools.bench.bare_cores import BareCores, BareRates
from asyncppo_ros.tools.bench.bare_physics import RecordedSimulation
from asyncppo_ros.tools.bench.results import check, paired_row, report, row, table, verdict
from asyncppo_ros.tools.bench.uncertainty import Estimate, slope_estimate
from asyncppo_ros.tools.bench.watched import processes_of, rate, Seen, WatchedRun, without_place
from asyncppo_ros.tools.stopwatch import cpu_seconds

TASK = 'HalfCheetah-v5'
MOST = 0.05
# So much of the measured time comes before: first updates, first evaluation, caches.
WARM_UP_SHARE, WARM_UP_S = 0.1, 20.0
# A slope needs three points.
FEWEST = 3
# A pause may last so much of the silence after which an actor is given up.
PAUSE_SHARE = 0.25
FIRST, NEWEST = 'mj_step', "mj_step on the newest policy's states"


class Pause(NamedTuple):
    """
    A time in which the training stood still.

    Attributes
    ----------
    begin, end : float
        Monotonic time [s].
    bare : BareRates
        What was measured meanwhile.
    cpu_s : float
        That all processes of the training had had by then [s].

    """

    begin: float
    end: float
    bare: BareRates
    cpu_s: float


def main(arguments: list[str], stop: StopRequest) -> int:
    """Train, measure, and print the table or the JSON object."""
    parser = Parser(prog='asyncppo bench drift', description=__doc__, allow_abbrev=False)
    parser.add_argument('--minutes', type=float, default=30.0,
                        help='of training, pauses not counted (default 30)')
    parser.add_argument('--every', type=float, default=20.0,
                        help='seconds of training between two pauses (default 20: with the usual '
                        'settings about one evaluation each)')
    parser.add_argument('--pause', type=float, default=1.0,
                        help='seconds of the bare loops in each pause (default 1)')
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    own, given = split_settings(parser, arguments)
    if not (own.every > 0.0 and math.isfinite(own.minutes)
            and 60.0 * own.minutes >= FEWEST * own.every):
        raise ConfigError(f'--minutes {own.minutes:g} --every {own.every:g}: must be long enough '
                          f'for {FEWEST} pauses or more')
    config = resolve({'task': TASK, **given, 'env_steps': 10 ** 12})
    longest = PAUSE_SHARE * config.transport.heartbeat_timeout_s
    if not 0.0 < own.pause <= longest:
        raise ConfigError(f'--pause {own.pause:g}: must be more than 0 and at most {longest:g} s, '
                          f'{PAUSE_SHARE:g} × transport.heartbeat_timeout_s')
    # A task without a model is refused here, in one line.
    RecordedSimulation(config.task, 1)
    config = settled(config, stop=stop, tell=_tell)
    config = build(Config, {**to_dict(config), 'num_actors': num_actors(config)})
    found = measure(config, 60.0 * own.minutes, own.every, own.pause, stop)
    if found is None:
        return 0
    seen, pauses = found
    windows = windows_of(seen, pauses)
    rows, falls = rows_of(windows), falls_of(windows)
    checks = checks_of(falls, seen, pauses, config)
    result = report(to_dict(config), rows, checks=checks, windows=windows,
                    falls={name: fall._asdict() for name, fall in falls.items()},
                    command=['asyncppo', 'bench', 'drift', *arguments])
    print(json.dumps(result, indent=1) if own.json else '\n'.join([
        table(rows), '', *(ratio_text(entry) for entry in rows if 'ratio' in entry), '',
        *(fall_text(name, fall) for name, fall in falls.items()), '',
        verdict(checks)]))
    return 0 if all(entry['passed'] for entry in checks) else 1


def measure(config: Config, seconds: float, every_s: float, pause_s: float,
            stop: StopRequest) -> tuple[list[Seen], list[Pause]] | None:
    """
    Train for so long, and let the bare loops run in between.

    Returns
    -------
    seen : list of Seen
        All rows of the run.
    pauses : list of Pause
        The first is before what counts and the last behind it.  None instead of both = the end
        was asked for.

    """
    folder = pathlib.Path(tempfile.mkdtemp(prefix='asyncppo-drift-'))
    settings = {name: value for name, value in without_place(to_dict(config)).items()
                if as_text(value)}
    with BareCores(config, usable_cores(), stop) as cores:
        watched = WatchedRun(folder / 'run', settings)
        try:
            pauses = _train(watched, cores, config.num_actors, seconds, every_s, pause_s, stop)
            watched.end()
        finally:
            watched.kill()
    # After an error the logs, which it names, stay.
    shutil.rmtree(folder, ignore_errors=True)
    return None if stop() else (watched.seen, pauses)


def _train(watched: WatchedRun, cores: BareCores, count: int, seconds: float, every_s: float,
           pause_s: float, stop: StopRequest) -> list[Pause]:
    watched.need(lambda: watched.run.policy_file.is_file() and watched.seen
                 and watched.seen[-1].row['actors'] == count, f'{count} actors and a policy',
                 seconds=300.0, stop=stop)
    if stop():
        return []
    cores.begin(watched.run.policy_file.read_bytes())
    go_on(watched, min(WARM_UP_S, WARM_UP_SHARE * seconds), stop)
    pauses = [_pause(watched, cores, pause_s)]
    while len(pauses) <= round(seconds / every_s):
        go_on(watched, every_s, stop)
        pauses.append(_pause(watched, cores, pause_s))
        if stop():
            break
        if len(pauses) > 2:
            # The row after a pause tells how far the update had come that it interrupted.
            window = windows_of(watched.seen, pauses[-3:])[0]
            _tell(f'{len(pauses) - 2} of {round(seconds / every_s)}: '
                  f'{window["env_steps_per_s"]:,.0f} env steps/s, '
                  f'{window["env_steps_per_s"] / window["bare"]:.3f} of the bare loops')
    watched.need(lambda: watched.seen[-1].at > pauses[-1].end, 'the last update', stop=stop)
    return pauses


@contextlib.contextmanager
def standing_still(watched: WatchedRun) -> Iterator[None]:
    """Stop all processes of a run while the block runs, and let them go on."""
    pids = [watched.process.pid, *processes_of(watched.run.folder)]
    try:
        _signal(pids, signal.SIGSTOP)
        yield
    finally:
        _signal(pids, signal.SIGCONT)


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def go_on(watched: WatchedRun, seconds: float, stop: StopRequest) -> None:
    """Watch for so long; the training must not end meanwhile."""
    if not watched.watch(seconds, stop) and watched.process.poll() is not None and not stop():
        raise RunError(f'the training ended with exit code {watched.process.returncode}; see '
                       f'{watched.output} and {watched.run.logs}')


def _pause(watched: WatchedRun, cores: BareCores, seconds: float) -> Pause:
    watched.look()
    begin = time.monotonic()
    with standing_still(watched):
        cpu_s = sum(map(cpu_seconds, processes_of(watched.run.folder)))
        bare = cores.measure(watched.run.policy_file.read_bytes(), seconds)
    return Pause(begin, time.monotonic(), bare, cpu_s)


def windows_of(seen: Sequence[Seen], pauses: Sequence[Pause]) -> list[dict[str, float]]:
    """
    Give the rates between the pauses.

    Parameters
    ----------
    seen : sequence of Seen
    pauses : sequence of Pause [n + 1]

    Returns
    -------
    list of dict [n]
        ``minute`` of training, of the middle; ``env_steps_per_s`` and ``cores`` of the training;
        ``bare`` and ``bare_newest``, the means before and after of `BareRates` [env steps/s].

    """
    # Pauses take no time on this clock: what began after one comes so much earlier.
    paused = [0.0, *itertools.accumulate(pause.end - pause.begin for pause in pauses)]
    ends = [pause.end for pause in pauses]
    going = [entry._replace(at=entry.at - paused[bisect.bisect(ends, entry.at)])
             for entry in seen]
    at = [pause.begin - before for pause, before in zip(pauses, paused)]
    return [{'minute': ((begin + end) / 2.0 - at[0]) / 60.0,
             'env_steps_per_s': rate(going, begin, end),
             'cores': (after.cpu_s - before.cpu_s) / (end - begin),
             'bare': (before.bare.first + after.bare.first) / 2.0,
             'bare_newest': (before.bare.newest + after.bare.newest) / 2.0}
            for (begin, end), (before, after) in zip(itertools.pairwise(at),
                                                     itertools.pairwise(pauses))]


def rows_of(windows: Sequence[Mapping[str, float]]) -> list[dict[str, Any]]:
    """Give the training beside each of the bare rates, these, and the cores that it had."""
    training = [entry['env_steps_per_s'] for entry in windows]
    bare = {FIRST: [entry['bare'] for entry in windows],
            NEWEST: [entry['bare_newest'] for entry in windows]}
    return [*(paired_row(f'training / {name}', training, values, 'env steps/s')
              for name, values in bare.items()),
            *(row(name, values, 'env steps/s') for name, values in bare.items()),
            row('training', [entry['cores'] for entry in windows], 'cores')]


def falls_of(windows: Sequence[Mapping[str, float]]) -> dict[str, Estimate]:
    """
    Give by what share the rates fell from the first window to the last, along their trend.

    Returns
    -------
    dict from str to Estimate
        Of the training, of the bare loop, and of their ratios; a rise is below 0.

    """
    minutes = [entry['minute'] for entry in windows]
    training, bare, newest = (np.array([entry[name] for entry in windows]) for name in
                              ('env_steps_per_s', 'bare', 'bare_newest'))
    return {name: fall_of(minutes, values) for name, values in (
        ('training', training), (FIRST, bare), (NEWEST, newest),
        (f'training / {FIRST}', training / bare), (f'training / {NEWEST}', training / newest))}


def fall_of(minutes: Sequence[float], values: Sequence[float] | np.ndarray) -> Estimate:
    """Give the share that is lost over these minutes, with its interval."""
    trend = slope_estimate(minutes, np.log(values))
    value, high, low = (-math.expm1(slope * (minutes[-1] - minutes[0])) for slope in trend)
    return Estimate(value, low, high)


def checks_of(falls: Mapping[str, Estimate], seen: Sequence[Seen], pauses: Sequence[Pause],
              config: Config) -> list[dict[str, Any]]:
    """Compare the fall with what is asked for, and see that no pause has disturbed the run."""
    fall = falls[f'training / {FIRST}']
    actors = min(entry.row['actors'] for entry in seen
                 if pauses[0].begin <= entry.at <= pauses[-1].begin)
    longest = max(pause.end - pause.begin for pause in pauses)
    allowed = config.transport.heartbeat_timeout_s - config.transport.heartbeat_s
    return [check('fall of the normalized rate', fall.value,
                  f'<= {MOST:g} (95 % interval {fall.low:.3f} to {fall.high:.3f})',
                  fall.value <= MOST),
            check('fewest actors', actors, f'{config.num_actors}', actors == config.num_actors),
            check('longest pause [s]', longest, f'< {allowed:g}', longest < allowed)]


def ratio_text(entry: Mapping[str, Any]) -> str:
    """Say a ratio in one line."""
    return (f'{entry["name"]}: {entry["ratio"]:.3f}, 95 % interval '
            f'{entry["ratio_interval"][0]:.3f} to {entry["ratio_interval"][1]:.3f}')


def fall_text(name: str, fall: Estimate) -> str:
    """Say a fall in one line."""
    return (f'{name}: fell by {100.0 * fall.value:.1f} %, 95 % interval {100.0 * fall.low:.1f} to '
            f'{100.0 * fall.high:.1f}')


def _tell(text: str) -> None:
    print(text, file=sys.stderr)

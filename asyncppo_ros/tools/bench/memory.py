"""
``asyncppo bench memory``: whether a slow learner, or time, fills the memory.

The learner is slowed down; then actors must wait instead of filling queues.  The memory of all
processes of the run is sampled, and its growth given with an interval.
"""

from collections.abc import Mapping, Sequence
import json
import pathlib
import re
import shutil
import sys
import tempfile
import time
from typing import Any

import numpy as np

from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.settings import build, to_dict
from asyncppo_ros.tools.arguments import Parser, split_settings
from asyncppo_ros.tools.bench.results import check, report, row, table, verdict
from asyncppo_ros.tools.bench.uncertainty import slope_estimate
from asyncppo_ros.tools.bench.watched import processes_of, WatchedRun, without_place

# Sockets, Fast DDS and the allocator touch memory for the first time during some 2,500 heartbeats
# (150 bytes each) and 1,000 policies (180), and then no more.  So both come often here, or what is
# bounded would look like growth for half an hour.
SETTINGS = {
    'task': 'cartpole_swingup', 'env_steps': 10 ** 9, 'num_actors': 2,
    'actor.num_envs': 32, 'actor.chunk_length': 16, 'learner.batch_size': 1024,
    'learner.ppo.minibatch_size': 256, 'learner.ppo.epochs': 2, 'transport.heartbeat_s': 0.05}
SAMPLE_S = 1.0
# What grows at the start is no leak: libraries, first checkpoints and evaluations, first touches.
# They settle slowly, so the second half is measured; the samples of all of it are in the result.
WARM_UP_SHARE = 0.5
TOTAL = 'total'


def main(arguments: list[str], stop: StopRequest) -> int:
    """Train, sample, and print the table or the JSON object."""
    parser = Parser(prog='asyncppo bench memory', description=__doc__, allow_abbrev=False)
    parser.add_argument('--minutes', type=float, default=10.0, help='default 10')
    parser.add_argument('--slowdown', type=float, default=10.0,
                        help='of every update, default 10')
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    own, given = split_settings(parser, arguments)
    if own.minutes <= 0.0:
        raise ConfigError(f'--minutes {own.minutes:g}: must be more than 0')
    settings = to_dict(build(Config, {**SETTINGS, **given, 'learner.slowdown': own.slowdown}))
    samples, rows_seen, books = measure(settings, 60.0 * own.minutes, stop)
    if stop():
        return 0
    growth = growth_of(samples)
    rows = rows_of(samples)
    checks = checks_of(growth, rows_seen, settings, books)
    result = report(settings, rows, checks=checks, growth=growth, samples=samples,
                    command=['asyncppo', 'bench', 'memory', *arguments])
    if own.json:
        print(json.dumps(result, indent=1))
    else:
        lines = [f'{name}: {entry["kb_per_minute"]:+.1f} kB/min '
                 f'({entry["low"]:+.1f} to {entry["high"]:+.1f})'
                 for name, entry in growth.items()]
        print('\n'.join([table(rows), '', *lines, '', verdict(checks)]))
    return 0 if all(entry['passed'] for entry in checks) else 1


def measure(settings: dict[str, Any], seconds: float, stop: StopRequest
            ) -> tuple[list[dict[str, Any]], list[dict[str, Any]], bool]:
    """Give the samples, the rows of metrics, and whether the books balance."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix='asyncppo-memory-'))
    settings = without_place(settings)
    watched = WatchedRun(folder / 'run', settings)
    samples: list[dict[str, Any]] = []
    try:
        watched.need_actors(settings['num_actors'], stop, seconds=120.0)
        begun = told = time.monotonic()
        while time.monotonic() - begun < seconds and not stop():
            samples.append({'time_s': round(time.monotonic() - begun, 3),
                            'kb': memory_of(watched.run.folder)})
            if time.monotonic() - told > 30.0:
                told = time.monotonic()
                print(f'{told - begun:.0f} of {seconds:.0f} s, '
                      f'{samples[-1]["kb"][TOTAL] / 1024:.1f} MB', file=sys.stderr)
            watched.watch(SAMPLE_S, stop)
            if watched.process.poll() is not None:
                raise ConfigError(f'the training ended with {watched.process.returncode}; see '
                                  f'{watched.output.read_text()[-500:]}')
        watched.end()
        balanced = json.loads((watched.run.folder / 'books.json').read_text())['balanced']
        return samples, watched.rows(), balanced
    finally:
        watched.kill()
        shutil.rmtree(folder, ignore_errors=True)


def memory_of(folder: pathlib.Path) -> dict[str, int]:
    """
    Give the memory [kB] of each process of a run, and their sum.

    It is what the process itself has filled, and its share of what it shares with others of the
    run: the proportional set size without the files (libraries) that are mapped, whose share
    changes with every other program on the machine.
    """
    found = {}
    for pid, command in processes_of(folder).items():
        match = re.search(r'nodes\.main (\w+)(?: --actor-id (\d+))?', command)
        size = _own_kb(pid)
        if match and size:
            found[' '.join(part for part in match.groups() if part)] = size
    return {**found, TOTAL: sum(found.values())}


def _own_kb(pid: int) -> int:
    try:
        text = pathlib.Path(f'/proc/{pid}/smaps_rollup').read_text()
    except OSError:
        return 0  # it has just ended
    return sum(int(size) for size in re.findall(r'^Pss_(?:Anon|Shmem):\s+(\d+) kB', text,
                                                re.MULTILINE))


def growth_of(samples: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Give the slope of each process and of the total after the warm-up, with its interval."""
    begin = WARM_UP_SHARE * samples[-1]['time_s']
    settled = [entry for entry in samples if entry['time_s'] >= begin]
    growth = {}
    for name in settled[-1]['kb']:
        points = [(entry['time_s'] / 60.0, entry['kb'][name]) for entry in settled
                  if name in entry['kb']]
        if len(points) < 3:
            continue
        estimate = slope_estimate(*np.array(points).T)
        growth[name] = {'kb_per_minute': estimate.value, 'low': estimate.low,
                        'high': estimate.high, 'samples': len(points)}
    return growth


def rows_of(samples: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Summarize the size of each process."""
    return [row(f'{name} memory', [entry['kb'][name] / 1024.0 for entry in samples
                                   if name in entry['kb']], 'MiB')
            for name in samples[-1]['kb']]


def checks_of(growth: Mapping[str, Mapping[str, float]], rows: Sequence[Mapping[str, Any]],
              settings: Mapping[str, Any], balanced: bool) -> list[dict[str, Any]]:
    """Compare with what is asked for."""
    bound = settings['learner.max_policy_lag']
    lag = max(entry['policy_lag_max'] for entry in rows)
    dropped = max(entry['chunks_dropped'] for entry in rows)
    checks = [check('memory growth, lower end', growth[TOTAL]['low'],
                    '<= 0 kB/min: none that is certain', growth[TOTAL]['low'] <= 0.0),
              check('largest policy lag', lag, f'<= {bound}', lag <= bound),
              check('books balance', float(balanced), '1', balanced)]
    if settings['learner.pacing']:
        checks.append(check('chunks dropped by age', dropped, '0', dropped == 0))
    return checks

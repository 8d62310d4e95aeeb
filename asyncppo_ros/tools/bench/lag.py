"""
``asyncppo bench lag``: how close the policy lag stays to what it was set to.

The learner is slowed down so far that the actors are faster than it.  Then nothing but pacing
holds the lag, and it is wanted to be used: not above the target, and not much below.
"""

from collections.abc import Sequence
import csv
import json
import math
import pathlib
import shutil
import sys
import tempfile
from typing import Any

import numpy as np

from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.settings import build, to_dict
from asyncppo_ros.tools.arguments import Parser, split_settings
from asyncppo_ros.tools.bench.results import check, report, row, table, verdict
from asyncppo_ros.tools.bench.watched import WatchedRun, without_place

SETTINGS = {
    'task': 'cartpole_swingup', 'env_steps': 10 ** 9, 'num_actors': 2, 'actor.num_envs': 16,
    'actor.chunk_length': 32, 'learner.batch_size': 2048, 'learner.ppo.minibatch_size': 512,
    'learner.ppo.epochs': 2, 'learner.slowdown': 10.0, 'learner.log_chunks': True,
    'evaluation.every_seconds': 3600.0, 'evaluation.episodes': 1}


def main(arguments: list[str], stop: StopRequest) -> int:
    """Run one training per target and print the table or the JSON object."""
    parser = Parser(prog='asyncppo bench lag', description=__doc__, allow_abbrev=False)
    parser.add_argument('--targets', nargs='+', type=int, default=[0, 1, 2, 4, 8])
    parser.add_argument('--seconds', type=float, default=60.0, help='of each target, default 60')
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    own, given = split_settings(parser, arguments)
    if min(own.targets) < 0 or own.seconds <= 0.0:
        raise ConfigError(f'--targets {own.targets} --seconds {own.seconds:g}: lags are 0 or '
                          'more, the time is more than 0')
    outcomes: list[dict[str, Any]] = []
    settings: dict[str, Any] = {}
    for target in own.targets:
        settings = settings_of(target, given)
        outcome = measure(target, settings, own.seconds, stop)
        if stop():
            return 0
        outcomes.append(outcome)
        print(summary(outcome), file=sys.stderr)
    rows = [entry for outcome in outcomes for entry in rows_of(outcome)]
    checks = [entry for outcome in outcomes for entry in checks_of(outcome)]
    result = report({**settings, 'learner.target_lag': own.targets}, rows, checks=checks,
                    targets=outcomes, command=['asyncppo', 'bench', 'lag', *arguments])
    print(json.dumps(result, indent=1) if own.json else f'{table(rows)}\n\n{verdict(checks)}')
    return 0 if all(entry['passed'] for entry in checks) else 1


def settings_of(target: int, given: dict[str, Any]) -> dict[str, Any]:
    """Give all settings of the run with one target; the hard bound is well above it."""
    return to_dict(build(Config, {**SETTINGS, 'learner.max_policy_lag': max(8, 2 * target),
                                  **given, 'learner.target_lag': target}))


def measure(target: int, settings: dict[str, Any], seconds: float,
            stop: StopRequest) -> dict[str, Any]:
    """Train with one target and summarize the lag of every chunk after the start."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix='asyncppo-lag-'))
    settings = without_place(settings)
    watched = WatchedRun(folder / 'run', settings)
    try:
        watched.need_actors(settings['num_actors'], stop, seconds=120.0)
        watched.watch(seconds, stop)
        watched.end()
        return outcome_of(target, settings['learner.max_policy_lag'],
                          read_chunks(watched.run.folder / 'chunks.csv'), watched.rows())
    finally:
        watched.kill()
        shutil.rmtree(folder, ignore_errors=True)


def read_chunks(path: pathlib.Path) -> list[dict[str, float]]:
    """Read ``chunks.csv``: one entry for each consumed chunk."""
    with open(path, newline='') as file:
        return [{name: float(text) for name, text in line.items()}
                for line in csv.DictReader(file)]


def outcome_of(target: int, bound: int, chunks: Sequence[dict[str, float]],
               rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """
    Summarize one run, without its start, where the lag still grows to the target.

    Parameters
    ----------
    target, bound : int
        ``learner.target_lag`` and ``learner.max_policy_lag``.
    chunks : sequence of dict
        From `read_chunks`.
    rows : sequence of dict
        Of ``metrics.jsonl``.

    """
    first = 2 * (target + 2)
    lags = np.sort([chunk['lag_versions'] for chunk in chunks
                    if chunk['policy_version'] + chunk['lag_versions'] >= first])
    settled = [entry for entry in rows if entry['policy_version'] > first]
    if not len(lags) or not settled:
        raise ConfigError(f'--seconds: too short for target {target}: no update after version '
                          f'{first}')
    return {'target': target, 'bound': bound, 'chunks': len(lags), 'updates': len(settled),
            'lag_p95': float(lags[math.ceil(0.95 * len(lags)) - 1]),
            'lag_mean': float(lags.mean()), 'lag_max': float(lags[-1]),
            'dropped': max(entry['chunks_dropped'] for entry in rows),
            'actor_wait': float(np.mean([entry['actor_wait'] for entry in settled])),
            'learner_wait': float(np.mean([entry['learner_wait'] for entry in settled])),
            'env_steps_per_s': float(np.mean([entry['env_steps_per_s'] for entry in settled]))}


def rows_of(outcome: dict[str, Any]) -> list[dict[str, Any]]:
    """Give the rows of one target."""
    return [row(f'target {outcome["target"]} {key}', [outcome[key]], unit) for key, unit in
            (('lag_p95', 'versions'), ('lag_mean', 'versions'), ('lag_max', 'versions'),
             ('dropped', 'chunks'), ('actor_wait', 'fraction'),
             ('env_steps_per_s', 'env steps/s'))]


def checks_of(outcome: dict[str, Any]) -> list[dict[str, Any]]:
    """Compare one target with what is asked for."""
    target, name = outcome['target'], f'target {outcome["target"]}'
    return [
        check(f'{name} lag_p95', outcome['lag_p95'], f'<= {target}',
              outcome['lag_p95'] <= target),
        check(f'{name} lag_mean', outcome['lag_mean'], f'>= {target - 1}',
              outcome['lag_mean'] >= target - 1),
        check(f'{name} lag_max', outcome['lag_max'], f'<= {outcome["bound"]}',
              outcome['lag_max'] <= outcome['bound']),
        check(f'{name} dropped', outcome['dropped'], '0', outcome['dropped'] == 0),
        check(f'{name} actor_wait', outcome['actor_wait'], '> 0: the actors are faster',
              outcome['actor_wait'] > 0.0)]


def summary(outcome: dict[str, Any]) -> str:
    """Say the outcome of one target in one line."""
    return (f'target {outcome["target"]}: lag p95 {outcome["lag_p95"]:g}, mean '
            f'{outcome["lag_mean"]:.2f}, max {outcome["lag_max"]:g}, {outcome["dropped"]:.0f} '
            f'dropped, actors wait {outcome["actor_wait"]:.0%}, {outcome["updates"]} updates')

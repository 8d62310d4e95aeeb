"""
``asyncppo bench actors``: what more actors give when simulation takes time and no cores.

Each batched step of the task sleeps 10 ms, as a simulation on a host of its own would take time
away from here.  So the rate of N actors is N times that of one, unless the learner, the
transport, the permits or the policies hold it up.
"""

from collections.abc import Sequence
import json
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
from asyncppo_ros.tools.bench.sleeping import SLEEP_S
from asyncppo_ros.tools.bench.watched import WatchedRun, without_place

# With 16 actors a batch is one chunk of each; three more of each may be under way, so that no
# actor waits for a slower one.
SETTINGS = {
    'task': 'asyncppo_ros.tools.bench.sleeping:Sleeping', 'env_steps': 10 ** 9,
    'actor.num_envs': 16, 'actor.chunk_length': 32, 'learner.batch_size': 8192,
    'learner.ppo.epochs': 1, 'learner.ppo.minibatch_size': 2048, 'learner.target_lag': 3,
    'evaluation.every_seconds': 3600.0, 'evaluation.episodes': 1}
WARM_UP_S = 5.0
# Share of perfect scaling that is asked for.
SHARE = 15.0 / 16.0


def main(arguments: list[str], stop: StopRequest) -> int:
    """Train with each number of actors and print the table or the JSON object."""
    parser = Parser(prog='asyncppo bench actors', description=__doc__, allow_abbrev=False)
    parser.add_argument('--counts', nargs='+', type=int, default=[1, 16])
    parser.add_argument('--seconds', type=float, default=30.0, help='of each run, default 30')
    parser.add_argument('--rounds', type=int, default=1, help='over all counts, default 1')
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    own, given = split_settings(parser, arguments)
    if min(own.counts) < 1 or own.rounds < 1:
        raise ConfigError(f'--counts {own.counts} --rounds {own.rounds}: must be at least 1')
    settings = to_dict(build(Config, {**SETTINGS, **given}))
    outcomes: list[dict[str, Any]] = []
    for _ in range(own.rounds):
        for count in own.counts:
            outcome = measure(count, settings, own.seconds, stop)
            if stop():
                return 0
            outcomes.append(outcome)
            print(summary(outcome), file=sys.stderr)
    rows, checks = rows_of(outcomes, settings['actor.num_envs']), checks_of(outcomes)
    result = report(settings, rows, checks=checks, runs=outcomes,
                    command=['asyncppo', 'bench', 'actors', *arguments])
    print(json.dumps(result, indent=1) if own.json else f'{table(rows)}\n\n{verdict(checks)}')
    return 0 if all(entry['passed'] for entry in checks) else 1


def measure(count: int, settings: dict[str, Any], seconds: float,
            stop: StopRequest) -> dict[str, Any]:
    """Train with a number of actors; measure once all of them collect.  {} = stopped."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix='asyncppo-actors-'))
    settings = without_place(settings)
    watched = WatchedRun(folder / 'run', {**settings, 'num_actors': count})
    try:
        watched.need_actors(count, stop)
        watched.watch(WARM_UP_S, stop)
        begun = len(watched.seen)
        watched.watch(seconds, stop)
        rows = [seen.row for seen in watched.seen[begun:]]
        watched.end()
        # What was cut short is not looked at.
        return {} if stop() else outcome_of(count, rows)
    finally:
        watched.kill()
        shutil.rmtree(folder, ignore_errors=True)


def outcome_of(count: int, rows: Sequence[Any]) -> dict[str, Any]:
    """Give the rate between the first and the last of the rows, by the learner's clock."""
    if len(rows) < 2:
        raise ConfigError('--seconds: too short for two updates')
    seconds = rows[-1]['time_s'] - rows[0]['time_s']
    return {'actors': count, 'seconds': seconds,
            'env_steps_per_s': (rows[-1]['env_steps'] - rows[0]['env_steps']) / seconds,
            'updates_per_s': (len(rows) - 1) / seconds,
            **{key: float(np.mean([entry[key] for entry in rows]))
               for key in ('actor_wait', 'learner_wait', 'policy_lag_mean', 'policy_lag_max',
                           'sample_age_mean')}}


def rows_of(outcomes: Sequence[dict[str, Any]], num_envs: int) -> list[dict[str, Any]]:
    """Give a row for each number of actors; the ceiling is steps that do nothing but sleep."""
    counts = sorted({entry['actors'] for entry in outcomes})
    return [row(f'{count} actors', [entry['env_steps_per_s'] for entry in outcomes
                                    if entry['actors'] == count],
                'env steps/s', ceiling=count * num_envs / SLEEP_S) for count in counts]


def checks_of(outcomes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compare the rate of each number of actors with that of the smallest."""
    medians = {count: float(np.median([entry['env_steps_per_s'] for entry in outcomes
                                       if entry['actors'] == count]))
               for count in sorted({entry['actors'] for entry in outcomes})}
    (fewest, least), *others = medians.items()
    return [check(f'{count} actors over {fewest}', median / least,
                  f'>= {SHARE * count / fewest:g}', median / least >= SHARE * count / fewest)
            for count, median in others]


def summary(outcome: dict[str, Any]) -> str:
    """Say the outcome of one run in one line."""
    return (f'{outcome["actors"]} actors: {outcome["env_steps_per_s"]:,.0f} env steps/s, actors '
            f'wait {outcome["actor_wait"]:.1%}, learner waits {outcome["learner_wait"]:.0%}, '
            f'lag mean {outcome["policy_lag_mean"]:.2f}, {outcome["updates_per_s"]:.1f} '
            'updates/s')

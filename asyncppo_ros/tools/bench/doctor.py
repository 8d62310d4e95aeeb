"""
``asyncppo bench doctor``: what `asyncppo doctor` predicts for one more actor, and what comes true.

In each round the doctor measures the stages with one actor, as it always does, and predicts the
rates of one and of two.  Then the same settings are trained with one actor and with two, by
`asyncppo train`; what counts is transitions that reached an update, once all actors collect.  An
evaluator runs beside each training as the settings have it, which the doctor leaves out.

Nothing else should run on the machine.
"""

from collections.abc import Callable, Mapping, Sequence
import functools
import json
import sys
from typing import Any

from asyncppo_ros.config import Config
from asyncppo_ros.cores import core_limit
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.run import resolve
from asyncppo_ros.settings import build, to_dict
from asyncppo_ros.tools.arguments import Parser, refuse_settings, split_settings
from asyncppo_ros.tools.auto import settled
from asyncppo_ros.tools.bench import actors
from asyncppo_ros.tools.bench.results import check, paired_row, report, row, table, verdict
from asyncppo_ros.tools.bench.rounds import interleaved
from asyncppo_ros.tools.doctor import predicted
from asyncppo_ros.tools.stage_process import measure, Stopped

TASKS = ['HalfCheetah-v5', 'reach']
# The prediction of two actors may be wrong by so much.
MARGIN = 0.15
COUNTS = (1, 2)


def main(arguments: list[str], stop: StopRequest) -> int:
    """Predict and train in turn, and print the table or the JSON object."""
    parser = Parser(prog='asyncppo bench doctor', description=__doc__, allow_abbrev=False)
    parser.add_argument('--tasks', nargs='+', default=TASKS,
                        help=f'with their settings, default {" ".join(TASKS)}')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--seconds', type=float, default=15.0,
                        help='of each training, default 15')
    parser.add_argument('--doctor-rounds', type=int, default=5, metavar='ROUNDS',
                        help="of the doctor's own measurements, default 5, as it has by itself")
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    own, given = split_settings(parser, arguments)
    _check(own, given)
    configs = {task: configured(task, given, stop) for task in own.tasks}
    measures: dict[str, Callable[[], dict[str, float]]] = {}
    for task, config in configs.items():
        measures[f'{task}: predicted'] = functools.partial(
            predict, config, own.doctor_rounds, stop)
        for count in COUNTS:
            measures[_trained(task, count)] = functools.partial(
                train, config, count, own.seconds, stop)
    found = interleaved(measures, own.rounds, stop, warm_up=False)
    if stop():
        return 0
    rows, checks = summary(found, own.tasks)
    result = report({task: to_dict(config) for task, config in configs.items()}, rows,
                    checks=checks, rounds=found,
                    command=['asyncppo', 'bench', 'doctor', *arguments])
    print(json.dumps(result, indent=1) if own.json else f'{table(rows)}\n\n{verdict(checks)}')
    return 0 if all(entry['passed'] for entry in checks) else 1


def configured(task: str, given: Mapping[str, Any], stop: StopRequest) -> Config:
    """Give the settings of a task with one actor, and with room for the chunks of two."""
    config = settled(resolve({'task': task, **given, 'num_actors': 1, 'env_steps': 10 ** 12}),
                     stop=stop, tell=functools.partial(print, file=sys.stderr))
    chunks = COUNTS[-1] * config.actor.num_envs * config.actor.chunk_length
    if config.learner.batch_size < chunks:
        raise ConfigError(f'learner.batch_size = {config.learner.batch_size}: must be at least '
                          f'{chunks}, a chunk of each of {COUNTS[-1]} actors of {task}')
    return config


def predict(config: Config, rounds: int, stop: StopRequest) -> dict[str, float]:
    """Give the rates of one actor and of two as the doctor predicts them; {} = stopped."""
    try:
        measured = measure(config, [config.actor.num_envs], [config.learner.batch_size], rounds,
                           1.0, stop=stop)
    except Stopped:
        return {}
    predictions = predicted(config, measured, core_limit())
    return {str(count): entry.bounds.rate for count, entry in zip(COUNTS, predictions)}


def train(config: Config, count: int, seconds: float, stop: StopRequest) -> dict[str, float]:
    """Give what a training with so many actors reaches; {} = stopped."""
    found = actors.measure(count, to_dict(build(Config, {**to_dict(config), 'num_actors': count})),
                           seconds, stop)
    if found:
        print(actors.summary(found), file=sys.stderr)
    return found


def summary(found: Mapping[str, Sequence[Mapping[str, float]]],
            tasks: Sequence[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """
    Give the rows, predictions beside what was measured in the same round, and the checks.

    Parameters
    ----------
    found : mapping from str to sequence of dict
        What each measurement gave in each round.
    tasks : sequence of str

    """
    rows, checks = [], []
    for task in tasks:
        rates = {count: [entry['env_steps_per_s'] for entry in found[_trained(task, count)]]
                 for count in COUNTS}
        for count in COUNTS:
            foreseen = [entry[str(count)] for entry in found[f'{task}: predicted']]
            rows += [row(_trained(task, count), rates[count], 'env steps/s'),
                     paired_row(f'{task}: predicted for {count}', foreseen, rates[count],
                                'env steps/s')]
        wrong = rows[-1]['ratio']
        checks.append(check(f'{task}: predicted over measured, {COUNTS[-1]} actors', wrong,
                            f'{1.0 - MARGIN:g} to {1.0 + MARGIN:g}', abs(wrong - 1.0) <= MARGIN))
    return rows, checks


def _check(own: Any, given: Mapping[str, Any]) -> None:
    if own.rounds < 1 or own.doctor_rounds < 1 or not own.seconds > 0.0:
        raise ConfigError(f'--rounds {own.rounds} --doctor-rounds {own.doctor_rounds} --seconds '
                          f'{own.seconds:g}: at least 1 round each, and more than 0 s')
    refuse_settings(given, ('task', 'num_actors', 'env_steps'), '--tasks and --seconds')


def _trained(task: str, count: int) -> str:
    return f'{task}: {count} actor{"s"[:count > 1]}'

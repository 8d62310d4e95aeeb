"""``asyncppo eval RUN_OR_ARTEFACT``: deterministic episodes with fixed seeds."""

import argparse
import json
import pathlib
from typing import Any

from asyncppo_ros.acting.evaluation import evaluate, Interrupted
from asyncppo_ros.config import Config, EvaluationConfig, RandomizationConfig
from asyncppo_ros.errors import ArtefactError, ConfigError
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.robot.artefact import Artefact
from asyncppo_ros.robot.numpy_policy import NumpyPolicy
from asyncppo_ros.robot.signing import signing_key
from asyncppo_ros.simulation.registry import make
from asyncppo_ros.tools.arguments import Parser, split_settings
from asyncppo_ros.tools.figures import check_picture
from asyncppo_ros.tools.policies import open_artefact, policy_file, POLICY_HELP

# Environments of one go: more episodes are played in several goes.
MOST_ENVS = 128


def main(arguments: list[str], stop: StopRequest) -> int:
    """Evaluate and print the score."""
    parser = Parser(prog='asyncppo eval', description=__doc__)
    parser.add_argument('policy', metavar='RUN_OR_ARTEFACT', help=POLICY_HELP)
    parser.add_argument('--episodes', type=int, default=100, help='default 100')
    parser.add_argument('--seed', type=int, default=EvaluationConfig().seed,
                        help='of the episodes; equal seeds give equal episodes')
    parser.add_argument('--keys', default='', metavar='DIR',
                        help='accept only a policy that was signed with the keys in DIR')
    parser.add_argument('--randomized', action='store_true',
                        help='with the randomization that the policy was trained with')
    parser.add_argument('--ros', action='store_true',
                        help='through ROS 2 topics: a policy node in command of a simulated robot '
                        'in lockstep; settings such as --sim_robot.mass 1.15 are then allowed')
    parser.add_argument('--realtime', action='store_true',
                        help='with --ros: in real time instead of lockstep')
    parser.add_argument('--picture', default='', metavar='FILE',
                        help='with --ros: draw every episode through topics over the same one in '
                        'process into this PNG file')
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    given: dict[str, Any] = {}
    if '--ros' in arguments:
        own, given = split_settings(parser, arguments)
    else:
        own = parser.parse_args(arguments)
    if own.episodes < 1:
        raise ConfigError(f'--episodes {own.episodes}: must be at least 1')
    if own.randomized and own.ros:
        raise ConfigError('--randomized: not with --ros; say how the robot differs, for example '
                          '--sim_robot.mass 1.15')
    if not own.ros:
        for name in ('realtime', 'picture'):
            if getattr(own, name):
                raise ConfigError(f'--{name}: only with --ros')
    if own.picture:
        check_picture('--picture', own.picture)
    artefact = open_artefact(own.policy, signing_key(own.keys))
    if own.ros:
        return _through_topics(artefact, own, given, stop)
    try:
        score = score_artefact(artefact, own.episodes, own.seed, stop, own.randomized)
    except Interrupted:
        return 0
    print(json.dumps(score) if own.json else score_text(score))
    return 0


def _through_topics(artefact: Artefact, own: argparse.Namespace, given: dict[str, Any],
                    stop: StopRequest) -> int:
    from asyncppo_ros.tools import closed_loop

    if own.keys:
        given = {**given, 'transport.keys': own.keys}
    config = closed_loop.config_of(artefact, str(policy_file(own.policy)), own.seed, own.realtime,
                                   given)
    try:
        result = closed_loop.evaluate(artefact, config, own.episodes, stop)
    except Interrupted:
        return 0
    if own.picture:
        from asyncppo_ros.tools.closed_loop_picture import draw
        pathlib.Path(own.picture).write_bytes(draw(result))
    print(json.dumps(closed_loop.report_of(result, config)) if own.json else closed_loop.text_of(
        result, [score_text(result[name]) for name in ('ros', 'in_process')]))
    return 0


def score_artefact(artefact: Artefact, episodes: int, seed: int = Config().evaluation.seed,
                   stop: StopRequest | None = None,
                   randomized: bool = False) -> dict[str, Any]:
    """
    Play deterministic episodes of the artefact's own task.

    Parameters
    ----------
    artefact : Artefact
    episodes : int
    seed : int
    stop : StopRequest, optional
    randomized : bool
        With the randomization that the policy was trained with; else the plain model.

    Returns
    -------
    dict
        ``task``, ``generation``, ``policy_version``, ``env_steps``, ``episodes``,
        ``return_mean``, ``return_std``, ``length_mean``, ``success`` (None where the task has
        none), ``measures`` (see `evaluate`).

    Raises
    ------
    TaskError
        The task is not to be found here.
    ArtefactError
        The task has changed since the policy was trained, or it was not randomized.

    """
    card = artefact.card
    policy = NumpyPolicy(artefact)
    parts: list[dict[str, Any]] = []
    randomization = _randomization(card['task']) if randomized else None
    left = episodes
    while left > 0:
        count = min(left, MOST_ENVS)
        environment = make(card['task']['task'], count, seed + len(parts),
                           randomization=randomization)
        _check_same_task(card['task'], json.loads(json.dumps(environment.describe())))
        parts.append(evaluate(policy, environment, stop or (lambda: False)))
        environment.close()
        left -= count
    return {'task': card['task']['task'], 'generation': card['generation'],
            'policy_version': card['policy_version'], 'env_steps': card['env_steps'],
            **_pooled(parts)}


def score_text(score: dict[str, Any]) -> str:
    """Say the score in one line."""
    success = '' if score['success'] is None else f', success {score["success"]:.1%}'
    success += ''.join(f', {name.replace("_", " ")} {measure["mean"]:.3f} {measure["unit"]}'
                       for name, measure in score['measures'].items())
    return (f'{score["task"]}, policy version {score["policy_version"]} '
            f'({score["env_steps"]:,} env steps): return {score["return_mean"]:.2f} ± '
            f'{score["return_std"]:.2f}, length {score["length_mean"]:.1f}{success} over '
            f'{score["episodes"]} deterministic episodes')


def _check_same_task(trained: dict[str, Any], here: dict[str, Any]) -> None:
    for key in ('observation', 'action', 'control_dt'):
        if trained.get(key) != here.get(key):
            raise ArtefactError(f'task {here["task"]} has changed since this policy was trained: '
                                f'its {key} entries differ')


def _randomization(task: dict[str, Any]) -> RandomizationConfig:
    if not task.get('randomization'):
        raise ArtefactError(f'--randomized: this policy of {task["task"]} was trained without '
                            'randomization')
    return RandomizationConfig(**task['randomization'])


def _pooled(parts: list[dict[str, Any]]) -> dict[str, Any]:
    episodes = sum(part['episodes'] for part in parts)

    def mean(values: list[float]) -> float:
        return sum(value * part['episodes'] for value, part in zip(values, parts)) / episodes

    return_mean = mean([part['return_mean'] for part in parts])
    square = mean([part['return_std'] ** 2 + part['return_mean'] ** 2 for part in parts])
    successes = [part['success'] for part in parts]
    lengths = [part['episodes'] * part['length_mean'] for part in parts]
    measures = {name: {'mean': sum(length * part['measures'][name]['mean'] for length, part
                                   in zip(lengths, parts)) / sum(lengths),
                       'unit': measure['unit']}
                for name, measure in parts[0]['measures'].items()}
    return {'episodes': episodes, 'return_mean': return_mean,
            'return_std': max(0.0, square - return_mean ** 2) ** 0.5,
            'length_mean': mean([part['length_mean'] for part in parts]),
            'success': None if None in successes else mean(successes), 'measures': measures}

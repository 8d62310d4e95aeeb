"""``asyncppo eval POLICY --ros``: the policy node and a simulated robot, through ROS 2 topics."""

from collections.abc import Sequence
import os
import pathlib
import sys
import tempfile
import time
from typing import Any

import numpy as np

from asyncppo_ros.acting.evaluation import Interrupted, play
from asyncppo_ros.chunk import NO_SUCCESS
from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.robot.artefact import Artefact
from asyncppo_ros.robot.numpy_policy import NumpyPolicy
from asyncppo_ros.run import resolve
from asyncppo_ros.settings import to_dict
from asyncppo_ros.simulation.registry import make
from asyncppo_ros.tools.bench.results import report
from asyncppo_ros.tools.bench.uncertainty import (
    Estimate,
    paired_difference,
    paired_share_difference,
)

# What an evaluation asks of the nodes unless the user says otherwise: nothing that is between
# policy and robot in the first moments, and no limits that a busy machine would break.
DEFAULTS = {'deploy.ramp_s': 0.0, 'deploy.frozen_s': 0.0, 'deploy.start_tolerance': 100.0,
            'deploy.command_timeout_s': 0.0, 'deploy.clock_tolerance_s': 60.0,
            'deploy.max_deadline_misses': 1000, 'deploy.state_timeout_s': 10.0}
REALTIME = {'deploy.state_timeout_s': 0.5}
# Settings that `--ros` itself decides.
DECIDED = ('task', 'deploy.policy', 'deploy.autostart', 'sim_robot.ask', 'sim_robot.lockstep',
           'sim_robot.seed')
ROOMS = ('robot.', 'deploy.', 'sim_robot.')
PROGRESS_S = 10.0


def config_of(artefact: Artefact, policy_file: str, seed: int, realtime: bool,
              given: dict[str, Any]) -> Config:
    """
    Bring together the settings of both nodes.

    Raises
    ------
    ConfigError
        A setting is none of a robot, or one that is decided here.

    """
    for name in given:
        if name in DECIDED or not name.startswith((*ROOMS, 'transport.keys')):
            raise ConfigError(f'--{name}: not with --ros; what can be set are '
                              f'{", ".join(room + "*" for room in ROOMS)} but '
                              f'{", ".join(DECIDED)}')
    return resolve({
        **DEFAULTS, **(REALTIME if realtime else {}), **given,
        'task': artefact.card['task']['task'],
        'deploy.policy': str(pathlib.Path(policy_file).absolute()), 'sim_robot.ask': True,
        'sim_robot.lockstep': not realtime, 'sim_robot.seed': seed})


def evaluate(artefact: Artefact, config: Config, episodes: int, stop: StopRequest,
             progress: bool = True) -> dict[str, Any]:
    """
    Play episodes through topics, and the same ones in this process, on the model of training.

    Parameters
    ----------
    artefact : Artefact
    config : Config
        See `config_of`.
    episodes : int
    stop : StopRequest
    progress : bool
        Tell on stderr how it goes.

    Returns
    -------
    dict
        ``mode``; ``ros`` and ``in_process``: scores, as of `score_artefact`; ``difference``: of
        return, success and each measure of the same episodes a triple of the mean and the ends
        of its 95 % interval; ``tripped``: how many episodes the policy node stopped;
        ``rows``: both results of each episode; ``seconds``.

    Raises
    ------
    Interrupted
        The end was asked for.
    UserError
        As `ClosedLoop.episodes`.

    """
    # Only here: rclpy is needed for nothing else of the verb.
    from asyncppo_ros.nodes.closed_loop import ClosedLoop, Stopped
    begun, told = time.monotonic(), time.monotonic()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix='asyncppo_eval_') as folder:
        try:
            with ClosedLoop(config, pathlib.Path(folder), f'eval_{os.getpid()}', stop) as loop:
                for episode in loop.episodes(episodes):
                    found.append(episode)
                    if progress and time.monotonic() > told + PROGRESS_S:
                        told = time.monotonic()
                        print(_progress(found, episodes, told - begun), file=sys.stderr)
        except Stopped:
            raise Interrupted from None
    seconds = time.monotonic() - begun
    expected = in_process(artefact, [row['index'] for row in found], config.sim_robot.seed, stop)
    return {'mode': 'lockstep' if config.sim_robot.lockstep else 'real time',
            'ros': _score(artefact, found), 'in_process': _score(artefact, expected),
            'difference': differences(found, expected),
            'tripped': sum(bool(row['tripped']) for row in found), 'seconds': seconds,
            'rows': [{'ros': one, 'in_process': other} for one, other in zip(found, expected)]}


def in_process(artefact: Artefact, indices: Sequence[int], seed: int,
               stop: StopRequest) -> list[dict[str, Any]]:
    """Play the episodes of these numbers in this process; give what ``~/episode`` would say."""
    environment = make(artefact.card['task']['task'], max(indices) + 1, seed)
    units = dict(getattr(environment, 'measures', {}))
    sums = {name: np.zeros(environment.num_envs) for name in units}

    def measure(playing: np.ndarray) -> None:
        for name, values in (getattr(environment, 'measured', None) or {}).items():
            sums[name] += np.where(playing, values, 0.0)
    if units:
        environment.measured = {}  # type: ignore[attr-defined]
    rows = play(_OneByOne(artefact), environment, stop, measure)
    environment.close()
    return [{'index': index, 'return': float(rows[index, 0]), 'length': int(rows[index, 1]),
             'success': None if rows[index, 2] == NO_SUCCESS else bool(rows[index, 2]),
             'measures': {name: float(values[index] / rows[index, 1])
                          for name, values in sums.items()}} for index in indices]


class _OneByOne(NumpyPolicy):
    """
    Acts for one robot at a time, as on a robot.

    A product of many rows is rounded otherwise than that of one, and legs on the ground make
    another episode of it.
    """

    def act(self, observation: np.ndarray) -> np.ndarray:
        return np.concatenate([super(_OneByOne, self).act(row[None]) for row in observation])


def differences(found: Sequence[dict[str, Any]],
                expected: Sequence[dict[str, Any]]) -> dict[str, Estimate]:
    """Give by how much episodes through topics differ from the same ones in process."""
    result = {'return': paired_difference([row['return'] for row in found],
                                          [row['return'] for row in expected])}
    if found[0]['success'] is not None:
        result['success'] = paired_share_difference([row['success'] for row in found],
                                                    [row['success'] for row in expected])
    for name in found[0]['measures']:
        result[name] = paired_difference([row['measures'][name] for row in found],
                                         [row['measures'][name] for row in expected])
    return result


def report_of(result: dict[str, Any], config: Config) -> dict[str, Any]:
    """Give what ``--json`` prints: the result, and on what and with what it was made."""
    # Where the policy lay says nothing to others.
    settings = {name: value for name, value in to_dict(config).items()
                if name.startswith(ROOMS) and name != 'deploy.policy'}
    return report(settings, **result)


def text_of(result: dict[str, Any], score_lines: Sequence[str]) -> str:
    """Say the result in a few lines; `score_lines` are those of both scores."""
    parts = []
    for name, estimate in result['difference'].items():
        if name == 'success':
            value, low, high = (100.0 * share for share in estimate)
            parts.append(f'success {value:+.1f} points [{low:+.1f}, {high:+.1f}]')
        else:
            value, low, high = estimate
            parts.append(f'{name.replace("_", " ")} {value:+.3f} [{low:+.3f}, {high:+.3f}]')
    return '\n'.join([
        f'through ROS topics, {result["mode"]}: {score_lines[0]}',
        f'in process: {score_lines[1]}',
        f'difference over the same {len(result["rows"])} episodes, with its 95 % interval: '
        + ', '.join(parts),
        f'{result["tripped"]} episodes were stopped by the policy node; {result["seconds"]:.0f} s '
        'in all'])


def _score(artefact: Artefact, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    card = artefact.card
    returns, lengths = (np.array([row[name] for row in rows], np.float64)
                        for name in ('return', 'length'))
    successes = [row['success'] for row in rows]
    units = getattr(make(card['task']['task'], 1, 0), 'measures', {})
    return {'task': card['task']['task'], 'generation': card['generation'],
            'policy_version': card['policy_version'], 'env_steps': card['env_steps'],
            'episodes': len(rows), 'return_mean': float(returns.mean()),
            'return_std': float(returns.std()), 'length_mean': float(lengths.mean()),
            'success': None if None in successes else float(np.mean(successes)),
            'measures': {name: {'mean': float(np.average(
                [row['measures'][name] for row in rows], weights=lengths)), 'unit': units[name]}
                for name in rows[0]['measures']}}


def _progress(found: Sequence[dict[str, Any]], episodes: int, seconds: float) -> str:
    successes = [row['success'] for row in found if row['success'] is not None]
    share = f', success {np.mean(successes):.1%}' if successes else ''
    return (f'{len(found)} of {episodes} episodes{share}, {len(found) / seconds:.2f} episodes '
            'per second')

"""The score that counts: deterministic episodes with fixed seeds."""

from collections.abc import Callable
from typing import Any

import numpy as np

from asyncppo_ros.chunk import NO_SUCCESS
from asyncppo_ros.robot.numpy_policy import NumpyPolicy
from asyncppo_ros.simulation.environment import Environment


class Interrupted(Exception):
    """The evaluation was asked to stop before its end."""


def play(policy: NumpyPolicy, environment: Environment,
         should_stop: Callable[[], bool] = lambda: False,
         after_step: Callable[[np.ndarray], None] = lambda playing: None) -> np.ndarray:
    """
    Play one whole episode in every environment with the mode of the policy.

    Each environment counts once, with its first episode, so that short episodes are not
    counted more often than long ones.

    Parameters
    ----------
    policy : NumpyPolicy
    environment : Environment
        N environments = N episodes; its seed decides them.
    should_stop : callable, optional
        Asked before every control step.
    after_step : callable, optional
        Told after every control step which environments play their first episode, bool [N];
        those whose episode ended with the step are among them.

    Returns
    -------
    float32 [N, 3]
        Return, length [control steps] and success (1, 0, -1 = the task has none).

    Raises
    ------
    Interrupted
        `should_stop` said so.

    """
    count = environment.num_envs
    observation = np.empty((count, environment.observation_size), np.float32)
    environment.reset(observation)
    rows = np.full((count, 3), np.nan, np.float32)
    while np.isnan(rows[:, 0]).any():
        if should_stop():
            raise Interrupted
        playing = np.isnan(rows[:, 0])
        result = environment.step(policy.act(observation), observation)
        after_step(playing)
        ended = np.flatnonzero(result.terminated | result.truncated)
        for index, episode in zip(ended, result.episodes):
            if np.isnan(rows[index, 0]):
                rows[index] = episode
    return rows


def evaluate(policy: NumpyPolicy, environment: Environment,
             should_stop: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    """
    Score a policy by one whole episode in every environment, as `play` has them.

    Returns
    -------
    dict
        ``episodes``, ``return_mean``, ``return_std``, ``length_mean`` [control steps],
        ``success`` in [0, 1] or None where the task has none, and ``measures``: what the task
        measures beside it, by name a dict of ``mean`` over all steps and ``unit``.

    Raises
    ------
    Interrupted
        `should_stop` said so.

    """
    measures = _Measures(environment)
    rows = play(policy, environment, should_stop, measures.add)
    success = rows[:, 2]
    return {
        'episodes': len(rows),
        'return_mean': float(rows[:, 0].mean(dtype=np.float64)),
        'return_std': float(rows[:, 0].std(dtype=np.float64)),
        'length_mean': float(rows[:, 1].mean(dtype=np.float64)),
        'success': None if (success == NO_SUCCESS).all() else float(success.mean()),
        'measures': measures.means()}


class _Measures:
    """The mean of what a task measures, over the steps of the episodes that count."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._units: dict[str, str] = getattr(environment, 'measures', {})
        self._sums = dict.fromkeys(self._units, 0.0)
        self._steps = 0
        if self._units:
            self._environment.measured = {}

    def add(self, playing: np.ndarray) -> None:
        if not self._units:
            return
        self._steps += int(playing.sum())
        for name, values in self._environment.measured.items():
            self._sums[name] += float(values[playing].sum())

    def means(self) -> dict[str, dict[str, Any]]:
        return {name: {'mean': self._sums[name] / self._steps, 'unit': unit}
                for name, unit in self._units.items()}

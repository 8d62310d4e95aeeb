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
         should_stop: Callable[[], bool] = lambda: False) -> np.ndarray:
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
        result = environment.step(policy.act(observation), observation)
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
        ``episodes``, ``return_mean``, ``return_std``, ``length_mean`` [control steps] and
        ``success`` in [0, 1] or None where the task has none.

    Raises
    ------
    Interrupted
        `should_stop` said so.

    """
    rows = play(policy, environment, should_stop)
    success = rows[:, 2]
    return {
        'episodes': len(rows),
        'return_mean': float(rows[:, 0].mean(dtype=np.float64)),
        'return_std': float(rows[:, 0].std(dtype=np.float64)),
        'length_mean': float(rows[:, 1].mean(dtype=np.float64)),
        'success': None if (success == NO_SUCCESS).all() else float(success.mean())}

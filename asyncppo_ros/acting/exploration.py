"""Exploration: how an actor draws actions from what the policy's network says."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from asyncppo_ros.robot.actions import choices_of
from asyncppo_ros.robot.numpy_policy import (
    categorical_log_prob,
    gaussian_log_prob,
    NumpyPolicy,
)

# Added to noise before its logarithm is taken: the smallest normal float32.
TINY = np.float32(np.finfo(np.float32).tiny)


class Exploration(Protocol):
    """
    Draws the actions of chunks of up to T steps of N environments.

    The noise of a whole chunk is drawn at once, and log-probabilities are made at its end: numpy
    works on large arrays much faster than on small ones.
    """

    def begin(self, policy: NumpyPolicy, rng: np.random.Generator) -> None:
        """Draw the noise of a chunk, all of which is collected with one policy."""

    def act(self, policy: NumpyPolicy, observation: np.ndarray, step: int,
            parameters: np.ndarray, action: np.ndarray, command: np.ndarray) -> None:
        """
        Draw the actions of one step.

        Parameters
        ----------
        policy : NumpyPolicy
        observation : float32 [N, O]
            Raw.
        step : int
            Within the chunk.
        parameters : float32 [N, P]
            Receives those parameters of the distribution that depend on the observation.
        action : float32 [N, A]
            Receives the actions as they were sampled.
        command : float32 [N, A]
            Receives what the environment is given.

        """

    def score(self, policy: NumpyPolicy, parameters: np.ndarray,
              action: np.ndarray) -> np.ndarray:
        """Complete the parameters [T', N, P] of a chunk; give log π(action), [T', N]."""


class GaussianExploration:
    """u = μ + σ · noise, and the environment is given tanh(u)."""

    def __init__(self, steps: int, num_envs: int, action_size: int) -> None:
        self._noise = np.empty((steps, num_envs, action_size), np.float32)

    def begin(self, policy: NumpyPolicy, rng: np.random.Generator) -> None:
        """Draw σ times standard normal noise."""
        rng.standard_normal(dtype=np.float32, out=self._noise)
        np.multiply(self._noise, policy.std, out=self._noise)

    def act(self, policy: NumpyPolicy, observation: np.ndarray, step: int,
            parameters: np.ndarray, action: np.ndarray, command: np.ndarray) -> None:
        """Draw u; see `Exploration.act`."""
        policy.head(observation, out=action)
        parameters[:, :policy.action_size] = action
        np.add(action, self._noise[step], out=action)
        np.tanh(action, out=command)

    def score(self, policy: NumpyPolicy, parameters: np.ndarray,
              action: np.ndarray) -> np.ndarray:
        """Add log σ; give log N(u; μ, σ)."""
        parameters[..., policy.action_size:] = policy.log_std
        noise = (action - parameters[..., :policy.action_size]) / policy.std
        return gaussian_log_prob(noise, policy.log_std)


class CategoricalExploration:
    """The index of the largest of logits + Gumbel noise has probability softmax(logits)."""

    def __init__(self, steps: int, num_envs: int, choices: int) -> None:
        self._noise = np.empty((steps, num_envs, choices), np.float32)
        self._logits = np.empty((num_envs, choices), np.float32)

    def begin(self, policy: NumpyPolicy, rng: np.random.Generator) -> None:
        """Draw Gumbel noise: -log of an exponential variable."""
        rng.standard_exponential(dtype=np.float32, out=self._noise)
        np.add(self._noise, TINY, out=self._noise)
        np.log(self._noise, out=self._noise)
        np.negative(self._noise, out=self._noise)

    def act(self, policy: NumpyPolicy, observation: np.ndarray, step: int,
            parameters: np.ndarray, action: np.ndarray, command: np.ndarray) -> None:
        """Draw an index; see `Exploration.act`."""
        policy.head(observation, out=self._logits)
        parameters[:] = self._logits
        action[:, 0] = np.add(self._logits, self._noise[step], out=self._logits).argmax(axis=1)
        command[:] = action

    def score(self, policy: NumpyPolicy, parameters: np.ndarray,
              action: np.ndarray) -> np.ndarray:
        """Give log softmax(logits) of the index."""
        return categorical_log_prob(parameters, action)


def exploration_for(action: Mapping[str, Any], steps: int, num_envs: int,
                    action_size: int) -> Exploration:
    """Give the exploration for an action as `Environment.describe` describes it."""
    choices = choices_of(action)
    return (CategoricalExploration(steps, num_envs, choices) if choices
            else GaussianExploration(steps, num_envs, action_size))

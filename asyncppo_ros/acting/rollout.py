"""Rollout: a snapshot acts in an environment, and what happens becomes a Chunk."""

from collections.abc import Callable
import hashlib
import json
import time
from typing import NamedTuple

import numpy as np

from asyncppo_ros.chunk import Chunk, Layout
from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.robot.numpy_policy import gaussian_log_prob, NumpyPolicy
from asyncppo_ros.simulation.environment import Environment
from asyncppo_ros.transport.payload import ChunkBuffer


class Stamp(NamedTuple):
    """Who collects: what a chunk says of its sender."""

    run_id: int
    actor_id: int
    incarnation: int
    sequence: int


def layout_of(environment: Environment) -> Layout:
    """Give what actor and learner must agree on."""
    terms = environment.describe()['observation']
    digest = hashlib.sha256(json.dumps(terms, sort_keys=True).encode()).hexdigest()[:12]
    names = ','.join(str(term.get('name', '?')) for term in terms)
    return Layout(environment.task, environment.observation_size, environment.action_size,
                  2 * environment.action_size, f'{names}#{digest}')


def environment_seed(seed: int, actor_id: int, incarnation: int) -> int:
    """Give the seed of one actor's environments: another for each start of each actor."""
    sequence = np.random.SeedSequence((seed, actor_id, incarnation))
    return int(sequence.generate_state(1, np.uint32)[0]) >> 1


class Rollout:
    """
    Collects chunks; episodes run on from one chunk to the next.

    Parameters
    ----------
    environment : Environment
        Resets itself.
    chunk_length : int
        T, the most control steps of a chunk.
    seed : int or sequence of int
        Of the exploration noise.

    """

    def __init__(self, environment: Environment, chunk_length: int,
                 seed: int | tuple[int, ...]) -> None:
        self.environment = environment
        self.chunk_length = chunk_length
        self.layout = layout_of(environment)
        self._rng = np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed)))
        shape = (environment.num_envs, environment.action_size)
        self._mean = np.empty(shape, np.float32)
        self._action = np.empty(shape, np.float32)
        self._noise = np.empty((chunk_length, *shape), np.float32)
        self._observation = np.empty(
            (environment.num_envs, environment.observation_size), np.float32)
        environment.reset(self._observation)
        self._policy: NumpyPolicy | None = None
        self._snapshot: PolicySnapshot | None = None

    def collect(self, snapshot: PolicySnapshot, stamp: Stamp,
                cut: Callable[[], bool] = lambda: False,
                stepped: Callable[[int], None] = lambda transitions: None,
                memory: np.ndarray | None = None) -> Chunk:
        """
        Act for up to T control steps under one policy.

        Parameters
        ----------
        snapshot : PolicySnapshot
            Acts in every step of the chunk.
        stamp : Stamp
        cut : callable, optional
            Asked after each step: True ends the chunk there.
        stepped : callable, optional
            Told the number of transitions after each control step.
        memory : uint8 array, optional
            To write the chunk into, from `ChunkSender.buffer`.

        Returns
        -------
        Chunk
            T' ≤ T steps.

        """
        policy = self._policy_of(snapshot)
        begun = time.monotonic_ns()
        num_envs = self.environment.num_envs
        buffer = ChunkBuffer(self.layout, self.chunk_length, num_envs, memory)
        buffer.observation[0] = self._observation
        self._rng.standard_normal(dtype=np.float32, out=self._noise)
        ends = _Ends()
        steps = 0
        while steps < self.chunk_length:
            self._act(policy, buffer, steps)
            result = self.environment.step(self._action, buffer.observation[steps + 1])
            buffer.reward[steps] = result.reward
            buffer.terminated[steps] = result.terminated
            buffer.truncated[steps] = result.truncated
            ends.add(steps, result.final_index, result.final_observation, result.episodes)
            steps += 1
            stepped(num_envs)
            if cut():
                break
        self._observation[:] = buffer.observation[steps]
        self._score(policy, buffer, steps)
        integers = {**stamp._asdict(), **snapshot.identity._asdict(),
                    'gradient_steps': snapshot.gradient_steps,
                    'collecting_ns': time.monotonic_ns() - begun, 'waiting_ns': 0}
        return buffer.finish(integers, ends.final_observation(self.layout.observation_size),
                             ends.final_index(), ends.episodes(), steps)

    def _act(self, policy: NumpyPolicy, buffer: ChunkBuffer, step: int) -> None:
        action = buffer.action[step]
        policy.mean(buffer.observation[step], out=self._mean)
        buffer.behaviour_parameters[step, :, :policy.action_size] = self._mean
        np.multiply(self._noise[step], policy.std, out=action)
        np.add(action, self._mean, out=action)
        np.tanh(action, out=self._action)

    def _score(self, policy: NumpyPolicy, buffer: ChunkBuffer, steps: int) -> None:
        parameters = buffer.behaviour_parameters[:steps]
        parameters[..., policy.action_size:] = policy.log_std
        noise = (buffer.action[:steps] - parameters[..., :policy.action_size]) / policy.std
        buffer.behaviour_log_prob[:steps] = gaussian_log_prob(noise, policy.log_std)

    def _policy_of(self, snapshot: PolicySnapshot) -> NumpyPolicy:
        if self._policy is None or snapshot is not self._snapshot:
            self._policy, self._snapshot = NumpyPolicy(snapshot.artefact), snapshot
        return self._policy


class _Ends:
    """Truncated steps and ended episodes of one chunk, gathered step by step."""

    def __init__(self) -> None:
        self._index: list[np.ndarray] = []
        self._observation: list[np.ndarray] = []
        self._episodes: list[np.ndarray] = []

    def add(self, step: int, index: np.ndarray, observation: np.ndarray,
            episodes: np.ndarray) -> None:
        if len(index):
            self._index.append(np.stack((np.full(len(index), step), index), axis=1))
            self._observation.append(observation.copy())
        if len(episodes):
            self._episodes.append(episodes.copy())

    def final_index(self) -> np.ndarray:
        return np.concatenate(self._index).astype(np.int32) if self._index \
            else np.empty((0, 2), np.int32)

    def final_observation(self, size: int) -> np.ndarray:
        return np.concatenate(self._observation) if self._observation \
            else np.empty((0, size), np.float32)

    def episodes(self) -> np.ndarray:
        return np.concatenate(self._episodes) if self._episodes \
            else np.empty((0, 3), np.float32)

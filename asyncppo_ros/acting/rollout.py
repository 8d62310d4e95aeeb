"""Rollout: a snapshot acts in an environment, and what happens becomes a Chunk."""

from collections.abc import Callable
import hashlib
import json
import time
from typing import NamedTuple

import numpy as np

from asyncppo_ros.acting.exploration import exploration_for
from asyncppo_ros.acting.numpy_critic import NumpyCritic
from asyncppo_ros.chunk import Chunk, Layout
from asyncppo_ros.config import Config
from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.robot.actions import choices_of
from asyncppo_ros.robot.numpy_policy import NumpyPolicy
from asyncppo_ros.simulation.environment import (
    critic_rows,
    Environment,
    needs_reset,
    StepMissed,
    StepResult,
)
from asyncppo_ros.transport.payload import ChunkBuffer


class Stamp(NamedTuple):
    """Who collects: what a chunk says of its sender."""

    run_id: int
    actor_id: int
    incarnation: int
    sequence: int


def layout_of(environment: Environment, values: bool = False,
              observation_dtype: str = 'float32') -> Layout:
    """
    Give what actor and learner must agree on.

    Parameters
    ----------
    environment : Environment
    values : bool
        Actors send those of the critic.
    observation_dtype : str
        See `TransportConfig`.

    """
    description = environment.describe()
    terms = [*description['observation'], *description.get('critic_observation', [])]
    digest = hashlib.sha256(json.dumps(terms, sort_keys=True).encode()).hexdigest()[:12]
    names = ','.join(str(term.get('name', '?')) for term in terms)
    return Layout(environment.task, environment.observation_size, environment.action_size,
                  choices_of(description['action']) or 2 * environment.action_size,
                  f'{names}#{digest}', critic_rows(environment).shape[1], int(values),
                  observation_dtype)


def sends_values(config: Config) -> bool:
    """Say whether actors send the values of the critic that comes with the policy."""
    return config.learner.value_source == 'actor'


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
        Resets itself, or is reset between two chunks: see `ready`.
    chunk_length : int
        T, the most control steps of a chunk.
    seed : int or sequence of int
        Of the exploration noise.
    values : bool
        Send values of the critic that comes with the policy.
    warn : callable
        Takes one line for people.

    Attributes
    ----------
    missed_steps : int
        Control steps, and resets, that did not come about.

    """

    def __init__(self, environment: Environment, chunk_length: int,
                 seed: int | tuple[int, ...], values: bool = False,
                 warn: Callable[[str], None] = lambda text: None) -> None:
        self.environment = environment
        self.missed_steps = 0
        self._warn = warn
        self.chunk_length = chunk_length
        self.layout = layout_of(environment, values)
        self._rng = np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed)))
        shape = (environment.num_envs, environment.action_size)
        self._exploration = exploration_for(
            environment.describe()['action'], chunk_length, *shape)
        self._command = np.empty(shape, np.float32)
        self._observation = np.empty(
            (environment.num_envs, environment.observation_size), np.float32)
        self._left = chunk_length
        self._begun = False
        self._critic_rows = critic_rows(environment)
        self._critic: NumpyCritic | None = None
        self._policy: NumpyPolicy | None = None
        self._snapshot: PolicySnapshot | None = None

    def ready(self) -> bool:
        """
        Begin an episode where none goes on; it may take long: choose the policy afterwards.

        Returns
        -------
        bool
            False = it did not come about (`StepMissed`): try again.

        """
        if self._begun and not needs_reset(self.environment):
            return True
        try:
            self.environment.reset(self._observation)
        except StepMissed as missed:
            self._miss(missed)
            return False
        self._begun = True
        return True

    def collect(self, snapshot: PolicySnapshot, stamp: Stamp,
                cut: Callable[[], bool] = lambda: False,
                stepped: Callable[[int], None] = lambda transitions: None,
                memory: np.ndarray | None = None) -> Chunk | None:
        """
        Act for up to T control steps under one policy.

        After a chunk that was cut comes the rest of it, under whatever policy is given then: so
        all chunks together fill batches as whole ones do, and no update must take more
        transitions than a batch because the last chunk of it is a whole one.

        A step that was missed is not part of the chunk, which ends before it.  The step before
        it counts as truncated: its episode ends with the observation that followed it.

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
        Chunk or None
            T' ≤ T steps; None = not even the first came about.

        """
        if not self.ready():
            return None
        policy = self._policy_of(snapshot)
        begun = time.monotonic_ns()
        num_envs = self.environment.num_envs
        buffer = ChunkBuffer(self.layout, self.chunk_length, num_envs, memory)
        buffer.observation[0] = self._observation
        buffer.critic_observation[0] = self._critic_rows
        self._exploration.begin(policy, self._rng)
        ends = _Ends(self.layout)
        steps = 0
        length, self._left = self._left, self.chunk_length
        while steps < length:
            self._exploration.act(
                policy, buffer.observation[steps], steps, buffer.behaviour_parameters[steps],
                buffer.action[steps], self._command)
            try:
                result = self.environment.step(self._command, buffer.observation[steps + 1])
            except StepMissed as missed:
                self._miss(missed)
                ends.interrupt(buffer, steps)
                break
            if self.layout.critic_size:
                buffer.critic_observation[steps + 1] = self._critic_rows
            buffer.reward[steps] = result.reward
            buffer.terminated[steps] = result.terminated
            buffer.truncated[steps] = result.truncated
            ends.add(steps, result)
            steps += 1
            stepped(num_envs)
            if cut():
                self._left = length - steps or self.chunk_length
                break
            if needs_reset(self.environment):
                break
        if steps == 0:
            return None
        self._observation[:] = buffer.observation[steps]
        buffer.behaviour_log_prob[:steps] = self._exploration.score(
            policy, buffer.behaviour_parameters[:steps], buffer.action[:steps])
        final_observation, final_critic_observation = ends.final_observations()
        final_value = self._judge(buffer, steps, final_observation, final_critic_observation)
        integers = {**stamp._asdict(), **snapshot.identity._asdict(),
                    'gradient_steps': snapshot.gradient_steps,
                    'collecting_ns': time.monotonic_ns() - begun, 'waiting_ns': 0}
        return buffer.finish(integers, final_observation, ends.final_index(), ends.episodes(),
                             steps, final_critic_observation, final_value)

    def _miss(self, missed: StepMissed) -> None:
        """Count what did not come about; the next chunk begins with a reset."""
        self.missed_steps += 1
        self._begun = False
        self._warn(str(missed))

    def _judge(self, buffer: ChunkBuffer, steps: int, final_observation: np.ndarray,
               final_critic_observation: np.ndarray) -> np.ndarray | None:
        """Fill in the values of all rows, and give those of the final observations, [K, 1]."""
        if self._critic is None:
            return None
        buffer.value[:steps + 1, :, 0] = self._critic.value(
            buffer.observation[:steps + 1], buffer.critic_observation[:steps + 1])
        return self._critic.value(final_observation, final_critic_observation)[:, None]

    def _policy_of(self, snapshot: PolicySnapshot) -> NumpyPolicy:
        if self._policy is None or snapshot is not self._snapshot:
            self._policy, self._snapshot = NumpyPolicy(snapshot.artefact), snapshot
            if self.layout.value_size:
                self._critic = NumpyCritic(snapshot.artefact)
        return self._policy


class _Ends:
    """Truncated steps and ended episodes of one chunk, gathered step by step."""

    def __init__(self, layout: Layout) -> None:
        self._index: list[np.ndarray] = []
        self._observation = [np.empty((0, layout.observation_size), np.float32)]
        self._critic_observation = [np.empty((0, layout.critic_size), np.float32)]
        self._episodes: list[np.ndarray] = []

    def add(self, step: int, result: StepResult) -> None:
        self._truncated(step, result.final_index, result.final_observation,
                        result.final_critic_observation)
        if len(result.episodes):
            self._episodes.append(result.episodes.copy())

    def interrupt(self, buffer: ChunkBuffer, steps: int) -> None:
        """Let the last of `steps` steps be truncated wherever the episode goes on after it."""
        if steps == 0:
            return
        last = steps - 1
        index = np.flatnonzero(~(buffer.terminated[last] | buffer.truncated[last]))
        buffer.truncated[last, index] = True
        self._truncated(last, index, buffer.observation[steps, index],
                        buffer.critic_observation[steps, index])

    def _truncated(self, step: int, index: np.ndarray, observation: np.ndarray,
                   critic_observation: np.ndarray) -> None:
        if len(index):
            self._index.append(np.stack((np.full(len(index), step), index), axis=1))
            self._observation.append(observation.copy())
            self._critic_observation.append(critic_observation.copy())

    def final_index(self) -> np.ndarray:
        return np.concatenate(self._index).astype(np.int32) if self._index \
            else np.empty((0, 2), np.int32)

    def final_observations(self) -> tuple[np.ndarray, np.ndarray]:
        critic = self._critic_observation
        # Environments without anything for the critic give arrays of no shape in particular.
        return (np.concatenate(self._observation),
                np.concatenate(critic) if critic[0].shape[1]
                else np.empty((sum(map(len, self._index)), 0), np.float32))

    def episodes(self) -> np.ndarray:
        return np.concatenate(self._episodes) if self._episodes \
            else np.empty((0, 3), np.float32)

"""
The whole loop in one process: synchronous, no ROS, no socket.

It is the baseline that every asynchronous run is compared with: the same task, settings, seeds,
rollout, learner; only that the actor waits while the learner learns, so that every sample is
fresh.  With one seed it gives the same metrics bit for bit, times apart.

The settings `injected_lag` make samples old on purpose (`injected_lag.py`).  What is too old is
then dropped, as it is of an asynchronous learner, and counts as simulated: a run ends when
`env_steps` transitions were simulated, learned from or not.
"""

from collections.abc import Callable, Mapping
import time
from typing import Any, NamedTuple

from asyncppo_ros.acting.rollout import environment_seed, Rollout, sends_values, Stamp
from asyncppo_ros.chunk import Chunk
from asyncppo_ros.config import Config
from asyncppo_ros.injected_lag import policies_of
from asyncppo_ros.learning.batcher import Batcher, ConsumedChunks
from asyncppo_ros.learning.lag_metrics import lag_row
from asyncppo_ros.learning.learner import BadBatch, Learner
from asyncppo_ros.learning.metrics import EpisodeWindow
from asyncppo_ros.learning.training import RESTORE_DIVISOR
from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.simulation.registry import make


class Dropped(NamedTuple):
    """What a run simulated and dropped, because it was too old."""

    chunks: int = 0
    transitions: int = 0

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> 'Dropped':
        """Read it from a row of metrics."""
        return cls(int(row.get('chunks_dropped', 0)), int(row.get('transitions_dropped', 0)))


NOTHING = Dropped()


def train_local(config: Config, run_id: int = 1,
                on_update: Callable[[Learner, dict[str, Any]], bool] | None = None,
                learner: Learner | None = None, dropped: Dropped = NOTHING,
                on_refused: Callable[[str], bool] | None = None) -> Learner:
    """
    Learn a task.

    Parameters
    ----------
    config : Config
    run_id : int
        For the card of the policies.
    on_update : callable, optional
        Is given the learner and a row of metrics after each update; True ends the training.
    learner : Learner, optional
        To continue with instead of a new one.
    dropped : Dropped
        Of the run that is continued.
    on_refused : callable, optional
        Is told in one line of each update that was refused, since a number was not finite; True
        ends the training.

    Returns
    -------
    Learner
        ``learner.snapshot()`` is the trained policy.

    Raises
    ------
    ConfigError
        Every chunk would be dropped (`injected_lag.check`).

    """
    seed = environment_seed(config.seed, actor_id=0, incarnation=1)
    environment = make(config.task, config.actor.num_envs, seed,
                       random_episode_start=config.actor.random_episode_start,
                       randomization=config.randomization,
                       privileged=config.policy.privileged_critic)
    rollout = Rollout(environment, config.actor.chunk_length, (config.seed, 0, 1),
                      sends_values(config))
    learner = learner or Learner(config, environment.describe(), environment.observation_size,
                                 environment.action_size, run_id,
                                 rollout.layout.critic_size)
    collector = Collector(config, run_id, rollout, learner, dropped)
    begun = time.monotonic()
    snapshot = learner.snapshot()
    collector.published(snapshot)
    refused = 0
    while (batch := collector.next_batch()) is not None:
        update_begun = time.monotonic()
        try:
            metrics = learner.update(batch.chunks)
        except BadBatch as error:
            refused += 1
            text = _after_refusal(learner, error, refused)
            collector.published(learner.snapshot())
            if on_refused is not None and on_refused(text):
                break
            continue
        refused = 0
        snapshot = learner.snapshot()
        collector.published(snapshot)
        now = time.monotonic()
        row = {'env_steps': learner.env_steps, 'policy_version': learner.policy_version,
               'gradient_steps': learner.gradient_steps, 'generation': learner.generation,
               'time_s': now - begun, 'env_steps_per_s': learner.env_steps / (now - begun),
               **collector.episodes.row(), **metrics, **lag_row(batch), **collector.flow(),
               'update_time': now - update_begun, 'bad_batches': learner.bad_batches,
               'policy_bytes': len(snapshot.data)}
        if on_update is not None and on_update(learner, row):
            break
    environment.close()
    return learner


def _after_refusal(learner: Learner, error: BadBatch, in_a_row: int) -> str:
    """Begin a generation of smaller steps after so many refused updates; say what happened."""
    text = f'update {learner.policy_version + 1} refused and undone: {error}'
    if in_a_row % learner.config.learner.max_bad_batches:
        return text
    # What a learner process restores from its checkpoint is here at hand: the undone state.
    learner.generation += 1
    learner.learning_rate_scale /= RESTORE_DIVISOR
    return f'{text}; step size divided by {RESTORE_DIVISOR:g}'


class Collector:
    """
    Collects batches, each chunk by the policy whose turn it is.

    Parameters
    ----------
    config : Config
    run_id : int
    rollout : Rollout
    learner : Learner
        Its counters tell the lag.
    dropped : Dropped
        So far.

    Attributes
    ----------
    episodes : EpisodeWindow
        Of all chunks, also of those that were dropped.

    """

    def __init__(self, config: Config, run_id: int, rollout: Rollout, learner: Learner,
                 dropped: Dropped) -> None:
        self.episodes = EpisodeWindow()
        self._budget = config.env_steps
        self._run_id = run_id
        self._rollout = rollout
        self._learner = learner
        self._policies = policies_of(config, learner)
        self._batcher = Batcher(config.learner.batch_size, config.learner.max_policy_lag,
                                self._count_dropped)
        self._sequence = 0
        self._dropped = dropped
        self._count_dropped([])

    def published(self, snapshot: PolicySnapshot) -> None:
        """Take the newest policy."""
        self._policies.published(snapshot)

    def next_batch(self) -> ConsumedChunks | None:
        """Collect a batch; None when all that may be simulated was."""
        learner = self._learner
        while learner.env_steps + self._dropped.transitions < self._budget:
            chunk = self._rollout.collect(self._policies.next(),
                                          Stamp(self._run_id, 0, 1, self._sequence))
            if chunk is None:
                continue
            self._sequence += 1
            self.episodes.add(chunk.episodes)
            self._batcher.offer(chunk, time.monotonic_ns())
            batch = self._batcher.next_batch(learner.identity, learner.gradient_steps, timeout=0.0)
            if batch is not None:
                return batch
        return None

    def flow(self) -> dict[str, int]:
        """Say where all transitions went: nothing waits between two updates."""
        consumed, dropped = self._learner.env_steps, self._dropped
        return {'transitions_produced': consumed + dropped.transitions,
                'transitions_consumed': consumed, 'transitions_dropped': dropped.transitions,
                'chunks_dropped': dropped.chunks}

    def _count_dropped(self, chunks: list[Chunk]) -> None:
        before = self._dropped
        self._dropped = Dropped(before.chunks + len(chunks), before.transitions
                                + sum(chunk.transitions for chunk in chunks))
        self._learner.dropped_env_steps = self._dropped.transitions

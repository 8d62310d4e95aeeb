"""
Lag on purpose: which policy collects the next chunk of `train_local`.

A chunk is really collected by an old policy and carries its stamp; that it is old is nowhere
else written down.  So what the learner makes of it, and what is measured, is what it would be if
the lag had come about by itself.
"""

from collections import deque
import copy
import math
from typing import Any, NamedTuple, Protocol

import numpy as np

from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.policy.normalizer import RunningMoments
from asyncppo_ros.policy.snapshot import PolicySnapshot

# Keeps the draws of the lag apart from all others of the same seed.
_STREAM = 0x1A6


class Policies(Protocol):
    """The policies of a run, the newest and some old ones."""

    def published(self, snapshot: PolicySnapshot) -> None:
        """Take the newest policy, made by an update that has just ended."""

    def next(self) -> PolicySnapshot:
        """Give the one that collects the next chunk."""


def policies_of(config: Config, learner: Learner) -> Policies:
    """
    Choose old policies as the settings `injected_lag` ask for; none = always the newest.

    Raises
    ------
    ConfigError
        See `check`.

    """
    check(config)
    if config.injected_lag.gradient_steps:
        return PastGradientSteps(config.injected_lag.gradient_steps, learner)
    return PastVersions(config.injected_lag.versions, config.injected_lag.spread, config.seed)


def check(config: Config) -> None:
    """
    Refuse a lag at which nothing would ever be learned.

    Raises
    ------
    ConfigError
        Every chunk would be older than `learner.max_policy_lag`.

    """
    injected, bound = config.injected_lag, config.learner.max_policy_lag
    youngest = math.ceil(injected.gradient_steps / steps_per_update(config)) or injected.versions
    if youngest > bound:
        name = 'gradient_steps' if injected.gradient_steps else 'versions'
        raise ConfigError(
            f'injected_lag.{name} = {getattr(injected, name)}: every chunk would be at least '
            f'{youngest} versions old and be dropped; raise learner.max_policy_lag = {bound}')


def steps_per_update(config: Config) -> int:
    """Give the gradient steps of a whole update."""
    # As long as auto is not settled (0) a batch is taken to be no larger than it must.
    chunk = max(1, config.actor.num_envs) * config.actor.chunk_length
    batch = math.ceil(config.learner.batch_size / chunk) * chunk
    return config.learner.ppo.epochs * math.ceil(batch / config.learner.ppo.minibatch_size)


class PastVersions:
    """
    The policy of some updates ago; where there were fewer, the first.

    Parameters
    ----------
    lag : int
        Of every chunk [versions].
    spread : int
        A further lag of each chunk is drawn uniformly from 0 to this [versions].
    seed : int
        Of the draws.

    """

    def __init__(self, lag: int, spread: int = 0, seed: int = 0) -> None:
        self._lag = lag
        self._spread = spread
        self._rng = np.random.default_rng((seed, _STREAM))
        self._snapshots: deque[PolicySnapshot] = deque(maxlen=lag + spread + 1)

    def published(self, snapshot: PolicySnapshot) -> None:
        """Take the newest policy, forget the oldest of too many."""
        version = snapshot.identity.policy_version
        if self._snapshots and self._snapshots[-1].identity.policy_version == version:
            # An update was refused, so the version is the same as before.
            self._snapshots.pop()
        self._snapshots.append(snapshot)

    def next(self) -> PolicySnapshot:
        """Give the one that collects the next chunk."""
        lag = self._lag
        if self._spread:
            lag += int(self._rng.integers(self._spread, endpoint=True))
        return self._snapshots[-1 - min(lag, len(self._snapshots) - 1)]


class Moment(NamedTuple):
    """What a snapshot of the learner is made of, cheap to keep after every gradient step."""

    generation: int
    policy_version: int
    gradient_steps: int
    env_steps: int
    weights: dict[str, Any]
    normalizer: RunningMoments
    critic_normalizer: RunningMoments
    value_scale: Any


class PastGradientSteps:
    """
    The policy of some gradient steps ago, which may be from the midst of an update.

    Such a policy has the version that the update began with, and the normalizer of the last
    publication.  Where there were fewer steps it is the first.

    Parameters
    ----------
    lag : int
        Of every chunk, ≥ 1 [gradient steps].
    learner : Learner
        Its `after_gradient_step` is taken.

    """

    def __init__(self, lag: int, learner: Learner) -> None:
        self._learner = learner
        self._moments: deque[Moment] = deque(maxlen=lag + 1)
        self._snapshot: PolicySnapshot | None = None
        learner.after_gradient_step = lambda: self._moments.append(moment_of(learner))

    def published(self, snapshot: PolicySnapshot) -> None:
        """Take the newest policy: after the last step of an update it is the published one."""
        # An update that was undone has taken its steps back.
        while self._moments and self._moments[-1].gradient_steps >= snapshot.gradient_steps:
            self._moments.pop()
        self._moments.append(moment_of(self._learner))
        self._snapshot = None

    def next(self) -> PolicySnapshot:
        """Give the one that collects the next chunk."""
        if self._snapshot is None:
            self._snapshot = snapshot_of(self._learner, self._moments[0])
        return self._snapshot


def moment_of(learner: Learner) -> Moment:
    """Copy what a snapshot of the learner as it is now would be made of."""
    weights = {name: tensor.detach().clone()
               for name, tensor in learner.network.state_dict().items()}
    return Moment(*learner.identity, learner.gradient_steps, learner.env_steps, weights,
                  # These are replaced at a publication, never changed.
                  learner.normalizer, learner.critic_normalizer,
                  # Follows the returns in each update.
                  copy.copy(learner.value_scale))


def snapshot_of(learner: Learner, moment: Moment) -> PolicySnapshot:
    """Make the snapshot of an earlier moment; the learner is as before."""
    now = moment_of(learner)
    try:
        _set(learner, moment)
        return learner.mid_update_snapshot()
    finally:
        _set(learner, now)


def _set(learner: Learner, moment: Moment) -> None:
    (learner.generation, learner.policy_version, learner.gradient_steps, learner.env_steps,
     weights, learner.normalizer, learner.critic_normalizer, learner.value_scale) = moment
    learner.network.load_state_dict(weights)

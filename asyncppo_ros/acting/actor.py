"""Actor: collects chunks under permits with the newest policy.  No ROS."""

from collections.abc import Callable
import dataclasses
import functools
import math
import time

from asyncppo_ros.acting.rollout import (
    environment_seed,
    layout_of,
    Rollout,
    sends_values,
    Stamp,
)
from asyncppo_ros.chunk import Identity, NO_POLICY
from asyncppo_ros.config import Config
from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.simulation.environment import Environment
from asyncppo_ros.simulation.registry import make
from asyncppo_ros.transport.keys import actor_keys
from asyncppo_ros.transport.messages import Hello, hello
from asyncppo_ros.transport.policy_channel import PolicySubscriber
from asyncppo_ros.transport.ring import slots_for
from asyncppo_ros.transport.sender import ZmqChunkSender
from asyncppo_ros.transport.zeromq import connectable

# While an actor waits for a permit or a policy it looks for both this often.
WAIT_S = 0.004
# While it collects it listens this often: to look after every control step of 2 ms would cost a
# percent of it, and news may end a chunk three of them later.
NEWS_S = 0.005
# The news of a policy may be faster than the policy, which is worth so long a wait.
ON_ITS_WAY_S = 0.05
# The learner is expected within this time; then the actor says that it still waits.
CONNECT_S = 10.0


def cut_lag(target_lag: int, publish_updates: int) -> int:
    """
    Say how far the published policy may run ahead of a chunk that is still being collected.

    The learner consumes the oldest policies first, so a chunk that is cut when version v is
    published is consumed at v, or at v + 1 where a batch was waiting.  If it went on, the news
    that ends it would be that of v + publish_updates.  So it must end now where that is too late.
    It may always live until there is something newer: by then no more than target_lag batches
    were granted beside it, so with target_lag 1 the learner has none that is full without it, and
    with target_lag 0 there is nothing newer while it is outstanding.
    """
    return max(1, target_lag - publish_updates)


def is_outdated(behaviour: Identity, newest: Identity, limit: float) -> bool:
    """Say whether a chunk under policy `behaviour` must end, as `newest` is published."""
    lag = newest.policy_version - behaviour.policy_version
    # A learner that went back to an older state can use nothing that came after that state.
    return lag >= limit or (lag < 0 and newest.generation > behaviour.generation)


class Actor:
    """
    Collects and sends chunks.

    One thread does everything: it looks for a newer policy between two chunks and never within
    one, so that one chunk has one policy by construction.

    Parameters
    ----------
    config : Config
    actor_id : int
        Unique in the run.
    policies_from : callable
        Gives where policies come from, once there is a line to the learner.
    should_stop : callable
        Asked between two control steps.
    beat : callable
        Called as often, as a sign of life.
    warn : callable
        Takes one line for people.
    robot : Environment, optional
        To collect from instead of simulations; it goes on while nobody acts.

    """

    def __init__(self, config: Config, actor_id: int,
                 policies_from: Callable[[ZmqChunkSender], PolicySubscriber],
                 should_stop: Callable[[], bool], beat: Callable[[], None],
                 warn: Callable[[str], None], robot: Environment | None = None) -> None:
        self.config = config
        self._robot = robot
        self._actor_id = actor_id
        own, learner = config.actor.target_lag, config.learner
        self._cut_lag = cut_lag(learner.target_lag if own < 0 else own, learner.publish_updates) \
            if learner.pacing else math.inf
        self._policies_from = policies_from
        self._should_stop = should_stop
        self._beat = beat
        self._published = NO_POLICY
        self._heard_of = NO_POLICY
        self._heard_at = 0.0
        self._listen_at = 0.0
        self._warn = warn

    def collect(self) -> None:
        """Collect and send chunks until the learner or a signal ends it."""
        greeting, transport = self._greeting(), self.config.transport
        sender = ZmqChunkSender(connectable(transport.address), greeting,
                                actor_keys(transport.keys), transport.kind,
                                self._slots(greeting))
        try:
            if self._connect(sender):
                policies = self._policies_from(sender)
                policies.run_id = sender.run_id
                self._collect_until_stopped(self._make_rollout(sender, policies), sender,
                                            policies)
        finally:
            sender.close()

    def _greeting(self) -> Hello:
        config = self.config
        sample = self._robot or make(config.task, 1, config.seed,
                                     privileged=config.policy.privileged_critic)
        try:
            layout = layout_of(sample, sends_values(config), config.transport.observation_dtype)
            greeting = hello(self._actor_id, layout, config.actor.num_envs,
                             config.actor.chunk_length)
            return dataclasses.replace(greeting, target_lag=config.actor.target_lag,
                                       max_policy_lag=config.actor.max_policy_lag,
                                       weight=config.actor.weight)
        finally:
            if sample is not self._robot:
                sample.close()

    def _slots(self, greeting: Hello) -> int:
        learner = self.config.learner
        lag = learner.target_lag if learner.pacing else learner.max_policy_lag + 1
        return slots_for((lag + 1) * learner.batch_size,
                         greeting.num_envs * greeting.chunk_length)

    def _make_rollout(self, sender: ZmqChunkSender, policies: PolicySubscriber) -> Rollout:
        """Make the simulations: each start of each actor has random numbers of its own."""
        config, source = self.config, sender.source
        if self._robot is not None:
            environment = self._robot
            environment.idle = functools.partial(  # type: ignore[attr-defined]
                self._wait_for_robot, sender, policies)
        else:
            environment = make(config.task, config.actor.num_envs,
                               environment_seed(config.seed, *source),
                               random_episode_start=config.actor.random_episode_start,
                               randomization=config.randomization,
                               privileged=config.policy.privileged_critic)
        return Rollout(environment, config.actor.chunk_length, (config.seed, *source),
                       sends_values(config), self._warn)

    def _connect(self, sender: ZmqChunkSender) -> bool:
        begun = time.monotonic()
        while not self._should_stop():
            self._beat()
            if sender.connect(timeout=0.2):
                return True
            if time.monotonic() - begun > CONNECT_S:
                self._warn(f'no learner answers at {self.config.transport.address}; still '
                           f'trying{sender.trouble and "; " + sender.trouble}')
                begun = time.monotonic()
        return False

    def _collect_until_stopped(self, rollout: Rollout, sender: ZmqChunkSender,
                               policies: PolicySubscriber) -> None:
        while not (self._should_stop() or sender.stopped):
            # To put a robot back to its start takes longer than a policy stays new.
            ready = rollout.ready()
            sender.missed_steps = rollout.missed_steps
            snapshot = self._next_policy(sender, policies) if ready else None
            if snapshot is None:
                continue
            stamp = Stamp(sender.run_id, *sender.source, sender.next_sequence)
            self._published = sender.newest
            chunk = rollout.collect(
                snapshot, stamp, functools.partial(self._cut, sender, policies,
                                                   snapshot.identity),
                sender.ledger.stepped, sender.buffer())
            if chunk is not None:
                sender.send(chunk)

    def _keep_in_touch(self, sender: ZmqChunkSender) -> bool:
        """Show signs of life, hear what is new; say whether to stop."""
        self._beat()
        now = time.monotonic()
        if now >= self._listen_at:
            self._listen_at = now + NEWS_S
            sender.poll()
        return self._should_stop() or sender.stopped

    def _wait_for_robot(self, sender: ZmqChunkSender, policies: PolicySubscriber) -> bool:
        """Use the time in which the robot moves; say whether to stop."""
        policies.look()
        return self._keep_in_touch(sender)

    def _cut(self, sender: ZmqChunkSender, policies: PolicySubscriber,
             behaviour: Identity) -> bool:
        """Between two control steps: keep in touch; end a chunk that must not grow older."""
        # Only news ends a chunk: one that was begun with less than the newest policy, because
        # that does not arrive, is worth collecting all the same.
        return (self._keep_in_touch(sender)
                or sender.newest > self._published
                and is_outdated(behaviour, sender.newest, self._cut_lag)
                and (self._robot is None or self._could_go_on(sender, policies)))

    def _could_go_on(self, sender: ZmqChunkSender, policies: PolicySubscriber) -> bool:
        """Say whether the next chunk could begin at once: a robot does not wait for a policy."""
        minimum, newest = sender.permit_for(sender.next_sequence + 1), policies.newest
        return (minimum is not None and newest is not None and newest.identity >= minimum
                and not is_outdated(newest.identity, sender.newest, self._cut_lag))

    def _next_policy(self, sender: ZmqChunkSender,
                     policies: PolicySubscriber) -> PolicySnapshot | None:
        """Take the newest policy that the permit for the next chunk allows, or wait a bit."""
        sender.poll()
        policies.look()
        minimum = sender.permit_for(sender.next_sequence)
        newest = policies.newest
        if minimum is None or newest is None or newest.identity < minimum \
                or self._is_on_its_way(sender.newest, newest.identity):
            self._beat()
            begun = time.monotonic_ns()
            sender.poll(WAIT_S)
            sender.waited_ns += time.monotonic_ns() - begun
            return None
        return newest

    def _is_on_its_way(self, published: Identity, have: Identity) -> bool:
        """Say whether a policy that makes this one outdated must arrive at any moment."""
        if published > self._heard_of:
            self._heard_of, self._heard_at = published, time.monotonic()
        return self._robot is None and is_outdated(have, published, self._cut_lag) \
            and time.monotonic() - self._heard_at < ON_ITS_WAY_S

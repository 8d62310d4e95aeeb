"""Actor node: the newest policy acts in many simulations; chunks go to the learner."""

import argparse
import os
import time

from rclpy.node import Node
from rclpy.utilities import remove_ros_args

from asyncppo_ros.acting.rollout import layout_of, Rollout, Stamp
from asyncppo_ros.chunk import Identity
from asyncppo_ros.config import Config
from asyncppo_ros.nodes.context import running
from asyncppo_ros.nodes.parameters import read_config
from asyncppo_ros.nodes.policy_topic import RosPolicySubscriber
from asyncppo_ros.nodes.process import HEARTBEAT_VARIABLE, StopRequest
from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.simulation.registry import make
from asyncppo_ros.train_local import environment_seed
from asyncppo_ros.transport.messages import hello
from asyncppo_ros.transport.sender import ZmqChunkSender

# While an actor waits for a permit or a policy it looks for both this often.
WAIT_S = 0.004
# The learner is expected within this time; then the actor says that it still waits.
CONNECT_S = 10.0
HEARTBEAT_S = 0.5
# The learner goes first where cores are few: the sooner its update ends, the sooner every actor
# has its next permit.  Otherwise an actor may take the core that all others wait for.
NICENESS = 5


class ActorNode(Node):
    """
    Collects chunks under permits.

    One thread does everything: it looks for a newer policy between two chunks and never within
    one, so that one chunk has one policy by construction.

    Parameters
    ----------
    actor_id : int
        Unique in the run.
    stop : StopRequest

    """

    def __init__(self, actor_id: int, stop: StopRequest) -> None:
        super().__init__(f'actor_{actor_id}', automatically_declare_parameters_from_overrides=True)
        self.config: Config = read_config(self)
        self._stop = stop
        self._actor_id = actor_id
        self._policy = RosPolicySubscriber(self)
        self._heartbeat = _SupervisorHeartbeat()

    def collect(self) -> None:
        """Collect and send chunks until the learner or a signal ends it."""
        config = self.config
        sample = make(config.task, 1, config.seed)
        greeting = hello(self._actor_id, layout_of(sample), config.actor.num_envs,
                         config.actor.chunk_length)
        sample.close()
        sender = ZmqChunkSender(config.transport.address, greeting)
        try:
            if self._connect(sender):
                self._collect_until_stopped(self._make_rollout(*sender.source), sender)
        finally:
            sender.close()

    def _make_rollout(self, actor_id: int, incarnation: int) -> Rollout:
        """Make the simulations: each start of each actor has random numbers of its own."""
        config = self.config
        environment = make(config.task, config.actor.num_envs,
                           environment_seed(config.seed, actor_id, incarnation),
                           random_episode_start=config.actor.random_episode_start)
        return Rollout(environment, config.actor.chunk_length,
                       (config.seed, actor_id, incarnation))

    def _connect(self, sender: ZmqChunkSender) -> bool:
        begun = time.monotonic()
        while not self._stop():
            self._heartbeat.beat()
            if sender.connect(timeout=0.2):
                return True
            if time.monotonic() - begun > CONNECT_S:
                self.get_logger().warning(
                    f'no learner answers at {self.config.transport.address}; still trying')
                begun = time.monotonic()
        return False

    def _collect_until_stopped(self, rollout: Rollout, sender: ZmqChunkSender) -> None:
        while not (self._stop() or sender.stopped):
            snapshot = self._next_policy(sender)
            if snapshot is None:
                continue
            stamp = Stamp(sender.run_id, *sender.source, sender.next_sequence)
            chunk = rollout.collect(snapshot, stamp, lambda: self._cut(sender),
                                    sender.ledger.stepped)
            sender.send(chunk)

    def _cut(self, sender: ZmqChunkSender) -> bool:
        """Between two control steps: keep in touch; end the chunk when the run ends."""
        self._heartbeat.beat()
        sender.poll()
        return self._stop() or sender.stopped

    def _next_policy(self, sender: ZmqChunkSender) -> PolicySnapshot | None:
        """Take the newest policy that the permit for the next chunk allows, or wait a bit."""
        self.executor.spin_once(timeout_sec=0.0)
        sender.poll()
        self._policy.run_id = sender.run_id
        minimum = sender.permit_for(sender.next_sequence)
        newest = self._policy.newest
        if minimum is None or newest is None or newest.identity < Identity(*minimum):
            self._heartbeat.beat()
            begun = time.monotonic_ns()
            sender.poll(WAIT_S)
            sender.waited_ns += time.monotonic_ns() - begun
            return None
        return newest


class _SupervisorHeartbeat:
    """Writes a byte now and then where the supervisor asked for it."""

    def __init__(self) -> None:
        self._descriptor = int(os.environ.get(HEARTBEAT_VARIABLE, '-1'))
        self._last = 0.0

    def beat(self) -> None:
        now = time.monotonic()
        if self._descriptor < 0 or now - self._last < HEARTBEAT_S:
            return
        self._last = now
        try:
            os.write(self._descriptor, b'.')
        except BlockingIOError:
            pass  # the pipe is full of unread signs of life: that is one as well
        except OSError:
            self._descriptor = -1


def run(arguments: list[str], stop: StopRequest) -> int:
    """Run an actor node until it is stopped."""
    parser = argparse.ArgumentParser(prog='actor_node', description=__doc__)
    parser.add_argument('--actor-id', type=int, default=0,
                        help='number of this actor, unique in the run (default 0)')
    own = parser.parse_args(remove_ros_args(['actor_node', *arguments])[1:])
    os.nice(NICENESS)
    with running(lambda: ActorNode(own.actor_id, stop), arguments) as node:
        node.collect()
    return 0

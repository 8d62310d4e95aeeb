"""Actor node: the newest policy acts in many simulations; chunks go to the learner."""

from rclpy.node import Node

from asyncppo_ros.acting.actor import Actor
from asyncppo_ros.config import Config
from asyncppo_ros.nodes.context import running
from asyncppo_ros.nodes.parameters import read_config
from asyncppo_ros.nodes.policy_topic import RosPolicySubscriber
from asyncppo_ros.nodes.process import StopRequest, SupervisorHeartbeat
from asyncppo_ros.robot.signing import signing_key
from asyncppo_ros.transport.policy_fetch import PolicyFallback, ZmqPolicySubscriber
from asyncppo_ros.transport.sender import ZmqChunkSender


class ActorNode(Node):
    """
    An `Actor` whose policies come from the topic, and its settings from ROS parameters.

    Parameters
    ----------
    actor_id : int
        Unique in the run.
    stop : StopRequest

    """

    def __init__(self, actor_id: int, stop: StopRequest) -> None:
        super().__init__(f'actor_{actor_id}', automatically_declare_parameters_from_overrides=True)
        self.config: Config = read_config(self)
        self._key = signing_key(self.config.transport.keys)
        self._topic = RosPolicySubscriber(self, self._key)
        self._actor = Actor(self.config, actor_id, self._policies_from, stop,
                            SupervisorHeartbeat().beat, self.get_logger().warning)

    def collect(self) -> None:
        """Collect and send chunks until the learner or a signal ends it."""
        self._actor.collect()

    def _policies_from(self, sender: ZmqChunkSender) -> PolicyFallback:
        """Take the topic, and where that is silent the line that the chunks go over."""
        warn = self.get_logger().warning
        return PolicyFallback(self._topic, ZmqPolicySubscriber(sender, self._key, warn), sender,
                              self.config.transport.policy_timeout_s, warn)


def run(actor_id: int, arguments: list[str], stop: StopRequest) -> int:
    """Run an actor node until it is stopped; `arguments` are ROS's own."""
    with running(lambda: ActorNode(actor_id, stop), arguments) as node:
        node.collect()
    return 0

"""Actor node: the newest policy acts in simulations or on a robot; chunks go to the learner."""

from rclpy.node import Node

from asyncppo_ros.acting.actor import Actor
from asyncppo_ros.config import Config
from asyncppo_ros.nodes.context import running
from asyncppo_ros.nodes.parameters import read_config, TakesSettings
from asyncppo_ros.nodes.policy_topic import RosPolicySubscriber
from asyncppo_ros.nodes.process import StopRequest, SupervisorHeartbeat
from asyncppo_ros.robot.signing import signing_key
from asyncppo_ros.run import check_source
from asyncppo_ros.simulation.environment import Environment
from asyncppo_ros.transport.policy_channel import PolicySubscriber
from asyncppo_ros.transport.policy_fetch import PolicyFallback, ZmqPolicySubscriber
from asyncppo_ros.transport.sender import ZmqChunkSender


class ActorNode(TakesSettings, Node):
    """
    An `Actor` whose policies come from the topic, and its settings from ROS parameters.

    Parameters
    ----------
    actor_id : int
        Unique in the run.
    stop : StopRequest

    """

    def __init__(self, actor_id: int, stop: StopRequest) -> None:
        super().__init__(f'actor_{actor_id}')
        self.config: Config = read_config(self)
        check_source(self.config)
        self._key = signing_key(self.config.transport.keys)
        self._topic = RosPolicySubscriber(self, self._key)
        self._robot = self._find_robot()
        self._actor = Actor(self.config, actor_id, self._policies_from, stop,
                            SupervisorHeartbeat().beat, self.get_logger().warning, self._robot)

    def collect(self) -> None:
        """Collect and send chunks until the learner or a signal ends it."""
        try:
            self._actor.collect()
        finally:
            if self._robot is not None:
                self._robot.close()

    def _find_robot(self) -> Environment | None:
        if self.config.actor.source != 'robot':
            return None
        from asyncppo_ros.nodes.robot_environment import RobotEnvironment
        return RobotEnvironment(self.config, bool(self.get_parameter('use_sim_time').value))

    def _policies_from(self, sender: ZmqChunkSender) -> PolicySubscriber:
        """Take the topic, and where that is silent the line that the chunks go over."""
        warn = self.get_logger().warning
        fetched = ZmqPolicySubscriber(sender, self._key, warn)
        if self.config.transport.policies == 'zmq':
            return fetched
        return PolicyFallback(self._topic, fetched, sender,
                              self.config.transport.policy_timeout_s, warn)


def run(actor_id: int, arguments: list[str], stop: StopRequest) -> int:
    """Run an actor node until it is stopped; `arguments` are ROS's own."""
    with running(lambda: ActorNode(actor_id, stop), arguments) as node:
        node.collect()
    return 0

"""A robot behind ROS 2 topics: what it tells goes into a `MeasuredState`, commands go out."""

import collections
from collections.abc import Callable, Sequence
import time
from typing import Any

from nav_msgs.msg import Odometry
import numpy as np
from rclpy.duration import Duration
from rclpy.node import Node
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import String

from asyncppo_ros.config import Config, RobotConfig
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.nodes.qos import COMMAND_QOS, LATCHED_QOS, SENSOR_QOS
from asyncppo_ros.nodes.robot_controller import ControllerOrder
from asyncppo_ros.nodes.robot_frames import GoalFrames
from asyncppo_ros.nodes.robot_messages import (
    command_message,
    command_values,
    orientation_of,
    OUTPUT_TYPES,
    stamp_of,
    TYPES,
    vector_of,
)
from asyncppo_ros.robot.measured import MeasuredState
from asyncppo_ros.robot.needs import Needs
from asyncppo_ros.robot.topics import command_topics, controller_of, output_topic

# The rate of a topic is that of its last so many messages.
RATE_MESSAGES = 20


class RobotLink:
    """
    Subscriptions and the publisher of commands of one robot; callbacks only store.

    Parameters
    ----------
    node : Node
        Some thread must spin it.
    config : RobotConfig
    measured : MeasuredState
        Gets what the robot tells.
    needs : Needs
        What is listened to.
    names : sequence of str
        The A joints that are commanded, as the robot calls them, in the order of the policy.
    interface : str
        position, velocity or effort.
    publishes : bool
        False = only listen; `publish` and `wait_until_received` must not be called then.

    Attributes
    ----------
    on_arrival : callable
        Called after each sample of the robot that was stored.
    topic : str
        The topic of the commands, in full.
    listened : tuple of str
        The topics of states that must keep coming, in full.

    Raises
    ------
    ConfigError
        The settings name no topic for something that is needed.

    """

    def __init__(self, node: Node, config: RobotConfig, measured: MeasuredState, needs: Needs,
                 names: Sequence[str], interface: str, publishes: bool = True) -> None:
        self.on_arrival: Callable[[], None] = _nothing
        self._node, self._config, self._measured = node, config, measured
        self._clock = node.get_clock()
        self._sim_time = bool(node.get_parameter('use_sim_time').value)
        self._frames = GoalFrames(node, config.base_frame)
        self._arrivals: dict[str, collections.deque[float]] = {}
        self._subscriptions: list[Any] = []
        self._controller: ControllerOrder | None = None
        self._urdf: str | None = None
        self._message = command_message(config.output, names, interface,
                                        config.trajectory_time_s)
        topic = output_topic(config.output, config.output_topic)
        self._publisher = node.create_publisher(OUTPUT_TYPES[config.output], topic,
                                                COMMAND_QOS) if publishes else None
        self.topic = node.resolve_topic_name(topic)
        try:
            self._subscribe_commands(needs)
            self._subscribe_states(needs)
            if config.output == 'forward_command':
                self._controller = ControllerOrder(
                    node, self.controller, names, tuple(filter(None, config.joint_order)))
        except ConfigError:
            self.close()
            raise
        self.listened = tuple(self._arrivals)

    def publish(self, command: np.ndarray) -> None:
        """
        Send a command, float64 [A] in the order of the policy's joints.

        Raises
        ------
        ConfigError
            The order of the controller is not known.

        """
        if self._controller is not None:
            if self._controller.order is None:
                raise ConfigError(f'the joints of {self.controller} are not known')
            command = command[self._controller.order]
        self._publisher.publish(self._message(command, self._clock.now().to_msg()))

    def wait_until_received(self, seconds: float) -> bool:
        """Wait until every listener has acknowledged all commands; say whether they have."""
        return self._publisher.wait_for_all_acked(Duration(seconds=seconds))

    def listeners(self) -> int:
        """Count who listens to the commands."""
        if self._publisher is None:
            return self._node.count_subscribers(self.topic)
        return self._publisher.get_subscription_count()

    def other_publishers(self) -> list[str]:
        """Name the other nodes that publish on the topic of the commands."""
        namespace = self._node.get_namespace().rstrip('/')
        own = f'{namespace}/{self._node.get_name()}'
        found = [f'{info.node_namespace.rstrip("/")}/{info.node_name}'
                 for info in self._node.get_publishers_info_by_topic(self.topic)]
        # One of that name is this node; a second one is its double.
        if own in found:
            found.remove(own)
        return sorted(found)

    def rates(self) -> dict[str, float]:
        """
        Give the rate of every topic of states [Hz]; 0 before its second message.

        With ``use_sim_time`` it is per second of simulated time, infinite while that stands
        still.
        """
        return {topic: _rate(list(arrivals)) for topic, arrivals in self._arrivals.items()}

    def ages(self) -> dict[str, float]:
        """Give how long ago each topic of states last came [s], on the clock of `rates`."""
        now = self._clock.now().nanoseconds * 1e-9 if self._sim_time else time.monotonic()
        return {topic: now - arrivals[-1] for topic, arrivals in self._arrivals.items()
                if arrivals}

    @property
    def controller(self) -> str:
        """The controller that the commands go to."""
        return controller_of(self.topic)

    def robot_urdf(self) -> str | None:
        """Give the URDF that `description_topic` brought, or None so far."""
        return self._urdf

    def controller_order(self) -> tuple[str, ...] | None:
        """
        Give the joints of the forward_command_controller, in its order, or None so far.

        Raises
        ------
        ConfigError
            They are not those of the policy.

        """
        return self._controller.joints() if self._controller is not None else None

    def close(self) -> None:
        """Listen and send no more."""
        self._frames.close()
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._subscriptions = []
        if self._controller is not None:
            self._controller.close()
        if self._publisher is not None:
            self._node.destroy_publisher(self._publisher)

    def _subscribe(self, kind: type, topic: str, callback: Callable[[Any], None],
                   qos: Any = SENSOR_QOS) -> str:
        subscription = self._node.create_subscription(kind, topic, callback, qos)
        self._subscriptions.append(subscription)
        return subscription.topic_name

    def _subscribe_commands(self, needs: Needs) -> None:
        """Before the states: of what has come together, the executor then reads commands first."""
        sizes = {name: need.size for name, need in needs.commands.items()}
        for name, source in command_topics(self._config.command_topics, sizes).items():
            self._subscribe(TYPES[source.type], source.topic, self._command_callback(name))

    def _subscribe_states(self, needs: Needs) -> None:
        config = self._config
        for topic in filter(None, config.joint_state_topics):
            self._states(JointState, topic, self._take_joint_states)
        if not self._arrivals:
            raise ConfigError('robot.joint_state_topics is empty: at least one is needed')
        if needs.orientation or needs.angular_velocity:
            if config.imu_topic:
                self._states(Imu, config.imu_topic, self._take_imu)
            elif config.odometry_topic:
                self._states(Odometry, config.odometry_topic, self._take_odometry)
            else:
                raise ConfigError('robot.imu_topic and robot.odometry_topic are both empty, and '
                                  'the policy needs how the base is turned')
        if config.description_topic and not config.urdf:
            self._subscribe(String, config.description_topic, self._take_urdf, LATCHED_QOS)

    def _states(self, kind: type, topic: str, take: Callable[[Any, float, float], str | None],
                ) -> None:
        arrivals: collections.deque[float] = collections.deque(maxlen=RATE_MESSAGES)

        def store(message: Any) -> None:
            now, clock = time.monotonic(), self._clock.now().nanoseconds * 1e-9
            arrivals.append(clock if self._sim_time else now)
            refusal = take(message, clock, now)
            if refusal is None:
                self.on_arrival()
            else:
                self._warn(full, refusal)

        full = self._subscribe(kind, topic, store)
        self._arrivals[full] = arrivals

    def _take_joint_states(self, message: Any, clock: float, now: float) -> str | None:
        return self._measured.joint_states(message.name, message.position, message.velocity,
                                           message.effort, stamp_of(message), clock, now)

    def _take_imu(self, message: Any, clock: float, now: float) -> str | None:
        # -1 in front of the covariance is how a sensor says that it does not measure this.
        orientation = None if message.orientation_covariance[0] == -1.0 \
            else orientation_of(message.orientation)
        turning = None if message.angular_velocity_covariance[0] == -1.0 \
            else vector_of(message.angular_velocity)
        return self._measured.imu(orientation, turning, stamp_of(message), clock, now)

    def _take_odometry(self, message: Any, clock: float, now: float) -> str | None:
        return self._measured.odometry(
            orientation_of(message.pose.pose.orientation), vector_of(message.twist.twist.angular),
            stamp_of(message), clock, now)

    def _take_urdf(self, message: Any) -> None:
        self._urdf = message.data

    def _command_callback(self, name: str) -> Callable[[Any], None]:
        def store(message: Any) -> None:
            values = command_values(message)
            refusal: str | None = ''
            if hasattr(message, 'pose'):
                values, refusal = self._frames.to_base(values, message.header.frame_id)
            refusal = refusal or self._measured.command(name, values, time.monotonic())
            if refusal:
                self._warn(f'command {name}', refusal)
        return store

    def _warn(self, source: str, refusal: str) -> None:
        self._node.get_logger().warning(f'{source}: {refusal}', throttle_duration_sec=5.0)


def others_told(link: RobotLink, config: Config) -> list[str]:
    """Say who else commands the robot, in a line; empty = nobody, or it is allowed."""
    others = [] if config.deploy.allow_other_publishers else link.other_publishers()
    if not others:
        return []
    return [f'{", ".join(others)} publishes on {link.topic}, too '
            '(deploy.allow_other_publishers)']


def is_unwatched(config: Config, interface: str) -> bool:
    """Say whether commands go where the last one holds for ever, and that is not allowed."""
    return (config.robot.output == 'forward_command' and interface != 'position'
            and not config.deploy.allow_unwatched)


def _nothing() -> None:
    pass


def _rate(times: list[float]) -> float:
    if len(times) < 2:
        return 0.0
    span = times[-1] - times[0]
    return (len(times) - 1) / span if span > 0.0 else float('inf')

"""Listen to a robot as the policy node does, without a word: what `check_deploy` looks at."""

from collections.abc import Callable, Iterator
import time

import numpy as np
from rclpy.node import Node
from sensor_msgs.msg import JointState

from asyncppo_ros.config import Config
from asyncppo_ros.errors import PolicyError, UserError
from asyncppo_ros.nodes.policy_deployment import sensor_settings, velocity_commands
from asyncppo_ros.nodes.qos import SENSOR_QOS
from asyncppo_ros.nodes.robot_link import RobotLink
from asyncppo_ros.nodes.robot_messages import TYPES
from asyncppo_ros.robot.limits import Limits
from asyncppo_ros.robot.measured import MeasuredState
from asyncppo_ros.robot.pilot import Pilot
from asyncppo_ros.robot.topics import command_topics, joint_names

# Everything must have come within this time [s]; discovery alone may take a second.
DISCOVERY_S = 3.0
# Once all topics have come, joints that are told by none of them are waited for so long [s].
REST_S = 0.3
# Callbacks are waited for at most so long [s].
SPIN_S = 0.02
_EVERY_ROW = slice(None)


class RobotListener:
    """
    What is heard of a robot.

    Parameters
    ----------
    node : Node
        With an executor, which is spun here.
    pilot : Pilot
        Of the policy that is meant for it.
    config : Config

    Attributes
    ----------
    joints : tuple of str
        All of the policy's state.
    names : dict from str to str
        Their names on the robot.
    measured : MeasuredState
    link : RobotLink
        Which sends nothing.
    observations : list of float32 [O]
        Raw, one per control step, each as at the start of an episode.
    faults : dict from str to str
        What was wrong at any time, the newest of each kind.
    told : dict from str to set of str
        The joints that each topic tells, by their names on the robot.

    Raises
    ------
    ConfigError, RobotError
        The settings do not fit the policy.

    """

    def __init__(self, node: Node, pilot: Pilot, config: Config) -> None:
        self._node, self._pilot, self._config = node, pilot, config
        needs = pilot.needs
        self.joints: tuple[str, ...] = tuple(pilot.card['task']['joints'])
        self.names = joint_names(config.robot.joint_names, self.joints)
        self._sources = command_topics(config.robot.command_topics,
                                       {name: need.size for name, need in needs.commands.items()})
        self.measured = MeasuredState(
            needs, self.joints, len(pilot.joints), self.names, sensor_settings(config),
            velocity_commands(config.robot, needs))
        self.link = RobotLink(node, config.robot, self.measured, needs,
                              [self.names[joint] for joint in pilot.joints], pilot.interface,
                              publishes=False)
        self.observations: list[np.ndarray] = []
        self.faults: dict[str, str] = {}
        self.told: dict[str, set[str]] = {}
        for topic in filter(None, config.robot.joint_state_topics):
            self._note_names(topic)

    def listen(self, seconds: float, stop: Callable[[], bool]) -> None:
        """Wait until everything was heard, or `DISCOVERY_S`; then collect for `seconds`."""
        self._spin(DISCOVERY_S, lambda: stop() or self._is_heard())
        self._spin(REST_S, lambda: stop() or not self.measured.missing())
        next_sample = time.monotonic()

        def sample() -> bool:
            nonlocal next_sample
            if time.monotonic() >= next_sample:
                next_sample += self._pilot.control_dt
                self._sample()
            return stop()
        self._spin(seconds, sample)

    def topics(self) -> Iterator[tuple[str, str]]:
        """Give every topic that is listened to, in full, and the type that is expected."""
        robot = self._config.robot
        for topic in self.link.listened:
            if topic in self.told:
                yield topic, type_name(JointState)
            else:
                yield topic, ('sensor_msgs/msg/Imu' if robot.imu_topic
                              else 'nav_msgs/msg/Odometry')
        for source in self._sources.values():
            yield self._node.resolve_topic_name(source.topic), type_name(TYPES[source.type])

    def ages(self) -> dict[str, float]:
        """Give how long ago each topic was last heard [s]; inf = never."""
        ages = self.measured.ages(time.monotonic())
        return {**self.link.ages(), **{
            self._node.resolve_topic_name(source.topic): ages[f'command {name}']
            for name, source in self._sources.items()}}

    def values(self) -> dict[str, float]:
        """Give the positions of all joints now, by their names in the policy."""
        state = self.measured.read(time.monotonic())
        return dict(zip(self.joints, state.joint_position[0].tolist()))

    def first_command(self, limits: Limits) -> np.ndarray | None:
        """Give what the policy would command first [A], within the limits; None = nothing."""
        if self.measured.missing():
            return None
        state = self.measured.read(time.monotonic())
        self._pilot.begin(state)
        try:
            return np.clip(self._pilot.target(state), limits.low, limits.high)
        except (UserError, PolicyError):
            return None

    def _sample(self) -> None:
        if self.measured.missing():
            return
        now = time.monotonic()
        for fault in self.measured.faults(now):
            # The numbers in it change.
            self.faults[fault.partition(':')[0]] = fault
        row = np.empty((1, self._pilot.observation.size), np.float32)
        state = self.measured.read(now)
        state.last_action[...] = 0.0
        self._pilot.observation.reset(state, _EVERY_ROW, row)
        self.observations.append(row[0])

    def _is_heard(self) -> bool:
        """Say whether every topic has come, and who is at the other end of the commands."""
        robot = self._config.robot
        urdf_is_known = bool(robot.urdf or not robot.description_topic or self.link.robot_urdf())
        return (urdf_is_known and self.link.ages().keys() == set(self.link.listened)
                and self.link.listeners() > 0 and self._order_is_known())

    def _order_is_known(self) -> bool:
        if self._config.robot.output != 'forward_command':
            return True
        try:
            return self.link.controller_order() is not None
        except UserError:
            return True  # it is, and it is wrong

    def _spin(self, seconds: float, until: Callable[[], bool]) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            self._node.executor.spin_once(min(SPIN_S, 0.5 * self._pilot.control_dt))

    def _note_names(self, topic: str) -> None:
        names = self.told.setdefault(self._node.resolve_topic_name(topic), set())
        self._node.create_subscription(JointState, topic,
                                       lambda message: names.update(message.name), SENSOR_QOS)


def type_name(kind: type) -> str:
    """Give the name of a message type as ROS 2 shows it, such as std_msgs/msg/String."""
    return f'{kind.__module__.partition(".")[0]}/msg/{kind.__name__}'

"""Simulated robot: MuJoCo behind the topics of a real one, in real time or in lockstep."""

import dataclasses
import json
import pathlib
import time
from typing import Any
import xml.etree.ElementTree as ElementTree

from builtin_interfaces.msg import Time
from nav_msgs.msg import Odometry
import numpy as np
from rclpy.node import Node
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import String
from std_srvs.srv import Trigger

from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.nodes import sim_robot_messages as messages
from asyncppo_ros.nodes.context import running
from asyncppo_ros.nodes.parameters import read_config, TakesSettings
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.nodes.qos import COMMAND_QOS, LATCHED_QOS
from asyncppo_ros.nodes.robot_messages import OUTPUT_TYPES, TYPES
from asyncppo_ros.robot.topics import command_topics, controller_of, joint_names, output_topic
from asyncppo_ros.simulation.robot import SimulatedRobot
from asyncppo_ros.simulation.sensors import Sample

# In lockstep what was said is said again after this time without a command [s].
REPEAT_S = 0.02
# What the task asks for is published at least so often in real time [s].
ASK_S = 0.05
# Real time that was missed by more than this is given up instead of caught up with [s].
MOST_BEHIND_S = 0.2
# A stamp of 0 means "not stamped", so simulated time begins later [ns].
START_NS = 1_000_000_000
# Next to the seed: which messages are lost, and in which order joints are told.
_MESSAGE_STREAM = 4


class SimRobotNode(TakesSettings, Node):
    """
    A robot for people without one.

    Topics out: joint states, IMU, odometry, ``robot_description`` (as ``robot.*`` names them),
    ``/clock``; with ``sim_robot.ask`` what the task asks for and ``~/episode`` (JSON, latched).
    Topics in: commands, of the type that ``robot.output`` says.  Services: ``~/reset`` begins
    the next episode; ``CONTROLLER/get_parameters`` tells the ``joints`` of the
    forward_command_controller, where commands go to one.
    """

    def __init__(self, stop: StopRequest) -> None:
        super().__init__('sim_robot')
        self.config: Config = read_config(self)
        self._stop = stop
        self._settings, self._topics = self.config.sim_robot, self.config.robot
        self._robot = SimulatedRobot(self.config.task, self._settings, self._topics.imu_rotation)
        names = joint_names(self._topics.joint_names, self._robot.joints)
        self._names = [names[joint] for joint in self._robot.joints]
        self._policy_names = {name: joint for joint, name in names.items()}
        self._rng = np.random.default_rng((self._settings.seed, _MESSAGE_STREAM))
        self._with_clock = self._settings.lockstep or self._settings.publish_clock
        self._clock_ns = START_NS
        # Whether a command has come since the last control step.
        self._came = False
        self._deaf = False
        self._told = False
        self._asked_at = -float('inf')
        self._make_publishers()
        self._describe(names)
        #: Stands for the controller that is asked for its joints; to be spun as well.
        self.controller: Node | None = None
        self._listen(names)
        self._reset_service = self.create_service(Trigger, '~/reset', self._reset)
        self.get_logger().info(
            f'robot of {self.config.task}: {len(self._names)} joints, {self._robot.interface} '
            f'commands on {self._subscription.topic_name}, '
            + ('in lockstep' if self._settings.lockstep else f'{self._settings.speed:g} times '
               'real time') + '; held until the first command')

    def run_until_stopped(self) -> None:
        """Be the robot."""
        if self._settings.lockstep:
            self._run_in_lockstep()
        else:
            self._run_in_real_time()

    def _make_publishers(self) -> None:
        topics, settings = self._topics, self._settings
        has_base = self._robot.read().imu is not None
        self._joint_publishers = [self.create_publisher(JointState, topic, COMMAND_QOS)
                                  for topic in filter(None, topics.joint_state_topics)]
        if not self._joint_publishers:
            raise ConfigError('robot.joint_state_topics is empty: at least one is needed')
        # Where there are several topics, each tells some of the joints.
        self._parts = np.array_split(np.arange(len(self._names)), len(self._joint_publishers))
        self._imu = self.create_publisher(Imu, topics.imu_topic, COMMAND_QOS) \
            if has_base and topics.imu_topic else None
        self._odometry = self.create_publisher(
            Odometry, topics.odometry_topic or 'odom', COMMAND_QOS) \
            if has_base and settings.odometry else None
        self._clock = self.create_publisher(Clock, '/clock', COMMAND_QOS) \
            if self._with_clock else None
        self._episode = self.create_publisher(String, '~/episode', LATCHED_QOS) \
            if settings.ask else None
        asked = command_topics(topics.command_topics, self._robot.command_sizes) \
            if settings.ask else {}
        self._asked = {name: (entry.type, self.create_publisher(TYPES[entry.type], entry.topic,
                                                                COMMAND_QOS))
                       for name, entry in asked.items()}

    def _describe(self, names: dict[str, str]) -> None:
        """Publish the URDF, for RViz and for who wants to know limits."""
        path = pathlib.Path(self._topics.urdf or self._robot.model_file.with_suffix('.urdf'))
        if not self._topics.description_topic or not (self._topics.urdf or path.is_file()):
            return
        try:
            text = path.read_text()
        except OSError as error:
            raise ConfigError(f'robot.urdf = {path}: {error.strerror}') from error
        self._description = self.create_publisher(String, self._topics.description_topic,
                                                  LATCHED_QOS)
        self._description.publish(String(data=_renamed(text, names, path)))

    def _listen(self, names: dict[str, str]) -> None:
        output = self._topics.output
        topic = output_topic(output, self._topics.output_topic)
        self._subscription = self.create_subscription(
            OUTPUT_TYPES[output], topic, self._take, COMMAND_QOS)
        if output == 'forward_command':
            self._order = self._controller_order(names)
            namespace, _, name = controller_of(self._subscription.topic_name).rpartition('/')
            if name:
                # Its name is its own: a remapping of this node's must not hit it.
                self.controller = Node(name, namespace=namespace or '/',
                                       use_global_arguments=False)
                self.controller.declare_parameter('joints', self._order)
                self.controller.declare_parameter('interface_name', self._robot.interface)

    def _controller_order(self, names: dict[str, str]) -> list[str]:
        moved = [names[joint] for joint in self._robot.moved]
        given = [joint for joint in self._topics.joint_order if joint]
        if given and sorted(given) != sorted(moved):
            raise ConfigError(f'robot.joint_order = {", ".join(given)}: must be all of '
                              f'{", ".join(moved)}, in any order')
        if not given and self._settings.shuffle_joints:
            return [moved[j] for j in self._rng.permutation(len(moved))]
        return given or moved

    def _take(self, message: Any) -> None:
        output, robot = self._topics.output, self._robot
        if robot.ended or self._deaf:
            return
        if output == 'joint_trajectory':
            goal = messages.goal_of_trajectory(message, robot.interface)
        elif output == 'joint_state':
            goal = messages.goal_of_joint_state(message, robot.interface)
        else:
            goal = messages.goal_of_numbers(message, robot.interface, self._order)
        joints = [self._policy_names.get(name, name) for name in goal.joints]
        refusal = robot.command(goal.interface, joints, goal.values, goal.times)
        if refusal is None:
            self._came = True
        else:
            self.get_logger().warning(f'{self._subscription.topic_name}: refused: {refusal}',
                                      throttle_duration_sec=2.0)

    def _reset(self, _request: Any, response: Any) -> Any:
        episode = self._robot.reset()
        self._came, self._told = False, False
        self._asked_at = -float('inf')
        if self._settings.lockstep:
            # What is said of the new episode is newer than all that was said before.
            self._clock_ns += _ns(self._robot.control_dt)
            self._news = self._compose()
            self._say(self._news)
        response.success, response.message = True, f'episode {episode}'
        return response

    def _run_in_lockstep(self) -> None:
        robot = self._robot
        self._news = self._compose()
        while not self._stop():
            self._say(self._news)
            self._tell_result()
            again = time.monotonic() + REPEAT_S
            while not self._came and not self._stop():
                self.executor.spin_once(timeout_sec=max(0.0, again - time.monotonic()))
                if not self._came and time.monotonic() >= again:
                    self._say(self._news)
                    again = time.monotonic() + REPEAT_S
            if self._came:
                self._came = False
                robot.advance(robot.substeps)
                self._clock_ns += _ns(robot.control_dt)
                self._leave_out_repetitions()
                self._news = self._compose()

    def _leave_out_repetitions(self) -> None:
        """Drop a command that came before the new state is told: it is no answer to it."""
        self._deaf = True
        self.executor.spin_once(timeout_sec=0.0)
        self._deaf = False

    def _run_in_real_time(self) -> None:
        robot, settings = self._robot, self._settings
        steps = max(1, round(1.0 / (settings.state_rate * robot.physics_dt)))
        period = steps * robot.physics_dt
        due = time.monotonic()
        while not self._stop():
            # Once at least: a machine that is too slow must still hear.
            self.executor.spin_once(timeout_sec=max(0.0, due - time.monotonic()))
            late = time.monotonic() - due
            if late < 0.0:
                continue
            if late > MOST_BEHIND_S:
                self.get_logger().warning(f'this machine is too slow: {late:.1f} s of real time '
                                          'were left out', throttle_duration_sec=5.0)
                due = time.monotonic()
            robot.advance(steps)
            self._clock_ns += _ns(period)
            self._say(self._compose())
            self._tell_result()
            due += period / settings.speed

    def _compose(self) -> list[tuple[Any, Any]]:
        """Make the messages of this moment, each with its publisher, in the order of sending."""
        sample, news = self._robot.read(), []
        stamp = self._stamp(sample)
        if self._asks_now():
            frame = self._topics.base_frame
            news += [(self._asked[name][1], messages.asked(self._asked[name][0], values, frame,
                                                           stamp))
                     for name, values in self._robot.asked().items() if name in self._asked]
        if self._imu is not None and sample.imu is not None:
            news.append((self._imu, messages.imu(sample.imu, stamp)))
        if self._odometry is not None and sample.odometry is not None:
            news.append((self._odometry, messages.odometry(
                sample.odometry, self._topics.base_frame, stamp)))
        for publisher, part in zip(self._joint_publishers, self._parts):
            order = self._rng.permutation(part) if self._settings.shuffle_joints else part
            news.append((publisher, messages.joint_state(sample, self._names, order, stamp)))
        if self._clock is not None:
            news.append((self._clock, Clock(clock=_time(self._clock_ns))))
        return news

    def _say(self, news: list[tuple[Any, Any]]) -> None:
        lossy = (self._imu, self._odometry, *self._joint_publishers)
        for publisher, message in news:
            lost = self._settings.drop and publisher in lossy \
                and self._rng.random() < self._settings.drop
            if not lost:
                publisher.publish(message)

    def _stamp(self, sample: Sample) -> Time:
        if self._settings.lockstep:
            return _time(self._clock_ns)
        age = self._robot.time - sample.time
        if self._with_clock:
            return _time(self._clock_ns - _ns(age))
        return _time(time.time_ns() - _ns(age / self._settings.speed))

    def _asks_now(self) -> bool:
        """Say whether the operator speaks: each time in lockstep, now and then in real time."""
        now = time.monotonic()
        if not self._asked or (not self._settings.lockstep and now < self._asked_at + ASK_S):
            return False
        self._asked_at = now
        return True

    def _tell_result(self) -> None:
        robot = self._robot
        if not robot.ended or self._told:
            return
        self._told = True
        if robot.instabilities and robot.result is None:
            self.get_logger().error('the physics became unstable; held until ~/reset')
        if self._episode is not None and robot.result is not None:
            values = dataclasses.asdict(robot.result)
            values['return'] = values.pop('episode_return')
            self._episode.publish(String(data=json.dumps(values)))


def _renamed(urdf: str, names: dict[str, str], path: pathlib.Path) -> str:
    """Give a URDF with its joints called as on the robot."""
    if all(joint == name for joint, name in names.items()):
        return urdf
    try:
        root = ElementTree.fromstring(urdf)
    except ElementTree.ParseError as error:
        raise ConfigError(f'robot.urdf = {path}: not XML: {error}') from error
    for joint in root.iter('joint'):
        joint.set('name', names.get(joint.get('name', ''), joint.get('name', '')))
    return ElementTree.tostring(root, encoding='unicode')


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _time(nanoseconds: int) -> Time:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return Time(sec=seconds, nanosec=rest)


def run(arguments: list[str], stop: StopRequest) -> int:
    """Run the simulated robot until it is stopped."""
    with running(lambda: SimRobotNode(stop), arguments) as node:
        controller = node.controller
        if controller is not None:
            node.executor.add_node(controller)
        try:
            node.run_until_stopped()
        finally:
            if controller is not None:
                node.executor.remove_node(controller)
                controller.destroy_node()
    return 0

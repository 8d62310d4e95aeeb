"""
The nodes of ``asyncppo bench deploy``: a made-up robot, and a bare loop to compare with.

The bare loop is a process of its own: ``python -m asyncppo_ros.tools.bench.deploy_nodes RATE``.
Its callbacks store messages, a thread publishes a trajectory at each tick, and nothing else is
done: no observation, no policy, no checks.
"""

import array
from collections.abc import Callable, Iterator, Sequence
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import Twist
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import MultiArrayDimension, String, UInt8MultiArray
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from asyncppo_ros.errors import RunError
from asyncppo_ros.nodes.policy_pace import SteadyPace
from asyncppo_ros.nodes.policy_timing import Timing
from asyncppo_ros.nodes.process import child_environment, die_with_parent, StopRequest
from asyncppo_ros.nodes.qos import (
    COMMAND_QOS,
    LATCHED_QOS,
    POLICY_QOS,
    POLICY_TOPIC,
    SENSOR_QOS,
)
from asyncppo_ros.tools.bench.made_up_policy import JOINTS, START
from asyncppo_ros.tools.stopwatch import cpu_seconds

TOPIC = 'joint_trajectory_controller/joint_trajectory'
# So long a node may take until it commands, and until it has ended [s].
START_S = 60.0
END_S = 20.0
# A newer policy comes this often: at another moment of the control step each time [s].
PUBLISH_S = 0.2371
COUNTS = ('steps', 'missed_steps')
SETTINGS = {'deploy.autostart': 'true', 'deploy.ramp_s': '0.1', 'deploy.frozen_s': '0.0',
            'deploy.state_timeout_s': '1.0', 'deploy.max_deadline_misses': '10000',
            'deploy.start_tolerance': '1.0', 'robot.description_topic': '""',
            'deploy.live': 'true', 'deploy.blend_s': '0.1'}


def measure(kind: str, policy: pathlib.Path, rate: float, seconds: float,
            stop: StopRequest, newer: Sequence[bytes] = ()) -> dict[str, float]:
    """
    Run a node beside a robot that tells its state at the same rate.

    Parameters
    ----------
    kind : str
        ``bare``, or else a policy node.
    policy : Path
    rate : float
        Of control steps, and of joint states and IMU [Hz].
    seconds : float
        From the first command on.
    stop : StopRequest
    newer : sequence of bytes
        Policies that are published meanwhile, one each `PUBLISH_S`.

    Returns
    -------
    dict
        What `Timing.percentiles` gives, of the last steps of the measurement [ms]; ``cpu``, the
        time that the node had of a core for each second; and of a policy node ``steps``,
        ``missed_steps`` and what `Takeovers.percentiles` gives.

    Raises
    ------
    RunError
        The node ends, or does not begin.

    """
    namespace = f'/asyncppo_bench_{os.getpid()}'
    command = [sys.executable, '-m', 'asyncppo_ros.tools.bench.deploy_nodes', str(rate)] \
        if kind == 'bare' else [sys.executable, '-m', 'asyncppo_ros.nodes.main', 'policy']
    command += ['--ros-args', '-r', f'__ns:={namespace}']
    if kind != 'bare':
        command += [part for name, value in {**SETTINGS, 'deploy.policy': str(policy)}.items()
                    for part in ('-p', f'{name}:={value}')]
    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    robot = _Robot(namespace, rate)
    process = subprocess.Popen(command, env=child_environment(), stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        _spin(robot, process, START_S, lambda: stop() or robot.commands > 0)
        if not robot.commands and not stop():
            raise RunError(f'{kind} at {rate:g} Hz: no command within {START_S:g} s')
        robot.newer = iter(newer)
        begun, used = time.monotonic(), cpu_seconds(process.pid)
        _spin(robot, process, seconds, stop)
        cpu = (cpu_seconds(process.pid) - used) / (time.monotonic() - begun)
        robot.said = {}
        # What is told now is about the measurement.
        _spin(robot, process, END_S, lambda: stop() or bool(robot.said))
        return {**robot.said, 'cpu': cpu}
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        robot.destroy()
        rclpy.try_shutdown()


class _Robot:
    """Tells its joints and its IMU, counts commands, and hears what the node says of its times."""

    def __init__(self, namespace: str, rate: float) -> None:
        self.node = Node('made_up_robot', namespace=namespace)
        self.executor = SingleThreadedExecutor()
        self.executor.add_node(self.node)
        self.commands = 0
        self.said: dict[str, float] = {}
        self.newer: Iterator[bytes] = iter(())
        self._ticks = 0
        self._states = self.node.create_publisher(JointState, 'joint_states', COMMAND_QOS)
        self._imu = self.node.create_publisher(Imu, 'imu/data', COMMAND_QOS)
        self._state = JointState(name=list(JOINTS), velocity=array.array('d', [0.0] * len(JOINTS)))
        self._turning = Imu()
        self._turning.orientation.w = 1.0
        self.node.create_subscription(JointTrajectory, TOPIC, self._count, COMMAND_QOS)
        self.node.create_subscription(DiagnosticArray, '/diagnostics', self._hear, 10)
        self.node.create_subscription(String, 'bare_loop/timing', self._hear_bare, LATCHED_QOS)
        self._policies = self.node.create_publisher(UInt8MultiArray, POLICY_TOPIC, POLICY_QOS)
        self.node.create_timer(1.0 / rate, self._tell)
        self.node.create_timer(PUBLISH_S, self._publish_newer)

    def destroy(self) -> None:
        self.executor.remove_node(self.node)
        self.node.destroy_node()
        self.executor.shutdown()

    def _tell(self) -> None:
        self._ticks += 1
        stamp = self.node.get_clock().now().to_msg()
        self._state.header.stamp = self._turning.header.stamp = stamp
        noise = 1e-4 * (self._ticks % 7)
        self._state.position = array.array('d', [value + noise for value in START])
        self._states.publish(self._state)
        self._imu.publish(self._turning)

    def _publish_newer(self) -> None:
        data = next(self.newer, None)
        if data is not None:
            message = UInt8MultiArray(data=array.array('B', data))
            message.layout.dim = [MultiArrayDimension(size=len(data), stride=len(data))]
            self._policies.publish(message)

    def _count(self, _message: JointTrajectory) -> None:
        self.commands += 1

    def _hear(self, message: DiagnosticArray) -> None:
        for status in message.status:
            if status.name.startswith(self.node.get_namespace().lstrip('/')) and status.values:
                self.said = {pair.key: float(pair.value) for pair in status.values
                             if '_ms_' in pair.key or pair.key in COUNTS}

    def _hear_bare(self, message: String) -> None:
        self.said = json.loads(message.data)


def _spin(robot: _Robot, process: subprocess.Popen, seconds: float,
          until: Callable[[], Any]) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not until():
        robot.executor.spin_once(0.1)
        if process.poll() is not None:
            said = process.stderr.read().strip() if process.stderr else ''
            raise RunError(f'a node ended with exit code {process.returncode}: {said[-300:]}')


class BareLoop:
    """A thread that publishes a trajectory at each tick, of what callbacks have stored."""

    def __init__(self, node: Node, rate: float) -> None:
        self._pace, self.timing = SteadyPace(1.0 / rate), Timing()
        self._came = 0.0
        self._position = array.array('d', START)
        self._turning = self._wish = None
        self._point = JointTrajectoryPoint()
        self._message = JointTrajectory(joint_names=list(JOINTS), points=[self._point])
        self._publisher = node.create_publisher(JointTrajectory, TOPIC, COMMAND_QOS)
        node.create_subscription(JointState, 'joint_states', self._store, SENSOR_QOS)
        node.create_subscription(Imu, 'imu/data', self._store_imu, SENSOR_QOS)
        node.create_subscription(Twist, 'cmd_vel', self._store_wish, SENSOR_QOS)

    def run(self, stop: Callable[[], bool]) -> None:
        """Tick until the end is asked for."""
        self._pace.begin()
        wake = threading.Event()
        while not stop():
            now = time.monotonic()
            seconds = self._pace.until_due(now)
            if seconds > 0.0:
                wake.wait(seconds)
                continue
            late, missed = self._pace.step(now)
            if self._came:
                self._point.positions = self._position
                self._publisher.publish(self._message)
                self.timing.add(time.monotonic() - now, now - self._came, late, missed)

    def _store(self, message: JointState) -> None:
        self._position, self._came = message.position, time.monotonic()

    def _store_imu(self, message: Imu) -> None:
        self._turning = message.angular_velocity

    def _store_wish(self, message: Twist) -> None:
        self._wish = message.linear


def run_bare(rate: float, arguments: list[str]) -> None:
    """Run the bare loop until SIGTERM; each second it says its times on ``~/timing``."""
    stop = StopRequest().install()
    die_with_parent()
    rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
    node = Node('bare_loop')
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    loop = BareLoop(node, rate)
    said = node.create_publisher(String, '~/timing', LATCHED_QOS)
    node.create_timer(1.0, lambda: said.publish(
        String(data=json.dumps(loop.timing.percentiles()))))
    thread = threading.Thread(target=loop.run, args=(stop,))
    thread.start()
    while not stop():
        executor.spin_once(0.1)
    thread.join()
    executor.remove_node(node)
    node.destroy_node()
    executor.shutdown()
    rclpy.try_shutdown()


if __name__ == '__main__':
    run_bare(float(sys.argv[1]), sys.argv[2:])

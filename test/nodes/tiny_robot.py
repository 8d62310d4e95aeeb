"""
A robot of a few joints behind ROS 2 topics, good or bad in one way; run as a process.

    python tiny_robot.py NAMESPACE [VARIANT ...]

It tells joint states and an IMU, follows the first point of each joint trajectory or a
Float64MultiArray, and stops on SIGTERM.  Variants are words: see `Robot`.
"""

import array
import signal
import sys
import threading
import time

import rclpy
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import Float64, Float64MultiArray, String
from trajectory_msgs.msg import JointTrajectory

JOINTS = ('hip', 'knee', 'ankle')
START = {'hip': 0.1, 'knee': -0.5, 'ankle': 0.3}
CONTROLLER = 'legs_controller'


def urdf(velocity=10.0, lower=-1.0):
    joints = ''.join(
        f'<joint name="{name}" type="revolute"><limit lower="{lower}" upper="1.0" '
        f'velocity="{velocity}" effort="20"/></joint>' for name in JOINTS)
    return f'<robot name="tiny"><link name="base"/>{joints}</robot>'


class Robot(Node):
    """
    Tells its joints `rate` times a second.

    ``RATE=Hz``, ``shuffled`` (names backwards), ``degrees``, ``lying`` (far from the start pose),
    ``frozen``, ``nan``, ``without_knee``, ``twice`` (a joint), ``stamped_ahead``,
    ``wrong_type`` (joint_states carries something else), ``no_imu``, ``deaf`` (listens to no
    commands), ``second`` (publishes commands itself), ``forward`` (a forward command controller,
    whose joints are in another order), ``lame`` (that one lacks a joint), ``narrow`` (its URDF).
    """

    def __init__(self, namespace, variants):
        super().__init__('tiny_robot', namespace=namespace)
        values = dict(word.split('=') for word in variants if '=' in word)
        self.variants = {word for word in variants if '=' not in word}
        self.position = {name: value + ('lying' in self.variants) * 0.8
                         for name, value in START.items()}
        self.count = 0
        kind = Float64 if 'wrong_type' in self.variants else JointState
        self.states = self.create_publisher(kind, 'joint_states', 10)
        self.imu = self.create_publisher(Imu, 'imu/data', 10)
        latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self.description = self.create_publisher(String, 'robot_description', latched)
        self.description.publish(String(data=urdf(
            lower=-0.2 if 'narrow' in self.variants else -1.0)))
        if 'second' in self.variants:
            self.create_publisher(JointTrajectory,
                                  'joint_trajectory_controller/joint_trajectory', 1)
        if 'forward' in self.variants or 'lame' in self.variants:
            self.controller = Node(CONTROLLER, namespace=namespace)
            names = list(reversed(JOINTS[:2] if 'lame' in self.variants else JOINTS))
            self.controller.declare_parameter('joints', names)
            self.controller.create_subscription(Float64MultiArray, f'{CONTROLLER}/commands',
                                                lambda message: None, 1)
        elif 'deaf' not in self.variants:
            self.create_subscription(
                JointTrajectory, 'joint_trajectory_controller/joint_trajectory', self.obey, 1)
        self.create_timer(1.0 / float(values.get('RATE', 100.0)), self.tell)

    def obey(self, message):
        self.position.update(zip(message.joint_names, message.points[0].positions))

    def tell(self):
        self.count += 1
        if 'wrong_type' in self.variants:
            self.states.publish(Float64())
        else:
            self.states.publish(self.joint_state())
        if 'no_imu' not in self.variants:
            message = Imu()
            message.header.stamp = self.get_clock().now().to_msg()
            message.orientation.w = 1.0
            message.angular_velocity.x = self.wobble()
            self.imu.publish(message)

    def wobble(self):
        """Sensors that are not frozen say something else each time."""
        return 0.0 if 'frozen' in self.variants else 1e-4 * (self.count % 7)

    def joint_state(self):
        names = [name for name in JOINTS
                 if not (name == 'knee' and 'without_knee' in self.variants)] + ['gripper']
        if 'shuffled' in self.variants:
            names.reverse()
        if 'twice' in self.variants:
            names.append('hip')
        values = [self.position.get(name, 0.0) + self.wobble() for name in names]
        if 'degrees' in self.variants:
            values = [57.3 * value for value in values]
        if 'nan' in self.variants:
            values[0] = float('nan')
        message = JointState(name=names, position=array.array('d', values),
                             velocity=array.array('d', [self.wobble()] * len(names)))
        message.header.stamp = self.get_clock().now().to_msg()
        message.header.stamp.sec += 10 * ('stamped_ahead' in self.variants)
        return message


def main():
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    executor = rclpy.executors.SingleThreadedExecutor()
    robots = []
    # Several robots in one process: NAMESPACE VARIANT ... -- NAMESPACE VARIANT ...
    words = ' '.join(sys.argv[1:]).split(' -- ')
    for line in words:
        namespace, *variants = line.split()
        robots.append(Robot(namespace, variants))
        executor.add_node(robots[-1])
        if hasattr(robots[-1], 'controller'):
            executor.add_node(robots[-1].controller)
    print('ready', flush=True)
    until = time.monotonic() + 600.0
    while not stop.is_set() and time.monotonic() < until:
        executor.spin_once(0.1)
    executor.shutdown()
    rclpy.try_shutdown()


if __name__ == '__main__':
    main()

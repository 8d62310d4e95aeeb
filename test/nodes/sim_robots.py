"""Real sim_robot_node processes, each in a namespace, and a node that talks to one of them."""

import json
import subprocess
import sys
import time

from harness import wait_for
import numpy as np

from asyncppo_ros.nodes.process import child_environment


def start(namespace, **settings):
    """Start a simulated robot; names with ``__`` for the dots of the settings."""
    arguments = ['-r', f'__ns:=/{namespace}', '-r', f'/clock:=/{namespace}/clock']
    for name, value in settings.items():
        # JSON is YAML: true, numbers, text and lists alike.
        arguments += ['-p', f'{name.replace("__", ".")}:={json.dumps(value)}']
    return subprocess.Popen(
        [sys.executable, '-m', 'asyncppo_ros.nodes.main', 'sim_robot', '--ros-args', *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=child_environment())


class Talker:
    """Hears all that one robot tells, and commands it."""

    def __init__(self, rclpy, namespace, output='joint_trajectory', states=('joint_states',)):
        from nav_msgs.msg import Odometry
        from rosgraph_msgs.msg import Clock
        from sensor_msgs.msg import Imu, JointState
        from std_msgs.msg import String

        from asyncppo_ros.nodes.qos import COMMAND_QOS, LATCHED_QOS, SENSOR_QOS
        from asyncppo_ros.nodes.robot_messages import OUTPUT_TYPES
        from asyncppo_ros.robot.topics import output_topic
        self.rclpy, self.namespace, self.output = rclpy, namespace, output
        self.node = rclpy.create_node(f'talker_{namespace}')
        self.heard = {name: [] for name in ('states', 'imu', 'odom', 'clock', 'episodes',
                                            'description')}
        self.orders = set()
        for kind, topic, name, qos in (
                *((JointState, topic, 'states', SENSOR_QOS) for topic in states),
                (Imu, 'imu/data', 'imu', SENSOR_QOS), (Odometry, 'odom', 'odom', SENSOR_QOS),
                (Clock, 'clock', 'clock', 10), (String, 'sim_robot/episode', 'episodes',
                                                LATCHED_QOS),
                (String, 'robot_description', 'description', LATCHED_QOS)):
            self.node.create_subscription(kind, f'/{namespace}/{topic}', self.heard[name].append,
                                          qos)
        self.commands = self.node.create_publisher(
            OUTPUT_TYPES[output], f'/{namespace}/{output_topic(output)}', COMMAND_QOS)

    def listen(self, topic, kind):
        self.heard[topic] = []
        self.node.create_subscription(kind, f'/{self.namespace}/{topic}',
                                      self.heard[topic].append, 10)

    def spin(self, seconds=0.0):
        until = time.monotonic() + seconds
        while True:
            self.rclpy.spin_once(self.node, timeout_sec=0.02)
            if time.monotonic() >= until:
                return

    def wait(self, condition, what, timeout=60.0):
        def look():
            self.spin()
            return condition()
        return wait_for(look, what, timeout)

    def call(self, name, kind, request):
        client = self.node.create_client(kind, f'/{self.namespace}/{name}')
        assert client.wait_for_service(timeout_sec=30.0)
        future = client.call_async(request)
        self.wait(future.done, f'answer of {name}')
        return future.result()

    def reset(self):
        from std_srvs.srv import Trigger
        answer = self.call('sim_robot/reset', Trigger, Trigger.Request())
        assert answer.success
        return answer.message

    def state(self, joints, after=0.0):
        """Wait for states that are newer than `after` and hold all joints; give them in order."""
        def found():
            newest = {}
            for message in self.heard['states']:
                if stamp(message) > after:
                    newest.update({name: (stamp(message), *numbers) for name, *numbers in zip(
                        message.name, message.position, message.velocity, message.effort)})
            whole = set(joints) <= newest.keys() \
                and len({newest[joint][0] for joint in joints}) == 1
            return newest if whole else None
        newest = self.wait(found, 'states')
        self.orders |= {tuple(message.name) for message in self.heard['states']}
        self.heard['states'].clear()
        rows = np.array([newest[joint] for joint in joints])
        return rows[0, 0], rows[:, 1], rows[:, 2], rows[:, 3]

    def is_known(self):
        """Wait until the robot certainly hears."""
        self.wait(self.commands.get_subscription_count, 'robot that listens')
        self.wait(lambda: self.heard['states'], 'states')
        self.spin(1.0)

    def command(self, names, values, interface='position'):
        from asyncppo_ros.nodes.robot_messages import command_message
        message = command_message(self.output, names, interface, 0.0)
        self.commands.publish(message(np.asarray(values), self.node.get_clock().now().to_msg()))

    def close(self):
        self.node.destroy_node()


def stamp(message):
    time_ = message.header.stamp if hasattr(message, 'header') else message.clock
    return time_.sec + time_.nanosec * 1e-9

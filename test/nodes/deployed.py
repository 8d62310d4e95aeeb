"""A policy node as a process, a robot that can misbehave, and policies for both."""

import contextlib
import json
import math
import subprocess
import sys
import threading
import time

import numpy as np

from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.robot.actions import ActionMap
from asyncppo_ros.robot.observation import Observation
from asyncppo_ros.robot.terms import joint_position, joint_velocity

JOINTS = ('left', 'right')
START = (0.1, -0.1)
CONTROL_DT = 0.1
URDF = """<robot name="two"><link name="a"/><link name="b"/><link name="c"/>
<joint name="left" type="revolute"><parent link="a"/><child link="b"/>
<limit lower="-2.0" upper="2.0" velocity="30.0" effort="9.0"/></joint>
<joint name="right" type="revolute"><parent link="b"/><child link="c"/>
<limit lower="-1.0" upper="1.0" velocity="30.0" effort="9.0"/></joint></robot>"""
# Generous times: tests run beside other programs.
PATIENT = {'deploy.state_timeout_s': 2.0, 'deploy.max_deadline_misses': 10_000,
           'deploy.frozen_s': 0.0, 'deploy.ramp_s': 0.0, 'deploy.clock_tolerance_s': 3.0}


def two_joint_card(terms=None, interface='position', mode='absolute', commands=None, scale=0.5,
                   offset=START, joints=JOINTS, **action):
    """Describe a made-up robot of two joints as a task would."""
    terms = terms or [joint_position(JOINTS), joint_velocity(JOINTS)]
    return {'task': 'two_joints', 'control_dt': CONTROL_DT,
            'observation': Observation(terms).card(),
            'action': ActionMap(joints, CONTROL_DT, interface, mode, offset=offset, scale=scale,
                                **action).card(),
            'joints': list(JOINTS), 'controller': {'effort_limit': [5.0, 5.0]},
            'commands': commands or {}, 'start_pose': dict(zip(JOINTS, START)),
            'deployable': True, 'simulation_only': []}


def made_policy(card, version=1, bias=(0.0, 0.0), gain=0.5, run_id=7, key=None, generation=1):
    """Write a linear policy: tanh(bias + gain · a fixed mixture of the observation)."""
    rows = sum(entry['size'] * entry.get('history', 1) for entry in card['observation'])
    size = len(card['action']['joints'])
    weight = gain * np.random.default_rng(0).normal(size=(size, rows))
    tensors = {'policy.0.weight': weight, 'policy.0.bias': np.array(bias),
               'distribution.log_std': np.zeros(size)}
    tensors = {name: tensor.astype(np.float32) for name, tensor in tensors.items()}
    tensors.update({'normalizer.mean': np.zeros(rows), 'normalizer.variance': np.ones(rows),
                    'normalizer.count': np.ones(1)})
    architecture = {'observation_size': rows, 'action_size': size, 'hidden_sizes': [],
                    'activation': 'tanh', 'distribution': 'tanh_gaussian',
                    'observation_clip': 10.0}
    return PolicySnapshot.make(
        {'run_id': run_id, 'generation': generation, 'policy_version': version,
         'gradient_steps': 0, 'env_steps': 0, 'task': card, 'architecture': architecture},
        tensors, key)


class Robot:
    """
    Joints behind topics, which do what they are told at once; every fault is an attribute.

    It also listens to all that the policy node says.
    """

    def __init__(self, rclpy, namespace, output='joint_trajectory', imu=False, urdf=URDF,
                 rate=100.0):
        from rclpy.executors import SingleThreadedExecutor
        from sensor_msgs.msg import Imu, JointState
        from std_msgs.msg import String

        from asyncppo_ros.nodes.qos import LATCHED_QOS
        from asyncppo_ros.nodes.robot_messages import OUTPUT_TYPES
        self.rclpy, self.output, self.rate = rclpy, output, rate
        self.node = rclpy.create_node('robot', namespace=namespace)
        self._states = self.node.create_publisher(JointState, 'joint_states', 10)
        self._imu = self.node.create_publisher(Imu, 'imu/data', 10) if imu else None
        if urdf:
            self._urdf = self.node.create_publisher(String, 'robot_description', LATCHED_QOS)
            self._urdf.publish(String(data=urdf))
        topic = {'joint_trajectory': 'joint_trajectory_controller/joint_trajectory',
                 'forward_command': 'forward_command_controller/commands',
                 'joint_state': 'joint_command'}[output]
        self._commands = self.node.create_subscription(
            OUTPUT_TYPES[output], topic, self._obey, 100)
        self.node.create_subscription(String, 'policy_node/state', self._hear_state, LATCHED_QOS)
        self.node.create_subscription(String, 'policy_node/policy_info', self._hear_info,
                                      LATCHED_QOS)
        self.heard, self.states, self.info = [], [], {}
        self.healthy()
        self._executor, self._end = SingleThreadedExecutor(), threading.Event()
        self._executor.add_node(self.node)
        self._threads = [threading.Thread(target=body) for body in (self._spin, self._tell)]
        for thread in self._threads:
            thread.start()

    def healthy(self, position=START):
        """Undo every fault and stand at a pose."""
        self.position = dict(zip(JOINTS, position))
        self.velocity = dict.fromkeys(JOINTS, 0.0)
        self.obeys = True
        #: Names in the order in which they are told.
        self.names = lambda: list(JOINTS)
        self.silent, self.stamp_offset = False, 0.0
        self.pause = 0.0
        self.quaternion = (0.0, 0.0, 0.0, 1.0)
        self.noise = 0.0

    def publisher(self, kind, topic, qos=10):
        """Publish something else, in the namespace of the robot."""
        return self.node.create_publisher(kind, topic, qos)

    def tell(self, publisher, message, heard, what):
        """
        Publish until it is heard.

        A publisher may know a reader that does not know it yet: what it then says once is lost.
        """
        self.wait(lambda: publisher.publish(message) or heard(), what)

    def close(self):
        self._end.set()
        for thread in self._threads:
            thread.join()
        self._executor.shutdown()
        self.node.destroy_node()

    @property
    def commands(self):
        """Every command so far: (steady time, {joint: value})."""
        return list(self.heard)

    def since(self, begun):
        return [values for at, values in self.commands if at >= begun]

    def call(self, service, timeout=60.0):
        """Call a std_srvs/Trigger of the policy node."""
        from std_srvs.srv import Trigger
        return self.ask(Trigger, f'policy_node/{service}', Trigger.Request(), timeout)

    def transition(self, label, timeout=60.0):
        """Ask for a lifecycle transition; say whether it was made."""
        from lifecycle_msgs.msg import Transition
        from lifecycle_msgs.srv import ChangeState
        request = ChangeState.Request(transition=Transition(label=label))
        return self.ask(ChangeState, 'policy_node/change_state', request, timeout).success

    def ask(self, kind, name, request, timeout=60.0):
        client = self.node.create_client(kind, name)
        try:
            assert client.wait_for_service(timeout_sec=timeout), f'no {name}'
            future = client.call_async(request)
            deadline = time.monotonic() + timeout
            while not future.done():
                assert time.monotonic() < deadline, f'no answer of {name}'
                time.sleep(0.01)
            return future.result()
        finally:
            self.node.destroy_client(client)

    def wait(self, condition, what, timeout=60.0):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            found = condition()
            if found:
                return found
            time.sleep(0.01)
        raise AssertionError(f'no {what} within {timeout} s; state {self.states[-1:]}, '
                             f'info {self.info}')

    def wait_for_state(self, state, timeout=60.0):
        return self.wait(lambda: self.states[-1:] == [state], f'state {state}', timeout)

    def _spin(self):
        from rclpy.exceptions import InvalidHandle
        while not self._end.is_set():
            # Tests destroy what they subscribed to while this thread waits for it.
            with contextlib.suppress(InvalidHandle):
                self._executor.spin_once(timeout_sec=0.05)

    def _tell(self):
        from sensor_msgs.msg import Imu, JointState
        rng = np.random.default_rng(0)
        while not self._end.wait(self.pause or 1.0 / self.rate):
            if self.silent:
                continue
            now = time.time() + self.stamp_offset
            names = self.names()
            message = JointState(name=names)
            message.header.stamp.sec = math.floor(now)
            message.header.stamp.nanosec = int(now % 1.0 * 1e9)
            jitter = self.noise * rng.standard_normal(2)
            message.position = [self.position.get(name, 0.0) + jitter[0] for name in names]
            message.velocity = [self.velocity.get(name, 0.0) + jitter[1] for name in names]
            self._states.publish(message)
            if self._imu is not None:
                imu = Imu(header=message.header)
                imu.angular_velocity.x = float(jitter[0])
                turned = imu.orientation
                x, turned.y, turned.z, turned.w = self.quaternion
                turned.x = x + float(jitter[0])
                self._imu.publish(imu)

    def _obey(self, message):
        if self.output == 'joint_trajectory':
            values = dict(zip(message.joint_names, message.points[0].positions
                              or message.points[0].velocities or message.points[0].effort))
        elif self.output == 'joint_state':
            values = dict(zip(message.name, message.position or message.velocity
                              or message.effort))
        else:
            values = dict(zip(JOINTS, message.data))
        self.heard.append((time.monotonic(), values))
        if self.obeys:
            self.position.update(values)

    def _hear_state(self, message):
        self.states.append(message.data)

    def _hear_info(self, message):
        self.info = json.loads(message.data)


def settings_arguments(settings):
    """Give settings as ROS arguments."""
    found = ['--ros-args']
    for name, value in settings.items():
        found += ['-p', f'{name}:={json.dumps(value)}']
    return found


@contextlib.contextmanager
def policy_process(namespace, policy, *more, **settings):
    """Run a policy node; what it prints is read at its end with `communicate`."""
    values = {**PATIENT, 'deploy.policy': str(policy),
              **{name.replace('__', '.'): value for name, value in settings.items()}}
    process = subprocess.Popen(
        [sys.executable, '-m', 'asyncppo_ros.nodes.main', 'policy',
         *settings_arguments(values), '-r', f'__ns:=/{namespace}', *more],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.communicate(timeout=60.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        except ValueError:
            pass  # its output was read already


@contextlib.contextmanager
def inside(rclpy, namespace, policy, *more, **settings):
    """Make a policy node in this process, spun by a thread; for what is refused at once."""
    from rclpy.executors import SingleThreadedExecutor

    from asyncppo_ros.nodes.context import Spinner
    from asyncppo_ros.nodes.policy_node import PolicyNode
    values = {**PATIENT, 'deploy.policy': str(policy),
              **{name.replace('__', '.'): value for name, value in settings.items()}}
    node = PolicyNode(namespace=namespace, cli_args=[*settings_arguments(values), *more],
                      use_global_arguments=False)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    spinner = Spinner(executor, 'spinner')
    try:
        yield node
    finally:
        spinner.stop()
        node.trigger_shutdown()
        executor.shutdown()
        node.destroy_node()

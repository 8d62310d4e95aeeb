"""What runs on a robot works where nothing is installed but numpy, PyYAML and ROS 2."""

import importlib.metadata
import importlib.util
import os
import pathlib
import subprocess
import sys

from harness import wait_for
from made_policies import legs_task, policy_bytes
import pytest

rclpy = pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
pytestmark = [pytest.mark.nodes, pytest.mark.one_distro]

import tiny_robot  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ABSENT = ('torch', 'mujoco', 'gymnasium', 'zmq', 'safetensors', 'onnx', 'matplotlib',
          'tensorboard')
# Of what is installed here; ROS 2 that was sourced comes with PYTHONPATH and is not copied.
PRESENT = ('numpy', 'PyYAML')
# Set inside of a Python with ROS 2 wheels, they would send another environment to its libraries.
OF_WHEELS = ('_ROS_WHEELS_BOOTSTRAP_COMPLETE', 'LD_LIBRARY_PATH')


def link(target, place):
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)


def link_distribution(distribution, packages):
    """Link every file of an installed distribution to the same place of another environment."""
    for file in distribution.files or ():
        if file.parts[:4] != ('..', '..', '..', 'include') and file.suffix != '.pyc':
            link(pathlib.Path(distribution.locate_file(file)).resolve(),
                 pathlib.Path(os.path.normpath(packages / file)))


def link_package(name, packages):
    """Link a package whose installer left no list of files: one of Debian."""
    folder = pathlib.Path(importlib.util.find_spec(name).origin).parent
    link(folder, packages / name)


@pytest.fixture(scope='module')
def robot(tmp_path_factory):
    """Make an environment; give a function that runs its Python."""
    folder = tmp_path_factory.mktemp('robot') / 'venv'
    subprocess.run([sys.executable, '-m', 'venv', '--without-pip', folder], check=True)
    packages = folder / 'lib' / f'python3.{sys.version_info[1]}' / 'site-packages'
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata['Name'] or ''
        if name.startswith('ros-') or (name in PRESENT and distribution.files):
            link_distribution(distribution, packages)
    for name in ('numpy', 'yaml'):
        if not (packages / name).exists():
            link_package(name, packages)
    link(ROOT / 'asyncppo_ros', packages / 'asyncppo_ros')
    environment = dict(os.environ)
    if environment.get(OF_WHEELS[0]):
        for name in OF_WHEELS:
            environment.pop(name, None)

    def run(*arguments, **options):
        return subprocess.run([folder / 'bin' / 'python', *map(str, arguments)], text=True,
                              capture_output=True, timeout=120, env=environment,
                              cwd=folder.parent, **options)
    run.python, run.environment = folder / 'bin' / 'python', environment
    return run


def test_nothing_else_is_there(robot):
    result = robot('-c', 'import importlib.util, numpy, yaml, rclpy, asyncppo_ros\n'
                   f'print(*[name for name in {ABSENT!r} if importlib.util.find_spec(name)])')
    assert (result.returncode, result.stdout.split()) == (0, []), result.stderr


def test_a_policy_commands_a_robot(robot, tmp_path):
    """First everything is compared, then the node runs until it is told to stop."""
    policy, params = tmp_path / 'policy.safetensors', tmp_path / 'robot.yaml'
    policy.write_bytes(policy_bytes(legs_task(control_dt=0.1)))
    params.write_text(
        f'/**:\n  ros__parameters:\n    deploy:\n      policy: {policy}\n      autostart: true\n'
        '      ramp_s: 0.2\n      state_timeout_s: 5.0\n      max_deadline_misses: 1000\n')
    body = subprocess.Popen([sys.executable, tiny_robot.__file__, '/robot'],
                            stdout=subprocess.PIPE, text=True)
    node = None
    try:
        assert body.stdout.readline() == 'ready\n'
        result = robot('-m', 'asyncppo_ros.tools.cli', 'check-deploy', policy, '--params', params,
                       '--namespace', 'robot')
        assert result.returncode == 0, result.stdout + result.stderr
        node = subprocess.Popen(
            [robot.python, '-m', 'asyncppo_ros.nodes.main', 'policy', '--ros-args',
             '--params-file', params, '-r', '__ns:=/robot'], env=robot.environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        heard = commands_heard(node)
        assert {tuple(message.joint_names) for message in heard} == {('hip', 'knee', 'ankle')}
        assert len({message.points[0].positions[0] for message in heard}) > 3
        node.terminate()
        output = node.communicate(timeout=20)[0]
        assert node.returncode == 0 and 'active: ' in output and 'Traceback' not in output
    finally:
        for process in filter(None, (body, node)):
            process.terminate()
            process.wait(20)


def commands_heard(process):
    """Listen until the robot was sent some commands."""
    from trajectory_msgs.msg import JointTrajectory
    rclpy.init()
    heard = []
    node = rclpy.create_node('observer', namespace='robot')
    node.create_subscription(JointTrajectory, 'joint_trajectory_controller/joint_trajectory',
                             heard.append, 10)

    def enough():
        rclpy.spin_once(node, timeout_sec=0.1)
        return len(heard) >= 10
    try:
        wait_for(enough, 'commands', 60.0, process)
        return heard
    finally:
        node.destroy_node()
        rclpy.try_shutdown()

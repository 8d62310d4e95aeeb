"""Settings of a node as ROS parameters; here the empty lists, to which ROS gives no type."""

import subprocess
import sys

import pytest

from asyncppo_ros.errors import ConfigError
from asyncppo_ros.run import resolve

pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
pytestmark = pytest.mark.nodes


def by_option(name, value, _folder):
    return ['--ros-args', '-p', f'{name}:={value}']


def by_file(name, value, folder):
    file = folder / 'config.yaml'
    room, _, leaf = name.partition('.')
    file.write_text(f'/**:\n  ros__parameters:\n    {room}:\n      {leaf}: {value}\n')
    return ['--ros-args', '--params-file', str(file)]


def taken(arguments, name):
    """Start a node; give its settings, and one of them as others read it."""
    from rclpy.node import Node

    from asyncppo_ros.nodes.context import running
    from asyncppo_ros.nodes.parameters import read_config, TakesSettings

    class Taker(TakesSettings, Node):
        def __init__(self):
            super().__init__('taker')
            self.config = read_config(self)

    with running(Taker, arguments) as node:
        return node.config, node.get_parameter(name).value


@pytest.mark.parametrize('way', [by_option, by_file])
@pytest.mark.parametrize('name, text', [
    ('policy.hidden_sizes', 'must have one or more entries in [1, 4096], such as [64, 64]'),
    ('policy.critic_hidden_sizes', 'must have one or more entries in [1, 4096], such as [64, 64]'),
    ('robot.imu_rotation', 'must have 4 entries in [-1, 1], such as [1.0, 0.0, 0.0, 0.0]')])
def test_an_empty_list_that_is_no_setting(way, name, text, tmp_path):
    with pytest.raises(ConfigError) as error:
        taken(way(name, '[]', tmp_path), name)
    assert str(error.value) == f'{name} = []: {text}'


@pytest.mark.parametrize('way', [by_option, by_file])
@pytest.mark.parametrize('name, shown', [('learner.milestones', [0]), ('robot.joint_names', [''])])
def test_an_empty_list_that_stands_for_none(way, name, shown, tmp_path):
    config, value = taken(way(name, '[]', tmp_path), name)
    assert config == resolve({}) and list(value) == shown


def test_a_list_that_is_not_empty(tmp_path):
    config, value = taken(by_option('policy.hidden_sizes', '[32, 16]', tmp_path),
                          'policy.hidden_sizes')
    assert config.policy.hidden_sizes == (32, 16) == tuple(value)


@pytest.mark.parametrize('node', ['learner', 'policy'])
def test_a_node_ends_with_one_line(node):
    pytest.importorskip('torch')
    ended = subprocess.run(
        [sys.executable, '-m', 'asyncppo_ros.nodes.main', node, '--ros-args', '-p',
         'policy.hidden_sizes:=[]'], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.strip() == (
        f'{node}_node: policy.hidden_sizes = []: must have one or more entries in [1, 4096], such '
        'as [64, 64]')

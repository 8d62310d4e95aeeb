"""The robots in config/robots: settings that are known, and names that are those of the models."""

from pathlib import Path
import xml.etree.ElementTree as ElementTree

import pytest
import yaml

from asyncppo_ros.config import Config
from asyncppo_ros.robot.topics import command_topics, joint_names, output_topic
from asyncppo_ros.run import resolve
from asyncppo_ros.settings import read_yaml

ROOT = Path(__file__).resolve().parent.parent
ROBOTS = ROOT / 'config' / 'robots'
EXAMPLES = ('ros2_control_example', 'mujoco_ros2_control_example')
SETTINGS = sorted([*ROBOTS.glob('*.yaml'), *(ROBOTS / name / 'policy_node.yaml'
                                             for name in EXAMPLES)])
# Of the task, its URDF, and what a policy of it is told.
TASKS = {'reach_arm': ('reach', {'goal': 3}), 'quadruped': ('quadruped_walk', {'velocity': 3})}


def joints_of(urdf):
    root = ElementTree.parse(ROOT / 'models' / urdf).getroot()
    return [joint.get('name') for joint in root.iter('joint') if joint.get('type') == 'revolute']


@pytest.mark.parametrize('file', SETTINGS, ids=lambda file: f'{file.parent.name}/{file.name}')
def test_settings_are_known(file):
    values = read_yaml(file)
    sim_time = values.pop('use_sim_time', None)
    assert sim_time in (None, 'mujoco' in file.parent.name)
    resolve(values)
    assert values and all(name == 'task' or name.split('.')[0] in ('robot', 'deploy', 'sim_robot')
                          for name in values)


@pytest.mark.parametrize('robot', TASKS)
def test_a_robot_tells_and_takes_what_its_task_needs(robot):
    task, commands = TASKS[robot]
    config = resolve({}, [ROBOTS / f'{robot}.yaml'])
    assert config.task == task
    assert command_topics(config.robot.command_topics, commands).keys() == commands.keys()
    joints = joints_of(f'{robot}.urdf')
    assert joint_names(config.robot.joint_names, joints) == {joint: joint for joint in joints}
    root = ElementTree.parse(ROOT / 'models' / f'{robot}.urdf').getroot()
    assert config.robot.base_frame in {link.get('name') for link in root.iter('link')}
    # A simulated robot without noise at rest is taken for one with frozen sensors.
    assert config.sim_robot.sensor_noise > 0.0 or config.deploy.frozen_s == 0.0


@pytest.mark.parametrize('example', EXAMPLES)
def test_controllers_have_the_joints_and_topics_of_the_policy(example):
    controllers = yaml.safe_load((ROBOTS / example / 'controllers.yaml').read_text())
    manager = controllers['controller_manager']['ros__parameters']
    types = {name: entry['type'] for name, entry in manager.items() if isinstance(entry, dict)}
    assert types.keys() == {'joint_state_broadcaster', 'imu_sensor_broadcaster',
                            'joint_trajectory_controller', 'forward_command_controller'}
    joints = joints_of('quadruped.urdf')
    for name in ('joint_trajectory_controller', 'forward_command_controller'):
        assert controllers[name]['ros__parameters']['joints'] == joints
    trajectory = controllers['joint_trajectory_controller']['ros__parameters']
    assert trajectory['command_interfaces'] == ['position']
    assert trajectory['cmd_timeout'] >= Config().deploy.state_timeout_s
    assert controllers['forward_command_controller']['ros__parameters'][
        'interface_name'] == 'position'
    # A whole number of updates of the controllers fits into a control step of 0.02 s.
    assert manager['update_rate'] * 0.02 % 1.0 == 0.0
    policy = resolve({name: value for name, value in read_yaml(
        ROBOTS / example / 'policy_node.yaml').items() if name != 'use_sim_time'})
    assert policy.robot.imu_topic == 'imu_sensor_broadcaster/imu'
    for output in ('joint_trajectory', 'forward_command'):
        assert output_topic(output).split('/')[0] in types


def test_the_xacro_names_the_joints_and_the_sensor_of_the_scene():
    mujoco = pytest.importorskip('mujoco')
    folder = ROBOTS / 'mujoco_ros2_control_example'
    root = ElementTree.parse(folder / 'quadruped.urdf.xacro').getroot()
    control = root.find('ros2_control')
    assert [joint.get('name') for joint in control.findall('joint')] == joints_of('quadruped.urdf')
    for joint in control.findall('joint'):
        assert [entry.get('name') for entry in joint.findall('command_interface')] == ['position']
    model = mujoco.MjModel.from_xml_path(str(folder / 'quadruped_scene.xml'))
    sensors = {model.sensor(i).name for i in range(model.nsensor)}
    parameters = {entry.get('name'): entry.text for entry in control.iter('param')}
    name = parameters['mujoco_sensor_name']
    assert sensors == {f'{name}_quat', f'{name}_gyro', f'{name}_accel'}
    assert parameters['initial_keyframe'] == model.key(0).name
    for path in (parameters['mujoco_model'], root[1].get('filename')):
        prefix = '$(find asyncppo_ros)/'
        assert path.startswith(prefix) and (ROOT / path[len(prefix):]).is_file()
    controllers = yaml.safe_load((folder / 'controllers.yaml').read_text())
    assert controllers['imu_sensor_broadcaster']['ros__parameters']['sensor_name'] == \
        control.find('sensor').get('name')


def test_the_rviz_layout_shows_the_robot_that_is_described():
    layout = yaml.safe_load((ROBOTS / 'robot.rviz').read_text())
    shown = {display['Class']: display for display in
             layout['Visualization Manager']['Displays']}
    robot = shown['rviz_default_plugins/RobotModel']
    assert robot['Description Topic']['Value'] == Config().robot.description_topic
    assert robot['Description Topic']['Durability Policy'] == 'Transient Local'

"""What the launch files of robots check; no launch and no ROS needed."""

import pytest

from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError, MissingDependency
from asyncppo_ros.resources import find
from asyncppo_ros.robot_launching import (
    description_of,
    require_packages,
    root_link,
    sim_robot_settings,
    URDFS,
)
from asyncppo_ros.run import resolve

NOTHING = {'task': '', 'config': '', 'lockstep': ''}


def test_what_is_not_given_is_left_to_the_settings(tmp_path):
    assert sim_robot_settings(NOTHING) == (resolve({}), [])
    file = tmp_path / 'robot.yaml'
    file.write_text('/**: {ros__parameters: {task: quadruped_walk, sim_robot: {lockstep: true}}}')
    config, arguments = sim_robot_settings({**NOTHING, 'config': str(file)})
    assert config.task == 'quadruped_walk' and config.sim_robot.lockstep
    assert arguments == ['--params-file', str(file)]


def test_what_is_given_wins_over_the_file(tmp_path):
    file = tmp_path / 'robot.yaml'
    file.write_text('/**: {ros__parameters: {task: quadruped_walk, sim_robot: {lockstep: true}}}')
    config, arguments = sim_robot_settings(
        {'task': 'reach', 'config': str(file), 'lockstep': 'False'})
    assert config.task == 'reach' and not config.sim_robot.lockstep
    assert arguments == ['--params-file', str(file), '-p', 'task:=reach', '-p',
                         'sim_robot.lockstep:=false']
    with pytest.raises(ConfigError, match='lockstep:=1: true or false'):
        sim_robot_settings({**NOTHING, 'lockstep': '1'})
    with pytest.raises(ConfigError, match='config:=nowhere: a file is needed'):
        sim_robot_settings({**NOTHING, 'config': 'nowhere'})


def test_urdf_of_a_robot(tmp_path):
    for task, path in URDFS.items():
        text = description_of(resolve({'task': task}))
        assert text == find(path).read_text()
        assert root_link(text) in ('trunk', 'base_link')
    with pytest.raises(ConfigError, match='no URDF is known of its robot; set robot.urdf'):
        description_of(resolve({'task': 'cartpole_swingup'}))
    with pytest.raises(ConfigError, match='robot.urdf = .*nix'):
        description_of(resolve({'robot.urdf': str(tmp_path / 'nix')}))
    (tmp_path / 'a.urdf').write_text('<robot><link name="one"/></robot>')
    assert root_link(description_of(resolve({'robot.urdf': str(tmp_path / 'a.urdf')}))) == 'one'


@pytest.mark.parametrize('text, told', [
    ('<robot', 'not XML'), ('<robot/>', 'no link'),
    ('<robot><link name="a"/><joint><child link="a"/></joint></robot>', 'no link')])
def test_what_is_no_urdf_is_refused(text, told):
    with pytest.raises(ConfigError, match=told):
        root_link(text)


def test_missing_packages_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv('AMENT_PREFIX_PATH', f'{tmp_path}:/nowhere')
    monkeypatch.setenv('ROS_DISTRO', 'jazzy')
    marker = tmp_path / 'share' / 'ament_index' / 'resource_index' / 'packages' / 'rviz2'
    marker.parent.mkdir(parents=True)
    marker.touch()
    require_packages('rviz', ['rviz2'])
    with pytest.raises(MissingDependency, match='rviz:=true: the ROS package '
                       'robot_state_publisher is missing: apt install '
                       'ros-jazzy-robot-state-publisher'):
        require_packages('rviz', ['rviz2', 'robot_state_publisher'])


def test_the_tasks_that_are_known_have_robots():
    assert Config().task in URDFS

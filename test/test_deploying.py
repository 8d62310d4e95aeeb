"""What deploy.launch.py checks; no launch and no ROS needed."""

import sys

from made_policies import card_of, made_learner
import pytest

from asyncppo_ros import deploying
from asyncppo_ros.errors import ArtefactError, ConfigError, ResourceError
from asyncppo_ros.simulation.registry import make

VALUES = {'policy': '', 'robot': '', 'sim': 'false', 'task': '', 'lockstep': 'false',
          'ask': 'false', 'autostart': 'false', 'use_sim_time': 'auto', 'policy_topic': '',
          'python': sys.executable}


@pytest.fixture(scope='module')
def policy(tmp_path_factory):
    path = tmp_path_factory.mktemp('run') / 'policy.safetensors'
    environment = make('reach', 1, 0)
    path.write_bytes(made_learner(card_of(environment), 15, 6).snapshot().data)
    environment.close()
    return path


@pytest.fixture
def plan(policy, monkeypatch):
    """Make a plan without trying the interpreter: that takes seconds."""
    tried = []
    monkeypatch.setattr(deploying, 'check_nodes',
                        lambda python, config, needed: tried.append((config.task, needed)))

    def make_plan(**given):
        found = deploying.plan({**VALUES, 'policy': str(policy), **given})
        return found, tried
    return make_plan


def parameters(arguments):
    return {entry.partition(':=')[0]: entry.partition(':=')[2]
            for flag, entry in zip(arguments, arguments[1:]) if flag in ('-p', '-r')}


def test_a_real_robot_needs_neither_torch_nor_mujoco(plan, policy):
    found, tried = plan(policy=str(policy.parent), autostart='true')
    assert found.robot is None and tried[0][1] == ('rclpy', 'numpy', 'yaml')
    given = parameters(found.policy)
    assert given['deploy.policy'] == f'"{policy}"' and given['deploy.autostart'] == 'true'
    assert given['use_sim_time'] == 'false' and 'deploy.live' not in given


def test_a_simulated_robot_is_that_of_the_policy(plan):
    found, tried = plan(sim='true', lockstep='true', ask='true')
    assert tried == [('reach', ('rclpy', 'mujoco'))]
    assert parameters(found.policy)['use_sim_time'] == 'true'
    assert parameters(found.robot) == {
        'use_sim_time': 'false', 'task': '"reach"', 'sim_robot.lockstep': 'true',
        'sim_robot.ask': 'true', 'sim_robot.publish_clock': 'true'}
    found, _ = plan(sim='true', task='quadruped_walk')
    assert parameters(found.robot) == {'use_sim_time': 'false', 'task': '"quadruped_walk"'}


@pytest.mark.parametrize('topic, evaluation', [
    ('/asyncppo/policy', '/asyncppo/evaluator/evaluation'), ('policy', 'evaluator/evaluation'),
    ('lab/policy', 'lab/evaluator/evaluation'), ('/policy', '/evaluator/evaluation')])
def test_a_policy_topic_makes_policies_live(plan, topic, evaluation):
    given = parameters(plan(policy_topic=topic)[0].policy)
    assert given['deploy.live'] == 'true'
    assert given['policy'] == topic and given['evaluator/evaluation'] == evaluation


def test_settings_of_a_robot_come_from_a_file_or_by_name(plan, tmp_path):
    file = tmp_path / 'mine.yaml'
    file.write_text('/**: {ros__parameters: {use_sim_time: true, deploy: {max_tilt: 0.5}}}')
    assert plan(robot=str(file))[0].policy[:2] == ['--params-file', str(file)]
    file.write_text('/**: {ros__parameters: {deploy: {max_tlit: 0.5}}}')
    with pytest.raises(ConfigError, match=r'robot:=.*mine.yaml: .*max_tlit.*max_tilt'):
        plan(robot=str(file))
    with pytest.raises(ConfigError, match='robot:=nowhere.yaml: there is no such file'):
        plan(robot='nowhere.yaml')
    with pytest.raises(ResourceError, match='config/robots/no_robot.yaml is missing'):
        plan(robot='no_robot')


@pytest.mark.parametrize('given, told', [
    ({'lockstep': 'true'}, 'lockstep:=true: only of a simulated robot'),
    ({'task': 'reach'}, 'task:=reach: only of a simulated robot'),
    ({'sim': 'true', 'lockstep': 'true', 'use_sim_time': 'false'}, 'must be true in lockstep'),
    ({'sim': 'yes'}, 'sim:=yes: true or false is expected'),
    ({'autostart': '1'}, 'autostart:=1: true or false is expected')])
def test_arguments_that_contradict_each_other(plan, given, told):
    with pytest.raises(ConfigError, match=told):
        plan(**given)


def test_policies_that_no_robot_can_run(plan, tmp_path):
    with pytest.raises(ArtefactError, match='^policy:=nowhere: .*there is no file'):
        plan(policy='nowhere')
    with pytest.raises(ArtefactError, match='there is no file'):
        plan(policy=str(tmp_path))
    environment = make('HalfCheetah-v5', 1, 0)
    path = tmp_path / 'cheetah.safetensors'
    path.write_bytes(made_learner(card_of(environment), 17, 6).snapshot().data)
    environment.close()
    with pytest.raises(ArtefactError, match='exists only in simulation'):
        plan(policy=str(path))

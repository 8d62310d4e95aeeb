"""What the settings say of a robot's names and topics, and every mistake by its message."""

import re

import pytest

from asyncppo_ros.errors import ConfigError
from asyncppo_ros.robot.topics import (
    command_topics,
    CommandTopic,
    controller_of,
    joint_names,
    output_topic,
)

JOINTS = ('hip', 'knee')


def test_joints_keep_their_names_unless_told():
    assert joint_names(['', 'knee = leg/knee'], JOINTS) == {'hip': 'hip', 'knee': 'leg/knee'}
    assert joint_names([''], JOINTS) == {'hip': 'hip', 'knee': 'knee'}
    assert list(joint_names(['knee=a', 'hip=b'], JOINTS)) == ['hip', 'knee']
    # Two may change places.
    assert joint_names(['hip=knee', 'knee=hip'], JOINTS) == {'hip': 'knee', 'knee': 'hip'}


@pytest.mark.parametrize('entries, told', [
    (['hip'], "'hip': must be POLICY=ROBOT"),
    (['hip='], "'hip=': must be POLICY=ROBOT"),
    (['a=b=c'], 'must be POLICY=ROBOT'),
    (['toe=t'], "the policy has no joint 'toe'; joints: hip, knee"),
    (['hip=a', 'hip=b'], "joint 'hip' is named twice"),
    (['hip=knee'], "two joints are called 'knee'"),
])
def test_wrong_names_are_refused(entries, told):
    with pytest.raises(ConfigError, match=re.escape(told)) as error:
        joint_names(entries, JOINTS)
    assert '\n' not in str(error.value) and str(error.value).startswith('robot.joint_names')


def test_topics_of_commands():
    found = command_topics(['velocity=cmd_vel:Twist', 'goal=/lab/goal:PoseStamped', '',
                            'x=numbers:Float64MultiArray'], {'velocity': 3, 'x': 7})
    assert found == {'velocity': CommandTopic('cmd_vel', 'Twist'),
                     'x': CommandTopic('numbers', 'Float64MultiArray')}
    assert command_topics([''], {}) == {}


@pytest.mark.parametrize('entries, sizes, told', [
    (['velocity=cmd_vel'], {}, 'must be NAME=TOPIC:TYPE'),
    (['=cmd_vel:Twist'], {}, 'must be NAME=TOPIC:TYPE'),
    (['velocity=:Twist'], {}, 'must be NAME=TOPIC:TYPE'),
    (['velocity=cmd_vel:Vector'], {}, 'type must be one of Twist, TwistStamped, PoseStamped, Fl'),
    (['v=cmd_vel:Twist'], {'v': 2}, 'Twist has 3 numbers, the command 2; use Float64MultiArray'),
    (['v=cmd_vel:Twist'], {'goal': 3}, "needs the command 'goal', and no topic is given"),
])
def test_wrong_topics_are_refused(entries, sizes, told):
    with pytest.raises(ConfigError, match=re.escape(told)) as error:
        command_topics(entries, sizes)
    assert '\n' not in str(error.value)


def test_topics_of_outputs():
    assert output_topic('joint_state') == 'joint_command'
    assert output_topic('forward_command') == 'forward_command_controller/commands'
    assert controller_of(output_topic('forward_command')) == 'forward_command_controller'
    assert output_topic('joint_trajectory', 'arm/trajectory') == 'arm/trajectory'
    assert controller_of('/lab/arm/commands') == '/lab/arm' and controller_of('commands') == ''

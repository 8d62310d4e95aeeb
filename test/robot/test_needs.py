"""What a policy needs is found from its terms: neither too little nor too much."""

import subprocess
import sys

import numpy as np
import pytest
from small_policies import task_card

from asyncppo_ros.errors import ArtefactError
from asyncppo_ros.robot.actions import ActionMap
from asyncppo_ros.robot.needs import needs_of
from asyncppo_ros.robot.observation import Observation
from asyncppo_ros.robot.terms import (
    base_angular_velocity,
    command,
    joint_direction,
    joint_effort,
    joint_position,
    joint_velocity,
    last_action,
    projected_gravity,
    term,
)

JOINTS = ('a', 'b', 'c', 'd')


def card(*terms, joints=('b',), **action):
    return {'task': 'made', 'control_dt': 0.1, 'observation': Observation(terms).card(),
            'action': ActionMap(joints, 0.1, **action).card(), 'joints': list(JOINTS),
            'commands': {'goal': {'size': 2, 'low': [-1.0, -2.0], 'high': [1.0, 2.0]},
                         'speed': {'size': 1, 'low': None, 'high': None}},
            'start_pose': {'b': 0.0}, 'simulation_only': []}


def test_reach_needs_its_joints_and_a_goal():
    entry = task_card('reach')
    needs = needs_of(entry)
    assert needs.joints == needs.moved == tuple(entry['joints'])
    assert needs.position == needs.velocity == set(entry['joints'])
    assert not (needs.effort or needs.orientation or needs.angular_velocity)
    assert set(needs.commands) == {'goal'} and needs.commands['goal'].size == 3
    assert needs.commands['goal'].low.tolist() == entry['commands']['goal']['low']
    assert needs.by_term['joint_velocity'] == f'velocity of {", ".join(entry["joints"])}'
    assert needs.by_term['tip_to_goal'] == (f'position of {", ".join(entry["joints"])}; '
                                            'command goal')


def test_quadruped_needs_an_imu_and_a_velocity():
    entry = task_card('quadruped_walk')
    needs = needs_of(entry)
    assert needs.orientation and needs.angular_velocity and not needs.effort
    assert set(needs.commands) == {'velocity'} and len(needs.position) == 12
    assert needs.by_term['projected_gravity'] == 'orientation of the base'
    assert needs.by_term['last_action'] == 'nothing of the robot'


def test_only_what_is_read_is_needed():
    needs = needs_of(card(joint_effort(('c',)), joint_direction(('d', 'a'))))
    assert needs.joints == JOINTS and needs.moved == ('b',)
    # Of a moved joint the position is always known, for safety.
    assert needs.position == {'a', 'b', 'd'} and needs.effort == {'c'} and not needs.velocity
    assert not needs.commands
    assert needs_of(card(last_action(size=1))).joints == ('b',)


@pytest.mark.parametrize(('action', 'velocity'), [
    ({'interface': 'position', 'mode': 'delta'}, set()), ({'interface': 'velocity'}, {'b'}),
    ({'interface': 'effort'}, {'b'})])
def test_actions_need_what_they_start_from(action, velocity):
    needs = needs_of(card(last_action(size=1), **action))
    assert needs.position == {'b'} and needs.velocity == velocity


def test_terms_of_one_name_are_numbered():
    needs = needs_of(card(joint_velocity(('a',)), joint_velocity(('d',)), projected_gravity(),
                          base_angular_velocity(), command(name='speed', size=1)))
    assert needs.by_term == {
        'joint_velocity': 'velocity of a', 'joint_velocity (2)': 'velocity of d',
        'projected_gravity': 'orientation of the base',
        'base_angular_velocity': 'angular velocity of the base',
        'command speed': 'command speed'}
    assert needs.commands['speed'].low is None


@term(size=1)
def columns_first(state):
    columns = state.columns(('d', 'b'))
    return state.joint_velocity[:, columns].sum(axis=1, keepdims=True)


@term(size=1)
def by_number(state):
    return state.joint_velocity[..., -1:] * state.joint_effort[:, 0][:, None]


@term(size=4)
def whole(state):
    return np.cos(state.joint_velocity) + 2.0 * state.joint_velocity


@term(size=1)
def through_a_method(state):
    effort = state.joint_effort
    return effort[:, :1] + effort.mean(axis=1, keepdims=True)


@term(size=1)
def joined(state):
    return np.concatenate([state.joint_effort, state.joint_velocity[:, :1]], 1)[:, :1]


@term(size=1)
def straight_from_the_dict(state):
    return state.command['speed'] + state.base_orientation[:, :1]


@term(size=1)
def with_a_mistake(state):
    return state.qpos[:, :1]


@pytest.mark.parametrize(('made', 'velocity', 'effort'), [
    (columns_first, 'bd', ''), (by_number, 'd', 'a'), (whole, 'abcd', ''),
    (through_a_method, '', 'abcd'), (joined, 'a', 'abcd')])
def test_users_terms_may_read_in_any_way(made, velocity, effort):
    needs = needs_of(card(made()))
    assert (needs.velocity, needs.effort) == (set(velocity), set(effort))


def test_users_terms_may_read_commands_and_the_base():
    needs = needs_of(card(straight_from_the_dict()))
    assert set(needs.commands) == {'speed'} and needs.orientation
    assert not needs.angular_velocity


def refusal(entry):
    with pytest.raises(ArtefactError) as error:
        needs_of(entry)
    assert '\n' not in str(error.value)
    return str(error.value)


def test_what_no_robot_measures_is_refused_by_name():
    assert refusal(card(with_a_mistake())) == (
        "policy of task made: observation term 'with_a_mistake' reads state.qpos, which no robot "
        'measures')
    assert refusal(task_card('HalfCheetah-v5')) == (
        "policy of task HalfCheetah-v5: its observation term 'qpos' exists only in simulation: no "
        'robot measures it')
    assert "term 'speed'" in refusal({**card(last_action(size=1)), 'simulation_only': ['speed']})


def test_what_a_robot_cannot_do_is_refused():
    text = refusal({**card(last_action(size=1)),
                    'action': {'interface': 'discrete', 'choices': 3}})
    assert text == ('policy of task made: its action is one of 3 choices, which no joint of a '
                    'robot understands')
    assert "action joint 'x' is none of its joints: a, b, c, d" in refusal(
        {**card(last_action(size=1)), 'action': ActionMap(('x',), 0.1).card()})


def test_another_robots_joints_and_commands_are_refused_by_name():
    assert "joint 'elbow' does not exist" in refusal(card(joint_position(('elbow',))))
    assert "command 'x' does not exist" in refusal(card(command(name='x', size=1)))


@pytest.mark.parametrize('entry', ['joints', 'commands', 'start_pose', 'control_dt', 'action',
                                   'observation'])
def test_a_card_that_is_too_old_is_refused_by_the_entry(entry):
    old = card(last_action(size=1))
    del old[entry]
    assert f'its card has no entry {entry!r}' in refusal(old)


def test_a_policy_of_a_simulation_is_refused_without_its_libraries():
    """The terms of such a policy lie in modules that import mujoco; a robot has none."""
    entry = {key: value for key, value in task_card('HalfCheetah-v5').items()}
    code = ('import sys\n'
            'from asyncppo_ros.errors import ArtefactError\n'
            'from asyncppo_ros.robot.needs import needs_of\n'
            f'entry = {entry!r}\n'
            'try:\n    needs_of(entry)\nexcept ArtefactError as error:\n    print(error)\n'
            'print("mujoco" in sys.modules)')
    said = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True,
                          timeout=120, check=True).stdout.splitlines()
    assert 'exists only in simulation' in said[0] and said[1] == 'False'

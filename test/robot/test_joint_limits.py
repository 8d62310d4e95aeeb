"""Limits of commands: the tighter of the policy's card and the robot's URDF, joint by joint."""

import dataclasses
import math

import numpy as np
import pytest
from small_policies import task_card

from asyncppo_ros.errors import RobotError
from asyncppo_ros.robot.actions import ActionMap
from asyncppo_ros.robot.limits import Limits, tighter_of
from asyncppo_ros.robot.urdf import JointLimits

INF = math.inf


def limits_of(urdf=None, names=None, effort_limit=(10.0, None), rate_limit=0.0, max_speed=0.0,
              **action):
    card = ActionMap(('a', 'b'), 0.1, **action).card()
    return tighter_of(card, {'effort_limit': list(effort_limit)}, urdf or {}, names or {},
                      rate_limit, max_speed)


def check(limits, **expected):
    for name, values in expected.items():
        np.testing.assert_array_equal(getattr(limits, name), values, err_msg=name)


def test_without_a_urdf_the_card_holds():
    card = ActionMap(('a', 'b'), 0.1, low=[-1.0, -2.0], high=[1.0, INF], rate_limit=[3.0, 0.0])
    limits = tighter_of(card.card(), {'effort_limit': [10.0, None]}, {}, {})
    check(limits, low=[-1.0, -2.0], high=[1.0, INF], rate=[3.0, INF], speed=[INF, INF],
          effort=[10.0, INF])
    assert limits.joints == ('a', 'b')


def test_position_takes_the_tighter_side_by_side():
    urdf = {'b': JointLimits(-5.0, 0.5, 2.0, 7.0), 'a': JointLimits(-0.5, 3.0, 4.0, 50.0)}
    limits = limits_of(urdf, low=[-1.0, -2.0], high=[1.0, INF])
    check(limits, low=[-0.5, -2.0], high=[1.0, 0.5], effort=[10.0, 7.0],
          speed=[1.2 * 4.0, 1.2 * 2.0], rate=[INF, INF])


def test_joints_are_found_by_their_names_on_the_robot():
    urdf = {'left': JointLimits(-0.5, 0.5), 'b': JointLimits(-0.2, 0.2)}
    check(limits_of(urdf, {'a': 'left'}), low=[-0.5, -0.2], high=[0.5, 0.2])


def test_velocity_and_effort_commands_have_limits_of_their_own():
    urdf = {'a': JointLimits(-0.5, 0.5, 4.0, 3.0), 'b': JointLimits(-0.5, 0.5, INF, 8.0)}
    check(limits_of(urdf, interface='velocity', high=[2.0, 9.0]), low=[-4.0, -INF],
          high=[2.0, 9.0], speed=[1.2 * 4.0, INF])
    check(limits_of(urdf, interface='effort', low=-20.0), low=[-3.0, -8.0], high=[3.0, 8.0])
    check(limits_of({}, interface='effort', high=[20.0, 6.0]), low=[-10.0, -INF],
          high=[10.0, 6.0])


def test_rate_and_speed_of_the_settings():
    urdf = {'a': JointLimits(velocity=4.0), 'b': JointLimits()}
    check(limits_of(urdf, rate_limit=2.0), rate=[2.0, 2.0])
    card = ActionMap(('a', 'b'), 0.1, rate_limit=[1.0, 0.0]).card()
    check(tighter_of(card, {}, urdf, {}, 2.0, 6.0), rate=[1.0, 2.0], speed=[6.0, 6.0],
          effort=[INF, INF])


@pytest.mark.parametrize('task', ['reach', 'quadruped_walk'])
def test_the_limits_of_the_packages_tasks(task):
    card = task_card(task)
    limits = tighter_of(card['action'], card['controller'], {}, {})
    check(limits, low=card['action']['low'], high=card['action']['high'])
    start = [card['start_pose'][joint] for joint in limits.joints]
    assert (limits.low < start).all() and (start < limits.high).all()


def refusal(make, *arguments, **values):
    with pytest.raises(RobotError) as error:
        make(*arguments, **values)
    assert '\n' not in str(error.value)
    return str(error.value)


def test_a_joint_that_the_urdf_lacks_is_named():
    urdf = {'b': JointLimits(), 'c': JointLimits()}
    assert refusal(limits_of, urdf) == (
        "URDF: has no moving joint 'a'; its joints: b, c; see robot.joint_names")
    assert refusal(limits_of, urdf, {'a': 'left'}) == (
        "URDF: has no moving joint 'left' (in the policy: 'a'); its joints: b, c; see "
        'robot.joint_names')


def test_limits_that_leave_no_room_are_refused():
    urdf = {'a': JointLimits(), 'b': JointLimits(2.0, 3.0)}
    assert refusal(limits_of, urdf, high=1.0) == (
        "joint 'b': no command lies between its limits 2 and 1; compare the URDF with the policy")
    # A URDF in which somebody forgot lower and upper.
    assert "joint 'b': no command lies between its limits 0 and 0" in refusal(
        limits_of, {'a': JointLimits(), 'b': JointLimits(0.0, 0.0)})


@pytest.mark.parametrize('interface', ['velocity', 'effort'])
def test_commands_that_cannot_stop_a_joint_are_refused(interface):
    assert f"joint 'a': its {interface} commands lie between 1 and " in refusal(
        limits_of, interface=interface, low=1.0)


@pytest.mark.parametrize('name', ['low', 'high', 'rate', 'speed', 'effort'])
def test_limits_that_are_no_numbers_are_refused(name):
    good = limits_of(low=-1.0, high=1.0)
    for wrong in (math.nan, 0.0 if name in ('rate', 'speed', 'effort') else math.nan):
        values = getattr(good, name).copy()
        values[1] = wrong
        assert "joint 'b'" in refusal(dataclasses.replace, good, **{name: values})
    assert isinstance(good, Limits)


def test_a_card_with_too_few_limits_is_refused():
    assert '1 limits for 2 joints' in refusal(limits_of, effort_limit=(1.0,))

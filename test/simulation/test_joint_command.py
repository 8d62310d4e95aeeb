"""What controllers make of commands: latency, trajectories, timeout, and what they refuse."""

import numpy as np
import pytest

from asyncppo_ros.simulation.joint_command import JointCommand

JOINTS = ('a', 'b')
HERE = np.array([1.0, -1.0])


def make(interface='position', **settings):
    command = JointCommand(interface, JOINTS, **settings)
    command.begin(10.0, HERE)
    return command


def give(command, now, values, times=(0.0,), joints=JOINTS, interface='position'):
    values, times = np.array(values, ndmin=2, dtype=float), np.array(times, dtype=float)
    refusal = command.refusal(interface, joints, values, times)
    if refusal is None:
        command.give(now, joints, values, times)
    return refusal


def test_before_the_first_command_the_pose_is_held():
    np.testing.assert_array_equal(make().at(10.0, HERE), HERE)
    np.testing.assert_array_equal(make('velocity').at(10.0, HERE), [0.0, 0.0])
    np.testing.assert_array_equal(make('effort').at(10.0, HERE), [0.0, 0.0])


def test_a_command_is_taken_at_once_and_holds():
    command = make()
    assert give(command, 10.0, [0.5, 0.6]) is None
    for now in (10.0, 10.1, 99.0):
        np.testing.assert_array_equal(command.at(now, HERE), [0.5, 0.6])
    np.testing.assert_array_equal(command.final, [0.5, 0.6])


def test_some_joints_alone_may_be_commanded():
    command = make()
    give(command, 10.0, [0.5, 0.6])
    give(command, 11.0, [0.7], joints=('b',))
    np.testing.assert_array_equal(command.at(11.0, HERE), [0.5, 0.7])


def test_names_not_places_say_which_joint():
    command = make()
    give(command, 10.0, [0.5, 0.6], joints=('b', 'a'))
    np.testing.assert_array_equal(command.at(10.0, HERE), [0.6, 0.5])


def test_latency_delays_every_command_by_the_same():
    command = make(latency=0.04)
    give(command, 10.0, [0.5, 0.6])
    np.testing.assert_array_equal(command.at(10.0, HERE), HERE)
    give(command, 10.02, [0.7, 0.8])
    np.testing.assert_array_equal(command.at(10.03, HERE), HERE)
    np.testing.assert_array_equal(command.at(10.04, HERE), [0.5, 0.6])
    np.testing.assert_array_equal(command.at(10.06, HERE), [0.7, 0.8])


def test_a_trajectory_moves_in_straight_lines_from_where_the_targets_are():
    command = make()
    give(command, 10.0, [[2.0, 0.0], [2.0, 3.0]], times=(1.0, 3.0))
    for now, expected in ((10.0, HERE), (10.5, (1.5, -0.5)), (11.0, (2.0, 0.0)),
                          (12.0, (2.0, 1.5)), (13.0, (2.0, 3.0)), (50.0, (2.0, 3.0))):
        np.testing.assert_allclose(command.at(now, np.zeros(2)), expected, atol=1e-12)
    np.testing.assert_array_equal(command.final, [2.0, 3.0])


def test_a_new_trajectory_begins_where_the_old_one_is():
    command = make()
    give(command, 10.0, [3.0, 1.0], times=(2.0,))
    give(command, 11.0, [2.0, 2.0], times=(1.0,))
    np.testing.assert_allclose(command.at(11.0, HERE), [2.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(command.at(11.5, HERE), [2.0, 1.0], atol=1e-12)
    # A joint that the next one leaves out stops where its target is.
    give(command, 11.5, [5.0], joints=('a',))
    np.testing.assert_allclose(command.at(12.0, HERE), [5.0, 1.0], atol=1e-12)


def test_a_first_point_at_time_0_is_where_it_begins():
    command = make()
    give(command, 10.0, [[5.0, 5.0], [6.0, 7.0]], times=(0.0, 1.0))
    np.testing.assert_allclose(command.at(10.0, HERE), [5.0, 5.0])
    np.testing.assert_allclose(command.at(10.5, HERE), [5.5, 6.0])


@pytest.mark.parametrize('interface, expected', [
    ('position', [7.0, 8.0]), ('velocity', [0.0, 0.0]), ('effort', [0.0, 0.0])])
def test_without_commands_joints_hold_or_rest(interface, expected):
    command = make(interface, timeout=0.5)
    give(command, 10.0, [0.5, 0.6], interface=interface)
    np.testing.assert_array_equal(command.at(10.5, HERE), [0.5, 0.6])
    assert command.timeouts == 0
    np.testing.assert_array_equal(command.at(10.6, np.array([7.0, 8.0])), expected)
    # It is the pose of then that is held, not that of now.
    np.testing.assert_array_equal(command.at(10.7, np.array([70.0, 80.0])), expected)
    assert command.timeouts == 1
    give(command, 10.8, [0.1, 0.2], interface=interface)
    np.testing.assert_array_equal(command.at(10.8, HERE), [0.1, 0.2])


def test_a_timeout_of_0_never_strikes():
    command = make()
    give(command, 10.0, [0.5, 0.6])
    np.testing.assert_array_equal(command.at(1e6, HERE), [0.5, 0.6])
    assert command.timeouts == 0


def test_what_was_held_stays_so_without_a_timeout_of_its_own():
    command = make(timeout=0.5)
    np.testing.assert_array_equal(command.at(20.0, np.zeros(2)), HERE)
    assert command.timeouts == 0


@pytest.mark.parametrize('changes, told', [
    ({'interface': 'effort'}, 'it commands effort; this robot obeys position alone'),
    ({'joints': ('a', 'a')}, 'a joint is named twice'),
    ({'joints': ('a', 'c')}, "joint 'c' is not commanded here; joints: a, b"),
    ({'joints': (), 'values': []}, 'no joint is named'),
    ({'joints': ('a',)}, '2 numbers for 1 joints and 1 points'),
    ({'values': np.empty((0, 0)), 'times': ()}, '0 numbers for 2 joints and 0 points'),
    ({'values': [np.nan, 0.0]}, 'a number is not finite'),
    ({'values': [0.0, np.inf]}, 'a number is not finite'),
    ({'times': (np.nan,)}, 'a number is not finite'),
    ({'times': (-0.1,)}, 'the times of its points do not increase'),
    ({'values': [[0.0, 0.0]] * 2, 'times': (0.5, 0.5)}, 'the times of its points do not increa'),
])
def test_what_is_no_command_is_refused(changes, told):
    command = make()
    arguments = {'values': [0.5, 0.6], **changes}
    assert told in give(command, 10.0, **arguments)
    np.testing.assert_array_equal(command.at(11.0, HERE), HERE)


def test_a_new_episode_forgets_what_was_under_way():
    command = make(latency=1.0)
    give(command, 10.0, [0.5, 0.6])
    command.begin(10.5, np.array([3.0, 4.0]))
    np.testing.assert_array_equal(command.at(20.0, HERE), [3.0, 4.0])

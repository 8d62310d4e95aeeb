"""What is heard of a robot: by name, checked, aged; and turned into the frame of the base."""

import array
import math
import threading

import numpy as np
import pytest
from small_policies import task_card

from asyncppo_ros.errors import RobotError
from asyncppo_ros.robot.actions import ActionMap
from asyncppo_ros.robot.limits import Limits
from asyncppo_ros.robot.measured import MeasuredState, SensorSettings
from asyncppo_ros.robot.needs import needs_of
from asyncppo_ros.robot.observation import Observation
from asyncppo_ros.robot.safety import Mode, SafetySettings, Supervisor
from asyncppo_ros.robot.state import project_gravity
from asyncppo_ros.robot.terms import (
    base_angular_velocity,
    command,
    joint_effort,
    joint_position,
    joint_velocity,
    projected_gravity,
)

C = math.sqrt(0.5)
UPRIGHT = (0.0, 0.0, 0.0, 1.0)  # x, y, z, w


def card(*terms, moved=('b', 'a'), interface='position'):
    return {'task': 'made', 'control_dt': 0.1, 'observation': Observation(terms).card(),
            'action': ActionMap(moved, 0.1, interface=interface).card(),
            'joints': ['a', 'b', 'c'], 'start_pose': {'a': 0.0, 'b': 0.0}, 'simulation_only': [],
            'commands': {'goal': {'size': 3, 'low': None, 'high': [1.0, 1.0, 0.5]},
                         'velocity': {'size': 2, 'low': [-1.0, 0.2], 'high': [1.0, 0.6]}}}


class Robot:
    """A measured state with clocks, told by short messages."""

    def __init__(self, *terms, names=None, velocities=('velocity',), entry=None, **settings):
        entry = entry or card(*(terms or (joint_position(('a', 'b')), joint_velocity(('a',)))))
        self.measured = MeasuredState(needs_of(entry), entry['joints'],
                                      len(entry['action']['joints']), names or {},
                                      SensorSettings(**settings), velocities)
        self.now = 100.0

    @property
    def clock(self):
        return self.now + 1.7e9

    def joints(self, names, position=(), velocity=(), effort=(), stamp=None):
        return self.measured.joint_states(
            names, position, velocity, effort, self.clock if stamp is None else stamp,
            self.clock, self.now)

    def imu(self, orientation=UPRIGHT, velocity=(0.0, 0.0, 0.0), stamp=None, kind='imu'):
        return getattr(self.measured, kind)(
            orientation, velocity, self.clock if stamp is None else stamp, self.clock, self.now)

    def read(self):
        return self.measured.read(self.now)

    def faults(self):
        return self.measured.faults(self.now)


def test_joints_are_taken_by_name_in_whatever_order():
    robot = Robot()
    for names in (['a', 'b', 'c'], ['c', 'a', 'b'], ['b', 'c', 'a']):
        numbers = {'a': 1.0, 'b': 2.0, 'c': 3.0}
        position = array.array('d', [numbers[name] for name in names])
        assert robot.joints(names, position, [10.0 * p for p in position],
                            [-p for p in position]) is None
        state = robot.read()
        assert state.joint_position.tolist() == [[1.0, 2.0, 3.0]]
        assert state.joint_velocity.tolist() == [[10.0, 20.0, 30.0]]
        assert state.joint_effort.tolist() == [[-1.0, -2.0, -3.0]]
        position, velocity = robot.measured.moved(robot.now)
        assert position.tolist() == [2.0, 1.0] and velocity.tolist() == [20.0, 10.0]
        assert robot.faults() == robot.measured.missing() == []
        robot.measured.read(robot.now).joint_position[...] = 9.0
        robot.now += 0.01


def test_the_names_of_the_robot():
    robot = Robot(names={'a': 'left', 'b': 'a'})
    assert robot.joints(['left', 'gripper', 'a'], [1.0, 5.0, 2.0], [3.0, 5.0, 4.0]) is None
    assert robot.read().joint_position.tolist() == [[1.0, 2.0, 0.0]]
    assert robot.measured.extra == ['gripper'] and not robot.measured.missing()


@pytest.mark.parametrize(('names', 'text'), [
    ({'x': 'y'}, "robot.joint_names: 'x' is no joint of the policy; joints: a, b, c"),
    ({'a': 'b'}, "robot.joint_names: 'b' on the robot would be both 'a' and 'b' of the policy")])
def test_names_that_do_not_fit_are_refused(names, text):
    with pytest.raises(RobotError) as error:
        Robot(names=names)
    assert str(error.value) == text


def test_several_topics_each_tell_some_joints():
    robot = Robot()
    assert robot.measured.missing() == ["position of joint 'a'", "position of joint 'b'",
                                        "velocity of joint 'a'"]
    assert robot.faults() == ['joint state: position of a, position of b, velocity of a: never '
                              'heard (deploy.state_timeout_s = 0.1)']
    robot.joints(['b'], [2.0])
    assert robot.measured.missing() == ["position of joint 'a'", "velocity of joint 'a'"]
    robot.joints(['a'], [1.0])
    robot.joints(['a'], [], [0.5])
    assert robot.measured.missing() == robot.faults() == []
    position, velocity = robot.measured.moved(robot.now)
    assert position.tolist() == [2.0, 1.0]
    assert math.isnan(velocity[0]) and velocity[1] == 0.5
    # One topic falls silent: its joints are named, the others are not.
    robot.now += 0.09
    robot.joints(['a'], [1.1], [0.6])
    robot.now += 0.02
    assert robot.faults() == ['joint state: position of b: not heard for 0.110 s '
                              '(deploy.state_timeout_s = 0.1)']
    robot.joints(['b'], [2.1])
    assert robot.faults() == []


def test_many_joints_are_counted_where_they_are_too_old():
    robot = Robot(joint_position(('a', 'b', 'c')), joint_effort(('a', 'b', 'c')))
    assert robot.faults() == ['joint state: position of a, position of b, position of c and 3 '
                              'more: never heard (deploy.state_timeout_s = 0.1)']


def refused(robot, cause, tell):
    """Tell something that must change nothing; give the reason."""
    before = robot.read().joint_position.copy(), robot.measured.ages(robot.now)
    reason = tell()
    assert reason and '\n' not in reason
    assert robot.measured.refused == {cause: 1}
    np.testing.assert_array_equal(robot.read().joint_position, before[0])
    assert robot.measured.ages(robot.now) == before[1]
    return reason


def test_a_joint_that_is_named_twice_is_refused():
    robot = Robot()
    robot.joints(['a', 'b'], [1.0, 2.0], [0.0, 0.0])
    robot.now += 0.01
    assert refused(robot, 'joint twice', lambda: robot.joints(
        ['a', 'b', 'a'], [3.0, 4.0, 5.0])) == "joint state names 'a' twice"


@pytest.mark.parametrize('told', [([1.0],), ([1.0, 2.0], [1.0]), ([1.0, 2.0], [], [1.0] * 3)])
def test_lengths_that_do_not_match_are_refused(told):
    robot = Robot()
    assert 'joint state of 2 joints has' in refused(robot, 'lengths', lambda: robot.joints(
        ['a', 'b'], *told))


@pytest.mark.parametrize('value', [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused_where_they_are_needed(value):
    robot = Robot()
    assert robot.joints(['a', 'b'], [1.0, 2.0], [0.5, 0.5]) is None
    robot.now += 0.01
    assert refused(robot, 'not finite', lambda: robot.joints(
        ['b', 'a'], [3.0, value], [0.5, 0.5])) == f"position of joint 'a' is {value}"
    assert robot.joints(['b', 'a'], [3.0, 4.0], [value, 0.5]) is None
    # Nobody needs the velocity of b, so its position counts; the velocity is not known.
    assert robot.measured.moved(robot.now)[1].tolist() == [pytest.approx(math.nan, nan_ok=True),
                                                           0.5]
    assert robot.read().joint_position.tolist() == [[4.0, 3.0, 0.0]]
    assert np.isfinite(robot.read().joint_velocity).all()


@pytest.mark.parametrize('away', [10.0, -10.0, 0.51, -0.51])
def test_a_stamp_far_from_the_clock_is_refused(away):
    robot = Robot()
    assert refused(robot, 'stamp', lambda: robot.joints(
        ['a', 'b'], [1.0, 2.0], [0.0, 0.0], stamp=robot.clock + away)) == (
        f'joint state is stamped {away:+.3f} s from the clock, deploy.clock_tolerance_s = 0.5')


@pytest.mark.parametrize('stamp', [math.nan, math.inf])
def test_a_stamp_that_is_no_time_is_refused(stamp):
    robot = Robot()
    assert refused(robot, 'stamp', lambda: robot.joints(['a', 'b'], [1.0, 2.0], stamp=stamp))


def test_a_stamp_of_the_future_does_not_make_later_ones_old():
    robot = Robot()
    robot.joints(['a', 'b'], [1.0, 2.0], [0.0, 0.0], stamp=robot.clock + 10.0)
    assert robot.joints(['a', 'b'], [3.0, 4.0], [0.0, 0.0]) is None
    assert robot.read().joint_position.tolist() == [[3.0, 4.0, 0.0]]


def test_what_is_not_stamped_is_not_compared():
    robot = Robot()
    assert robot.joints(['a', 'b'], [1.0, 2.0], [0.0, 0.0], stamp=0.0) is None
    assert robot.joints(['a', 'b'], [3.0, 4.0], [0.0, 0.0], stamp=0.0) is None
    assert robot.read().joint_position.tolist() == [[3.0, 4.0, 0.0]] and not robot.faults()
    assert robot.measured.newest_stamp() is None


def test_samples_that_come_in_the_wrong_order_are_ignored():
    robot = Robot()
    robot.joints(['a', 'b'], [1.0, 2.0], [0.0, 0.0])
    robot.now += 0.01
    assert 'came after a newer one' in refused(robot, 'reordered', lambda: robot.joints(
        ['a', 'b'], [3.0, 4.0], [0.0, 0.0], stamp=robot.clock - 0.02))
    # Of another joint it is the first.
    assert robot.joints(['b', 'c'], [5.0, 6.0], stamp=robot.clock - 0.02) is None
    assert robot.read().joint_position.tolist() == [[1.0, 2.0, 6.0]]


def test_a_clock_that_was_put_back_is_followed():
    robot = Robot()
    robot.joints(['a', 'b'], [1.0, 2.0], [0.0, 0.0])
    clock = robot.clock - 3600.0
    assert robot.measured.joint_states(['a', 'b'], [3.0, 4.0], [0.0, 0.0], [], clock, clock,
                                       robot.now + 0.01) is None
    assert robot.read().joint_position.tolist() == [[3.0, 4.0, 0.0]]


def test_a_sensor_that_always_says_the_same_is_frozen():
    robot = Robot()
    for _ in range(100):
        robot.joints(['a', 'b'], [1.0, 2.0], [0.0, 0.0])
        robot.now += 0.01
    assert robot.faults() == []
    robot.now += 0.01
    # The order of the names does not matter; nor what nobody needs.
    robot.joints(['b', 'a'], [2.0, 1.0], [0.7, 0.0])
    assert robot.faults() == ['joint state of a, b: the same numbers for 1 s (deploy.frozen_s)']
    robot.joints(['a', 'b'], [1.0, 2.0 + 1e-12], [0.0, 0.0])
    assert robot.faults() == []


def test_a_watch_can_be_switched_off():
    robot = Robot(frozen_s=0.0)
    for _ in range(500):
        robot.joints(['a', 'b'], [1.0, 2.0], [0.0, 0.0])
        robot.now += 0.01
    assert robot.faults() == []


def test_without_stamps_every_sample_counts_as_new():
    robot = Robot()
    for _ in range(102):
        robot.joints(['a', 'b'], [1.0, 2.0], [0.0, 0.0], stamp=0.0)
        robot.now += 0.01
    assert len(robot.faults()) == 1


def test_one_frozen_topic_among_others():
    robot = Robot()
    for step in range(102):
        robot.joints(['a'], [1.0 + step], [0.0])
        robot.joints(['b'], [2.0])
        robot.now += 0.01
    assert robot.faults() == ['joint state of b: the same numbers for 1 s (deploy.frozen_s)']


def test_a_frozen_topic_that_fell_silent_is_forgotten_once_another_tells_its_joints():
    robot = Robot()
    for step in range(102):
        robot.joints(['a'], [1.0 + step], [0.0])
        robot.joints(['b'], [2.0])
        robot.now += 0.01
    assert len(robot.faults()) == 1
    for step in range(20):
        robot.joints(['a', 'b'], [1.0 + step, 2.0], [0.0, 0.0])
        robot.now += 0.01
    assert robot.faults() == []


def test_a_repetition_keeps_a_sample_young_but_is_no_frozen_sensor():
    """In lockstep the same messages come again and again until a command has come."""
    robot = Robot()
    stamp = robot.clock
    for _ in range(300):
        assert robot.measured.joint_states(['a', 'b'], [1.0, 2.0], [0.0, 0.0], [], stamp, stamp,
                                           robot.now) is None
        assert robot.faults() == []
        robot.now += 0.02
    assert robot.measured.newest_stamp() == stamp


# How the IMU is mounted, how the base lies (both w, x, y, z), what the IMU then says of its
# orientation (x, y, z, w) and of a turn, and what that is in the frame of the base.
MOUNTINGS = {
    'as the base': ((1.0, 0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0), UPRIGHT, (1.0, 2.0, 3.0),
                    (1.0, 2.0, 3.0), (0.0, 0.0, -1.0), 0.0),
    # Half a turn about x: its y and z point against those of the base.
    'upside down': ((0.0, 1.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0),
                    (1.0, 2.0, 3.0), (1.0, -2.0, -3.0), (0.0, 0.0, -1.0), 0.0),
    # A quarter about z: its x is the y of the base.  The base has its nose straight down: a
    # quarter about y.  (C, 0, C, 0) · (C, 0, 0, C) = (½, ½, ½, ½).
    'turned left, nose down': ((C, 0.0, 0.0, C), (C, 0.0, C, 0.0), (0.5, 0.5, 0.5, 0.5),
                               (1.0, 2.0, 3.0), (-2.0, 1.0, 3.0), (1.0, 0.0, 0.0), math.pi / 2),
    # Lying on its back, an upside down IMU is upright.
    'upside down, on its back': ((0.0, 1.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0),
                                 (0.0, 0.0, 0.0, -1.0), (1.0, 2.0, 3.0), (1.0, -2.0, -3.0),
                                 (0.0, 0.0, 1.0), math.pi),
}


@pytest.mark.parametrize('mounting', MOUNTINGS)
def test_the_mounting_of_the_imu(mounting):
    rotation, base, said, turn, expected_turn, gravity, tilt = MOUNTINGS[mounting]
    robot = Robot(projected_gravity(), base_angular_velocity(), imu_rotation=rotation)
    assert robot.measured.tilt(robot.now) is None
    assert robot.measured.missing()[-2:] == ['orientation of the base',
                                             'angular velocity of the base']
    assert robot.imu(said, turn) is None
    state = robot.read()
    # q and -q are the same rotation.
    assert abs(state.base_orientation[0] @ base) == pytest.approx(1.0)
    np.testing.assert_allclose(state.base_angular_velocity[0], expected_turn, atol=1e-12)
    np.testing.assert_allclose(state.projected_gravity[0], gravity, atol=1e-12)
    assert robot.measured.tilt(robot.now) == pytest.approx(tilt, abs=1e-7)
    robot.now += 0.11
    assert robot.measured.tilt(robot.now) is None
    assert robot.faults()[1:] == [f'{what} of the base: not heard for 0.110 s '
                                  '(deploy.state_timeout_s = 0.1)'
                                  for what in ('orientation', 'angular velocity')]


def test_the_mounting_against_rotation_matrices():
    rng = np.random.default_rng(0)

    def matrix(q):
        w, x, y, z = q
        return np.array([
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]])
    for _ in range(50):
        mounting, said = rng.normal(size=(2, 4))
        mounting, said = mounting / np.linalg.norm(mounting), said / np.linalg.norm(said)
        turn = rng.normal(size=3)
        robot = Robot(projected_gravity(), base_angular_velocity(), imu_rotation=tuple(mounting))
        robot.imu([*said[1:], said[0]], turn)
        state = robot.read()
        base = matrix(said) @ matrix(mounting).T
        np.testing.assert_allclose(matrix(state.base_orientation[0]), base, atol=1e-12)
        np.testing.assert_allclose(state.base_angular_velocity[0], matrix(mounting) @ turn,
                                   atol=1e-12)
        np.testing.assert_allclose(state.projected_gravity[0], base.T @ (0.0, 0.0, -1.0),
                                   atol=1e-12)


def test_odometry_tells_of_the_base_itself():
    robot = Robot(projected_gravity(), base_angular_velocity(), imu_rotation=(0.0, 1.0, 0.0, 0.0))
    assert robot.imu((C, 0.0, 0.0, C), (1.0, 2.0, 3.0), kind='odometry') is None
    state = robot.read()
    np.testing.assert_allclose(state.base_orientation[0], [C, C, 0.0, 0.0])
    assert state.base_angular_velocity[0].tolist() == [1.0, 2.0, 3.0]
    assert robot.measured.tilt(robot.now) == pytest.approx(math.pi / 2)


def test_what_a_simulation_says_comes_out_bit_for_bit():
    robot = Robot(projected_gravity())
    rng = np.random.default_rng(0)
    for _ in range(20):
        q = rng.normal(size=4)
        q /= np.linalg.norm(q)
        gravity = np.empty((1, 3))
        project_gravity(q[None], gravity)
        robot.imu([*q[1:], q[0]])
        np.testing.assert_array_equal(robot.read().base_orientation[0], q)
        np.testing.assert_array_equal(robot.read().projected_gravity, gravity)


@pytest.mark.parametrize(('said', 'norm'), [
    ((0.0, 0.0, 0.0, 0.0), '0'), ((0.0, 0.0, 0.0, 2.0), '2'),
    ((math.nan, 0.0, 0.0, 1.0), 'nan'), ((0.0, math.inf, 0.0, 1.0), 'inf')])
def test_a_quaternion_that_is_no_rotation_is_refused(said, norm):
    robot = Robot(projected_gravity(), base_angular_velocity())
    assert refused(robot, 'quaternion', lambda: robot.imu(said)) == (
        f'imu: the orientation has norm {norm}, expected 1')


def test_a_quaternion_of_low_precision_is_normalized():
    robot = Robot(projected_gravity())
    assert robot.imu((0.0, 0.0, 0.0, 1.05)) is None
    assert robot.read().base_orientation.tolist() == [[1.0, 0.0, 0.0, 0.0]]


def test_an_imu_without_orientation_serves_where_none_is_needed():
    robot = Robot(base_angular_velocity())
    assert robot.imu((0.0, 0.0, 0.0, 0.0), (1.0, 2.0, 3.0)) is None
    assert robot.imu(None, (1.0, 2.0, 4.0)) is None
    assert robot.read().base_angular_velocity.tolist() == [[1.0, 2.0, 4.0]]
    assert robot.measured.tilt(robot.now) is None
    robot = Robot(projected_gravity(), base_angular_velocity())
    robot.imu(None, (1.0, 2.0, 3.0))
    assert robot.measured.missing()[2:] == ['orientation of the base']


def test_an_imu_is_checked_as_joints_are():
    robot = Robot(projected_gravity(), base_angular_velocity())
    assert 'imu is stamped +10.000 s' in refused(robot, 'stamp', lambda: robot.imu(
        stamp=robot.clock + 10.0))
    robot = Robot(projected_gravity(), base_angular_velocity())
    assert refused(robot, 'not finite', lambda: robot.imu(velocity=(0.0, math.nan, 0.0))) == (
        'imu: the angular velocity is [0.0, nan, 0.0]')
    robot = Robot(projected_gravity(), base_angular_velocity())
    robot.imu()
    assert 'imu of ' in refused(robot, 'reordered', lambda: robot.imu(
        stamp=robot.clock - 0.01))
    for _ in range(101):
        robot.now += 0.01
        robot.imu()
    assert robot.faults()[1:] == ['imu: the same numbers for 1 s (deploy.frozen_s)']


@pytest.mark.parametrize('rotation', [(0.0, 0.0, 0.0, 0.0), (1.0, 1.0, 0.0, 0.0), (1.0, 0.0),
                                      (math.nan, 0.0, 0.0, 1.0)])
def test_a_mounting_that_is_no_rotation_is_refused(rotation):
    with pytest.raises(RobotError, match='robot.imu_rotation = .*must be a quaternion'):
        Robot(imu_rotation=rotation)


def test_a_mounting_written_with_few_digits_is_a_rotation():
    robot = Robot(base_angular_velocity(), imu_rotation=(0.71, 0.0, 0.0, 0.71))
    robot.imu(velocity=(1.0, 0.0, 0.0))
    np.testing.assert_allclose(robot.read().base_angular_velocity[0], [0.0, 1.0, 0.0], atol=1e-12)


def test_a_velocity_command_that_nobody_gives_is_zero():
    robot = Robot(command(name='velocity', size=2))
    assert 'command' not in ' '.join(robot.measured.missing() + robot.faults())
    # 0 lies below what the second number may be.
    assert robot.read().command['velocity'].tolist() == [[0.0, 0.2]]
    assert robot.measured.command('velocity', [0.5, 0.3], robot.now) is None
    assert robot.read().command['velocity'].tolist() == [[0.5, 0.3]]
    robot.now += 0.49
    assert robot.read().command['velocity'].tolist() == [[0.5, 0.3]]
    robot.now += 0.02
    assert robot.read().command['velocity'].tolist() == [[0.0, 0.2]]
    assert len(robot.faults()) == 1


def test_a_velocity_command_may_hold_for_ever():
    robot = Robot(command(name='velocity', size=2), command_timeout_s=0.0)
    robot.measured.command('velocity', [0.5, 0.3], robot.now)
    robot.now += 1e6
    assert robot.read().command['velocity'].tolist() == [[0.5, 0.3]]


def test_a_goal_must_be_heard_and_may_grow_too_old():
    robot = Robot(command(name='goal', size=3), goal_timeout_s=5.0)
    assert robot.measured.missing()[-1] == "command 'goal'"
    robot.measured.command('goal', array.array('d', [0.1, 0.2, 0.3]), robot.now)
    robot.now += 4.0
    robot.joints(['a', 'b'], [1.0, 2.0], [0.0, 0.0])
    assert robot.measured.missing() == robot.faults() == []
    robot.now += 1.1
    robot.joints(['a', 'b'], [1.0, 2.1], [0.0, 0.0])
    assert robot.faults() == ["command 'goal': not heard for 5.100 s (deploy.goal_timeout_s)"]
    # It stays what it was: a goal of 0 would be another place.
    assert robot.read().command['goal'].tolist() == [[0.1, 0.2, 0.3]]


def test_commands_are_held_within_the_limits_of_the_card():
    robot = Robot(command(name='goal', size=3))
    assert robot.measured.command('goal', [-9.0, 9.0, 0.4], robot.now) is None
    assert robot.read().command['goal'].tolist() == [[-9.0, 1.0, 0.4]]
    robot.measured.command('goal', [0.0, 0.0, 0.0], robot.now)
    assert robot.measured.held == {'goal': 1}


@pytest.mark.parametrize(('name', 'values', 'cause'), [
    ('goal', [0.0, 0.0], 'command'), ('goal', [0.0, math.nan, 0.0], 'not finite'),
    ('goal', [math.inf, 0.0, 0.0], 'not finite'), ('turn', [0.0], 'command')])
def test_wrong_commands_are_refused(name, values, cause):
    robot = Robot(command(name='goal', size=3))
    assert name in refused(robot, cause, lambda: robot.measured.command(name, values, robot.now))
    assert robot.measured.missing()[-1] == "command 'goal'"


def test_ages_and_stamps():
    robot = Robot(joint_position(('a', 'c')), projected_gravity(), command(name='goal', size=3))
    assert set(robot.measured.ages(robot.now).values()) == {math.inf}
    assert robot.measured.age(robot.now) == math.inf
    robot.joints(['a', 'b', 'c'], [1.0, 2.0, 3.0])
    robot.now += 0.5
    assert robot.measured.newest_stamp() is None
    robot.imu()
    early = robot.clock - 0.5
    assert robot.measured.newest_stamp() == pytest.approx(early)
    robot.now += 0.25
    assert robot.measured.ages(robot.now) == {
        'joint a': 0.75, 'joint b': 0.75, 'joint c': 0.75, 'orientation': 0.25,
        'command goal': math.inf}
    assert robot.measured.age(robot.now) == 0.75
    robot.joints(['a', 'b'], [1.0, 2.0])
    assert robot.measured.newest_stamp() == pytest.approx(early)
    robot.joints(['c'], [1.0])
    assert robot.measured.newest_stamp() == pytest.approx(robot.clock - 0.25)


def test_what_was_never_heard_is_no_pose():
    robot = Robot()
    position, velocity = robot.measured.moved(robot.now)
    assert np.isnan(position).all() and np.isnan(velocity).all()


def test_an_old_velocity_is_not_known():
    robot = Robot()
    robot.joints(['a', 'b'], [1.0, 2.0], [0.5, 0.6])
    robot.now += 0.11
    robot.joints(['a', 'b'], [1.0, 2.0])
    position, velocity = robot.measured.moved(robot.now)
    assert position.tolist() == [2.0, 1.0] and np.isnan(velocity).all()


def test_where_an_old_or_frozen_sensor_saw_a_joint_is_not_where_it_is():
    robot = Robot()
    for step in range(102):
        robot.joints(['a'], [1.0 + step], [0.0])
        robot.joints(['b'], [2.0], [0.0])
        robot.now += 0.01
    position, velocity = robot.measured.moved(robot.now)
    assert np.isnan([position[0], velocity[0]]).all(), 'b says the same all the time'
    assert [position[1], velocity[1]] == [102.0, 0.0]
    robot.joints(['b'], [2.1], [0.0])
    robot.now += 0.1
    position, _ = robot.measured.moved(robot.now)
    assert position[0] == 2.1 and np.isnan(position[1]), 'a was not heard for 0.11 s'


@pytest.mark.parametrize('goes_on', [False, True])
def test_a_robot_is_not_sent_back_to_where_it_was_last_seen(goes_on):
    """Its sensor falls silent, or freezes, while the robot goes where it is told to."""
    robot, sensor = Robot(), [0.0, 0.0]
    no_limit = np.full(2, np.inf)
    supervisor = Supervisor(
        Limits(('b', 'a'), low=-no_limit, high=no_limit, rate=np.full(2, 2.0), speed=no_limit,
               effort=no_limit), 'position', 0.01, SafetySettings(ramp_s=0.0))
    robot.joints(['b', 'a'], sensor, [0.5, 1.0])
    supervisor.activate(robot.measured.moved(robot.now)[0])
    commands = []
    for step in range(1, 200):
        robot.now += 0.01
        if step <= 50:
            sensor = (commands or [sensor])[-1]
        if step <= 50 or goes_on:
            robot.joints(['b', 'a'], sensor, [0.5, 1.0])
        faults = robot.faults()
        position, velocity = robot.measured.moved(robot.now)
        target = None if faults else np.array([0.005, 0.01]) * step
        commands.append(supervisor.tick(target, position, velocity, None, faults))
    assert supervisor.mode is Mode.TRIPPED
    # From its last command on it stands, and that is further than it was ever seen.
    told = np.array(commands)
    assert (np.diff(told, axis=0) >= 0.0).all(), 'the way back is a jump'
    assert (told[-1] == told[-2]).all() and (told[-1] > np.array(sensor) + 0.04).all()


def test_strangers_cannot_fill_the_memory():
    robot = Robot()
    for number in range(500):
        robot.joints([f'joint{number}', 'a', 'b'][number % 3:], [0.0] * (3 - number % 3))
    assert len(robot.measured.extra) == 100
    assert len(robot.measured._joints._layouts) <= 64


def test_callbacks_of_several_threads():
    entry = task_card('quadruped_walk')
    robot = Robot(entry=entry)
    names, stop = entry['joints'], threading.Event()

    def tell(seed):
        rng, count = np.random.default_rng(seed), 0
        while not stop.is_set() and count < 400:
            order, count = rng.permutation(12), count + 1
            value = 1.0 + count
            robot.joints([names[joint] for joint in order], [value] * 12, [value] * 12)
            robot.imu(velocity=(value, value, value))
    threads = [threading.Thread(target=tell, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        state = robot.read()
        for rows in (state.joint_position, state.base_angular_velocity):
            assert len(set(rows[0])) == 1
    for thread in threads:
        thread.join()
    assert not robot.measured.refused

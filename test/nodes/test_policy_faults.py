"""Bad input and faults: what each of them makes of a robot under a policy."""

import os
import pathlib
import time

from deployed import (
    CONTROL_DT,
    inside,
    JOINTS,
    made_policy,
    policy_process,
    Robot,
    START,
    two_joint_card,
)
import numpy as np
import pytest

from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.robot.terms import (
    command,
    joint_position,
    joint_velocity,
    projected_gravity,
)

rclpy = pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
pytestmark = [pytest.mark.nodes, pytest.mark.one_distro]

HERE = pathlib.Path(__file__).parent
NAMESPACE = 'faulty'


@pytest.fixture(scope='module')
def card():
    import sys
    sys.path.insert(0, str(HERE))
    from brittle_terms import brittle
    terms = [joint_position(JOINTS), joint_velocity(JOINTS), projected_gravity(),
             command('velocity', 3), brittle()]
    yield two_joint_card(terms, commands={'velocity': {'size': 3, 'low': [-1.0] * 3,
                                                       'high': [1.0] * 3}})
    sys.path.remove(str(HERE))


@pytest.fixture(scope='module')
def robot_and_process(card, tmp_path_factory):
    """One node for all faults: each test activates it and resets it."""
    path = tmp_path_factory.mktemp('faults') / 'policy.safetensors'
    path.write_bytes(made_policy(card, bias=(0.2, -0.3)).data)
    before = os.environ.get('PYTHONPATH', '')
    os.environ['PYTHONPATH'] = f'{HERE}{os.pathsep}{before}'
    rclpy.init()
    try:
        with policy_process(NAMESPACE, path, deploy__state_timeout_s=1.0, deploy__frozen_s=1.5,
                            deploy__estop_topic='stop', deploy__estop_timeout_s=1.0,
                            deploy__command_timeout_s=1.0, deploy__ramp_s=0.2) as process:
            robot = Robot(rclpy, NAMESPACE, imu=True)
            try:
                assert robot.transition('configure')
                yield robot, process
            finally:
                robot.close()
    finally:
        os.environ['PYTHONPATH'] = before
        rclpy.try_shutdown()


@pytest.fixture
def idle(robot_and_process):
    """Give a robot at the start pose, its node inactive, the operator's hand off the stop."""
    from std_msgs.msg import Bool
    robot, process = robot_and_process
    robot.healthy()
    robot.noise = 1e-6
    stop = robot.publisher(Bool, 'stop')
    robot.stop_says = False
    timer = robot.node.create_timer(
        0.1, lambda: robot.stop_says is None or stop.publish(Bool(data=robot.stop_says)))
    time.sleep(0.5)
    yield robot
    assert process.poll() is None
    robot.healthy()
    robot.call('reset_trip')
    if robot.states[-1] != 'inactive':
        assert robot.transition('deactivate')
    robot.node.destroy_timer(timer)
    robot.node.destroy_publisher(stop)
    robot.wait_for_state('inactive')


@pytest.fixture
def robot(idle):
    """Give the same with the policy in command."""
    idle.wait(lambda: idle.transition('activate'), 'activation')
    idle.wait_for_state('running')
    return idle


def check_tripped(robot, *words):
    """Check that it says why, holds the pose at the trip, and goes on saying so."""
    robot.wait_for_state('tripped')
    reason = robot.wait(lambda: robot.info['tripped'], 'reason')[0]
    for word in words:
        assert word in reason, reason
    robot.obeys = False
    begun = time.monotonic() + 0.2
    robot.wait(lambda: len(robot.since(begun)) >= 3, 'trip action')
    held = robot.since(begun)
    assert all(values == held[0] for values in held)
    assert set(held[0]) == set(JOINTS)
    return held[0], reason


def refusal(robot):
    """Try to activate; give the one line that says why not."""
    begun = time.monotonic()
    assert not robot.transition('activate')
    robot.wait(lambda: robot.info['refusals'], 'refusal')
    assert not robot.since(begun), 'a command while inactive'
    text = '; '.join(robot.info['refusals'])
    assert '\n' not in text
    return text


def test_a_source_that_is_silent_trips_and_the_pose_is_held(robot):
    robot.silent = True
    held, reason = check_tripped(robot, 'deploy.state_timeout_s = 1')
    assert 'left' in reason
    for joint in JOINTS:
        assert held[joint] == pytest.approx(robot.position[joint], abs=1e-3)


def test_a_joint_that_is_missing_is_named(idle):
    idle.names = lambda: ['left', 'gripper']
    time.sleep(1.5)
    assert 'position of right' in refusal(idle)


def test_a_joint_that_goes_missing_trips(robot):
    robot.names = lambda: ['left']
    check_tripped(robot, 'position of right')


def test_an_extra_joint_is_ignored(robot):
    robot.names = lambda: ['gripper', 'right', 'wheel', 'left']
    time.sleep(1.5)
    assert robot.states[-1] == 'running'


def test_a_joint_that_is_told_twice_is_refused(robot):
    robot.names = lambda: ['left', 'right', 'left']
    check_tripped(robot, 'deploy.state_timeout_s')


@pytest.mark.parametrize('value', [float('nan'), float('inf')])
def test_what_is_not_finite_is_refused(robot, value):
    robot.obeys = False
    robot.position['left'] = value
    held, _ = check_tripped(robot, 'deploy.state_timeout_s')
    assert np.isfinite(list(held.values())).all()
    assert all(np.isfinite(list(values.values())).all() for _, values in robot.commands)


def test_a_frozen_sensor_trips(robot):
    robot.obeys, robot.noise = False, 0.0
    check_tripped(robot, 'deploy.frozen_s')


def test_a_quaternion_of_norm_zero_is_refused(robot):
    robot.quaternion = (0.0, 0.0, 0.0, 0.0)
    check_tripped(robot, 'orientation of the base')


def test_a_base_that_falls_over_trips(robot):
    robot.quaternion = (1.0, 0.0, 0.0, 0.0)
    check_tripped(robot, 'deploy.max_tilt')


def test_a_state_from_the_future_is_refused(robot):
    robot.stamp_offset = 10.0
    check_tripped(robot, 'deploy.state_timeout_s')


def test_states_that_come_too_seldom_are_refused(idle):
    idle.pause = 0.5
    idle.wait(lambda: not idle.transition('activate') or idle.transition('deactivate') and False,
              'refusal', 60.0)
    assert 'Hz' in refusal(idle) and 'joint_states' in refusal(idle)


def test_a_velocity_command_that_is_old_reads_as_zero(robot):
    from geometry_msgs.msg import Twist
    robot.obeys, robot.noise = False, 0.0
    rest = robot.commands[-1][1]
    robot.noise = 1e-6
    publisher = robot.publisher(Twist, 'cmd_vel')
    message = Twist()
    message.linear.x = 1.0

    def far():
        return abs(robot.commands[-1][1]['left'] - rest['left']) > 0.01

    robot.tell(publisher, message, far, 'obedience')
    robot.wait(lambda: not far(), 'rest')
    assert robot.states[-1] == 'running'
    robot.node.destroy_publisher(publisher)


def test_a_second_publisher_is_refused_and_trips(robot):
    from trajectory_msgs.msg import JointTrajectory
    topic = 'joint_trajectory_controller/joint_trajectory'
    other = robot.publisher(JointTrajectory, topic)
    check_tripped(robot, f'/{NAMESPACE}/robot publishes on /{NAMESPACE}/{topic}, too')
    robot.healthy()
    assert robot.call('reset_trip').success
    assert f'/{NAMESPACE}/robot publishes on' in refusal(robot)
    robot.node.destroy_publisher(other)


def test_an_exception_in_the_loop_trips(robot):
    robot.obeys = False
    robot.position['left'] = 1.7
    check_tripped(robot, 'ZeroDivisionError: a fault in a term of a user')


def test_a_push_away_from_the_start_pose_is_refused(idle):
    idle.position['left'] = START[0] + 0.8
    time.sleep(0.3)
    text = refusal(idle)
    assert 'left at 0.90, start 0.10' in text and '~/go_to_start' in text


def test_estop_while_ramping_in(idle):
    idle.wait(lambda: idle.transition('activate'), 'activation')
    assert idle.call('estop').success
    check_tripped(idle, 'emergency stop by ~/estop')
    assert 'tripped' in idle.states
    # Latched: the node cannot be activated before the reset, nor by configuring it anew.
    assert idle.transition('deactivate')
    assert 'emergency stop' in refusal(idle)
    assert idle.transition('cleanup') and idle.call('estop').success
    assert idle.transition('configure')
    time.sleep(0.5)
    assert 'emergency stop' in refusal(idle)
    assert idle.call('reset_trip').success
    idle.healthy()
    idle.wait(lambda: idle.transition('activate'), 'activation')


def test_estop_while_inactive_is_remembered_and_says_nothing(idle):
    begun = time.monotonic()
    assert idle.call('estop').success
    time.sleep(5 * CONTROL_DT)
    assert not idle.since(begun)
    assert 'emergency stop by ~/estop' in refusal(idle)


def test_the_topic_of_the_emergency_stop(robot):
    robot.stop_says = True
    check_tripped(robot, 'emergency stop on stop')
    # Well again, and still stopped: people reset it.
    robot.stop_says = False
    time.sleep(0.3)
    assert robot.states[-1] == 'tripped'


def test_silence_of_the_emergency_stop_is_a_stop(robot):
    robot.stop_says = None
    check_tripped(robot, 'deploy.estop_timeout_s = 1')


def test_the_log_has_the_traceback_of_an_exception_once(card, tmp_path, ros, monkeypatch):
    path = tmp_path / 'policy.safetensors'
    path.write_bytes(made_policy(card).data)
    monkeypatch.setenv('PYTHONPATH', f'{HERE}{os.pathsep}{os.environ.get("PYTHONPATH", "")}')
    robot = Robot(ros, 'traceback', imu=True)
    try:
        with policy_process('traceback', path, deploy__autostart=True) as process:
            robot.wait_for_state('running', 40.0)
            robot.obeys = False
            robot.position['left'] = 1.7
            robot.wait_for_state('tripped')
            time.sleep(5 * CONTROL_DT)
            process.terminate()
            shown, _ = process.communicate(timeout=20.0)
    finally:
        robot.close()
    assert shown.count('Traceback (most recent call last)') == 1, shown
    assert shown.count('TRIPPED: exception in the control loop: ZeroDivisionError') == 1


def test_a_loop_that_hangs_is_stopped_without_it(card, tmp_path, ros, monkeypatch):
    path = tmp_path / 'policy.safetensors'
    path.write_bytes(made_policy(card).data)
    monkeypatch.setenv('PYTHONPATH', f'{HERE}{os.pathsep}{os.environ.get("PYTHONPATH", "")}')
    robot = Robot(ros, 'hung', imu=True)
    robot.obeys = False
    try:
        with policy_process('hung', path, deploy__autostart=True,
                            deploy__state_timeout_s=1.0) as process:
            robot.wait_for_state('running', 40.0)
            robot.position['left'] = -1.7
            check_tripped(robot, 'the control loop hangs')
            begun = time.monotonic()
            process.terminate()
            shown, _ = process.communicate(timeout=30.0)
            assert process.returncode == 0 and time.monotonic() - begun < 15.0, shown
            assert robot.since(begun)[-1] == robot.position
    finally:
        robot.close()


@pytest.fixture
def ros():
    if not rclpy.ok():
        rclpy.init()
    yield rclpy


def configure_refused(rclpy, path, capfd, **settings):
    from rclpy.lifecycle import TransitionCallbackReturn
    with inside(rclpy, 'refused', path, **settings) as node:
        assert node.trigger_configure() == TransitionCallbackReturn.FAILURE
    lines = [line for line in capfd.readouterr().err.splitlines() if 'not configured' in line]
    assert len(lines) == 1
    return lines[0]


def test_files_that_are_no_policy_for_this_robot(ros, tmp_path, capfd):
    good = made_policy(two_joint_card())
    path = tmp_path / 'policy.safetensors'
    assert 'there is no file' in configure_refused(ros, path, capfd)
    path.write_bytes(good.data[:-100])
    assert 'cut short' in configure_refused(ros, path, capfd)
    altered = bytearray(good.data)
    altered[-1] ^= 1
    path.write_bytes(altered)
    assert 'was altered' in configure_refused(ros, path, capfd)
    path.write_bytes(good.data.replace(b'"format_version\\": 1', b'"format_version\\": 9'))
    assert 'format_version 9' in configure_refused(ros, path, capfd)
    path.write_bytes(made_policy({**two_joint_card(), 'joints': ['left']}).data)
    assert "'right'" in configure_refused(ros, path, capfd)
    path.write_bytes(good.data)
    assert 'robot.joint_names' in configure_refused(ros, path, capfd,
                                                    robot__joint_names=['hip=hip_joint'])


def test_an_unsigned_policy_where_a_key_is_set(ros, tmp_path, capfd):
    keys = tmp_path / 'keys'
    keys.mkdir()
    secret = keys / 'policy_hmac.key'
    secret.write_text(bytes(range(32)).hex())
    secret.chmod(0o600)
    path = tmp_path / 'policy.safetensors'
    settings = {'transport__keys': str(keys)}
    path.write_bytes(made_policy(two_joint_card()).data)
    assert 'is not signed' in configure_refused(ros, path, capfd, **settings)
    path.write_bytes(made_policy(two_joint_card(), key=bytes(32)).data)
    assert 'another key' in configure_refused(ros, path, capfd, **settings)
    signed = made_policy(two_joint_card(), key=bytes(range(32)))
    assert PolicySnapshot.from_bytes(signed.data, bytes(range(32)))
    path.write_bytes(signed.data)
    with inside(ros, 'signed', path, **settings) as node:
        assert node.trigger_configure().name == 'SUCCESS'


@pytest.mark.parametrize('interface', ['velocity', 'effort'])
def test_what_nobody_watches_needs_to_be_allowed(ros, interface, tmp_path):
    path = tmp_path / 'policy.safetensors'
    path.write_bytes(made_policy(two_joint_card(interface=interface, offset=0.0)).data)
    settings = {'robot__output': 'forward_command', 'robot__joint_order': list(JOINTS)}
    robot = Robot(ros, f'fcc_{interface}', 'forward_command')
    robot.obeys = False
    try:
        with inside(ros, f'fcc_{interface}', path, **settings) as node:
            assert robot.transition('configure')
            time.sleep(0.7)
            assert not robot.transition('activate')
            text = robot.wait(lambda: robot.info.get('refusals'), 'refusal')
            assert len(text) == 1 and 'deploy.allow_unwatched' in text[0], text
            assert 'docs/safety.md' in text[0]
        robot.states.clear()
        with inside(ros, f'fcc_{interface}', path, deploy__allow_unwatched=True, **settings):
            assert robot.transition('configure')
            time.sleep(0.7)
            robot.wait(lambda: robot.transition('activate'), 'activation')
            robot.velocity['left'] = 0.5
            robot.wait(lambda: len(robot.heard) > 10, 'commands')
        # What the controller holds from now on moves nothing.
        assert set(robot.heard[-1][1].values()) == {0.0}
        assert node is not None
    finally:
        robot.close()


def test_a_joint_that_was_never_heard_is_named(ros, tmp_path):
    path = tmp_path / 'policy.safetensors'
    path.write_bytes(made_policy(two_joint_card()).data)
    robot = Robot(ros, 'partial')
    robot.names = lambda: ['left', 'gripper']
    try:
        with inside(ros, 'partial', path):
            assert robot.transition('configure')
            time.sleep(0.5)
            assert not robot.transition('activate')
            refusals = robot.wait(lambda: robot.info.get('refusals'), 'refusal')
            assert any("never heard: position of joint 'right'" in line
                       and 'the robot has gripper' in line for line in refusals), refusals
    finally:
        robot.close()


def test_sim_time_without_a_clock(ros, tmp_path):
    path = tmp_path / 'policy.safetensors'
    path.write_bytes(made_policy(two_joint_card()).data)
    robot = Robot(ros, 'clockless')
    try:
        with inside(ros, 'clockless', path, use_sim_time=True):
            assert robot.transition('configure')
            time.sleep(0.5)
            assert not robot.transition('activate')
            refusals = robot.wait(lambda: robot.info.get('refusals'), 'refusal')
            assert any('nobody publishes /clock' in line for line in refusals), refusals
    finally:
        robot.close()

"""The policy node in command of a robot: lifecycle, names, outputs, its last word."""

import signal
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
from harness import end
import numpy as np
import pytest

from asyncppo_ros.robot.artefact import parse_artefact
from asyncppo_ros.robot.pilot import Pilot
from asyncppo_ros.robot.state import standing
from asyncppo_ros.robot.terms import command, joint_position

rclpy = pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
pytestmark = pytest.mark.nodes


@pytest.fixture(scope='module', autouse=True)
def ros():
    rclpy.init()
    yield
    rclpy.try_shutdown()


@pytest.fixture(scope='module')
def snapshot():
    return made_policy(two_joint_card(), bias=(0.3, -0.2))


@pytest.fixture(scope='module')
def policy(snapshot, tmp_path_factory):
    path = tmp_path_factory.mktemp('policy') / 'policy.safetensors'
    path.write_bytes(snapshot.data)
    return path


@pytest.fixture(scope='module')
def configured(policy):
    with policy_process('arm', policy) as process:
        robot = Robot(rclpy, 'arm')
        try:
            assert robot.transition('configure')
            yield robot, process
        finally:
            robot.close()


@pytest.fixture
def robot(configured):
    """Give a robot at its start pose under an inactive node."""
    robot, process = configured
    robot.healthy()
    time.sleep(0.3)
    yield robot
    assert process.poll() is None
    if robot.states[-1] != 'inactive':
        robot.transition('deactivate')
    robot.wait_for_state('inactive')


def activate(robot):
    robot.wait(lambda: robot.transition('activate'), 'activation')
    robot.wait_for_state('running')


def test_inactive_means_that_nothing_is_said(robot):
    begun = time.monotonic()
    time.sleep(0.5)
    assert not robot.since(begun)
    activate(robot)
    robot.wait(lambda: robot.since(begun), 'commands')
    assert robot.transition('deactivate')
    begun = time.monotonic() + 0.1
    time.sleep(0.6)
    assert not robot.since(begun)


def test_commands_are_those_of_the_policy(robot, snapshot):
    """Whatever the order of the joints in the message: identical commands."""
    robot.obeys = False
    activate(robot)

    def commands():
        begun = time.monotonic() + 0.2
        robot.wait(lambda: len(robot.since(begun)) >= 5, 'commands')
        return robot.since(begun)

    straight = commands()
    robot.names = lambda: ['right', 'extra', 'left']
    shuffled = commands()
    assert all(values == straight[0] for values in straight + shuffled)
    pilot = Pilot(parse_artefact(snapshot.data))
    state = standing(JOINTS, 2)
    state.joint_position[0] = START
    expected = dict(zip(JOINTS, pilot.target(state)))
    assert straight[0] == expected and straight[0] != dict(zip(JOINTS, START))


def test_the_loop_keeps_the_rate_of_the_policy(robot):
    activate(robot)
    begun = time.monotonic()
    time.sleep(2.0)
    count = len(robot.since(begun))
    # Beside other programs some steps come late; more than there are never come.
    assert 0.5 * 2.0 / CONTROL_DT < count <= 1.1 * 2.0 / CONTROL_DT


def test_go_to_start_moves_slowly_and_stays_there(robot):
    robot.position['left'] = START[0] + 0.4
    time.sleep(0.3)
    assert not robot.transition('activate')
    begun = time.monotonic()
    answer = robot.call('go_to_start')
    assert answer.success and '~/estop' in answer.message
    robot.wait_for_state('going_to_start')
    robot.wait(lambda: robot.position['left'] == pytest.approx(START[0], abs=1e-9), 'start pose')
    lefts = [values['left'] for values in robot.since(begun)]
    assert np.all(np.abs(np.diff(lefts)) <= 0.5 * CONTROL_DT + 1e-9)
    # Still inactive, as ROS has it; it holds the pose until it is activated.
    assert robot.info['lifecycle'] == 'inactive'
    activate(robot)
    assert not robot.call('go_to_start').success


def test_an_estop_ends_the_way_to_the_start(robot):
    robot.position['left'] = START[0] + 0.8
    time.sleep(0.3)
    assert robot.call('go_to_start').success
    assert robot.call('estop').success
    robot.wait_for_state('tripped')
    assert robot.call('reset_trip').success
    begun = time.monotonic() + 0.1
    robot.wait_for_state('inactive')
    time.sleep(0.4)
    assert not robot.since(begun)


def test_parameters_are_read_only_and_unknown_ones_are_refused(robot, policy):
    from rcl_interfaces.msg import Parameter, ParameterValue
    from rcl_interfaces.srv import SetParameters
    for name, value in (('deploy.max_tilt', ParameterValue(type=3, double_value=99.0)),
                        ('deploy.ramp_s', ParameterValue(type=4, string_value='fast'))):
        request = SetParameters.Request(parameters=[Parameter(name=name, value=value)])
        result = robot.ask(SetParameters, 'policy_node/set_parameters', request).results[0]
        assert not result.successful and result.reason, name
    for name, value, told in (('deploy.max_tilt', 99.0, '[0, 3.2] rad'),
                              ('deploy.max_tlit', 1.0, 'max_tilt')):
        with policy_process('wrong', policy, **{name.replace('.', '__'): value}) as process:
            assert process.wait(30) == 2
            lines = process.stdout.read().strip().splitlines()
        assert len(lines) == 1 and name in lines[0] and told in lines[0]


def test_diagnostics_and_metrics(robot):
    from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
    from std_msgs.msg import Float64

    from asyncppo_ros.nodes.policy_reports import METRICS
    activate(robot)
    heard, numbers = [], []
    subscriptions = [
        robot.node.create_subscription(DiagnosticArray, '/diagnostics', heard.append, 10),
        robot.node.create_subscription(Float64, 'policy_node/metrics/tick_to_publish_ms',
                                       numbers.append, 10)]
    status = robot.wait(lambda: [message.status[0] for message in heard
                                 if message.status[0].message == 'running'], 'diagnostics')[0]
    assert status.name == 'arm/policy_node: policy' and status.hardware_id == 'two_joints'
    assert status.level == DiagnosticStatus.OK
    values = {value.key: float(value.value) for value in status.values}
    assert {'steps', 'loop_jitter_ms_p99', 'state_age_ms_p50'} <= values.keys()
    assert 0.0 < robot.wait(lambda: numbers, 'metric')[-1].data < 1000.0
    topics = dict(robot.node.get_topic_names_and_types())
    assert all(topics[f'/arm/policy_node/metrics/{name}'] == ['std_msgs/msg/Float64']
               for name in METRICS)
    robot.call('estop')
    tripped = robot.wait(lambda: [message.status[0] for message in heard
                                  if message.status[0].level == DiagnosticStatus.ERROR], 'error')
    assert tripped[0].message == 'tripped: emergency stop by ~/estop'
    assert robot.call('reset_trip').success
    for subscription in subscriptions:
        robot.node.destroy_subscription(subscription)


def test_quality_of_service_of_what_it_reads_and_says(robot):
    from rclpy.qos import DurabilityPolicy, ReliabilityPolicy
    read = [info for info in robot.node.get_subscriptions_info_by_topic('/arm/joint_states')
            if info.node_name == 'policy_node']
    assert read[0].qos_profile.reliability == ReliabilityPolicy.BEST_EFFORT
    said = robot.node.get_publishers_info_by_topic(
        '/arm/joint_trajectory_controller/joint_trajectory')
    assert [info.node_name for info in said] == ['policy_node']
    assert said[0].qos_profile.reliability == ReliabilityPolicy.RELIABLE
    info = robot.node.get_publishers_info_by_topic('/arm/policy_node/policy_info')[0]
    assert info.qos_profile.durability == DurabilityPolicy.TRANSIENT_LOCAL


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_the_last_message_is_the_trip_action(policy, number):
    """The node moves the joints all the time, so that holding the pose is a change."""
    with policy_process('last', policy, deploy__autostart=True) as process:
        robot = Robot(rclpy, 'last')
        try:
            robot.wait_for_state('running', 40.0)
            # The joints are elsewhere than they are told to be: at the trip they are held there.
            robot.obeys = False
            robot.wait(lambda: robot.heard[-1][1]['left'] != robot.position['left'], 'command')
            robot.position = {'left': 0.5, 'right': -0.4}
            time.sleep(0.5)
            before = robot.heard[-1][1]
            code, seconds, shown = end(process, number)
            assert code == 0 and 'Traceback' not in shown and 'rror' not in shown
            # The promise is 5 s; beside other programs it takes longer.
            assert seconds < 15.0
            time.sleep(0.3)
            assert before != robot.position
            assert [values for _, values in robot.heard[-3:]] == [robot.position] * 3
        finally:
            robot.close()


def test_a_kill_leaves_silence(policy):
    """Nobody can say anything then: what the controller does is its own; see docs/safety.md."""
    with policy_process('killed', policy, deploy__autostart=True) as process:
        robot = Robot(rclpy, 'killed')
        try:
            robot.wait_for_state('running', 40.0)
            process.kill()
            process.wait(10)
            begun, stood = time.monotonic() + 0.2, dict(robot.position)
            time.sleep(1.0)
            assert not robot.since(begun) and robot.position == stood
        finally:
            robot.close()


def test_autostart_tries_until_all_is_well_and_tells_each_reason_once(policy):
    with policy_process('auto', policy, deploy__autostart=True) as process:
        robot = Robot(rclpy, 'auto')
        try:
            robot.position['left'] = 1.5
            robot.wait(lambda: any('start pose' in line for line in
                                   robot.info.get('refusals', [])), 'refusal', 40.0)
            time.sleep(2.5)
            assert not robot.heard
            robot.healthy()
            robot.wait_for_state('running')
            # Whoever stops it means it: it does not start again by itself.
            assert robot.transition('deactivate')
            time.sleep(1.5)
            assert robot.states[-1] == 'inactive'
            _, _, shown = end(process)
            # Beside other reasons it may have been told before.
            assert shown.count('not activated: not near the start pose') == 1, shown
        finally:
            robot.close()


@pytest.mark.parametrize('joints, told', [
    (['right', 'left'], None),
    (['right'], 'the policy moves left'),
    (['right', 'left', 'gripper'], 'gripper, which the policy does not move'),
    (None, 'does not say its joints')])
def test_a_forward_command_controller_is_asked_for_its_joints(policy, joints, told):
    from rclpy.parameter import Parameter
    name = f'order_{len(joints) if joints else 0}'
    robot = Robot(rclpy, name, 'forward_command')
    robot.obeys = False
    if joints:
        controller = rclpy.create_node(
            'forward_command_controller', namespace=name, allow_undeclared_parameters=True,
            parameter_overrides=[Parameter('joints', value=joints)],
            automatically_declare_parameters_from_overrides=True)
        robot._executor.add_node(controller)
    try:
        with inside(rclpy, name, policy, robot__output='forward_command'):
            assert robot.transition('configure')
            time.sleep(1.5)
            if told:
                assert not robot.transition('activate')
                refusals = robot.wait(lambda: robot.info.get('refusals'), 'refusal')
                assert any(told in line for line in refusals), refusals
                return
            activate(robot)
            robot.wait(lambda: robot.heard, 'commands')
        # The test robot takes them for left, right; the controller said right, left.
        assert robot.heard[-1][1]['left'] < 0.0 < robot.heard[-1][1]['right']
    finally:
        robot.close()
        if joints:
            controller.destroy_node()


def test_commands_as_joint_states_with_the_names_of_the_robot(policy, snapshot):
    robot = Robot(rclpy, 'legacy', 'joint_state', urdf=None)
    robot.obeys = False
    robot.position = {'l_hip': START[0], 'right': START[1]}
    robot.names = lambda: ['right', 'l_hip']
    robot.velocity = {'l_hip': 0.0, 'right': 0.0}
    try:
        with inside(rclpy, 'legacy', policy, robot__output='joint_state',
                    robot__description_topic='', robot__joint_names=['left=l_hip']):
            assert robot.transition('configure')
            time.sleep(0.5)
            activate(robot)
            robot.wait(lambda: robot.heard, 'commands')
        assert set(robot.heard[-1][1]) == {'l_hip', 'right'}
    finally:
        robot.close()


def test_a_goal_must_come_and_be_in_a_known_frame(tmp_path):
    from geometry_msgs.msg import PoseStamped
    card = two_joint_card([joint_position(JOINTS), command('goal', 3)], mode='delta', offset=0.0,
                          commands={'goal': {'size': 3, 'low': [-1.0] * 3, 'high': [1.0] * 3}})
    path = tmp_path / 'policy.safetensors'
    path.write_bytes(made_policy(card).data)
    robot = Robot(rclpy, 'goal')
    robot.obeys = False
    publisher = robot.publisher(PoseStamped, 'goal_pose')
    try:
        with inside(rclpy, 'goal', path):
            assert robot.transition('configure')
            time.sleep(0.5)
            assert not robot.transition('activate')
            refusals = robot.wait(lambda: robot.info.get('refusals'), 'refusal')
            assert refusals == ["never heard: command 'goal'"]
            goal = PoseStamped()
            goal.header.frame_id = 'moon'
            goal.pose.position.x = 0.3
            robot.wait(lambda: publisher.get_subscription_count(), 'subscriber')
            over = time.monotonic() + 0.5
            robot.tell(publisher, goal, lambda: time.monotonic() > over, 'goals')
            assert not robot.transition('activate')
            goal.header.frame_id = 'base_link'
            robot.tell(publisher, goal, lambda: robot.transition('activate'), 'activation')
            robot.wait_for_state('running')
            robot.wait(lambda: robot.heard, 'commands')
            pilot = Pilot(parse_artefact(path.read_bytes()))
            state = standing(JOINTS, 2, commands={'goal': 3})
            state.joint_position[0] = START
            state.command['goal'][0] = 0.3, 0.0, 0.0
            expected = dict(zip(JOINTS, pilot.target(state)))
            robot.wait(lambda: robot.heard[-1][1] == expected, 'its command')
    finally:
        robot.close()


def test_points_are_turned_and_moved():
    from asyncppo_ros.nodes.robot_frames import transformed
    quarter = np.sqrt(0.5)
    found = transformed((1.0, 2.0, 3.0), (10.0, 0.0, 0.0), (quarter, 0.0, 0.0, quarter))
    np.testing.assert_allclose(found, (8.0, 1.0, 3.0), atol=1e-12)



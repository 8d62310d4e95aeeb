"""Policies that are published while the robot runs: taken between two steps, or refused."""

import array
import json
import time

from deployed import (
    CONTROL_DT,
    JOINTS,
    made_policy,
    policy_process,
    Robot,
    START,
    two_joint_card,
)
import numpy as np
import pytest

from asyncppo_ros.robot.artefact import parse_artefact
from asyncppo_ros.robot.pilot import Pilot
from asyncppo_ros.robot.state import standing
from asyncppo_ros.robot.terms import joint_position

rclpy = pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
pytestmark = pytest.mark.nodes

CARD = two_joint_card()
KEY, OTHER_KEY = bytes(range(32)), bytes(32)
BLEND_S = 1.0


def policy_of(version, left=0.0, **more):
    """Write a policy that commands the left joint by its bias."""
    return made_policy(CARD, version, bias=(left, 0.0), gain=0.0, **{'key': KEY, **more})


def left_of(snapshot):
    state = standing(JOINTS, 2)
    state.joint_position[0] = START
    return Pilot(parse_artefact(snapshot.data)).target(state)[0]


class Learner:
    """Publishes policies and evaluations as a learner and an evaluator do."""

    def __init__(self, robot):
        from std_msgs.msg import String, UInt8MultiArray

        from asyncppo_ros.nodes.qos import EVALUATION_TOPIC, LATCHED_QOS, POLICY_QOS, POLICY_TOPIC
        self._policies = robot.publisher(UInt8MultiArray, POLICY_TOPIC, POLICY_QOS)
        self._evaluations = robot.publisher(String, EVALUATION_TOPIC, LATCHED_QOS)

    def publish(self, snapshot, data=None):
        from std_msgs.msg import MultiArrayDimension, UInt8MultiArray
        message = UInt8MultiArray()
        message.layout.dim = [MultiArrayDimension(label=f'asyncppo policy {snapshot.identity}')]
        message.data = array.array('B', snapshot.data if data is None else data)
        self._policies.publish(message)

    def evaluate(self, version, score, run_id=7):
        from std_msgs.msg import String
        self._evaluations.publish(String(data=json.dumps(
            {'run_id': run_id, 'generation': 1, 'policy_version': version,
             'return_mean': score, 'success': None, 'episodes': 20})))


@pytest.fixture(scope='module', autouse=True)
def ros():
    rclpy.init()
    yield
    rclpy.try_shutdown()


@pytest.fixture(scope='module')
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp('keys')
    secret = folder / 'policy_hmac.key'
    secret.write_text(KEY.hex())
    secret.chmod(0o600)
    return folder


@pytest.fixture(scope='module')
def running(keys, tmp_path_factory):
    """One running node for all tests, in order: each leaves a newer policy in command."""
    path = tmp_path_factory.mktemp('live') / 'policy.safetensors'
    path.write_bytes(policy_of(1).data)
    with policy_process('live', path, deploy__live=True, deploy__autostart=True,
                        deploy__blend_s=BLEND_S, transport__keys=str(keys)) as process:
        robot = Robot(rclpy, 'live')
        robot.obeys = False
        try:
            robot.wait_for_state('running', 40.0)
            yield robot, Learner(robot)
            assert process.poll() is None
        finally:
            robot.close()


def in_command(robot, version):
    robot.wait(lambda: robot.info['policy_version'] == version, f'policy {version} in command')


def test_a_newer_policy_takes_over_without_a_jump_or_a_missed_step(running):
    robot, learner = running
    assert robot.info['policy_version'] == 1
    begun = time.monotonic()
    newer = policy_of(2, left=0.8)
    learner.publish(newer)
    first = robot.wait(lambda: [at for at, values in robot.commands
                                if values['left'] > START[0] + 1e-6], 'change')[0]
    # One control period, and what it takes to get there and back beside other programs.
    assert first - begun < CONTROL_DT + 0.3
    in_command(robot, 2)
    robot.wait(lambda: robot.heard[-1][1]['left'] == pytest.approx(left_of(newer), abs=1e-6),
               'the end of the blend')
    lefts = [values['left'] for values in robot.since(begun)]
    steps = round(BLEND_S / CONTROL_DT)
    largest = (left_of(newer) - START[0]) / steps
    # Beside other programs a message may come late, and two steps then look like one.
    assert np.all(np.diff(lefts) <= 2.01 * largest)
    assert np.all(np.diff(lefts) >= -1e-9) and len(set(lefts)) >= steps // 2
    assert robot.states[-1] == 'running'


def test_many_policies_cost_no_step(running):
    from std_msgs.msg import Float64
    robot, learner = running
    steps, missed = [], []
    subscriptions = [
        robot.node.create_subscription(Float64, f'policy_node/metrics/{name}', heard.append, 10)
        for name, heard in (('steps', steps), ('missed_steps', missed))]
    robot.wait(lambda: len(missed) > 1 and len(steps) > 1, 'metrics')
    quiet = missed[-1].data - missed[0].data, steps[-1].data - steps[0].data
    first = missed[-1].data, steps[-1].data
    for version in range(3, 13):
        learner.publish(policy_of(version, left=0.05 * version))
        time.sleep(0.1)
    in_command(robot, 12)
    time.sleep(0.5)
    # Beside other programs a step is missed now and then; ten policies add at most one or two.
    assert missed[-1].data - first[0] <= 2 + quiet[0], (quiet, missed[-1].data)
    assert steps[-1].data > first[1]
    for subscription in subscriptions:
        robot.node.destroy_subscription(subscription)


def test_the_node_says_how_long_takeovers_took(running):
    from diagnostic_msgs.msg import DiagnosticArray
    robot, _ = running
    said = []
    subscription = robot.node.create_subscription(
        DiagnosticArray, '/diagnostics', lambda message: said.append(
            {pair.key: float(pair.value) for pair in message.status[0].values}), 10)
    times = robot.wait(lambda: [values for values in said if 'takeover_ms_max' in values],
                       'diagnostics')[-1]
    robot.node.destroy_subscription(subscription)
    assert times['policy_load_ms_p50'] > 0.0
    assert times['takeover_ms_p50'] >= times['policy_load_ms_p50']
    assert times['takeover_ms_max'] >= times['policy_wait_ms_max'] >= 0.0


def refused(robot, count):
    robot.wait(lambda: robot.info['live_refused'] == count, 'refusal')
    assert robot.info['policy_version'] == 12 and robot.states[-1] == 'running'


def test_what_is_wrong_is_refused_and_the_good_one_stays(running):
    robot, learner = running
    count = robot.info['live_refused']
    good = policy_of(20)
    learner.publish(good, good.data[:-40])
    refused(robot, count + 1)
    learner.publish(policy_of(21, key=None))
    refused(robot, count + 2)
    learner.publish(policy_of(22, key=OTHER_KEY))
    refused(robot, count + 3)
    # One and the same: written again its bytes may be in another order.
    foreign = policy_of(23, run_id=8)
    learner.publish(foreign)
    refused(robot, count + 4)
    other = two_joint_card([joint_position(JOINTS)])
    unfit = made_policy(other, 24, key=KEY)
    learner.publish(unfit)
    refused(robot, count + 5)
    # Told once, however often it is repeated; an older one is no news at all.
    for repeated in (unfit, foreign, policy_of(11)):
        learner.publish(repeated)
        # The topic keeps one message alone: each must arrive before the next.
        time.sleep(0.5)
    refused(robot, count + 5)


def test_rollback_pins_the_policy_before_until_release(running):
    robot, learner = running
    answer = robot.call('rollback')
    assert answer.success and 'policy 1.11 is in command' in answer.message
    in_command(robot, 11)
    assert robot.info['pinned']
    learner.publish(policy_of(30, left=-0.5))
    time.sleep(0.5)
    assert robot.info['policy_version'] == 11
    assert robot.call('release').success
    in_command(robot, 30)
    assert not robot.info['pinned']
    assert not robot.call('release').message.startswith('policy')


def test_a_restored_learner_is_newer(running):
    robot, learner = running
    learner.publish(policy_of(2, generation=2))
    robot.wait(lambda: robot.info['generation'] == 2, 'generation 2')


def test_a_late_robot_gets_the_newest_policy_and_a_gate_waits_for_its_score(tmp_path):
    """Published before the node begins; scores beside the file and on the topic."""
    folder = tmp_path / 'run'
    folder.mkdir()
    path = folder / 'policy.safetensors'
    path.write_bytes(policy_of(1, key=None).data)
    (folder / 'evaluations.jsonl').write_text(
        '{"generation": 1, "policy_version": 1, "return_mean": 100.0}\nnot json\n')
    robot = Robot(rclpy, 'gated')
    robot.obeys = False
    learner = Learner(robot)
    learner.publish(policy_of(5, left=0.4, key=None))
    try:
        with policy_process('gated', path, deploy__live=True, deploy__live_gate=True,
                            deploy__autostart=True):
            robot.wait_for_state('running', 40.0)
            robot.wait(lambda: robot.info['waiting'] == 'policy 1.5 waits for its evaluation',
                       'wait')
            learner.publish(policy_of(6, left=0.6, key=None))
            learner.evaluate(5, 80.0)
            robot.wait(lambda: 'policy 1.6 waits' in robot.info['waiting'], 'wait')
            time.sleep(0.3)
            assert robot.info['policy_version'] == 1, '80 is worse than 100 less 5 %'
            learner.evaluate(6, 96.0, run_id=8)
            time.sleep(0.3)
            assert robot.info['policy_version'] == 1, 'that was of another run'
            learner.evaluate(6, 96.0)
            in_command(robot, 6)
    finally:
        robot.close()


def test_without_live_the_topic_is_not_even_listened_to(tmp_path):
    path = tmp_path / 'policy.safetensors'
    path.write_bytes(policy_of(1, key=None).data)
    robot = Robot(rclpy, 'fixed')
    learner = Learner(robot)
    try:
        from deployed import inside
        with inside(rclpy, 'fixed', path) as node:
            assert robot.transition('configure')
            learner.publish(policy_of(9, key=None))
            time.sleep(0.5)
            assert robot.info['next'] == [1, 1]
            assert node.count_subscribers('/fixed/policy') == 0
            answer = robot.call('rollback')
            assert not answer.success and 'no policy before' in answer.message
    finally:
        robot.close()

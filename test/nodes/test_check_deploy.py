"""``asyncppo check-deploy`` beside robots that fit a policy and robots that do not."""

import json
import subprocess
import sys

from harness import asyncppo
from made_policies import legs_task, policy_bytes
import pytest

pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
pytestmark = [pytest.mark.nodes, pytest.mark.one_distro]

import tiny_robot  # noqa: E402

from asyncppo_ros.config import Config, DeployConfig, RobotConfig  # noqa: E402
from asyncppo_ros.nodes.check_deploy import examine  # noqa: E402
from asyncppo_ros.robot.artefact import parse_artefact  # noqa: E402

# Enough for every robot of this file on a slow machine; the robots tell 10 times a second.
CONTROL_DT = 0.2
DEPLOY = {'state_timeout_s': 10.0, 'frozen_s': 0.3, 'clock_tolerance_s': 8.0}
ROBOTS = {
    'good': '', 'shuffled': 'shuffled', 'forward': 'forward', 'degrees': 'degrees',
    'broken': 'nan second', 'absent': 'wrong_type deaf no_imu', 'short': 'without_knee',
    'doubled': 'twice', 'early': 'stamped_ahead', 'still': 'frozen lying', 'slow': 'RATE=2',
    'lame': 'lame', 'narrow': 'narrow'}


@pytest.fixture(scope='module')
def robots():
    lines = [f'/{name} {variants} RATE=10' if 'RATE' not in variants else f'/{name} {variants}'
             for name, variants in ROBOTS.items()]
    process = subprocess.Popen([sys.executable, tiny_robot.__file__, *' -- '.join(lines).split()],
                               stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == 'ready\n'
        yield
    finally:
        process.terminate()
        assert process.wait(20) == 0


def check(namespace, task=None, seconds=0.5, **robot):
    artefact = parse_artefact(policy_bytes(task or legs_task(control_dt=CONTROL_DT)))
    config = Config(robot=RobotConfig(**robot), deploy=DeployConfig(**DEPLOY))
    return examine(artefact, config, seconds, namespace)


FORWARD = {'output': 'forward_command', 'output_topic': f'{tiny_robot.CONTROLLER}/commands'}


def test_a_robot_that_fits(robots):
    found = check('good')
    assert found.mismatches == []
    rows = {row['joint']: row for row in found.joints}
    for name, start in tiny_robot.START.items():
        assert rows[name]['value'] == pytest.approx(start, abs=0.01)
        assert rows[name]['start_pose'] == start and rows[name]['robot_joint'] == name
        # The policy says ±0.9, the URDF ±1.0.
        assert (rows[name]['low'], rows[name]['high']) == (-0.9, 0.9)
        assert rows[name]['topics'] == ['/good/joint_states']
        assert abs(rows[name]['first_command'] - start) <= 0.2
    topics = {row['topic']: row for row in found.topics}
    assert 2.5 < topics['/good/joint_states']['rate'] < 20.0
    assert topics['/good/joint_states']['others'] == ['/good/tiny_robot (reliable, volatile)']
    terms = {row['term']: row for row in found.terms}
    assert terms['projected_gravity']['low'] == -1.0
    assert terms['projected_gravity']['worst_z'] == pytest.approx(1.0, abs=0.01)
    assert found.notes == ['joints that the policy does not know: gripper']


def test_the_order_on_the_topic_does_not_matter(robots):
    found = check('shuffled')
    assert found.mismatches == []
    assert [row['value'] for row in found.joints] == pytest.approx(
        list(tiny_robot.START.values()), abs=0.01)


def test_a_forward_command_controller_is_asked_for_its_order(robots):
    found = check('forward', **FORWARD)
    assert found.mismatches == []
    assert f'order of /forward/{tiny_robot.CONTROLLER}: ankle, knee, hip' in found.notes
    found = check('lame', **FORWARD)
    assert any('the policy moves ankle, which must be there once' in text
               for text in found.mismatches)


def test_a_robot_that_is_not_there(robots):
    found = check('nowhere', **FORWARD)
    for text in ('topic /nowhere/joint_states: nobody publishes it',
                 "never heard: position of joint 'hip'", 'no URDF came on robot_description',
                 'did not answer: the order of its joints is not known; give robot.joint_order',
                 'nobody listens to commands'):
        assert any(text in line for line in found.mismatches), found.mismatches


@pytest.mark.parametrize(('name', 'expected'), [
    ('degrees', ['joint hip: is at 5.7', 'outside of its limits -0.900 to 0.900',
                 'observation term joint_position: knee is']),
    ('broken', ['samples refused: not finite', 'also published by /broken/tiny_robot']),
    ('absent', ["never heard: position of joint 'hip'", 'never heard: orientation of the base',
                'carries std_msgs/msg/Float64, expected sensor_msgs/msg/JointState',
                'nobody listens to commands']),
    ('short', ["never heard: position of joint 'knee'"]),
    ('doubled', ['samples refused: joint twice']),
    ('early', ['samples refused: ']),
    ('still', ['deploy.frozen_s', 'joint hip: is at 0.900, 0.800 from the start pose 0.100']),
    ('slow', ['comes at ', 'the policy acts at 5.0 Hz']),
    # Its sensor is noisy.
    ('narrow', ['joint knee: is at -0.', 'outside of its limits -0.200 to 0.900']),
])
def test_a_mismatch_is_named(robots, name, expected):
    found = check(name, seconds=1.0 if name in ('still', 'slow') else 0.5)
    for text in expected:
        assert any(text in line for line in found.mismatches), found.mismatches
    assert all('\n' not in line for line in found.mismatches)


def test_names_of_joints_are_mapped(robots):
    task = legs_task(('thigh', 'knee', 'ankle'), CONTROL_DT)
    found = check('good', task=task)
    assert "never heard: position of joint 'thigh'" in found.mismatches
    found = check('good', task=task, joint_names=('thigh=hip',))
    assert found.mismatches == []
    assert (found.joints[0]['joint'], found.joints[0]['robot_joint']) == ('thigh', 'hip')


def test_the_command_says_ok_or_fails(robots, tmp_path):
    policy, params = tmp_path / 'policy.safetensors', tmp_path / 'robot.yaml'
    policy.write_bytes(policy_bytes(legs_task(control_dt=CONTROL_DT)))
    params.write_text('/**:\n  ros__parameters:\n    use_sim_time: false\n    deploy:\n'
                      '      state_timeout_s: 10.0\n')
    arguments = ('check-deploy', policy, '--params', params, '--seconds', 0.5)
    result = asyncppo(*arguments, '--namespace', '/good')
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.strip().endswith('OK: the policy fits the robot')
    assert 'first command' in result.stdout and 'worst |z|' in result.stdout
    result = asyncppo(*arguments, '--namespace', '/short', '--json')
    said = json.loads(result.stdout)
    assert result.returncode == 1 and not said['ok']
    assert {'joints', 'terms', 'topics', 'mismatches', 'notes'} <= said.keys()


def test_mistakes_are_one_line(tmp_path):
    policy, simulated = tmp_path / 'policy.safetensors', tmp_path / 'simulated.safetensors'
    policy.write_bytes(policy_bytes(legs_task()))
    task = legs_task()
    task['observation'][0]['simulation_only'] = True
    simulated.write_bytes(policy_bytes(task))
    for arguments, words in (((simulated,), "'joint_position' exists only in simulation"),
                             ((policy, '--robot.outputs', 'x'), 'robot.outputs'),
                             ((policy, '--params', tmp_path / 'none.yaml'), 'none.yaml')):
        result = asyncppo('check-deploy', *arguments)
        line, = result.stderr.strip().splitlines()
        assert result.returncode == 2 and words in line and line.startswith('asyncppo: ')

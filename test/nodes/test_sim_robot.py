"""The simulated robot as other ROS nodes meet it: real processes, in lockstep and in real time."""

import json
import signal

from harness import end
import numpy as np
import pytest
from sim_robots import stamp, start, Talker

from asyncppo_ros.simulation import registry
from asyncppo_ros.simulation.quadruped_walk import JOINTS
from asyncppo_ros.simulation.reach import JOINTS as ARM_JOINTS

rclpy = pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
pytestmark = [pytest.mark.nodes, pytest.mark.one_distro]

SEED = 7
LATENCY = 0.1
# The dog calls its joints otherwise, and its IMU lies on its side.
DOG_NAMES = {joint: f'dog/{joint}' for joint in JOINTS}
MOUNTING = (0.5, 0.5, 0.5, 0.5)
PARTS = ('front/joint_states', 'rear/joint_states')


@pytest.fixture(scope='module')
def robots():
    """Start them side by side: most of their time is imports."""
    started = {
        'arm': start('arm', task='reach', sim_robot__lockstep=True, sim_robot__ask=True,
                     sim_robot__seed=SEED),
        'dog': start('dog', task='quadruped_walk', sim_robot__lockstep=True, sim_robot__ask=True,
                     sim_robot__seed=SEED, sim_robot__shuffle_joints=True, sim_robot__drop=0.3,
                     sim_robot__odometry=True, robot__output='forward_command',
                     robot__imu_rotation=MOUNTING, robot__joint_state_topics=PARTS,
                     robot__joint_names=[f'{joint}={name}' for joint, name in DOG_NAMES.items()]),
        'live': start('live', task='reach', sim_robot__publish_clock=True,
                      sim_robot__state_rate=50.0, sim_robot__state_latency_s=LATENCY,
                      sim_robot__sensor_noise=0.1, robot__output='joint_state',
                      sim_robot__seed=SEED)}
    rclpy.init()
    try:
        yield started
    finally:
        for process in started.values():
            process.terminate()
        for process in started.values():
            process.wait(20)
        rclpy.try_shutdown()


@pytest.fixture(scope='module')
def talk(robots):
    talkers = {}

    def find(namespace, *arguments):
        if namespace not in talkers:
            talkers[namespace] = Talker(rclpy, namespace, *arguments)
            talkers[namespace].is_known()
        return talkers[namespace]
    yield find
    for talker in talkers.values():
        talker.close()


def in_process(task, num_envs):
    """Give the simulation of training, whose environment k is episode k of a robot."""
    batch = registry.make(task, num_envs, SEED)
    out = np.zeros((num_envs, batch.observation_size), np.float32)
    batch.reset(out)
    return batch, out


def test_an_episode_in_lockstep_is_that_of_training(talk):
    from geometry_msgs.msg import PoseStamped
    arm, rng = talk('arm'), np.random.default_rng(0)
    arm.listen('goal_pose', PoseStamped)
    message = arm.reset()
    episode = int(message.removeprefix('episode '))
    batch, out = in_process('reach', episode + 1)
    after = 0.0
    stamps = []
    for step in range(75):
        after, position, velocity, effort = arm.state(ARM_JOINTS, after)
        stamps.append(after)
        state = batch.state
        np.testing.assert_allclose(position, state.joint_position[episode], atol=1e-9)
        np.testing.assert_allclose(velocity, state.joint_velocity[episode], atol=1e-9)
        np.testing.assert_allclose(effort, state.joint_effort[episode], atol=1e-9)
        if step == 5:
            goal = arm.wait(lambda: arm.heard['goal_pose'], 'goal')[-1]
            place = goal.pose.position
            np.testing.assert_array_equal([place.x, place.y, place.z],
                                          state.command['goal'][episode])
            assert goal.header.frame_id == 'base_link'
        action = np.tanh(0.3 * rng.standard_normal((episode + 1, 6)))
        result = batch.step(action, out)
        arm.command(ARM_JOINTS, batch._command[episode])
    np.testing.assert_allclose(np.diff(stamps), 0.04, atol=1e-6)
    found = arm.wait(lambda: [told for told in map(lambda message: json.loads(message.data),
                                                   arm.heard['episodes'])
                              if told['index'] == episode], 'episode')[0]
    expected = result.episodes[episode]
    assert found['length'] == expected[1] == 75 and found['success'] == bool(expected[2])
    assert found['return'] == pytest.approx(expected[0], rel=1e-5)
    assert found['terminated'] is False and found['measures'] == {}
    # It is held: nothing moves it but a reset.
    after = arm.state(ARM_JOINTS, after)[0]
    arm.command(ARM_JOINTS, np.zeros(6))
    arm.spin(0.3)
    assert max(map(stamp, arm.heard['states'])) == after
    arm.heard['clock'].clear()
    arm.reset()
    # Newer states than any before, and the clock never went back.
    assert arm.state(ARM_JOINTS, after)[0] == pytest.approx(after + 0.04)
    arm.wait(lambda: any(stamp(message) > after for message in arm.heard['clock']), 'clock')
    told = [stamp(message) for message in arm.heard['clock']]
    assert told == sorted(told) and told[-1] == pytest.approx(after + 0.04)


def test_time_stands_still_until_a_command_and_news_are_repeated(talk):
    arm = talk('arm')
    arm.reset()
    arm.spin(0.2)
    arm.heard['clock'].clear()
    first = arm.state(ARM_JOINTS)
    arm.spin(0.5)
    repeated = list(arm.heard['states'])
    assert len(repeated) >= 5
    assert {stamp(message) for message in repeated} == {first[0]}
    assert all(list(message.position) == list(repeated[0].position) for message in repeated)
    assert {stamp(message) for message in arm.heard['clock']} == {first[0]}


def test_what_is_no_command_lets_no_time_pass(talk):
    arm = talk('arm')
    arm.reset()
    arm.spin(0.2)
    first = arm.state(ARM_JOINTS)[0]
    for names, values, interface in ((ARM_JOINTS[:5] + ('hip',), np.zeros(6), 'position'),
                                     (ARM_JOINTS, np.full(6, np.nan), 'position'),
                                     (ARM_JOINTS, np.zeros(6), 'velocity')):
        arm.command(names, values, interface)
        arm.spin(0.2)
    assert {stamp(message) for message in arm.heard['states']} == {first}
    arm.command(ARM_JOINTS[:2], np.zeros(2))
    assert arm.state(ARM_JOINTS, first)[0] == pytest.approx(first + 0.04)


def test_shuffled_renamed_joints_on_two_lossy_topics_are_the_same_robot(talk):
    """All that a forward_command_controller and a bad network can do to names and messages."""
    from rcl_interfaces.srv import GetParameters

    from asyncppo_ros.robot.kinematics import rotation
    dog, rng = talk('dog', 'forward_command', PARTS), np.random.default_rng(0)
    answer = dog.call('forward_command_controller/get_parameters', GetParameters,
                      GetParameters.Request(names=['joints']))
    order = list(answer.values[0].string_array_value)
    assert sorted(order) == sorted(DOG_NAMES.values()) and order != list(DOG_NAMES.values())
    columns = [list(DOG_NAMES.values()).index(name) for name in order]
    episode = int(dog.reset().removeprefix('episode '))
    batch, out = in_process('quadruped_walk', episode + 1)
    after = 0.0
    for _ in range(25):
        after, position, velocity, _ = dog.state(DOG_NAMES.values(), after)
        state = batch.state
        np.testing.assert_allclose(position, state.joint_position[episode], atol=1e-9)
        np.testing.assert_allclose(velocity, state.joint_velocity[episode], atol=1e-9)
        dog.wait(lambda now=after: any(stamp(told) == now for told in dog.heard['imu']), 'imu')
        imu = dog.heard['imu'][-1].angular_velocity
        np.testing.assert_allclose(rotation(MOUNTING) @ (imu.x, imu.y, imu.z),
                                   state.base_angular_velocity[episode], atol=1e-9)
        batch.step(np.tanh(0.3 * rng.standard_normal((episode + 1, 12))), out)
        dog.command(order, batch._command[episode][columns])
    assert len(dog.orders) > 10
    assert all(len(names) == 6 for names in dog.orders)
    front = {name for name in DOG_NAMES.values() if 'front' in name}
    assert all(set(names) == front or not set(names) & front for names in dog.orders)
    odometry = dog.wait(lambda: dog.heard['odom'], 'odometry')[-1]
    assert odometry.child_frame_id == 'base_link' and 0.1 < odometry.pose.pose.position.z < 0.5


def test_the_robot_is_described_with_its_own_names(talk):
    dog, arm = talk('dog', 'forward_command', PARTS), talk('arm')
    text = dog.wait(lambda: dog.heard['description'], 'description')[0].data
    assert 'name="dog/rear_left_knee"' in text and '<joint name="rear_left_knee"' not in text
    text = arm.wait(lambda: arm.heard['description'], 'description')[0].data
    assert '<joint name="elbow" type="revolute">' in text


def test_real_time_goes_on_by_itself_and_the_robot_waits(talk):
    live = talk('live', 'joint_state')
    for name in ('states', 'clock'):
        live.heard[name].clear()
    live.spin(1.5)
    clocks = [stamp(message) for message in live.heard['clock']]
    assert clocks == sorted(clocks) and clocks[-1] - clocks[0] > 0.5
    # 0.024 s are three physics steps of 8 ms, the nearest to 50 Hz.
    steps = np.diff(clocks)
    assert np.median(steps) == pytest.approx(0.016, abs=0.009)
    held = np.array([message.position for message in live.heard['states']])
    # Noise of a tenth of 0.01 rad, and nothing else: it is held.
    assert 0.0002 < held.std(0).mean() < 0.002
    target = held.mean(0) + 0.3
    live.command(ARM_JOINTS, target)
    live.wait(lambda: live.heard['states'] and np.abs(
        np.array(live.heard['states'][-1].position) - target).max() < 0.02, 'pose', 30.0)


def test_states_are_late_by_what_is_asked(talk):
    """Their stamps are those of the measurement: older than the clock that is told with them."""
    live = talk('live', 'joint_state')
    live.command(ARM_JOINTS, np.zeros(6))
    live.spin(0.5)
    live.heard['states'].clear()
    live.wait(lambda: len(live.heard['states']) > 10, 'states')
    stamps = np.array([stamp(message) for message in live.heard['states']])
    live.wait(lambda: stamp(live.heard['clock'][-1]) > stamps[-1] + LATENCY, 'clock')
    clocks = np.array([stamp(message) for message in live.heard['clock']])
    # The clock is told each 16 ms, and a state is late by 104 ms: by 6.5 times as much.
    period, late = 0.016, 0.104
    for times, shift in ((clocks, 0.0), (stamps, late)):
        np.testing.assert_allclose((times + shift - clocks[0] + 0.004) % period, 0.004, atol=1e-6)
    assert (np.diff(stamps) > 0.0).all()


def test_a_reset_in_real_time_begins_an_episode_and_holds(talk):
    live = talk('live', 'joint_state')
    live.command(ARM_JOINTS, np.zeros(6))
    live.spin(1.0)
    episode = int(live.reset().removeprefix('episode '))
    batch, _ = in_process('reach', episode + 1)
    live.spin(0.2)
    live.heard['states'].clear()
    live.spin(0.5)
    held = np.array([message.position for message in live.heard['states']])
    np.testing.assert_allclose(held.mean(0), batch.state.joint_position[episode], atol=0.003)


@pytest.mark.parametrize('settings, told', [
    ({'task': 'gymnasium:CartPole-v1'}, 'neither joints nor topics'),
    ({'robot__joint_names': ['toe=t']}, "the policy has no joint 'toe'"),
    ({'sim_robot__ask': True, 'robot__command_topics': ['']}, "needs the command 'goal'"),
    ({'robot__urdf': '/no/such.urdf'}, 'robot.urdf = /no/such.urdf: No such file'),
    ({'robot__output': 'forward_command', 'robot__joint_order': ['elbow']},
     'robot.joint_order = elbow: must be all of shoulder_pan'),
    ({'robot__joint_state_topics': ['']}, 'robot.joint_state_topics is empty'),
])
def test_a_mistake_is_told_in_one_line(settings, told):
    process = start('wrong', **settings)
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == 2, shown
    assert told in shown and 'Traceback' not in shown
    assert shown.count('\n') == 1 and shown.startswith('sim_robot_node: ')


# Last: they end it.
@pytest.mark.parametrize('namespace, number', [('arm', signal.SIGINT), ('live', signal.SIGTERM)])
def test_it_ends_cleanly(robots, namespace, number):
    code, seconds, shown = end(robots[namespace], number)
    assert code == 0 and seconds < 15.0, shown
    assert 'Traceback' not in shown

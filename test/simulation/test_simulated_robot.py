"""The simulated robot: the same physics and score as training, behind sensors and controllers."""

import re

import mujoco
import numpy as np
import pytest

from asyncppo_ros.config import RandomizationConfig, SimRobotConfig
from asyncppo_ros.errors import TaskError
from asyncppo_ros.robot.kinematics import rotation
from asyncppo_ros.simulation import registry
from asyncppo_ros.simulation.robot import SimulatedRobot
from asyncppo_ros.simulation.sensors import product

SEED = 7
GRAVITY = 9.81


def make(task='reach', mounting=(1.0, 0.0, 0.0, 0.0), **settings):
    return SimulatedRobot(task, SimRobotConfig(seed=SEED, **settings), mounting)


def stay(robot, steps=1):
    """Command the measured pose, and let so many control steps pass."""
    position = robot.state.joint_position[0, robot.state.columns(robot.moved)]
    assert robot.command(robot.interface, robot.moved, position) is None
    robot.advance(steps * robot.substeps)


def compared(task, episode, steps, num_envs=3):
    """Play an episode of a robot beside the environment of the same number."""
    batch = registry.make(task, num_envs, SEED)
    batch.measured = {}
    out = np.zeros((num_envs, batch.observation_size), np.float32)
    batch.reset(out)
    robot = make(task, ask=True)
    while robot.episode < episode:
        robot.reset()
    rng = np.random.default_rng(0)
    sums = dict.fromkeys(batch.measures, 0.0)
    for _ in range(steps):
        sample, state = robot.read(), batch.state
        np.testing.assert_allclose(sample.position, state.joint_position[episode], atol=1e-9)
        np.testing.assert_allclose(sample.velocity, state.joint_velocity[episode], atol=1e-9)
        np.testing.assert_allclose(sample.effort, state.joint_effort[episode], atol=1e-9)
        if sample.imu is not None:
            np.testing.assert_allclose(sample.imu.orientation, state.base_orientation[episode],
                                       atol=1e-9)
            np.testing.assert_allclose(sample.imu.angular_velocity,
                                       state.base_angular_velocity[episode], atol=1e-9)
        for name, values in robot.asked().items():
            np.testing.assert_array_equal(values, state.command[name][episode])
        action = np.tanh(0.3 * rng.standard_normal((num_envs, batch.action_size)))
        result = batch.step(action, out)
        for name, values in batch.measured.items():
            sums[name] += values[episode]
        robot.command(robot.interface, robot.moved, batch._command[episode])
        robot.advance(robot.substeps)
        if robot.result is not None:
            return robot, result, sums
    return robot, None, sums


@pytest.mark.parametrize('task, episode', [
    ('reach', 0), ('reach', 2), ('quadruped_walk', 1), ('cartpole_swingup', 2)])
def test_an_episode_is_that_of_training(task, episode):
    robot, result, sums = compared(task, episode, 600)
    ended = list(np.flatnonzero(result.terminated | result.truncated))
    episode_return, length, success = result.episodes[ended.index(episode)]
    found = robot.result
    assert found.index == episode and found.length == length
    assert found.episode_return == pytest.approx(episode_return, rel=1e-5, abs=1e-5)
    assert found.success == bool(success)
    assert found.terminated == result.terminated[episode]
    assert found.measures == pytest.approx({name: value / length for name, value in sums.items()})


def test_a_command_that_is_late_by_a_step_is_a_delayed_action():
    """Latency of one control step is what the randomization calls action_delay = 1."""
    robot = make('cartpole_swingup', command_latency_s=0.02)
    plain = make('cartpole_swingup')
    rng = np.random.default_rng(0)
    before = np.zeros(1)
    for _ in range(20):
        force = rng.uniform(-10.0, 10.0, 1)
        robot.command('effort', ['slider'], force)
        robot.advance(robot.substeps)
        plain.command('effort', ['slider'], before)
        plain.advance(plain.substeps)
        before = force
        np.testing.assert_allclose(robot.read().position, plain.read().position, atol=1e-12)


def test_states_are_late():
    robot, plain = make(state_latency_s=0.08), make()
    rng = np.random.default_rng(0)
    past = [plain.read()]
    for _ in range(12):
        command = plain.state.joint_position[0] + rng.uniform(-0.2, 0.2, 6)
        for each in (robot, plain):
            each.command('position', each.moved, command)
            each.advance(each.substeps)
        past.append(plain.read())
        late = robot.read()
        expected = past[max(0, len(past) - 3)]
        np.testing.assert_array_equal(late.position, expected.position)
        np.testing.assert_array_equal(late.velocity, expected.velocity)
        assert late.time == pytest.approx(expected.time)


def test_it_is_held_until_the_first_command_and_after_the_end():
    robot = make(ask=True)
    first = robot.read()
    robot.advance(1000)
    assert robot.held and robot.steps == 0
    np.testing.assert_array_equal(robot.read().position, first.position)
    stay(robot, 75)
    assert robot.ended and robot.held and robot.result.length == 75
    assert robot.steps == 75 * robot.substeps
    last = robot.read()
    assert robot.command('position', robot.moved, np.zeros(6)) is None
    robot.advance(1000)
    assert robot.steps == 75 * robot.substeps
    np.testing.assert_array_equal(robot.read().position, last.position)
    assert robot.reset() == 1
    assert robot.result is None and robot.held and not robot.ended
    assert robot.time == pytest.approx(3.0)  # time never goes back
    stay(robot)
    assert robot.time == pytest.approx(3.04)


def test_a_robot_that_nobody_scores_never_ends():
    robot = make('quadruped_walk')
    robot.command('position', robot.moved, np.full(12, -1.0))
    robot.advance(50 * robot.substeps * 25)
    assert robot.result is None and not robot.held
    assert robot.time == pytest.approx(25.0)
    assert (robot.asked()['velocity'] == 0.0).all()


def test_control_steps_may_be_made_piecemeal():
    """Real time advances by whatever has passed: the score counts whole control steps."""
    whole, parts = make(ask=True), make(ask=True)
    target = whole.read().position + 0.3
    for robot in (whole, parts):
        robot.command('position', robot.moved, target)
    whole.advance(75 * whole.substeps)
    for _ in range(75 * parts.substeps):
        parts.advance(1)
    assert whole.result == parts.result


def test_reset_gives_the_episodes_of_the_seed():
    batch = registry.make('quadruped_walk', 4, SEED)
    batch.reset(np.zeros((4, batch.observation_size), np.float32))
    robot = make('quadruped_walk', ask=True)
    for index in range(4):
        assert robot.episode == index
        np.testing.assert_array_equal(robot.state.qpos[0], batch.state.qpos[index])
        np.testing.assert_array_equal(robot.state.qvel[0], batch.state.qvel[index])
        np.testing.assert_array_equal(robot.asked()['velocity'],
                                      batch.state.command['velocity'][index])
        stay(robot, 3)
        robot.reset()


def test_factors_change_the_model():
    plain = make('quadruped_walk')
    heavy = make('quadruped_walk', mass=1.15, friction=0.7, gains=0.9, motor_strength=0.8,
                 joint_damping=2.0)
    before, after = plain._physics._models[0], heavy._physics._models[0]
    for name, factor in (('body_mass', 1.15), ('body_inertia', 1.15),
                         ('actuator_forcerange', 0.8), ('dof_damping', 2.0),
                         ('dof_frictionloss', 2.0)):
        np.testing.assert_allclose(getattr(after, name), factor * getattr(before, name))
    np.testing.assert_allclose(after.geom_friction[:, 0], 0.7 * before.geom_friction[:, 0])
    np.testing.assert_allclose(after.actuator_gainprm[:, 0], 0.9 * before.actuator_gainprm[:, 0])
    np.testing.assert_allclose(after.actuator_biasprm[:, 1:3],
                               0.9 * before.actuator_biasprm[:, 1:3])
    assert heavy.state.factors['mass'][0, 0] == pytest.approx(1.15)
    assert heavy.state.factors['friction'][0, 0] == pytest.approx(0.7)


def test_factors_are_those_of_the_randomization():
    """One code changes models: what a width of 0 and a factor leave alone is the same."""
    batch = registry.make('quadruped_walk', 1, SEED,
                          randomization=RandomizationConfig(friction=0.5))
    drawn = batch._physics._models[0]
    factor = drawn.geom_friction[0, 0] / batch.model.geom_friction[0, 0]
    robot = make('quadruped_walk', friction=float(factor))
    np.testing.assert_allclose(robot._physics._models[0].geom_friction, drawn.geom_friction)
    np.testing.assert_array_equal(robot._physics._models[0].body_mass, drawn.body_mass)


def test_noise_has_the_size_of_the_terms():
    robot, plain = make('quadruped_walk', sensor_noise=2.0), make('quadruped_walk')
    true = plain.read()
    samples = [robot.read() for _ in range(400)]
    for name, width in (('position', 0.01), ('velocity', 0.5), ('effort', 0.5)):
        values = np.array([getattr(sample, name) for sample in samples])
        assert values.std(0) == pytest.approx(np.full(12, 2.0 * width), rel=0.2)
        assert np.abs(values.mean(0) - getattr(true, name)).max() < 0.5 * width
    turns = np.array([sample.imu.angular_velocity for sample in samples])
    assert turns.std(0) == pytest.approx(np.full(3, 0.2), rel=0.2)
    gravity = np.array([rotation(sample.imu.orientation).T @ (0.0, 0.0, -1.0)
                        for sample in samples])
    assert gravity[:, :2].std(0) == pytest.approx(np.full(2, 0.04), rel=0.2)
    for sample in samples:
        assert np.linalg.norm(sample.imu.orientation) == pytest.approx(1.0)


def test_noise_is_the_same_for_the_same_seed():
    one, other = (make(sensor_noise=1.0) for _ in range(2))
    np.testing.assert_array_equal(one.read().position, other.read().position)
    assert (one.read().position != one.read().position).all()


def test_an_imu_at_rest_feels_gravity_upwards():
    robot = make('quadruped_walk')
    sample = robot.read()
    up = rotation(sample.imu.orientation).T @ (0.0, 0.0, GRAVITY)
    np.testing.assert_allclose(sample.imu.acceleration, up)
    stay(robot, 100)
    imu = robot.read().imu
    np.testing.assert_allclose(imu.acceleration, rotation(imu.orientation).T @ (0, 0, GRAVITY),
                               atol=0.2)


def test_the_accelerometer_is_mujocos_own(tmp_path, monkeypatch):
    """Beside MuJoCo's sensor at the same site, away from the centre and turned."""
    from asyncppo_ros.resources import find
    text = find('models/quadruped.xml').read_text().replace(
        '<site name="imu"/>', '<site name="imu" pos=".1 .05 .03" quat=".8 .2 -.4 .4"/>').replace(
        '<actuator>', '<sensor><accelerometer site="imu"/><gyro site="imu"/></sensor><actuator>')
    (tmp_path / 'walker.xml').write_text(text)
    monkeypatch.setattr('asyncppo_ros.simulation.quadruped_walk.QuadrupedWalk.model',
                        str(tmp_path / 'walker.xml'))
    robot = make('quadruped_walk')
    data = robot._physics._data
    rng = np.random.default_rng(0)
    robot.command('position', robot.moved, robot.state.joint_position[0])
    seen = []
    for _ in range(40):
        robot.command('position', robot.moved,
                      robot.state.joint_position[0] + rng.uniform(-0.3, 0.3, 12))
        before = robot._physics._models[0], data.qpos.copy(), data.qvel.copy()
        robot.advance(1)
        # qacc is that of the beginning of the physics step, and so is MuJoCo's sensor.
        theirs, state = data.sensordata[:3].copy(), robot.state
        state.qpos[0], state.qvel[0] = before[1], before[2]
        state.refresh()
        robot._sensors.record(robot.time)
        ours = robot._sensors.read().imu.acceleration
        seen.append(np.abs(ours - theirs).max())
        state.qpos[0], state.qvel[0] = data.qpos, data.qvel
        state.refresh()
    assert max(seen) < 1e-6


def test_an_imu_that_is_mounted_otherwise_tells_the_same_in_its_own_frame():
    quaternion = np.array([0.5, 0.5, -0.5, 0.5])
    plain, turned = make('quadruped_walk'), make('quadruped_walk', mounting=tuple(quaternion))
    for robot in (plain, turned):
        stay(robot, 3)
    straight, told = plain.read().imu, turned.read().imu
    np.testing.assert_allclose(rotation(quaternion) @ told.angular_velocity,
                               straight.angular_velocity, atol=1e-12)
    np.testing.assert_allclose(rotation(quaternion) @ told.acceleration, straight.acceleration,
                               atol=1e-12)
    np.testing.assert_allclose(told.orientation, product(straight.orientation, quaternion),
                               atol=1e-12)


def test_odometry_tells_the_base_in_its_own_frame():
    robot = make('quadruped_walk')
    stay(robot, 5)
    odometry, state = robot.read().odometry, robot.state
    np.testing.assert_array_equal(odometry.position, state.qpos[0, :3])
    np.testing.assert_allclose(rotation(odometry.orientation) @ odometry.velocity,
                               state.qvel[0, :3], atol=1e-12)
    np.testing.assert_array_equal(odometry.angular_velocity, state.qvel[0, 3:6])
    arm = make('reach').read()
    assert arm.imu is None and arm.odometry is None


def test_without_commands_it_holds_its_pose():
    robot = make('reach', command_timeout_s=0.1)
    robot.command('position', robot.moved, robot.read().position + 1.0)
    robot.advance(robot.substeps * 2)
    moving = robot.read()
    assert np.abs(moving.velocity).max() > 0.1 and robot.timeouts == 0
    robot.advance(robot.substeps * 50)
    assert robot.timeouts == 1
    rest = robot.read()
    assert np.abs(rest.velocity).max() < 1e-3
    assert np.abs(rest.position - moving.position).max() < 0.9


def test_commands_are_refused_by_name():
    robot = make()
    told = robot.command('effort', robot.moved, np.zeros(6))
    assert 'this robot obeys position alone' in told
    assert "joint 'hip' is not commanded here" in robot.command('position', ['hip'], [0.0])
    assert robot.held


def test_a_trajectory_is_followed():
    robot = make()
    start = robot.read().position
    robot.command('position', robot.moved, start + 0.2, times=[0.4])
    robot.advance(round(0.2 / robot.physics_dt))
    np.testing.assert_allclose(robot._physics.control[0], start + 0.1, atol=0.01)
    robot.advance(round(0.4 / robot.physics_dt))
    np.testing.assert_allclose(robot._physics.control[0], start + 0.2)


@pytest.mark.filterwarnings('ignore')
def test_unstable_physics_ends_the_episode_with_finite_numbers():
    for ask in (True, False):
        robot = make('cartpole_swingup', ask=ask)
        robot.command('effort', ['slider'], [0.0])
        robot.advance(robot.substeps)
        robot.state.qvel[:] = 1e200
        robot.advance(robot.substeps)
        assert robot.instabilities == 1 and robot.ended
        assert np.isfinite(robot.read().position).all()
        if ask:
            assert robot.result.terminated and robot.result.success is False
        robot.reset()
        robot.command('effort', ['slider'], [0.0])
        robot.advance(5)
        assert not robot.ended


def test_a_task_without_joints_is_refused():
    with pytest.raises(TaskError, match=re.escape('neither joints nor topics')):
        make('gymnasium:CartPole-v1')
    with pytest.raises(TaskError, match='is unknown'):
        make('nix')


def test_the_model_has_the_name_of_its_urdf():
    assert make('reach').model_file.with_suffix('.urdf').is_file()
    assert make('quadruped_walk').model_file.with_suffix('.urdf').is_file()
    assert isinstance(make()._physics._models[0], mujoco.MjModel)

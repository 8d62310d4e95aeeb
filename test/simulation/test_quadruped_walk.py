"""The quadruped stands, falls are noticed, and what it is told and sees means what it says."""

import pathlib
import types
import xml.etree.ElementTree as ElementTree

import mujoco
import numpy as np
import pytest

from asyncppo_ros.acting.evaluation import evaluate
from asyncppo_ros.config import RandomizationConfig
from asyncppo_ros.resources import find
from asyncppo_ros.simulation import registry
from asyncppo_ros.simulation.quadruped_walk import (
    COMMAND_RANGE,
    JOINTS,
    LEGS,
    STANCE,
    trunk_velocity,
)

SECOND = 50


@pytest.fixture
def batch():
    return registry.make('quadruped_walk', 32, seed=1)


def run(batch, steps, action):
    """Give the observation after some steps of one action, and how many fell."""
    out = np.zeros((batch.num_envs, batch.observation_size), np.float32)
    batch.reset(out)
    falls = 0
    for _ in range(steps):
        falls += int(batch.step(action, out).terminated.sum())
    return out, falls


def test_it_stands_when_nothing_is_done(batch):
    _, falls = run(batch, 3 * SECOND, np.zeros((32, 12), np.float32))
    assert falls == 0
    assert np.abs(batch.state.qpos[:, 2] - 0.29).max() < 0.03


def test_it_falls_when_it_flails(batch):
    out = np.zeros((32, batch.observation_size), np.float32)
    batch.reset(out)
    rng = np.random.default_rng(0)
    falls = 0
    for _ in range(4 * SECOND):
        action = np.tanh(2.0 * rng.standard_normal((32, 12))).astype(np.float32)
        result = batch.step(action, out)
        falls += int(result.terminated.sum())
        assert (result.episodes[:, 2] == 0.0).all()
    assert falls > 20


def test_observation_is_what_a_real_quadruped_has(batch):
    description = batch.describe()
    assert description['deployable']
    assert [term['name'] for term in description['observation']] == [
        'base_angular_velocity', 'projected_gravity', 'command velocity', 'joint_position',
        'joint_velocity', 'last_action']
    out, _ = run(batch, 2 * SECOND, np.zeros((32, 12), np.float32))
    np.testing.assert_allclose(out[:, 3:6], [[0.0, 0.0, -1.0]] * 32, atol=0.15)
    np.testing.assert_array_equal(out[:, 6:9], batch.state.command['velocity'].astype(np.float32))
    np.testing.assert_allclose(out[:, 9:21], batch.state.qpos[:, 7:] - STANCE, atol=1e-6)


def test_commands_fill_their_range():
    batch = registry.make('quadruped_walk', 600, seed=0)
    batch.reset(np.zeros((600, batch.observation_size), np.float32))
    asked = batch.state.command['velocity']
    assert (np.abs(asked) <= COMMAND_RANGE).all()
    assert (np.abs(asked).max(0) > 0.97 * COMMAND_RANGE).all()
    stands = (asked == 0.0).all(1).mean()
    assert 0.05 < stands < 0.16


def test_the_critic_sees_the_velocity_heights_and_what_randomization_did():
    settings = RandomizationConfig(mass=0.3, friction=0.5, sensor_noise=5.0, sensor_bias=2.0,
                                   observation_delay=3)
    batch = registry.make('quadruped_walk', 8, seed=1, randomization=settings, privileged=True)
    assert [term['name'] for term in batch.describe()['critic_observation']] == [
        'base_velocity', 'base_height', 'foot_height', 'mass_factor', 'friction_factor']
    assert batch.describe()['deployable']
    rng = np.random.default_rng(0)
    out = np.zeros((8, batch.observation_size), np.float32)
    batch.reset(out)
    for _ in range(30):
        batch.step(np.tanh(rng.standard_normal((8, 12))).astype(np.float32), out)
        state, seen = batch.state, batch.critic_observation
        assert seen.dtype == np.float32 and seen.shape == (8, 10)
        # Neither noise nor delay: the critic judges what is, not what is measured.
        np.testing.assert_allclose(seen[:, :3], trunk_velocity(state), rtol=1e-6)
        np.testing.assert_allclose(seen[:, 3], state.qpos[:, 2], rtol=1e-6)
        feet = [batch.model.site(f'{leg}_foot').id for leg in LEGS]
        np.testing.assert_allclose(seen[:, 4:8], state.fields['site_xpos'][:, feet, 2] - 0.022,
                                   atol=1e-6)
    masses = [model.body_mass.sum() for model in batch._physics._models]
    np.testing.assert_allclose(seen[:, 8], masses / batch.model.body_mass.sum(), rtol=1e-6)
    np.testing.assert_allclose(
        seen[:, 9], [model.geom_friction[0, 0] / batch.model.geom_friction[0, 0]
                     for model in batch._physics._models], rtol=1e-6)
    assert seen[:, 8].std() > 0.01 and seen[:, 9].std() > 0.05


def test_what_the_critic_sees_changes_nothing_else():
    batches = [registry.make('quadruped_walk', 4, seed=1, privileged=privileged)
               for privileged in (False, True)]
    assert batches[0].critic_observation.shape == (4, 0)
    assert batches[0].describe()['critic_observation'] == []
    outs = [run(batch, 20, np.full((4, 12), 0.3, np.float32))[0] for batch in batches]
    np.testing.assert_array_equal(*outs)


def test_trunk_velocity_is_in_the_frame_of_the_trunk(batch):
    state = batch.state
    quaternion = np.array([0.9, 0.1, -0.3, 0.5])
    state.qpos[:, 3:7] = quaternion / np.linalg.norm(quaternion)
    state.qvel[:, :3] = [1.0, 2.0, -0.5]
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, state.qpos[0, 3:7])
    np.testing.assert_allclose(trunk_velocity(state)[0],
                               matrix.reshape(3, 3).T @ state.qvel[0, :3], atol=1e-12)


def test_following_the_command_pays(batch):
    """At equal pose and action the reward falls with the distance from the command."""
    state, task = batch.state, batch._task
    run(batch, SECOND, np.zeros((32, 12), np.float32))
    task.before_step(state)
    state.command['velocity'][...] = 0.0
    state.command['velocity'][:, 0] = np.linspace(0.0, 1.0, 32)
    state.qvel[:] = 0.0
    state.refresh()
    state.qpos[:] = state.qpos[:1]
    state.refresh()
    state.fields['site_xpos'][:] = state.fields['site_xpos'][:1]
    state.joint_effort[:] = 0.0
    task.before_step(state)
    reward = task.reward(state, np.zeros((32, 12)))
    assert (np.diff(reward) < 0.0).all()


def test_urdf_and_mjcf_are_one_robot():
    mjcf = mujoco.MjModel.from_xml_path(str(find('models/quadruped.xml')))
    urdf = ElementTree.parse(pathlib.Path(find('models/quadruped.urdf'))).getroot()
    joints = {joint.get('name'): joint for joint in urdf.iter('joint')
              if joint.get('type') == 'revolute'}
    assert tuple(joints) == JOINTS == tuple(mjcf.joint(i).name for i in range(1, mjcf.njnt))
    for name, joint in joints.items():
        number = mjcf.joint(name).id
        limit = joint.find('limit')
        assert [float(limit.get('lower')), float(limit.get('upper'))] == pytest.approx(
            mjcf.jnt_range[number])
        assert numbers(joint.find('axis').get('xyz')) == pytest.approx(mjcf.jnt_axis[number])
        body = mjcf.jnt_bodyid[number]
        assert numbers(joint.find('origin').get('xyz')) == pytest.approx(mjcf.body_pos[body])
        actuator = mjcf.actuator(name).id
        assert float(limit.get('effort')) == mjcf.actuator_forcerange[actuator, 1]
    for link in urdf.iter('link'):
        inertial = link.find('inertial')
        if inertial is not None:
            body = mjcf.body(link.get('name')).id
            assert float(inertial.find('mass').get('value')) == pytest.approx(
                mjcf.body_mass[body])
            assert numbers(inertial.find('origin').get('xyz')) == pytest.approx(
                mjcf.body_ipos[body])


def numbers(text):
    return [float(part) for part in text.split()]


def test_errors_of_tracking_are_measured_over_the_steps_of_first_episodes():
    """A policy that stands still misses each command by about its own size."""
    batch = registry.make('quadruped_walk', 8, seed=3)
    policy = types.SimpleNamespace(act=lambda observation: np.zeros((8, 12), np.float32))
    out = np.zeros((8, batch.observation_size), np.float32)
    batch.reset(out)
    asked = batch.state.command['velocity'].copy()
    measures = evaluate(policy, registry.make('quadruped_walk', 8, seed=3))['measures']
    assert {name: measure['unit'] for name, measure in measures.items()} == {
        'velocity_error': 'm/s', 'turn_error': 'rad/s'}
    assert measures['velocity_error']['mean'] == pytest.approx(
        np.linalg.norm(asked[:, :2], axis=1).mean(), rel=0.05)
    assert measures['turn_error']['mean'] == pytest.approx(np.abs(asked[:, 2]).mean(), rel=0.05)

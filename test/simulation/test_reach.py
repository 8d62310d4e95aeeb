"""The reaching task: its arm, its goals, and that luck does not solve it."""

import xml.etree.ElementTree as ElementTree

import mujoco
import numpy as np
import pytest

from asyncppo_ros.resources import find
from asyncppo_ros.robot.observation import Observation
from asyncppo_ros.robot.state import standing
from asyncppo_ros.simulation import reach, registry
from asyncppo_ros.simulation.model import chain


@pytest.fixture(scope='module')
def arm():
    """Give the model of the arm and its chain."""
    model = registry.make('reach', 1, 0).model
    return model, chain(model, 'fingertip', reach.JOINTS)


def test_chain_is_mujocos_own(arm):
    model, links = arm
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    angles = rng.uniform(-3.0, 3.0, (100, 6))
    tips = links.tip(angles)
    for row, tip in zip(angles, tips):
        data.qpos[:6] = row
        mujoco.mj_kinematics(model, data)
        np.testing.assert_allclose(tip, data.site('fingertip').xpos, atol=1e-9)


def test_shell_is_wide_and_uniform():
    rng = np.random.default_rng(0)
    goals = np.array([reach.draw_goal(rng) for _ in range(4000)])
    radius = np.linalg.norm(goals - reach.SHOULDER, axis=1)
    assert radius.min() >= reach.NEAREST and radius.max() <= reach.FARTHEST
    assert goals[:, 2].min() >= reach.LOWEST
    # Uniform by volume above the floor: the upper half space is not cut by the floor.
    above = radius[goals[:, 2] > reach.SHOULDER[2]]
    expected = (0.6 ** 3 - reach.NEAREST ** 3) / (reach.FARTHEST ** 3 - reach.NEAREST ** 3)
    assert abs((above < 0.6).mean() - expected) < 0.03
    # At least half the arm's reach wide.
    longest = 0.83
    assert longest / 2 <= reach.FARTHEST - reach.NEAREST


def test_every_goal_can_be_reached(arm):
    model, links = arm
    low, high = model.jnt_range[:6].T
    rng = np.random.default_rng(1)
    goals = np.array([reach.draw_goal(rng) for _ in range(200)])
    nearest = np.full(200, np.inf)
    for _ in range(6):
        angles = rng.uniform(low, high, (200, 6)) * 0.8
        for _ in range(60):
            missing = goals - links.tip(angles)
            jacobian = np.stack([(links.tip(angles + shift) - links.tip(angles - shift)) / 2e-6
                                 for shift in 1e-6 * np.eye(6)], axis=2)
            square = jacobian @ jacobian.transpose(0, 2, 1) + 1e-4 * np.eye(3)
            change = np.einsum('nkj,nk->nj', jacobian,
                               np.linalg.solve(square, missing[:, :, None])[:, :, 0])
            angles = np.clip(angles + np.clip(change, -0.3, 0.3), low, high)
        nearest = np.minimum(nearest, np.linalg.norm(goals - links.tip(angles), axis=1))
    assert nearest.max() < 0.005


def test_random_policy_hardly_ever_succeeds():
    batch = registry.make('reach', 64, seed=0)
    out = np.zeros((64, batch.observation_size), np.float32)
    batch.reset(out)
    rng = np.random.default_rng(0)
    episodes = []
    for _ in range(75 * 5):
        # The first policy of PPO is such a Gaussian behind a tanh.
        action = np.tanh(0.6 * rng.standard_normal((64, 6))).astype(np.float32)
        episodes.append(batch.step(action, out).episodes)
    episodes = np.concatenate(episodes)
    assert len(episodes) == 320
    assert (episodes[:, 1] == 75).all()
    assert (episodes[:, 2] == 1.0).mean() <= 0.05
    assert set(episodes[:, 2]) <= {0.0, 1.0}


def test_arm_follows_its_targets():
    batch = registry.make('reach', 1, seed=0)
    out = np.zeros((1, batch.observation_size), np.float32)
    batch.reset(out)
    start = batch.state.joint_position.copy()
    for _ in range(10):
        batch.step(np.full((1, 6), 0.5, np.float32), out)
    moved = batch.state.joint_position - start
    assert moved.min() > 0.2
    for _ in range(10):
        batch.step(np.zeros((1, 6), np.float32), out)
    rest = batch.state.joint_position.copy()
    for _ in range(25):
        batch.step(np.zeros((1, 6), np.float32), out)
    # Gravity is compensated, as the controllers of real arms do: a second at rest is at rest.
    assert np.abs(batch.state.joint_position - rest).max() < 0.01


def test_terms_give_a_robot_the_same_numbers():
    batch = registry.make('reach', 3, seed=5)
    out = np.zeros((3, batch.observation_size), np.float32)
    batch.reset(out)
    rng = np.random.default_rng(0)
    for _ in range(5):
        batch.step(rng.uniform(-1.0, 1.0, (3, 6)).astype(np.float32), out)
    # The robot knows the card and its own sensors, with its joints in another order.
    description = batch.describe()
    observation = Observation.from_card(description['observation'])
    names = tuple(reversed(reach.JOINTS))
    robot = standing(names, 6, commands={'goal': 3})
    columns = [batch.state.joint_names.index(name) for name in names]
    for index in range(3):
        robot.joint_position[0] = batch.state.joint_position[index, columns]
        robot.joint_velocity[0] = batch.state.joint_velocity[index, columns]
        robot.command['goal'][0] = batch.state.command['goal'][index]
        row = np.zeros((1, observation.size), np.float32)
        observation.observe(robot, row)
        # Products over 3 rows and over 1 may differ in the last bit.
        np.testing.assert_allclose(row[0], out[index], rtol=0.0, atol=1e-7)
    assert description['deployable'] is True
    assert description['start_pose']['elbow'] == pytest.approx(1.4)


def test_vectors_turn_as_the_bodies_of_mujoco_do(arm):
    model, links = arm
    data = mujoco.MjData(model)
    rng = np.random.default_rng(4)
    angles, vectors = rng.uniform(-2.0, 2.0, (20, 6)), rng.normal(size=(20, 3))
    for name in reach.JOINTS:
        body = model.jnt_bodyid[model.joint(name).id]
        for angle, vector, turned in zip(angles, vectors,
                                         links.turned_with(name, angles, vectors)):
            data.qpos[:] = angle
            mujoco.mj_kinematics(model, data)
            np.testing.assert_allclose(turned, data.xmat[body].reshape(3, 3).T @ vector,
                                       atol=1e-9)


def test_urdf_and_mjcf_are_one_arm(arm):
    mjcf, _ = arm
    path = find('models/reach_arm.urdf')
    urdf = mujoco.MjModel.from_xml_path(str(path))
    assert [urdf.joint(i).name for i in range(urdf.njnt)] == list(reach.JOINTS)
    np.testing.assert_allclose(urdf.jnt_range, mjcf.jnt_range)
    np.testing.assert_allclose(urdf.dof_damping, mjcf.dof_damping)
    links = [mjcf.body(i).name for i in range(1, mjcf.nbody) if mjcf.body_mass[i] > 0.0]
    for link in links:
        theirs, ours = urdf.body(link).id, mjcf.body(link).id
        assert urdf.body_mass[theirs] == pytest.approx(mjcf.body_mass[ours])
        np.testing.assert_allclose(urdf.body_ipos[theirs], mjcf.body_ipos[ours])
        np.testing.assert_allclose(urdf.body_inertia[theirs], mjcf.body_inertia[ours])
    both = mujoco.MjData(urdf), mujoco.MjData(mjcf)
    for angles in np.random.default_rng(0).uniform(-2.0, 2.0, (20, 6)):
        for model, data in zip((urdf, mjcf), both):
            data.qpos[:6] = angles
            mujoco.mj_kinematics(model, data)
        for link in links:
            for part in ('xpos', 'xmat'):
                np.testing.assert_allclose(*(getattr(data.body(link), part) for data in both),
                                           atol=1e-9)


def test_the_urdf_has_the_limits_of_the_actuators_and_room_for_what_is_learned(arm):
    mjcf, _ = arm
    root = ElementTree.parse(find('models/reach_arm.urdf')).getroot()
    limits = {joint.get('name'): joint.find('limit') for joint in root.iter('joint')
              if joint.get('type') == 'revolute'}
    assert tuple(limits) == reach.JOINTS
    for name, limit in limits.items():
        assert float(limit.get('effort')) == mjcf.actuator_forcerange[mjcf.actuator(name).id, 1]
        # A trained policy moves at up to 2.8 rad/s.
        assert float(limit.get('velocity')) >= 6.0
    tip = next(joint for joint in root.iter('joint') if joint.get('name') == 'fingertip')
    np.testing.assert_allclose([float(part) for part in tip.find('origin').get('xyz').split()],
                               mjcf.site('fingertip').pos)

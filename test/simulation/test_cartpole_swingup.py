"""The swing-up: bounded rewards, hanging start, success only for who holds it up."""

import numpy as np
import pytest

from asyncppo_ros.simulation import registry


def start(num_envs):
    """Make a batch and its first observation."""
    batch = registry.make('cartpole_swingup', num_envs, seed=0)
    out = np.zeros((num_envs, batch.observation_size), np.float32)
    batch.reset(out)
    return batch, out


def test_starts_hanging_and_random_actions_earn_little():
    batch, out = start(16)
    # Cosine of the pole's angle, 1 where it hangs.
    assert out[:, 1].min() > 0.95
    rng = np.random.default_rng(0)
    for _ in range(500):
        action = np.tanh(rng.standard_normal((16, 1))).astype(np.float32)
        result = batch.step(action, out)
        assert (result.reward >= 0.0).all() and (result.reward <= 1.0).all()
    assert result.truncated.all()
    assert result.episodes[:, 0].mean() < 60.0
    assert (result.episodes[:, 2] == 0.0).all()


def test_reward_and_success_at_the_top():
    batch, out = start(2)
    state = batch.state
    task = batch._task
    state.qpos[:] = [[0.0, np.pi], [0.0, 0.0]]
    state.qvel[:] = 0.0
    for _ in range(49):
        reward = task.reward(state, np.zeros((2, 1)))
    assert reward == pytest.approx([1.0, 0.0])
    assert task.success(state).tolist() == [False, False]
    task.reward(state, np.zeros((2, 1)))
    assert task.success(state).tolist() == [True, False]
    # Falling once takes the time that was held away.
    state.qpos[0, 1] = 0.0
    task.reward(state, np.zeros((2, 1)))
    assert task.success(state).tolist() == [False, False]


def test_push_has_the_direction_of_the_action():
    batch, out = start(2)
    for _ in range(5):
        batch.step(np.array([[1.0], [-1.0]], np.float32), out)
    assert out[0, 0] > 0.02 > -0.02 > out[1, 0]
    np.testing.assert_allclose(batch.state.joint_effort[:, 0], [10.0, -10.0])

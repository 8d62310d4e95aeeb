"""GAE by hand, by limit, and against a double loop."""

import numpy as np
import pytest

from asyncppo_ros.learning.advantages import gae, next_values


def slow_gae(reward, value, next_value, ended, discount, gae_lambda):
    """Give the definition: A_t = Σ_k (γλ)^k δ_{t+k}, stopped at the end of the episode."""
    steps, num_envs = reward.shape
    advantage = np.zeros((steps, num_envs))
    for n in range(num_envs):
        for t in range(steps):
            weight = 1.0
            for k in range(t, steps):
                delta = reward[k, n] + discount * next_value[k, n] - value[k, n]
                advantage[t, n] += weight * delta
                weight *= discount * gae_lambda
                if ended[k, n]:
                    break
    return advantage


def random_steps(rng, steps=12, num_envs=5):
    reward, value = rng.normal(size=(2, steps, num_envs)).astype(np.float32)
    following = rng.normal(size=(steps, num_envs)).astype(np.float32)
    return reward, value, following, rng.random((steps, num_envs)) < 0.2


@pytest.mark.parametrize('discount, gae_lambda',
                         [(0.99, 0.95), (0.9, 0.0), (1.0, 1.0), (0.0, 0.5)])
def test_equals_the_definition(discount, gae_lambda):
    rng = np.random.default_rng(1)
    for _ in range(20):
        steps = random_steps(rng)
        advantage, target = gae(*steps, discount, gae_lambda)
        np.testing.assert_allclose(advantage, slow_gae(*steps, discount, gae_lambda),
                                   atol=1e-5)
        np.testing.assert_allclose(target, advantage + steps[1], atol=1e-6)


def test_by_hand():
    reward = np.array([[1.0], [2.0]], np.float32)
    value = np.array([[10.0], [20.0]], np.float32)
    following = np.array([[20.0], [40.0]], np.float32)
    ended = np.zeros((2, 1), bool)
    # δ_1 = 2 + 0.5·40 - 20 = 2;  δ_0 = 1 + 0.5·20 - 10 = 1;  A_0 = 1 + 0.5·0.5·2 = 1.5
    advantage, _ = gae(reward, value, following, ended, 0.5, 0.5)
    np.testing.assert_allclose(advantage, [[1.5], [2.0]])


def test_terminated_has_no_future_and_truncated_its_own():
    value = np.array([[1.0, 1.0, 1.0], [50.0, 50.0, 50.0]], np.float32)
    terminated = np.array([[True, False, False]])
    final_value = np.array([7.0], np.float32)
    final_index = np.array([[0, 1]], np.int32)
    following = next_values(value, terminated, final_value, final_index)
    # Terminated: 0.  Truncated: V of the final observation, not of the next episode.
    # Chunk full: V of the row that follows.
    np.testing.assert_array_equal(following, [[0.0, 7.0, 50.0]])


def test_an_ended_episode_does_not_leak_into_the_one_before():
    steps = 6
    reward = np.zeros((steps, 1), np.float32)
    reward[4:] = 1000.0
    value = np.zeros((steps, 1), np.float32)
    ended = np.zeros((steps, 1), bool)
    ended[3] = True
    advantage, _ = gae(reward, value, value, ended, 0.99, 0.95)
    assert (advantage[:4] == 0.0).all() and (advantage[4:] > 0.0).all()


def test_shapes_are_checked():
    ones = np.ones((3, 2), np.float32)
    with pytest.raises(ValueError, match='must have one shape'):
        gae(ones, ones[:2], ones, ones > 2.0, 0.9, 0.9)

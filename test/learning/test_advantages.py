"""GAE and V-trace by hand, by limit, and against a double loop."""

import numpy as np
import pytest

from asyncppo_ros.learning.advantages import gae, next_values, vtrace


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


def slow_vtrace(reward, value, next_value, ended, ratio, discount, gae_lambda, max_ratio):
    """Give the definition: v_t = V_t + Σ_k γ^k (Π c) ρ δ, and r + γ v' - V."""
    steps, num_envs = reward.shape
    target = value.astype(np.float64).copy()
    for n in range(num_envs):
        for t in range(steps):
            weight = 1.0
            for k in range(t, steps):
                rho = min(ratio[k, n], max_ratio)
                target[t, n] += weight * rho * (reward[k, n] + discount * next_value[k, n]
                                                - value[k, n])
                weight *= discount * gae_lambda * min(ratio[k, n], 1.0)
                if ended[k, n]:
                    break
    advantage = np.zeros((steps, num_envs))
    for n in range(num_envs):
        for t in range(steps):
            follows = t + 1 < steps and not ended[t, n]
            # Within an episode next_value[t] = value[t + 1]; the target replaces it.
            after = next_value[t, n] + (target[t + 1, n] - value[t + 1, n] if follows else 0.0)
            advantage[t, n] = reward[t, n] + discount * after - value[t, n]
    return advantage, target


@pytest.mark.parametrize('max_ratio', [1.0, 2.0])
@pytest.mark.parametrize('discount, gae_lambda', [(0.99, 0.95), (0.9, 0.0), (1.0, 1.0)])
def test_vtrace_equals_the_definition(discount, gae_lambda, max_ratio):
    rng = np.random.default_rng(2)
    for _ in range(10):
        steps = random_steps(rng)
        ratio = np.exp(0.7 * rng.normal(size=steps[0].shape)).astype(np.float32)
        found = vtrace(*steps, ratio, discount, gae_lambda, max_ratio)
        for ours, theirs in zip(found, slow_vtrace(*steps, ratio, discount, gae_lambda,
                                                   max_ratio)):
            np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_vtrace_by_hand():
    reward = np.array([[1.0], [2.0]], np.float32)
    value = np.array([[10.0], [20.0]], np.float32)
    following = np.array([[20.0], [40.0]], np.float32)
    ended = np.zeros((2, 1), bool)
    ratio = np.array([[0.5], [4.0]], np.float32)
    # ρ = 0.5, 1;  δ_1 = 2 + 0.5·40 - 20 = 2;  δ_0 = 0.5·(1 + 0.5·20 - 10) = 0.5
    # v_1 = 20 + 2;  v_0 = 10 + 0.5 + 0.5·1·0.5·2 = 11
    # A_1 = 2 + 0.5·40 - 20 = 2;  A_0 = 1 + 0.5·22 - 10 = 2: no ρ in it
    advantage, target = vtrace(reward, value, following, ended, ratio, 0.5, 1.0)
    np.testing.assert_allclose(target, [[11.0], [22.0]])
    np.testing.assert_allclose(advantage, [[2.0], [2.0]])


def test_vtrace_of_fresh_samples_has_the_targets_of_gae():
    steps = random_steps(np.random.default_rng(4))
    ones = np.ones_like(steps[0])
    np.testing.assert_allclose(vtrace(*steps, ones, 0.99, 0.95)[1], gae(*steps, 0.99, 0.95)[1],
                               atol=1e-5)


def test_vtrace_has_no_ratio_in_the_advantage():
    """The last step of a chunk bootstraps from V alone: its advantage must not see ρ."""
    steps = random_steps(np.random.default_rng(5))
    small, large = (vtrace(*steps, np.full_like(steps[0], ratio), 0.99, 0.95)[0][-1]
                    for ratio in (0.1, 1.0))
    np.testing.assert_array_equal(small, large)


def chunk_with_ends(rng, steps=15, num_envs=6):
    """Make values and ends of a chunk in which episodes end at any step, the last included."""
    reward = rng.normal(size=(steps, num_envs)).astype(np.float32)
    value = rng.normal(size=(steps + 1, num_envs)).astype(np.float32)
    kind = rng.choice(3, size=(steps, num_envs), p=[0.7, 0.15, 0.15])
    kind[-1, :2] = 1, 2
    terminated, truncated = kind == 1, kind == 2
    final_index = np.argwhere(truncated).astype(np.int32)
    # In whatever order the sender noted them.
    rng.shuffle(final_index)
    final_value = rng.normal(size=len(final_index)).astype(np.float32)
    return reward, value, terminated, truncated, final_index, final_value


def bootstrap(value, terminated, truncated, finals, t, n):
    """Give V of what follows step t, in words: nothing, the end of the episode, the next row."""
    if terminated[t, n]:
        return 0.0
    return finals[t, n] if truncated[t, n] else float(value[t + 1, n])


@pytest.mark.parametrize('seed', range(5))
def test_ends_within_a_chunk_by_a_loop_over_episodes(seed):
    """From the fields of the chunk: no step sees anything of the episode after it."""
    rng = np.random.default_rng(seed)
    reward, value, terminated, truncated, final_index, final_value = chunk_with_ends(rng)
    finals = {(int(t), int(n)): float(v) for (t, n), v in zip(final_index, final_value)}
    ratio = np.exp(0.5 * rng.normal(size=reward.shape)).astype(np.float32)
    ended = terminated | truncated
    steps, num_envs = reward.shape
    expected = np.zeros((4, steps, num_envs))
    for n in range(num_envs):
        advantage = corrected = 0.0
        for t in reversed(range(steps)):
            follows = bootstrap(value, terminated, truncated, finals, t, n)
            delta = reward[t, n] + 0.97 * follows - value[t, n]
            beyond = 0.0 if ended[t, n] or t == steps - 1 else 1.0
            advantage = delta + 0.97 * 0.9 * beyond * advantage
            # v_{t+1} - V(s_{t+1}), as far as the episode and the chunk go on.
            following = beyond * corrected
            corrected = (min(ratio[t, n], 1.0) * delta
                         + 0.97 * 0.9 * min(ratio[t, n], 1.0) * following)
            expected[:, t, n] = (advantage, advantage + value[t, n],
                                 delta + 0.97 * following, value[t, n] + corrected)
    inputs = (reward, value[:-1], next_values(value, terminated, final_value, final_index), ended)
    found = (*gae(*inputs, 0.97, 0.9), *vtrace(*inputs, ratio, 0.97, 0.9))
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_ratios_above_the_cap_change_nothing():
    steps = random_steps(np.random.default_rng(6))
    for capped, free in ((np.full_like(steps[0], 1.0), np.full_like(steps[0], 50.0)),):
        for first, second in zip(vtrace(*steps, capped, 0.99, 0.95),
                                 vtrace(*steps, free, 0.99, 0.95)):
            np.testing.assert_array_equal(first, second)


def test_with_ratio_zero_the_target_is_the_value():
    steps = random_steps(np.random.default_rng(7))
    advantage, target = vtrace(*steps, np.zeros_like(steps[0]), 0.99, 0.95)
    np.testing.assert_array_equal(target, steps[1])
    # And the advantage is that of one step: there is no correction to pass on.
    np.testing.assert_allclose(advantage, gae(*steps, 0.99, 0.0)[0], atol=1e-5)

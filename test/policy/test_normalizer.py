"""Merged statistics equal the statistics of all the data."""

import numpy as np
import torch

from asyncppo_ros.config import PolicyConfig
from asyncppo_ros.policy.distributions import TanhGaussian
from asyncppo_ros.policy.network import ActorCritic
from asyncppo_ros.policy.normalizer import RunningMoments, ScalarScale


def test_pieces_equal_the_whole():
    rng = np.random.default_rng(0)
    rows = rng.normal([1e4, -3.0, 0.0], [1.0, 1e-3, 50.0], (5000, 3)).astype(np.float32)
    moments = RunningMoments(3)
    for piece in np.split(rows, [1, 10, 11, 500, 4000]):
        moments.merge(piece)
    moments.merge(rows[:0])
    np.testing.assert_allclose(moments.mean, rows.mean(0, dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(moments.variance, rows.var(0, dtype=np.float64), rtol=1e-9)
    assert moments.count == 5000


def test_a_copy_does_not_follow():
    moments = RunningMoments(2)
    moments.merge(np.ones((4, 2), np.float32))
    twin = moments.copy()
    moments.merge(np.full((4, 2), 9.0, np.float32))
    assert twin.count == 4 and (twin.mean == 1.0).all()


def test_scale_follows_values():
    scale = ScalarScale(rate=0.5)
    scale.merge(np.array([0.0, 2.0]))
    assert scale.mean == 1.0 and abs(scale.std - 1.0) < 1e-9
    scale.merge(np.array([10.0]))
    assert scale.mean == 5.5


def test_rescaled_critic_gives_the_same_values():
    network = ActorCritic(3, 2, TanhGaussian(), PolicyConfig(),
                          torch.Generator().manual_seed(0))
    observation = torch.randn(20, 3, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        before = network.value(observation) * 2.0 + 5.0
        network.rescale_value(5.0, 2.0, -30.0, 7.0)
        after = network.value(observation) * 7.0 - 30.0
    torch.testing.assert_close(before, after, atol=1e-4, rtol=1e-5)


def test_log_std_is_clamped():
    network = ActorCritic(3, 2, TanhGaussian(), PolicyConfig(),
                          torch.Generator().manual_seed(0))
    with torch.no_grad():
        network.log_std.copy_(torch.tensor([-100.0, 100.0]))
    np.testing.assert_array_equal(network.policy_tensors()['distribution.log_std'], [-5.0, 1.0])

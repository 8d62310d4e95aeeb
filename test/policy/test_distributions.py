"""TanhGaussian against torch, numerical integration and sampling."""

import numpy as np
import torch
from torch.distributions import kl_divergence, Normal

from asyncppo_ros.policy.distributions import TanhGaussian
from asyncppo_ros.robot.numpy_policy import gaussian_log_prob

FAMILY = TanhGaussian()


def random_parameters(seed, count=50, size=3):
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(count, size, generator=generator)
    log_std = 0.5 * torch.randn(count, size, generator=generator) - 0.5
    action = mean + torch.exp(log_std) * torch.randn(count, size, generator=generator)
    return torch.cat((mean, log_std), -1), mean, log_std, action


def test_log_prob_and_entropy_equal_torch():
    parameters, mean, log_std, action = random_parameters(0)
    normal = Normal(mean, log_std.exp())
    torch.testing.assert_close(FAMILY.log_prob(parameters, action),
                               normal.log_prob(action).sum(-1), atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(FAMILY.entropy(parameters), normal.entropy().sum(-1))


def test_kl_equals_torch_and_is_zero_for_equals():
    first, mean, log_std, _ = random_parameters(1)
    second, other_mean, other_log_std, _ = random_parameters(2)
    expected = kl_divergence(Normal(mean, log_std.exp()),
                             Normal(other_mean, other_log_std.exp())).sum(-1)
    torch.testing.assert_close(FAMILY.kl(first, second), expected, atol=1e-4, rtol=1e-4)
    assert float(FAMILY.kl(first, first).abs().max()) < 1e-6


def test_numpy_actor_gives_the_same_log_prob():
    parameters, mean, log_std, action = random_parameters(3)
    noise = ((action - mean) / log_std[:1].exp()).numpy()
    expected = FAMILY.log_prob(torch.cat((mean, log_std[:1].expand_as(mean)), -1), action)
    np.testing.assert_allclose(gaussian_log_prob(noise, log_std[0].numpy()), expected, atol=1e-4)


def test_squashed_density_integrates_to_one():
    u = torch.linspace(-12.0, 12.0, 200_001, dtype=torch.float64)[:, None]
    parameters = torch.tensor([0.7, -0.3], dtype=torch.float64).expand(len(u), 2)
    density = FAMILY.squashed_log_prob(parameters, u).exp()
    assert abs(float(torch.trapezoid(density, torch.tanh(u[:, 0]))) - 1.0) < 1e-4


def test_squashed_entropy_keeps_the_tanh_correction():
    u = torch.linspace(-12.0, 12.0, 200_001, dtype=torch.float64)[:, None]
    parameters = torch.tensor([0.0, -1.0], dtype=torch.float64)
    log_density = FAMILY.squashed_log_prob(parameters.expand(len(u), 2), u)
    exact = float(-torch.trapezoid(log_density.exp() * log_density, torch.tanh(u[:, 0])))
    many = parameters.expand(200_000, 2)
    estimate = float(FAMILY.squashed_entropy(many, torch.Generator().manual_seed(0)).mean())
    assert abs(estimate - exact) < 0.01
    # Without the correction it would be the entropy of the Gaussian, 0.1 nat more.
    assert float(FAMILY.entropy(parameters)) - exact > 0.05


def test_far_samples_stay_finite():
    action = torch.tensor([[30.0], [-30.0]])
    parameters = torch.tensor([[0.0, 0.0], [0.0, 0.0]])
    assert torch.isfinite(FAMILY.squashed_log_prob(parameters, action)).all()

"""
Distributions of actions: what the learner needs to know of them.

An action is stored as it was sampled, before any squashing.  The Jacobian of the tanh depends
on the stored u alone, so it cancels in every ratio and in the KL; only the entropy of the
squashed policy needs it.
"""

import math
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

LOG_2PI = math.log(2.0 * math.pi)
LOG_2 = math.log(2.0)


class Distribution(Protocol):
    """
    A family of distributions over actions; P is the size of its parameters.

    A categorical policy fits behind the same methods.
    """

    name: str

    def parameters_size(self, action_size: int) -> int:
        """Give P."""

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        """Give log π(action), [..., P] and [..., A] → [...]."""

    def entropy(self, parameters: Tensor) -> Tensor:
        """Give the entropy before any squashing, [..., P] → [...]."""

    def kl(self, parameters: Tensor, other: Tensor) -> Tensor:
        """Give KL(parameters ‖ other), [..., P] twice → [...]."""


class TanhGaussian:
    """
    u ~ N(μ, σ), a = tanh(u); parameters are (μ, log σ), so P = 2A.

    References
    ----------
    Haarnoja et al. 2018, arXiv:1812.05905, appendix C.

    """

    name = 'tanh_gaussian'

    def parameters_size(self, action_size: int) -> int:
        """Give P = 2A."""
        return 2 * action_size

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        """
        Give log N(u; μ, σ) of the pre-tanh action.

        Parameters
        ----------
        parameters : float32 [..., 2A]
        action : float32 [..., A]
            u, before the tanh.

        Returns
        -------
        float32 [...]

        """
        mean, log_std = parameters.chunk(2, dim=-1)
        noise = (action - mean) * torch.exp(-log_std)
        return (-0.5 * noise.square() - log_std - 0.5 * LOG_2PI).sum(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        """Give the entropy of the Gaussian, [..., 2A] → [...]."""
        log_std = parameters.chunk(2, dim=-1)[1]
        return (log_std + 0.5 + 0.5 * LOG_2PI).sum(-1)

    def kl(self, parameters: Tensor, other: Tensor) -> Tensor:
        """
        Give KL(N ‖ N'), which equals that of the squashed policies.

            Σ log(σ'/σ) + (σ² + (μ - μ')²) / (2σ'²) - ½
        """
        mean, log_std = parameters.chunk(2, dim=-1)
        other_mean, other_log_std = other.chunk(2, dim=-1)
        spread = torch.exp(2.0 * (log_std - other_log_std))
        shift = (mean - other_mean).square() * torch.exp(-2.0 * other_log_std)
        return (other_log_std - log_std + 0.5 * (spread + shift) - 0.5).sum(-1)

    def squashed_log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        """
        Give log π(a) of a = tanh(u).

            log π(a) = log N(u) - Σ 2 (log 2 - u - softplus(-2u))
        """
        correction = 2.0 * (LOG_2 - action - functional.softplus(-2.0 * action))
        return self.log_prob(parameters, action) - correction.sum(-1)

    def squashed_entropy(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        """Estimate the entropy of the squashed policy from one fresh sample each."""
        mean, log_std = parameters.chunk(2, dim=-1)
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype,
                            device=mean.device)
        return -self.squashed_log_prob(parameters, mean + noise * torch.exp(log_std))

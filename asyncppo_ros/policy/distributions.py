"""
Distributions of actions: what the learner needs to know of them.

An action is stored as it was sampled, before any squashing.  The Jacobian of the tanh depends
on the stored u alone, so it cancels in every ratio and in the KL; only the entropy of the
squashed policy needs it.
"""

from collections.abc import Mapping
import math
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from asyncppo_ros.robot.actions import choices_of

LOG_2PI = math.log(2.0 * math.pi)
LOG_2 = math.log(2.0)


class Distribution(Protocol):
    """
    A family of distributions over actions; P is the size of its parameters.

    Attributes
    ----------
    name : str
        As the card of an artefact has it.

    """

    name: str

    def card(self) -> dict[str, Any]:
        """Give what the card's architecture says of it."""

    def outputs(self, action_size: int) -> int:
        """Give how many parameters the network makes of each observation."""

    def log_stds(self, action_size: int) -> int:
        """Give how many log standard deviations follow, equal for all observations."""

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

    def card(self) -> dict[str, Any]:
        """Give the name."""
        return {'distribution': self.name}

    def outputs(self, action_size: int) -> int:
        """Give A: the means."""
        return action_size

    def log_stds(self, action_size: int) -> int:
        """Give A."""
        return action_size

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


class Categorical:
    """
    One of P choices with probability softmax(logits); the action is its index, so A = 1.

    Parameters
    ----------
    choices : int
        P.

    """

    name = 'categorical'

    def __init__(self, choices: int) -> None:
        self.choices = choices

    def card(self) -> dict[str, Any]:
        """Give the name and P."""
        return {'distribution': self.name, 'choices': self.choices}

    def outputs(self, action_size: int) -> int:
        """Give P: the logits."""
        return self.choices

    def log_stds(self, action_size: int) -> int:
        """Give 0."""
        return 0

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        """
        Give the log-probability of the choice that was made.

        Parameters
        ----------
        parameters : float32 [..., P]
        action : float32 [..., 1]
            Index; NaN is the log-probability of what is none.

        Returns
        -------
        float32 [...]

        """
        index = action.long().clamp(0, self.choices - 1)
        log_prob = functional.log_softmax(parameters, -1).gather(-1, index)
        return log_prob.masked_fill(index != action, math.nan).squeeze(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        """Give -Σ π log π, [..., P] → [...]."""
        log_prob = functional.log_softmax(parameters, -1)
        return -(log_prob.exp() * log_prob).sum(-1)

    def kl(self, parameters: Tensor, other: Tensor) -> Tensor:
        """Give Σ π (log π - log π'), [..., P] twice → [...]."""
        log_prob = functional.log_softmax(parameters, -1)
        difference = log_prob - functional.log_softmax(other, -1)
        return (log_prob.exp() * difference).sum(-1)


def distribution_for(action: Mapping[str, Any]) -> Distribution:
    """Give the family for an action as `Environment.describe` describes it."""
    choices = choices_of(action)
    return Categorical(choices) if choices else TanhGaussian()

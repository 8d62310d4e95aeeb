"""What gradient steps are made of."""

from typing import NamedTuple

from torch import Tensor

# What is read of every gradient step.
STEP_NUMBERS = ('policy_loss', 'value_loss', 'entropy', 'approx_kl', 'clip_fraction',
                'dual_clip_fraction', 'gradient_norm', 'loss')


class Samples(NamedTuple):
    """
    What gradient steps need of B samples.

    Attributes
    ----------
    observation : float32 [B, O]
        Normalized.
    critic_observation : float32 [B, C]
        Normalized; what only the critic sees.
    action : float32 [B, A]
    reference : float32 [B]
        Log-probability that the ratio is taken to.
    advantage : float32 [B]
        Weighted and normalized.
    target : float32 [B]
        Of the critic, in its own unit.
    lag : float32 [B]
        Of the policy that acted [versions].
    weight : float32 [B] or None
        Of their sources in the loss; None = all are equal.

    """

    observation: Tensor
    critic_observation: Tensor
    action: Tensor
    reference: Tensor
    advantage: Tensor
    target: Tensor
    lag: Tensor
    weight: Tensor | None = None


class Scheduled(NamedTuple):
    """
    What changes from step to step by a schedule.

    Attributes
    ----------
    clip_ratio : float
        ε.
    entropy_coefficient : float
    step_size : float
        Of Adam.

    """

    clip_ratio: float
    entropy_coefficient: float
    step_size: float

"""Objectives of PPO: pure functions on torch tensors of one shape [B]."""

import torch
from torch import Tensor

# exp(20) is far beyond every clip and far below overflow.
MAX_LOG_RATIO = 20.0


def log_ratio(log_prob: Tensor, behaviour_log_prob: Tensor) -> Tensor:
    """
    Give log(π(a|s) / μ(a|s)), clamped to ±20.

    Parameters
    ----------
    log_prob, behaviour_log_prob : float32 [B]
        Of the policy being trained and of the policy that acted.

    """
    _check_shapes(log_prob=log_prob, behaviour_log_prob=behaviour_log_prob)
    return (log_prob - behaviour_log_prob).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def clipped_objective(ratio: Tensor, advantage: Tensor, clip_ratio: float,
                      dual_clip: float | Tensor) -> Tensor:
    """
    Give the dual-clip PPO objective of every sample, to be maximized.

        L = min(ρ A, clip(ρ, 1-ε, 1+ε) A)             where A ≥ 0
        L = max(min(ρ A, clip(ρ, 1-ε, 1+ε) A), c A)   where A < 0

    Parameters
    ----------
    ratio : float32 [B]
        ρ = π(a|s) / μ(a|s)
    advantage : float32 [B]
        A
    clip_ratio : float
        ε in (0, 1].
    dual_clip : float, or float32 [B]
        c > 1 + ε; 0 leaves the side A < 0 unbounded, as PPO has it.  See `dual_clip_by_lag` for
        one of each sample.

    Returns
    -------
    float32 [B]

    Raises
    ------
    ValueError
        0 < c ≤ 1 + ε: such a bound takes the gradient from samples at ρ = 1.  (Not looked for
        in a tensor.)

    References
    ----------
    Schulman et al. 2017, arXiv:1707.06347; Ye et al. 2020, arXiv:1912.09729, equation 5.

    """
    _check_shapes(ratio=ratio, advantage=advantage)
    if isinstance(dual_clip, Tensor):
        _check_shapes(ratio=ratio, dual_clip=dual_clip)
    elif 0.0 < dual_clip <= 1.0 + clip_ratio:
        raise ValueError(f'dual_clip = {dual_clip}: must exceed 1 + clip_ratio = '
                         f'{1.0 + clip_ratio}, or be 0 (off)')
    clipped = ratio.clamp(1.0 - clip_ratio, 1.0 + clip_ratio)
    objective = torch.minimum(ratio * advantage, clipped * advantage)
    if not isinstance(dual_clip, Tensor) and dual_clip == 0.0:
        return objective
    floor = torch.where(advantage < 0.0, dual_clip * advantage, -torch.inf)
    return torch.maximum(objective, floor)


def dual_clip_by_lag(dual_clip: float, lag: Tensor, above: int) -> float | Tensor:
    """
    Give the dual clip of every sample: c where the policy lag is above a number, else none.

    Parameters
    ----------
    dual_clip : float
        c; 0 = off.
    lag : float32 [B]
        Of the policy that acted [versions].
    above : int
        Negative = all samples have c.

    Returns
    -------
    float, or float32 [B] with the largest number where there is no bound
        (∞ · A would have no gradient.)

    """
    if dual_clip == 0.0 or above < 0:
        return dual_clip
    none = torch.full_like(lag, torch.finfo(lag.dtype).max)
    return torch.where(lag > above, torch.full_like(lag, dual_clip), none)


def misread_dual_clip_objective(ratio: Tensor, advantage: Tensor, clip_ratio: float,
                                cap: float) -> Tensor:
    """
    Give a form of dual clip that is found in articles, and is wrong; for comparison only.

        L = min(ρ A, clip(ρ, 1-ε, 1+ε) A, c A),    c in (0, 1]

    Where A > 0 its gradient is zero for every ρ ≥ c, ρ = 1 included, so that nothing is learned
    from good actions; where A < 0 the side of large ρ stays unbounded.

    Parameters
    ----------
    ratio, advantage : float32 [B]
    clip_ratio : float
        ε.
    cap : float
        c.

    """
    objective = clipped_objective(ratio, advantage, clip_ratio, 0.0)
    return torch.minimum(objective, cap * advantage)


def behaviour_weight(proximal_log_prob: Tensor, behaviour_log_prob: Tensor,
                     max_weight: float) -> Tensor:
    """
    Give the weight of every sample in the decoupled objective.

        w = min(π_prox(a|s) / μ(a|s), max_weight)

    The decoupled objective is w · L(ρ) with ρ = π(a|s) / π_prox(a|s), where π_prox is the policy
    at the start of the update and L is `clipped_objective`.  The trust region then lies around
    π_prox instead of around a policy that is some versions old, and an update may go as far as
    on fresh samples.  At zero lag w = 1 and both objectives are one.

    Parameters
    ----------
    proximal_log_prob, behaviour_log_prob : float32 [B]
        Of the policy at the start of the update and of the policy that acted.
    max_weight : float
        Cap, ≥ 1: one sample must not rule the batch.

    Returns
    -------
    float32 [B]
        A constant for the gradient.

    References
    ----------
    Hilton et al. 2021, arXiv:2110.00641.

    """
    return torch.exp(log_ratio(proximal_log_prob, behaviour_log_prob)).clamp(
        max=max_weight).detach()


def value_loss(value: Tensor, value_target: Tensor) -> Tensor:
    """
    Give ½ (V - target)² of every sample.

    Parameters
    ----------
    value, value_target : float32 [B]
        Both in the unit that the critic learns.

    """
    _check_shapes(value=value, value_target=value_target)
    return 0.5 * (value - value_target).square()


def weighted_mean(values: Tensor, weight: Tensor | None) -> Tensor:
    """
    Give the mean of samples whose sources do not all count the same.

        Σ w x / Σ w:  the mean of w x, with weights of mean 1

    Parameters
    ----------
    values : float32 [B]
    weight : float32 [B] or None
        Not negative; None = all are equal.  Where all are 0 the mean is 0, and has no gradient.

    """
    if weight is None:
        return values.mean()
    _check_shapes(values=values, weight=weight)
    return (weight / weight.mean().clamp(min=torch.finfo(weight.dtype).tiny) * values).mean()


def approx_kl(log_ratio_: Tensor) -> Tensor:
    """
    Estimate KL(μ ‖ π) from samples of μ: mean of (ρ - 1) - log ρ, never negative.

    References
    ----------
    Schulman 2020, "Approximating KL divergence".

    """
    return (torch.exp(log_ratio_) - 1.0 - log_ratio_).mean()


def effective_sample_share(log_ratio_: Tensor) -> Tensor:
    """
    Give the effective sample size of importance weights, as a share of the samples.

        (Σ ρ)² / (B Σ ρ²), in (0, 1]: 1 where all weights are equal.

    Parameters
    ----------
    log_ratio_ : float32 [B]

    References
    ----------
    Kong 1992, "A note on importance sampling using standardized weights".

    """
    # Weights may be scaled freely: the largest becomes 1, so that nothing overflows.
    weight = torch.exp(log_ratio_ - log_ratio_.max())
    return weight.sum().square() / (len(weight) * weight.square().sum())


def clip_fractions(ratio: Tensor, advantage: Tensor, clip_ratio: float,
                   dual_clip: float | Tensor) -> tuple[Tensor, Tensor]:
    """
    Give the shares of samples that the clip and the dual clip leave without gradient.

    Returns
    -------
    clip_fraction, dual_clip_fraction : float32 []

    """
    above = (advantage > 0.0) & (ratio > 1.0 + clip_ratio)
    below = (advantage < 0.0) & (ratio < 1.0 - clip_ratio)
    clip_fraction = (above | below).float().mean()
    if not isinstance(dual_clip, Tensor) and dual_clip == 0.0:
        return clip_fraction, torch.zeros_like(clip_fraction)
    return clip_fraction, ((advantage < 0.0) & (ratio > dual_clip)).float().mean()


def explained_variance(value: Tensor, value_target: Tensor) -> float:
    """Give 1 - Var(target - value) / Var(target); 1 is perfect, 0 is a constant guess."""
    spread = float(value_target.var(unbiased=False))
    if spread == 0.0:
        return 0.0
    return 1.0 - float((value_target - value).var(unbiased=False)) / spread


def _check_shapes(**tensors: Tensor) -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len(set(shapes.values())) > 1:
        raise ValueError('must have one shape: ' + ', '.join(
            f'{name} {shape}' for name, shape in shapes.items()))

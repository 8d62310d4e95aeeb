"""The dual-clip objective: the ρ × sign table, and the gradients that must (not) be zero."""

import numpy as np
import pytest
import torch

from asyncppo_ros.learning import losses

RATIOS = (0.5, 0.7, 0.9, 1.0, 1.1, 1.5, 2.5, 5.0, 20.0)
EPSILON, BOUND = 0.2, 3.0
# dL/dρ for |A| = 1, ε = 0.2, c = 3 (Ye et al. 2020): good samples stop above 1 + ε, bad ones
# below 1 - ε and above c.
SLOPES = {1.0: (1, 1, 1, 1, 1, 0, 0, 0, 0), -1.0: (0, 0, -1, -1, -1, -1, -1, 0, 0)}


def slope(ratio, advantage, dual_clip):
    """Give dL/dρ by autograd."""
    value = torch.tensor([ratio], requires_grad=True)
    losses.clipped_objective(value, torch.tensor([advantage]), EPSILON, dual_clip).sum().backward()
    return float(value.grad)


@pytest.mark.parametrize('advantage', SLOPES)
def test_table_of_slopes(advantage):
    found = [slope(ratio, advantage, BOUND) for ratio in RATIOS]
    assert found == [float(value) for value in SLOPES[advantage]]


def test_without_dual_clip_the_bad_side_is_unbounded():
    assert slope(20.0, -1.0, 0.0) == -1.0
    objective = losses.clipped_objective(torch.tensor([20.0]), torch.tensor([-1.0]), EPSILON, 0.0)
    assert float(objective) == -20.0


def test_bad_side_is_bounded_by_c():
    ratio = torch.tensor([2.9, 3.0, 3.1, 1e6])
    objective = losses.clipped_objective(ratio, torch.full((4,), -2.0), EPSILON, BOUND)
    np.testing.assert_allclose(objective, [-5.8, -6.0, -6.0, -6.0], rtol=1e-6)


def test_good_samples_at_ratio_one_learn():
    # The form min(ρA, clip(ρ)A, cA) with c < 1 would give 0 here.
    assert slope(1.0, 1.0, BOUND) == 1.0
    assert slope(1.0, -1.0, BOUND) == -1.0


def test_equals_the_definition_sample_by_sample():
    rng = np.random.default_rng(3)
    ratio = np.exp(rng.normal(size=500)).astype(np.float32)
    advantage = rng.normal(size=500).astype(np.float32)
    found = losses.clipped_objective(torch.from_numpy(ratio), torch.from_numpy(advantage),
                                     EPSILON, BOUND).numpy()
    for r, a, objective in zip(ratio, advantage, found):
        clipped = min(max(r, 1 - EPSILON), 1 + EPSILON)
        expected = min(r * a, clipped * a)
        if a < 0:
            expected = max(expected, BOUND * a)
        assert objective == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize('dual_clip', [0.5, 0.8, 1.0, 1.2])
def test_bound_that_stops_learning_is_refused(dual_clip):
    with pytest.raises(ValueError, match=r'must exceed 1 \+ clip_ratio'):
        losses.clipped_objective(torch.ones(1), torch.ones(1), EPSILON, dual_clip)


def test_log_ratio_is_clamped_and_finite():
    ratio = losses.log_ratio(torch.tensor([1e4, -1e4, 0.5]), torch.zeros(3))
    np.testing.assert_allclose(ratio, [20.0, -20.0, 0.5])
    assert torch.isfinite(torch.exp(ratio)).all()


def test_shares_of_clipped_samples():
    ratio = torch.tensor([1.3, 0.7, 4.0, 1.0, 0.7, 1.3])
    advantage = torch.tensor([1.0, -1.0, -1.0, 1.0, 1.0, -1.0])
    clip, dual = losses.clip_fractions(ratio, advantage, EPSILON, BOUND)
    assert float(clip) == pytest.approx(2 / 6) and float(dual) == pytest.approx(1 / 6)


def test_approx_kl_is_zero_only_at_equality():
    assert float(losses.approx_kl(torch.zeros(5))) == 0.0
    assert float(losses.approx_kl(torch.tensor([0.1, -0.1]))) > 0.0


def test_explained_variance():
    target = torch.tensor([1.0, 2.0, 3.0])
    assert losses.explained_variance(target, target) == 1.0
    assert losses.explained_variance(torch.full((3,), 2.0), target) == pytest.approx(0.0)
    assert losses.explained_variance(target, torch.ones(3)) == 0.0


def test_shapes_are_checked():
    with pytest.raises(ValueError, match=r'ratio \(3,\), advantage \(2,\)'):
        losses.clipped_objective(torch.ones(3), torch.ones(2), EPSILON, BOUND)
    with pytest.raises(ValueError, match='one shape'):
        losses.value_loss(torch.ones(3), torch.ones(3, 1))


def test_weight_of_the_decoupled_objective():
    proximal = torch.tensor([0.0, 0.5, -1.0, 30.0], requires_grad=True)
    weight = losses.behaviour_weight(proximal, torch.zeros(4), 2.0)
    np.testing.assert_allclose(weight, [1.0, np.exp(0.5), np.exp(-1.0), 2.0], rtol=1e-6)
    assert not weight.requires_grad


def test_decoupled_objective_equals_that_of_the_article():
    """Hilton et al. 2021: min(ρ_b A, clip(ρ, 1±ε) π_prox/μ A), ρ_b = π/μ, ρ = π/π_prox."""
    rng = np.random.default_rng(5)
    log_prob, proximal, behaviour = torch.from_numpy(rng.normal(0.0, 0.3, (3, 400)))
    advantage = torch.from_numpy(rng.normal(size=400))
    weight = losses.behaviour_weight(proximal, behaviour, 1e9)
    ours = losses.clipped_objective(torch.exp(log_prob - proximal), weight * advantage,
                                    EPSILON, 0.0)
    ratio = torch.exp(log_prob - proximal).clamp(1 - EPSILON, 1 + EPSILON)
    theirs = torch.minimum(torch.exp(log_prob - behaviour) * advantage,
                           ratio * torch.exp(proximal - behaviour) * advantage)
    torch.testing.assert_close(ours, theirs)

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


def objective_of(form, ratio, advantage):
    """Give an objective by the name of its form."""
    if form == 'ppo':
        return losses.clipped_objective(ratio, advantage, EPSILON, 0.0)
    if form == 'dual':
        return losses.clipped_objective(ratio, advantage, EPSILON, BOUND)
    if form == 'misread':
        return losses.misread_dual_clip_objective(ratio, advantage, EPSILON, CAP)
    # Only every other sample is old enough for the bound.
    lag = torch.arange(len(ratio)) % 2 * 10.0
    bound = losses.dual_clip_by_lag(BOUND, lag, above=4)
    return losses.clipped_objective(ratio, advantage, EPSILON, bound)


def slow_objective(form, index, ratio, advantage):
    """Give the definition for one sample, in Python's own floats."""
    clipped = min(max(ratio, 1.0 - EPSILON), 1.0 + EPSILON)
    smaller = min(ratio * advantage, clipped * advantage)
    if form == 'misread':
        return min(smaller, CAP * advantage)
    bounded = form == 'dual' or form == 'by lag' and index % 2 == 1
    return max(smaller, BOUND * advantage) if bounded and advantage < 0.0 else smaller


CAP = 0.6
FORMS = ('ppo', 'dual', 'by lag', 'misread')
# dL/dρ for |A| = 1 at RATIOS: of good samples, and of bad ones.
TABLE = {
    'ppo': ((1, 1, 1, 1, 1, 0, 0, 0, 0), (0, 0, -1, -1, -1, -1, -1, -1, -1)),
    'dual': ((1, 1, 1, 1, 1, 0, 0, 0, 0), (0, 0, -1, -1, -1, -1, -1, 0, 0)),
    # The samples at odd places are old: 5.0 is one, 20.0 is not.
    'by lag': ((1, 1, 1, 1, 1, 0, 0, 0, 0), (0, 0, -1, -1, -1, -1, -1, 0, -1)),
    # What makes it wrong: nothing is learned from good samples from ρ = c on.
    'misread': ((1, 0, 0, 0, 0, 0, 0, 0, 0), (0, 0, -1, -1, -1, -1, -1, -1, -1)),
}


@pytest.mark.parametrize('form', FORMS)
def test_gradients_by_ratio_and_sign(form):
    for sign, expected in zip((1.0, -1.0), TABLE[form]):
        ratio = torch.tensor(RATIOS, requires_grad=True)
        objective_of(form, ratio, torch.full((len(RATIOS),), sign)).sum().backward()
        assert ratio.grad.tolist() == [float(value) for value in expected]


@pytest.mark.parametrize('form', FORMS)
def test_every_form_equals_a_loop_over_samples(form):
    rng = np.random.default_rng(7)
    ratio = np.exp(1.2 * rng.normal(size=600)).astype(np.float32)
    advantage = rng.normal(size=600).astype(np.float32)
    advantage[::50] = 0.0
    found = objective_of(form, torch.from_numpy(ratio), torch.from_numpy(advantage)).tolist()
    for index, objective in enumerate(found):
        expected = slow_objective(form, index, float(ratio[index]), float(advantage[index]))
        assert objective == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_limits_of_the_ratio():
    tiny, huge = torch.full((2,), 1e-30), torch.full((2,), 1e30)
    sign = torch.tensor([1.0, -1.0])
    for form in ('ppo', 'dual'):
        # ρ → 0: a good sample that has become unlikely is still wanted, a bad one is left alone.
        np.testing.assert_allclose(objective_of(form, tiny, sign), [0.0, -(1.0 - EPSILON)],
                                   atol=1e-20)
        assert objective_of(form, huge, sign)[0] == pytest.approx(1.0 + EPSILON)
    # ρ → ∞: only the dual clip bounds what a bad sample may do.
    assert float(objective_of('ppo', huge, sign)[1]) == pytest.approx(-1e30)
    assert float(objective_of('dual', huge, sign)[1]) == -BOUND
    assert float(objective_of('misread', huge, sign)[1]) == pytest.approx(-1e30)


def test_a_bound_without_end_is_none():
    rng = np.random.default_rng(8)
    ratio = torch.from_numpy(np.exp(2.0 * rng.normal(size=300)))
    advantage = torch.from_numpy(rng.normal(size=300))
    off = losses.clipped_objective(ratio, advantage, EPSILON, 0.0)
    for none in (1e30, torch.full((300,), torch.inf, dtype=ratio.dtype)):
        torch.testing.assert_close(losses.clipped_objective(ratio, advantage, EPSILON, none), off,
                                   rtol=0.0, atol=0.0)


def test_the_bound_never_touches_good_samples():
    ratio = torch.logspace(-6.0, 6.0, 200)
    good = torch.full((200,), 0.7)
    torch.testing.assert_close(objective_of('dual', ratio, good), objective_of('ppo', ratio, good),
                               rtol=0.0, atol=0.0)


def test_no_bound_by_lag_gives_no_nan():
    """Where A = 0 or the sample is fresh, no ∞ · A may come into a result or a gradient."""
    ratio = torch.tensor([1.0, 50.0, 1.0, 50.0], requires_grad=True)
    advantage = torch.tensor([0.0, 0.0, -1.0, -1.0], requires_grad=True)
    bound = losses.dual_clip_by_lag(BOUND, torch.zeros(4), above=4)
    objective = losses.clipped_objective(ratio, advantage, EPSILON, bound)
    objective.sum().backward()
    assert objective.tolist() == [0.0, 0.0, -1.0, -50.0]
    assert ratio.grad.tolist() == [0.0, 0.0, -1.0, -1.0]
    assert advantage.grad[2:].tolist() == [1.0, 50.0]


def test_bound_by_lag_is_one_for_all_without_a_limit():
    lag = torch.tensor([0.0, 4.0, 5.0])
    assert losses.dual_clip_by_lag(BOUND, lag, above=-1) == BOUND
    assert losses.dual_clip_by_lag(0.0, lag, above=4) == 0.0
    none = float(np.finfo(np.float32).max)
    assert losses.dual_clip_by_lag(BOUND, lag, above=4).tolist() == [none, none, BOUND]
    # Lag 0 is above no limit of 0: fresh samples need no bound.
    assert losses.dual_clip_by_lag(BOUND, lag, above=0).tolist() == [none, BOUND, BOUND]


def test_dual_clip_fraction_by_lag():
    ratio = torch.full((4,), 10.0)
    bound = losses.dual_clip_by_lag(BOUND, torch.tensor([0.0, 9.0, 9.0, 0.0]), above=4)
    _, dual = losses.clip_fractions(ratio, torch.tensor([-1.0, -1.0, 1.0, 1.0]), EPSILON, bound)
    assert float(dual) == 0.25
    assert float(losses.clip_fractions(ratio, torch.full((4,), -1.0), EPSILON, 0.0)[1]) == 0.0


def test_gradient_of_the_decoupled_objective_is_weighted():
    """Each is w times that of the clipped objective, and w itself is a constant."""
    proximal = torch.tensor([0.3, 0.3, -0.5], requires_grad=True)
    behaviour = torch.tensor([0.0, 0.0, 0.0], requires_grad=True)
    weight = losses.behaviour_weight(proximal, behaviour, 2.0)
    ratio = torch.tensor([1.0, 1.5, 0.9], requires_grad=True)
    advantage = torch.tensor([1.0, 1.0, -2.0])
    losses.clipped_objective(ratio, weight * advantage, EPSILON, BOUND).sum().backward()
    np.testing.assert_allclose(ratio.grad, [np.exp(0.3), 0.0, -2.0 * np.exp(-0.5)], rtol=1e-6)
    assert proximal.grad is None and behaviour.grad is None


def test_clamped_log_ratio_has_no_gradient_beyond_its_ends():
    log_prob = torch.tensor([-25.0, -19.0, 0.0, 19.0, 25.0], requires_grad=True)
    losses.log_ratio(log_prob, torch.zeros(5)).sum().backward()
    assert log_prob.grad.tolist() == [0.0, 1.0, 1.0, 1.0, 0.0]


def test_effective_sample_share_by_hand():
    # Weights 3, 1, 1, 1: (3 + 1 + 1 + 1)² / (4 · (9 + 1 + 1 + 1)) = 36 / 48.
    log_ratio = torch.log(torch.tensor([3.0, 1.0, 1.0, 1.0]))
    assert float(losses.effective_sample_share(log_ratio)) == pytest.approx(0.75)
    assert float(losses.effective_sample_share(torch.zeros(7))) == pytest.approx(1.0)
    # A common factor changes nothing, one sample that has all the weight leaves 1 of B.
    assert float(losses.effective_sample_share(log_ratio + 500.0)) == pytest.approx(0.75, abs=1e-4)
    alone = torch.tensor([200.0, 0.0, 0.0, 0.0, 0.0])
    assert float(losses.effective_sample_share(alone)) == pytest.approx(0.2)


def test_value_loss_and_its_gradient():
    value = torch.tensor([1.0, 5.0], requires_grad=True)
    loss = losses.value_loss(value, torch.tensor([3.0, 5.0]))
    loss.sum().backward()
    assert loss.tolist() == [2.0, 0.0] and value.grad.tolist() == [-2.0, 0.0]

"""
The mistakes that PPO codes are known for: each is made here on purpose, and found.

Every check stands twice: it holds for the package as it is, and it fails once the wrong thing is
swapped in.  A check that could not fail would say nothing.
"""

import dataclasses

import numpy as np
import pytest
import torch
from toys import CountingEnvironment, random_chunk, TASK

from asyncppo_ros.acting.rollout import Rollout, Stamp
from asyncppo_ros.config import Config, LearnerConfig, PpoConfig
from asyncppo_ros.learning import learner as learner_module
from asyncppo_ros.learning import losses, numpy_steps, transitions
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.learning.transitions import estimate, Segment
from asyncppo_ros.policy.distributions import TanhGaussian
from asyncppo_ros.policy.normalizer import RunningMoments

RATIOS = (0.5, 0.7, 0.9, 1.0, 1.1, 1.5, 2.5, 5.0, 20.0)
SLOPES = {1.0: (1, 1, 1, 1, 1, 0, 0, 0, 0), -1.0: (0, 0, -1, -1, -1, -1, -1, 0, 0)}


def make_learner(gradients='auto', **ppo):
    config = Config(env_steps=10_000, learner=LearnerConfig(gradients=gradients, ppo=PpoConfig(
        **{'minibatch_size': 10 ** 6, 'epochs': 1, **ppo})))
    return Learner(config, TASK, 3, 2, run_id=1)


# ---- the checks


def check_the_objective_has_the_slopes_of_dual_clip():
    # Good samples learn up to 1 + ε, bad ones down to 1 - ε and up to c; as the learner asks.
    learner = make_learner('torch')
    for sign, expected in SLOPES.items():
        ratio = torch.tensor(RATIOS, requires_grad=True)
        learner._steps.objective(ratio, torch.full((len(RATIOS),), sign), 0.2,
                                 3.0).sum().backward()
        assert ratio.grad.tolist() == [float(value) for value in expected]


def check_the_derivative_written_out_has_the_slopes_of_dual_clip():
    ratio = np.array(RATIOS)
    for sign, expected in SLOPES.items():
        low, high = numpy_steps.ratio_bounds(PpoConfig(), np.full(len(ratio), sign),
                                             np.zeros(len(ratio)), 0.2)
        assert (sign * ((low <= ratio) & (ratio <= high))).tolist() == list(expected)


def check_both_ways_of_making_gradient_steps_give_one_policy():
    chunks = [random_chunk(3), random_chunk(4)]
    learners = [make_learner(gradients, epochs=3, minibatch_size=16, learning_rate=0.01,
                             objective='clipped') for gradients in ('torch', 'numpy')]
    for learner in learners:
        learner.update(chunks)
    for one, other in zip(*(learner.network.parameters() for learner in learners)):
        np.testing.assert_allclose(one.detach(), other.detach(), atol=1e-5)


def check_the_ratio_is_to_the_policy_that_acted():
    # An action that became e^0.4 as likely as it was when it was drawn has that ratio.
    learner = make_learner(objective='clipped')
    chunk = random_chunk(3)
    with torch.no_grad():
        now = learner.network.distribution.log_prob(
            learner.network.parameters_of(torch.from_numpy(chunk.observation[:-1])),
            torch.from_numpy(chunk.action)).numpy()
    metrics = learner.update([dataclasses.replace(chunk, behaviour_log_prob=now - 0.4)])
    assert metrics['first_abs_log_ratio_mean'] == pytest.approx(0.4, abs=1e-4)
    # Half of the samples are good, and all of these lie beyond the clip.
    assert metrics['clip_fraction'] > 0.3


def check_a_truncated_step_has_the_value_of_its_own_end():
    # Its advantage is r + γ V(final observation) - V; a terminated one has no γ V at all.
    chunk = random_chunk(1)
    segment = Segment(chunk, 0, *(torch.from_numpy(array) for array in (
        chunk.observation, chunk.final_observation, chunk.critic_observation,
        chunk.final_critic_observation)))
    advantage = estimate([segment], lambda x, _: 10.0 + x.sum(-1).numpy(), 0.9,
                         0.95).advantage.view(8, 4).numpy()
    (t, n), = chunk.final_index.tolist()
    value = 10.0 + chunk.observation.sum(-1)
    final = 10.0 + chunk.final_observation[0].sum()
    assert advantage[t, n] == pytest.approx(chunk.reward[t, n] + 0.9 * final - value[t, n],
                                            abs=1e-4)
    t, n = np.argwhere(chunk.terminated)[0]
    assert advantage[t, n] == pytest.approx(chunk.reward[t, n] - value[t, n], abs=1e-4)


def check_no_ratio_is_in_the_advantage_of_vtrace():
    # The last step follows from V alone: r + γ V' - V, whatever ρ is.
    chunk = random_chunk(2)
    segment = Segment(chunk, 0, *(torch.from_numpy(array) for array in (
        chunk.observation, chunk.final_observation, chunk.critic_observation,
        chunk.final_critic_observation)))
    half = np.full(chunk.reward.shape, 0.5, np.float32)
    advantage = estimate([segment], lambda x, _: x.sum(-1).numpy(), 0.9, 0.95,
                         lambda segment: half).advantage.view(8, 4).numpy()
    value = chunk.observation.sum(-1)
    np.testing.assert_allclose(advantage[-1], chunk.reward[-1] + 0.9 * value[-1] - value[-2],
                               atol=1e-4)


def check_all_chunks_of_a_policy_have_one_normalizer():
    # A fresh sample has ratio 1, also in the fifth chunk under one snapshot.
    learner = make_learner()
    rollout = Rollout(CountingEnvironment([5, 7, 9, 40]), 16, seed=0)
    for _ in range(2):
        # The second snapshot has statistics.
        learner.update([rollout.collect(learner.snapshot(), Stamp(1, 0, 1, 0))])
    snapshot = learner.snapshot()
    chunks = [rollout.collect(snapshot, Stamp(1, 0, 1, index)) for index in range(5)]
    metrics = learner.update(chunks)
    assert metrics['first_abs_log_ratio_max'] <= 1e-3


def check_the_learner_changes_its_normalizer_at_publication_alone():
    # The samples of one snapshot meet the statistics that made them, update after update.
    learner = make_learner(learning_rate=0.0)
    rollout = Rollout(CountingEnvironment([5, 7, 9, 40]), 16, seed=0)
    snapshot = learner.snapshot()
    for index in range(3):
        metrics = learner.update([rollout.collect(snapshot, Stamp(1, 0, 1, index))])
        assert metrics['first_abs_log_ratio_max'] <= 1e-3


def check_the_entropy_of_the_squashed_policy_is_that_of_the_squashed_policy():
    # It equals -∫ π log π of a = tanh(u), found by quadrature.
    u = torch.linspace(-9.0, 9.0, 20_001, dtype=torch.float64)
    # π(a) by the change of variables, written out here: N(u) / (1 - tanh² u).
    log_density = -0.5 * (u / 0.6).square() - np.log(0.6) - 0.5 * np.log(2.0 * np.pi) \
        - torch.log1p(-torch.tanh(u).square())
    exact = float(-torch.trapezoid(log_density.exp() * log_density, torch.tanh(u)))
    many = torch.tensor([0.0, np.log(0.6)], dtype=torch.float64).expand(100_000, 2)
    found = float(TanhGaussian().squashed_entropy(many, torch.Generator().manual_seed(0)).mean())
    assert found == pytest.approx(exact, abs=0.01)


# ---- the swaps


def article_dual_clip(ratio, advantage, clip_ratio, dual_clip):
    clipped = ratio.clamp(1.0 - clip_ratio, 1.0 + clip_ratio)
    return torch.minimum(torch.minimum(ratio * advantage, clipped * advantage), 0.6 * advantage)


def dual_clip_of_both_signs(ratio, advantage, clip_ratio, dual_clip):
    """Leave out the mask A < 0: no good sample has a gradient."""
    clipped = ratio.clamp(1.0 - clip_ratio, 1.0 + clip_ratio)
    return torch.maximum(torch.minimum(ratio * advantage, clipped * advantage),
                         dual_clip * advantage)


def dual_clip_below_one(ratio, advantage, clip_ratio, dual_clip):
    """Take c from the article into the right form: no bad sample has a gradient at ρ = 1."""
    return torch.where(advantage < 0.0, torch.maximum(ratio * advantage, 0.6 * advantage),
                       torch.minimum(ratio, torch.tensor(1.0 + clip_ratio)) * advantage)


def no_dual_clip(ratio, advantage, clip_ratio, dual_clip):
    clipped = ratio.clamp(1.0 - clip_ratio, 1.0 + clip_ratio)
    return torch.minimum(ratio * advantage, clipped * advantage)


def objective(form):
    return lambda monkeypatch: monkeypatch.setattr(losses, 'clipped_objective', form)


def no_dual_clip_by_hand(monkeypatch):
    def bounds(ppo, advantage, lag, clip_ratio):
        return (np.where(advantage < 0.0, 1.0 - clip_ratio, 0.0),
                np.where(advantage > 0.0, 1.0 + clip_ratio, np.inf))

    monkeypatch.setattr(numpy_steps, 'ratio_bounds', bounds)


def article_dual_clip_by_hand(monkeypatch):
    def bounds(ppo, advantage, lag, clip_ratio):
        return (np.where(advantage < 0.0, 1.0 - clip_ratio, 0.0),
                np.where(advantage > 0.0, 0.6, np.inf))

    monkeypatch.setattr(numpy_steps, 'ratio_bounds', bounds)


def behaviour_log_prob_from_newer_weights(monkeypatch):
    original = Learner._segment

    def recomputing(self, chunk):
        segment = original(self, chunk)
        with torch.no_grad():
            log_prob = self.network.distribution.log_prob(
                self.network.parameters_of(segment.observation[:-1]),
                torch.from_numpy(chunk.action)).numpy()
        return segment._replace(chunk=dataclasses.replace(chunk, behaviour_log_prob=log_prob))

    monkeypatch.setattr(Learner, '_segment', recomputing)


def truncation_as_termination(monkeypatch):
    original = transitions.next_values

    def swapped(value, terminated, final_value, final_index):
        return original(value, terminated, np.zeros_like(final_value), final_index)

    monkeypatch.setattr(transitions, 'next_values', swapped)


def truncation_into_the_next_episode(monkeypatch):
    original = transitions.next_values

    def swapped(value, terminated, final_value, final_index):
        return original(value, terminated, final_value[:0], final_index[:0])

    monkeypatch.setattr(transitions, 'next_values', swapped)


def termination_with_a_future(monkeypatch):
    original = transitions.next_values

    def swapped(value, terminated, final_value, final_index):
        return original(value, np.zeros_like(terminated), final_value, final_index)

    monkeypatch.setattr(transitions, 'next_values', swapped)


def ratio_in_the_advantage_of_vtrace(monkeypatch):
    original = transitions.vtrace

    def swapped(reward, value, next_value, ended, ratio, *rest):
        advantage, target = original(reward, value, next_value, ended, ratio, *rest)
        return np.minimum(ratio, 1.0) * advantage, target

    monkeypatch.setattr(transitions, 'vtrace', swapped)


def normalizer_updated_in_the_actor(monkeypatch):
    original = Rollout.collect

    def updating(self, *arguments, **options):
        chunk = original(self, *arguments, **options)
        moments = RunningMoments(chunk.observation.shape[-1])
        moments.merge(chunk.observation.reshape(-1, chunk.observation.shape[-1]))
        self._policy._shift = moments.mean.astype(np.float32)
        return chunk

    monkeypatch.setattr(Rollout, 'collect', updating)


def normalizer_updated_with_every_update(monkeypatch):
    original = Learner.update

    def updating(self, *arguments):
        metrics = original(self, *arguments)
        self.normalizer = self.pending_normalizer.copy()
        return metrics

    monkeypatch.setattr(Learner, 'update', updating)


def no_tanh_correction(monkeypatch):
    monkeypatch.setattr(TanhGaussian, 'squashed_log_prob', TanhGaussian.log_prob)


def half_a_tanh_correction(monkeypatch):
    monkeypatch.setattr(TanhGaussian, 'squashed_log_prob', lambda self, parameters, action: (
        self.log_prob(parameters, action)
        - 0.5 * torch.log1p(-torch.tanh(action).square()).sum(-1)))


SWAPS = [
    (check_the_objective_has_the_slopes_of_dual_clip, objective(article_dual_clip)),
    (check_the_objective_has_the_slopes_of_dual_clip, objective(dual_clip_of_both_signs)),
    (check_the_objective_has_the_slopes_of_dual_clip, objective(dual_clip_below_one)),
    (check_the_objective_has_the_slopes_of_dual_clip, objective(no_dual_clip)),
    (check_the_derivative_written_out_has_the_slopes_of_dual_clip, no_dual_clip_by_hand),
    (check_the_derivative_written_out_has_the_slopes_of_dual_clip, article_dual_clip_by_hand),
    (check_both_ways_of_making_gradient_steps_give_one_policy, article_dual_clip_by_hand),
    (check_both_ways_of_making_gradient_steps_give_one_policy, objective(article_dual_clip)),
    (check_the_ratio_is_to_the_policy_that_acted, behaviour_log_prob_from_newer_weights),
    (check_a_truncated_step_has_the_value_of_its_own_end, truncation_as_termination),
    (check_a_truncated_step_has_the_value_of_its_own_end, truncation_into_the_next_episode),
    (check_a_truncated_step_has_the_value_of_its_own_end, termination_with_a_future),
    (check_no_ratio_is_in_the_advantage_of_vtrace, ratio_in_the_advantage_of_vtrace),
    (check_all_chunks_of_a_policy_have_one_normalizer, normalizer_updated_in_the_actor),
    (check_the_learner_changes_its_normalizer_at_publication_alone,
     normalizer_updated_with_every_update),
    (check_the_entropy_of_the_squashed_policy_is_that_of_the_squashed_policy,
     no_tanh_correction),
    (check_the_entropy_of_the_squashed_policy_is_that_of_the_squashed_policy,
     half_a_tanh_correction),
]
CHECKS = list(dict.fromkeys(check for check, _ in SWAPS))


@pytest.mark.parametrize('check', CHECKS, ids=lambda check: check.__name__)
def test_the_package_passes(check):
    check()


@pytest.mark.parametrize(('check', 'swap'), SWAPS)
def test_a_wrong_swap_is_found(check, swap, monkeypatch):
    swap(monkeypatch)
    with pytest.raises(AssertionError):
        check()


def test_the_learner_takes_what_is_swapped_here():
    """The swaps act where the learner looks: it has no copies of its own of these functions."""
    assert learner_module.losses is losses
    assert learner_module.estimate is transitions.estimate
    assert not hasattr(learner_module, 'next_values') and not hasattr(learner_module, 'vtrace')

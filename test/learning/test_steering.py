"""What steers an update: step sizes, schedules, stops, and the numbers that tell of lag."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from toys import CountingEnvironment, random_chunk, TASK

from asyncppo_ros.acting.rollout import Rollout, Stamp
from asyncppo_ros.config import Config, LearnerConfig, PolicyConfig, PpoConfig
from asyncppo_ros.learning import losses
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.learning.metrics import METRICS
from asyncppo_ros.learning.torch_steps import TorchSteps

STEPS = 32  # transitions of a `random_chunk`


def make_learner(env_steps=10_000, policy=None, **ppo):
    ppo = {'minibatch_size': 16, 'epochs': 2, 'schedule': 'constant', **ppo}
    config = Config(env_steps=env_steps, policy=policy or PolicyConfig(),
                    learner=LearnerConfig(batch_size=STEPS, ppo=PpoConfig(**ppo)))
    return Learner(config, TASK, 3, 2, run_id=1)


def aged(learner, chunk, log_ratio):
    """Give a chunk whose policy found its actions e^-log_ratio as likely as the present one."""
    with torch.no_grad():
        now = learner.network.distribution.log_prob(
            learner.network.parameters_of(torch.from_numpy(chunk.observation[:-1])),
            torch.from_numpy(chunk.action)).numpy()
    return dataclasses.replace(chunk, behaviour_log_prob=(now - log_ratio).astype(np.float32))


def test_warm_up_rises_linearly_and_then_is_over():
    learner = make_learner(learning_rate=0.01, warmup_steps=2 * STEPS)
    rates = [learner.update([random_chunk(seed)])['learning_rate'] for seed in range(4)]
    np.testing.assert_allclose(rates, [0.01 / 64, 0.01 * 33 / 64, 0.01, 0.01], rtol=1e-9)


def test_step_size_follows_the_effective_sample_size():
    log_ratio = np.zeros((8, 4), np.float32)
    log_ratio[0, 0] = 3.0
    weights = np.exp(log_ratio.astype(np.float64))
    share = weights.sum() ** 2 / (weights.size * (weights ** 2).sum())
    for on in (True, False):
        learner = make_learner(learning_rate=0.01, ess_learning_rate=on)
        metrics = learner.update([aged(learner, random_chunk(1), log_ratio)])
        assert metrics['effective_sample_share'] == pytest.approx(share, rel=1e-3)
        assert metrics['learning_rate'] == pytest.approx(0.01 * (share if on else 1.0), rel=1e-3)
    assert share < 0.2


def test_the_step_size_is_what_the_optimizer_uses():
    """A step size of 0 by the warm-up's, the scale's or the schedule's doing moves nothing."""
    for change in ({'learning_rate': 0.0}, {'warmup_steps': 10 ** 15}):
        learner = make_learner(**{'learning_rate': 0.01, **change})
        before = learner.network.policy_tensors()
        learner.update([random_chunk(1)])
        for name, tensor in learner.network.policy_tensors().items():
            np.testing.assert_allclose(tensor, before[name], atol=1e-9)


def test_target_kl_stops_and_says_how_many_epochs_there_were():
    free = make_learner(learning_rate=0.01, epochs=6)
    assert free.update([random_chunk(1)])['epochs'] == 6.0
    stopped = make_learner(learning_rate=0.01, epochs=6, target_kl=1e-4)
    metrics = stopped.update([random_chunk(1)])
    assert metrics['epochs'] == 1.0 and metrics['kl'] > 1e-4
    assert stopped.gradient_steps == 2 and stopped.policy_version == 1
    patient = make_learner(learning_rate=0.01, epochs=6, target_kl=100.0)
    assert patient.update([random_chunk(1)])['epochs'] == 6.0


@pytest.mark.parametrize('name, argument', [('clip', 2), ('entropy', None)])
def test_linear_schedules_end_at_zero(name, argument, monkeypatch):
    asked = []
    original = losses.clipped_objective

    def noted(ratio, advantage, clip_ratio, dual_clip):
        asked.append(clip_ratio)
        return original(ratio, advantage, clip_ratio, dual_clip)

    monkeypatch.setattr(losses, 'clipped_objective', noted)
    learner = make_learner(env_steps=2 * STEPS, epochs=1, minibatch_size=STEPS,
                           **{f'{name}_schedule': 'linear'})
    learner._steps = TorchSteps(learner.network, learner.optimizer, learner.ppo)
    factors = []
    for seed in range(3):
        factors.append(learner._schedule(getattr(learner.ppo, f'{name}_schedule')))
        learner.update([random_chunk(seed)])
    assert factors == [1.0, 0.5, 0.0]
    expected = [0.2, 0.1, 0.0] if name == 'clip' else [0.2, 0.2, 0.2]
    np.testing.assert_allclose(asked, expected)


def test_the_entropy_bonus_fades():
    """With nothing else to learn, the bonus alone moves log σ, and at the end it does not."""
    moved = []
    for schedule in ('constant', 'linear'):
        learner = make_learner(env_steps=STEPS, epochs=1, minibatch_size=STEPS,
                               learning_rate=0.01, entropy_coefficient=1.0,
                               entropy_schedule=schedule, value_coefficient=0.0,
                               normalize_advantage=False)
        learner.env_steps = STEPS
        still = dataclasses.replace(random_chunk(0), reward=np.zeros((8, 4), np.float32))
        learner._values = lambda *_: np.zeros(_[0].shape[:-1], np.float32)
        before = learner.network.log_std.detach().clone()
        learner.update([still])
        moved.append(float((learner.network.log_std - before).abs().max().detach()))
    assert moved[0] > 1e-3 and moved[1] == 0.0


def test_advantages_are_estimated_again_with_the_critic_as_it_then_is(monkeypatch):
    targets = {True: [], False: []}
    original = Learner._samples

    def noted(self, *arguments):
        samples = original(self, *arguments)
        targets[self.ppo.recompute_advantages].append(samples.target.clone())
        return samples

    monkeypatch.setattr(Learner, '_samples', noted)
    for again in (True, False):
        learner = make_learner(learning_rate=0.01, epochs=3, recompute_advantages=again)
        learner.update([random_chunk(1)])
    assert len(targets[False]) == 1 and len(targets[True]) == 3
    torch.testing.assert_close(targets[True][0], targets[False][0], rtol=0.0, atol=0.0)
    for before, after in zip(targets[True], targets[True][1:]):
        assert float((after - before).abs().max()) > 1e-4


def test_dual_clip_above_a_lag_bounds_old_samples_alone():
    hit = {}
    for version in (0, 3):
        learner = make_learner(objective='clipped', epochs=1, minibatch_size=STEPS,
                               dual_clip_above_lag=2)
        learner.policy_version = version
        metrics = learner.update([aged(learner, random_chunk(1), 2.0)])
        hit[version] = metrics['dual_clip_fraction']
    # Ratio e² > c: the bad samples, about half of them, of the chunk that is 3 versions old.
    assert hit[0] == 0.0 and 0.2 < hit[3] < 0.8


def collected(learner, snapshot=None):
    rollout = Rollout(CountingEnvironment([5, 7, 9, 40]), 8, seed=0)
    return rollout.collect(snapshot or learner.snapshot(), Stamp(1, 0, 1, 0))


def with_statistics():
    learner = make_learner(learning_rate=0.01)
    for _ in range(2):
        learner.update([collected(learner)])
    return learner


def test_ratio_of_newer_weights_alone():
    learner = with_statistics()
    chunk = collected(learner)
    learner.update([random_chunk(5)])  # not published: its statistics are only pending
    metrics = learner.update([chunk])
    assert metrics['normalizer_drift_log_ratio'] == 0.0
    # All of |log ratio| is of the weights.
    assert metrics['weight_lag_log_ratio'] == pytest.approx(metrics['first_abs_log_ratio_mean'],
                                                            rel=1e-4)
    assert metrics['weight_lag_log_ratio'] > 1e-3 and metrics['parameter_distance'] > 1e-3


def test_ratio_of_a_newer_normalizer_alone():
    learner = with_statistics()
    chunk = collected(learner)
    rows = np.random.default_rng(0).normal(5.0, 30.0, (500, 3)).astype(np.float32)
    learner.pending_normalizer.merge(rows)
    learner.policy_version += 1
    learner.snapshot()
    metrics = learner.update([chunk])
    assert metrics['weight_lag_log_ratio'] < 1e-4 and metrics['parameter_distance'] == 0.0
    assert metrics['normalizer_drift_log_ratio'] > 1e-3
    assert metrics['normalizer_drift_log_ratio'] == pytest.approx(
        metrics['first_abs_log_ratio_mean'], rel=1e-2)


def test_the_split_is_exact():
    """Both changed: recomputed here from the two snapshots, by the definition."""
    learner = with_statistics()
    old = learner.snapshot()
    chunk = collected(learner, old)
    learner.update([random_chunk(5)])
    new = learner.snapshot()
    assert not np.array_equal(old.artefact.tensors['normalizer.mean'],
                              new.artefact.tensors['normalizer.mean'])
    metrics = learner.update([chunk])

    def log_prob(weights, statistics):
        from asyncppo_ros.robot.artefact import Artefact
        from asyncppo_ros.robot.numpy_policy import gaussian_log_prob, NumpyPolicy
        mixed = {**weights.artefact.tensors,
                 **{name: tensor for name, tensor in statistics.artefact.tensors.items()
                    if name.startswith('normalizer')}}
        policy = NumpyPolicy(Artefact(weights.artefact.card, mixed))
        mean = policy.head(chunk.observation[:-1].reshape(-1, 3))
        return gaussian_log_prob((chunk.action.reshape(-1, 2) - mean) / policy.std,
                                 policy.log_std)

    behaviour = chunk.behaviour_log_prob.reshape(-1)
    by_weights = np.abs(log_prob(new, old) - behaviour).mean()
    by_normalizer = np.abs(log_prob(new, new) - log_prob(new, old)).mean()
    assert metrics['weight_lag_log_ratio'] == pytest.approx(by_weights, rel=1e-3)
    assert metrics['normalizer_drift_log_ratio'] == pytest.approx(by_normalizer, rel=1e-3)
    distance = math.sqrt(sum(((new.artefact.tensors[name] - tensor).astype(np.float64) ** 2).sum()
                             for name, tensor in old.artefact.tensors.items()
                             if not name.startswith('normalizer')))
    assert metrics['parameter_distance'] == pytest.approx(distance, rel=1e-4)


def test_of_a_policy_that_is_not_remembered_nothing_is_said():
    learner = make_learner()
    metrics = learner.update([random_chunk(1, generation=7)])
    assert 'weight_lag_log_ratio' not in metrics and 'parameter_distance' not in metrics


def test_rates_of_clipping_and_ratio_of_a_batch_by_hand():
    learner = make_learner(objective='clipped', epochs=1, minibatch_size=STEPS)
    log_ratio = np.zeros((8, 4), np.float32)
    log_ratio[:4] = 2.0
    metrics = learner.update([aged(learner, random_chunk(1), log_ratio)])
    assert metrics['ratio_max'] == pytest.approx(math.exp(2.0), rel=1e-3)
    assert metrics['first_abs_log_ratio_max'] == pytest.approx(2.0, rel=1e-3)
    assert metrics['first_abs_log_ratio_mean'] == pytest.approx(1.0, rel=1e-3)
    # Of the half at ratio e²: good samples are clipped, bad ones hit the dual clip.
    assert metrics['clip_fraction'] + metrics['dual_clip_fraction'] == pytest.approx(0.5)
    kl = (np.exp(log_ratio) - 1.0 - log_ratio).mean()
    assert metrics['approx_kl'] == pytest.approx(kl, rel=1e-3)


@pytest.mark.parametrize('settings', [
    {}, {'objective': 'clipped'}, {'objective': 'misread_dual_clip'}, {'dual_clip': 0.0},
    {'dual_clip_above_lag': 0}, {'recompute_advantages': True}, {'ess_learning_rate': True},
    {'schedule': 'adaptive'}, {'target_kl': 0.01}, {'normalize_return': False},
    {'normalize_advantage': False}, {'clip_schedule': 'linear', 'entropy_schedule': 'linear',
                                     'entropy_coefficient': 0.01, 'warmup_steps': 100}],
    ids=lambda settings: ' '.join(f'{name}={value}' for name, value in settings.items()) or '-')
def test_every_metric_is_finite_and_described(settings):
    learner = make_learner(**settings)
    chunks = [collected(learner), random_chunk(2)]
    for _ in range(2):
        metrics = learner.update(chunks)
        assert metrics.keys() <= METRICS.keys()
        assert all(math.isfinite(value) for value in metrics.values())
    assert {'kl', 'approx_kl', 'behaviour_kl', 'clip_fraction', 'dual_clip_fraction',
            'explained_variance', 'gradient_norm', 'effective_sample_share',
            'weight_lag_log_ratio', 'normalizer_drift_log_ratio',
            'parameter_distance'} <= metrics.keys()

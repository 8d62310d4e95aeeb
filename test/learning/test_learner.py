"""The update: fresh data has ratio 1, the truncation bootstraps, a NaN changes nothing."""

import dataclasses

import numpy as np
import pytest
import torch
from toys import CountingEnvironment, random_chunk, TASK

from asyncppo_ros.acting.rollout import Rollout, Stamp
from asyncppo_ros.config import Config, LearnerConfig, PpoConfig
from asyncppo_ros.learning.learner import BadBatch, Learner
from asyncppo_ros.learning.transitions import estimate, Segment


def make_learner(seed=0, env_steps=10_000, **ppo):
    ppo = {'minibatch_size': 64, 'epochs': 2, **ppo}
    config = Config(seed=seed, env_steps=env_steps,
                    learner=LearnerConfig(batch_size=64, ppo=PpoConfig(**ppo)))
    return Learner(config, TASK, 3, 2, run_id=1)


def segment_of(chunk):
    """Give a chunk whose observations need no normalization."""
    return Segment(chunk, 0, torch.from_numpy(chunk.observation),
                   torch.from_numpy(chunk.final_observation),
                   torch.from_numpy(chunk.critic_observation),
                   torch.from_numpy(chunk.final_critic_observation))


def fresh_chunks(learner, count=2):
    rollout = Rollout(CountingEnvironment([5, 7, 9, 40]), 16, seed=0)
    snapshot = learner.snapshot()
    return [rollout.collect(snapshot, Stamp(1, 0, 1, index)) for index in range(count)]


def test_at_zero_lag_the_first_ratio_is_one():
    learner = make_learner()
    for _ in range(5):
        metrics = learner.update(fresh_chunks(learner))
        assert metrics['first_abs_log_ratio_max'] <= 1e-3
        assert abs(metrics['behaviour_kl']) <= 1e-5
    assert learner.policy_version == 5
    assert learner.gradient_steps == 5 * 2 * 2
    assert learner.env_steps == 5 * 2 * 64


def test_what_lag_has_done_is_measured_exactly():
    learner = make_learner()
    chunks = fresh_chunks(learner)
    learner.update([random_chunk(1)])
    metrics = learner.update(chunks)
    # One update of lag: the ratio is not 1 any more, and the KL is that of the two Gaussians.
    assert metrics['first_abs_log_ratio_max'] > 1e-3
    assert metrics['behaviour_kl'] > 1e-6


def test_normalizer_changes_at_publication_only():
    learner = make_learner()
    chunks = fresh_chunks(learner)
    before = learner.normalizer.mean.copy()
    learner.update(chunks)
    np.testing.assert_array_equal(learner.normalizer.mean, before)
    snapshot = learner.snapshot()
    rows = np.concatenate([chunk.observation[:-1].reshape(-1, 3) for chunk in chunks])
    np.testing.assert_allclose(learner.normalizer.mean, rows.mean(0), rtol=1e-6)
    assert learner.normalizer.count == len(rows)
    np.testing.assert_array_equal(snapshot.artefact.tensors['normalizer.mean'],
                                  learner.normalizer.mean)


def test_updates_are_reproducible():
    first, second, other = make_learner(), make_learner(), make_learner(seed=1)
    chunks = [random_chunk(seed) for seed in range(3)]
    metrics = [learner.update(chunks) for learner in (first, second, other)]
    assert metrics[0] == metrics[1] != metrics[2]
    assert first.snapshot().data == second.snapshot().data


def test_truncation_bootstraps_from_its_own_final_observation():
    chunk = random_chunk()
    value_of = lambda observation, _critic: observation.sum(-1).numpy()  # noqa: E731

    def advantage(changed):
        return estimate([segment_of(changed)], value_of, 0.9, 0.0).advantage.view(8, 4)

    base = advantage(chunk)
    shifted = advantage(dataclasses.replace(
        chunk, final_observation=chunk.final_observation + 1.0))
    difference = (shifted - base).numpy()
    # Only the truncated step (4, 0) sees it: γ · 3 observations · 1.
    expected = np.zeros((8, 4))
    expected[4, 0] = 0.9 * 3.0
    np.testing.assert_allclose(difference, expected, atol=1e-5)


def test_terminated_step_has_no_bootstrap():
    chunk = random_chunk()
    value_of = lambda observation, _critic: 100.0 + observation.sum(-1).numpy()  # noqa: E731
    joined = estimate([segment_of(chunk)], value_of, 0.9, 0.0)
    td = joined.advantage.view(8, 4)[4, 1]
    value = joined.value.view(8, 4)[4, 1]
    assert float(td) == pytest.approx(float(chunk.reward[4, 1] - value), abs=1e-3)


@pytest.mark.parametrize('field', ['observation', 'reward', 'action', 'behaviour_log_prob'])
def test_a_nan_anywhere_changes_nothing(field):
    learner = make_learner()
    learner.update([random_chunk(1)])
    before = learner.snapshot()
    poisoned = getattr(random_chunk(2), field).copy()
    poisoned.reshape(-1)[5] = np.nan
    with pytest.raises(BadBatch):
        learner.update([dataclasses.replace(random_chunk(2), **{field: poisoned})])
    after = learner.snapshot()
    assert learner.bad_batches == 1
    assert after.identity == before.identity and after.gradient_steps == before.gradient_steps
    for name, tensor in before.artefact.tensors.items():
        np.testing.assert_array_equal(after.artefact.tensors[name], tensor)
    metrics = learner.update([random_chunk(3)])
    assert all(np.isfinite(value) for value in metrics.values())


def test_learning_rate_falls_linearly_to_zero():
    learner = make_learner(env_steps=96, schedule='linear', learning_rate=0.01)
    rates = [learner.update([random_chunk(seed)])['learning_rate'] for seed in range(3)]
    np.testing.assert_allclose(rates, [0.01, 0.01 * 2 / 3, 0.01 / 3])


def test_adaptive_learning_rate_holds_the_kl():
    learner = make_learner(schedule='adaptive', learning_rate=1e-6, desired_kl=0.02)
    for seed in range(40):
        metrics = learner.update([random_chunk(seed)])
    assert metrics['learning_rate'] > 1e-5
    fast = make_learner(schedule='adaptive', learning_rate=0.01, desired_kl=1e-6)
    assert fast.update([random_chunk(0)])['learning_rate'] < 0.01


def test_asked_to_stop_the_update_ends_early_and_counts():
    learner = make_learner(epochs=50)
    learner.update([random_chunk(1)], should_stop=lambda: learner.gradient_steps >= 3)
    assert learner.gradient_steps == 3 and learner.policy_version == 1


def test_learning_moves_towards_rewarded_actions():
    learner = make_learner(epochs=5, learning_rate=0.01, schedule='constant')
    start = learner.network.policy_tensors()['policy.2.bias'].copy()
    for seed in range(10):
        chunk = random_chunk(seed)
        chunk = dataclasses.replace(chunk, reward=chunk.action[..., 0].copy())
        learner.update([chunk])
    assert learner.network.policy_tensors()['policy.2.bias'][0] > start[0] + 0.1


def test_cuda_without_a_gpu_is_one_line():
    if torch.cuda.is_available():
        pytest.skip('a CUDA GPU is here')
    with pytest.raises(Exception, match='learner.device = cuda: torch finds no CUDA GPU'):
        Learner(Config(learner=LearnerConfig(device='cuda')), TASK, 3, 2, 1)


def test_at_zero_lag_both_objectives_are_one():
    updated = []
    for objective in ('clipped', 'decoupled'):
        learner = make_learner(objective=objective)
        for _ in range(2):
            learner.update(fresh_chunks(learner))
        updated.append(learner.network.policy_tensors())
    for name, tensor in updated[0].items():
        np.testing.assert_allclose(tensor, updated[1][name], atol=1e-4)


def test_with_lag_the_decoupled_update_goes_further():
    """The first gradient of samples beyond the clip around an old policy is not lost."""
    moved = {}
    for objective in ('clipped', 'decoupled'):
        learner = make_learner(objective=objective, epochs=1, minibatch_size=10 ** 6)
        chunk = random_chunk(3)
        # The policy that acted found every action a third less likely than the present one.
        log_prob = learner.network.distribution.log_prob(
            learner.network.parameters_of(torch.from_numpy(chunk.observation[:-1])),
            torch.from_numpy(chunk.action)).detach().numpy()
        chunk = dataclasses.replace(chunk, behaviour_log_prob=log_prob - 0.4)
        metrics = learner.update([chunk])
        moved[objective] = metrics['clip_fraction']
        assert metrics['first_abs_log_ratio_max'] == pytest.approx(0.4, abs=1e-5)
    assert moved['decoupled'] == 0.0 and moved['clipped'] > 0.3

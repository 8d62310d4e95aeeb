"""Every way a NaN or an infinity may come in: it is found, named, counted, and leaves no trace."""

import copy
import dataclasses
import math

import numpy as np
import pytest
import safetensors.numpy
from test_training_loop import DirectSource, Published
import torch
from toys import CountingEnvironment, random_chunk, TASK

from asyncppo_ros.acting.rollout import Rollout, Stamp
from asyncppo_ros.chunk import ARRAYS, Identity
from asyncppo_ros.config import Config, LearnerConfig, PolicyConfig, PpoConfig
from asyncppo_ros.errors import ArtefactError, PolicyError, RunError
from asyncppo_ros.learning import checkpoint
from asyncppo_ros.learning.checkpoint import load_checkpoint, save_checkpoint
from asyncppo_ros.learning.learner import BadBatch, Learner
from asyncppo_ros.learning.training import Training
from asyncppo_ros.policy.normalizer import RunningMoments, ScalarScale
from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.robot.numpy_policy import normalizer_arrays, NumpyPolicy
from asyncppo_ros.run import create

FLOATS = [name for name, dtype, _ in ARRAYS if dtype == '<f4']
LARGEST = float(np.finfo(np.float32).max)


def make_learner(policy=None, gradients='auto', **ppo):
    ppo = {'minibatch_size': 16, 'epochs': 2, 'schedule': 'constant', **ppo}
    config = Config(env_steps=10_000, policy=policy or PolicyConfig(),
                    learner=LearnerConfig(gradients=gradients, ppo=PpoConfig(**ppo)))
    return Learner(config, TASK, 3, 2, run_id=1, critic_size=2)


def full_chunk(seed=0):
    """Make a chunk in which every field has numbers."""
    return random_chunk(seed, critic_size=2, value_size=1)


def poisoned(name, value, seed=2):
    chunk = full_chunk(seed)
    array = getattr(chunk, name).copy()
    array.flat[-1] = value
    return dataclasses.replace(chunk, **{name: array})


def state_of(learner):
    """Give everything that an update changes and that must not change with a refused one."""
    return copy.deepcopy((
        [tensor.tolist() for tensor in learner.network.state_dict().values()],
        [{name: tensor.tolist() for name, tensor in slot.items()}
         for slot in learner.optimizer.state_dict()['state'].values()],
        [(moments.mean.tolist(), moments.variance.tolist(), moments.count) for moments in (
            learner.normalizer, learner.pending_normalizer, learner.critic_normalizer,
            learner.pending_critic_normalizer)],
        vars(learner.value_scale), learner.identity, learner.gradient_steps,
        learner.learning_rate, learner.learning_rate_scale))


def refused(learner, chunks, words):
    """Let an update be refused, by these words, without a trace; give how it is counted."""
    before, bad = state_of(learner), learner.bad_batches
    with pytest.raises(BadBatch, match=words):
        learner.update(chunks)
    assert state_of(learner) == before and learner.bad_batches == bad + 1
    # What follows is as if nothing had been.
    assert all(map(math.isfinite, learner.update([full_chunk(9)]).values()))
    return learner


# ---- samples: a learner in the same process has no check of messages before it


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize('name', FLOATS)
def test_a_sample_is_named_with_its_sender(name, value):
    learner = make_learner()
    learner.update([full_chunk(1)])
    chunk = dataclasses.replace(poisoned(name, value), actor_id=5, sequence=17)
    refused(learner, [full_chunk(3), chunk], f'^{name} of chunk 17 of actor 5 has a NaN or an')


def test_an_infinite_observation_is_not_hidden_by_the_clip():
    """Normalized, ∞ would be clipped to 10 and pass; in the statistics it would stay for ever."""
    learner = make_learner()
    refused(learner, [poisoned('observation', np.inf)], 'observation')
    assert np.isfinite(learner.snapshot().artefact.tensors['normalizer.variance']).all()


def test_huge_samples_are_refused_or_survived():
    for name in ('observation', 'critic_observation', 'final_observation', 'reward'):
        for value in (1e30, -LARGEST):
            learner = make_learner()
            learner.update([full_chunk(1)])
            try:
                metrics = learner.update([poisoned(name, value)])
            except BadBatch:
                continue
            assert all(map(math.isfinite, metrics.values())), (name, value)
            for tensor in learner.snapshot().artefact.tensors.values():
                assert np.isfinite(tensor).all()
            assert all(map(math.isfinite, learner.update([full_chunk(3)]).values()))


def test_advantages_beyond_float32_are_refused_by_name():
    refused(make_learner(), [poisoned('reward', LARGEST)], '= (nan|inf|-inf)')


def test_behaviour_parameters_of_a_liar_are_refused():
    """Finite, but their KL is not."""
    refused(make_learner(), [poisoned('behaviour_parameters', 1e4)], 'behaviour_kl = inf')


# ---- the step itself


def spoil(learner, monkeypatch, at):
    """Let the gradient of the n-th gradient step from now be NaN."""
    steps = iter(range(10 ** 6))
    original = torch.nn.utils.clip_grad_norm_

    def swapped(parameters, *arguments):
        if next(steps) == at:
            learner.network.log_std.grad.fill_(np.nan)
        return original(parameters, *arguments)

    monkeypatch.setattr(torch.nn.utils, 'clip_grad_norm_', swapped)


def spoil_by_hand(learner, monkeypatch, at):
    """Do the same where the derivative is written out."""
    steps = iter(range(10 ** 6))
    original = learner._steps._value_gradient

    def swapped(*arguments):
        loss = original(*arguments)
        if next(steps) == at:
            learner._steps.gradient[-1] = np.nan
        return loss

    monkeypatch.setattr(learner._steps, '_value_gradient', swapped)


@pytest.mark.parametrize('at', [0, 1, 3])
@pytest.mark.parametrize('gradients, spoiling', [('torch', spoil), ('numpy', spoil_by_hand)])
def test_a_gradient_that_is_not_finite_undoes_all_steps_of_the_update(gradients, spoiling, at,
                                                                      monkeypatch):
    learner = make_learner(gradients=gradients)
    learner.update([full_chunk(1)])
    spoiling(learner, monkeypatch, at)
    refused(learner, [full_chunk(2)], 'gradient_norm = nan')


def test_an_infinite_step_of_a_finite_gradient_is_undone():
    """All numbers of the losses are finite; it is the last step that loses the weights."""
    learner = make_learner(epochs=1, minibatch_size=10 ** 6)
    learner.update([full_chunk(1)])
    learner.learning_rate = math.inf
    before = state_of(learner)
    with pytest.raises(BadBatch, match='kl = nan|weights or moments of the optimizer'):
        learner.update([full_chunk(2)])
    assert state_of(learner) == before


def test_a_critic_lost_by_the_last_step_is_found():
    """Neither the losses nor the KL of the policy see it: only the look at the weights does."""
    learner = make_learner(epochs=1, minibatch_size=10 ** 6)

    def lose():
        with torch.no_grad():
            learner.network.critic[0].bias[0] = np.inf

    learner.after_gradient_step = lose
    before = state_of(learner)
    with pytest.raises(BadBatch, match='weights or moments of the optimizer are not finite'):
        learner.update([full_chunk(2)])
    assert state_of(learner) == before


def test_moments_of_the_optimizer_are_looked_at():
    learner = make_learner(epochs=1, minibatch_size=10 ** 6)

    def lose():
        learner.optimizer.state[learner.network.log_std]['exp_avg_sq'][0] = np.nan

    learner.after_gradient_step = lose
    with pytest.raises(BadBatch, match='moments of the optimizer'):
        learner.update([full_chunk(2)])
    learner.after_gradient_step = lambda: None
    assert all(map(math.isfinite, learner.update([full_chunk(2)]).values()))


def test_a_metric_that_is_not_finite_is_a_bad_batch(monkeypatch):
    monkeypatch.setattr('asyncppo_ros.learning.losses.explained_variance', lambda *_: math.nan)
    with pytest.raises(BadBatch, match='^explained_variance = nan$'):
        make_learner().update([full_chunk(2)])


# ---- clamps


@pytest.mark.parametrize('bound, sign', [(-5.0, 1.0), (1.0, -1.0)])
def test_log_std_comes_back_from_its_clamps(bound, sign):
    """Beyond its bounds its gradient is 0: momentum must not carry it there for ever."""
    learner = make_learner()
    with torch.no_grad():
        learner.network.log_std.fill_(bound - sign * 3.0)
    learner.update([full_chunk(1)])
    assert float(learner.network.log_std.detach().min()) >= -5.0
    assert float(learner.network.log_std.detach().max()) <= 1.0
    pull = make_learner(entropy_coefficient=sign if sign > 0.0 else 0.0, learning_rate=0.01)
    with torch.no_grad():
        pull.network.log_std.fill_(bound - sign * 1e-3)
    for seed in range(4):
        pull.update([full_chunk(seed)])
    assert sign * (float(pull.network.log_std.detach().mean()) - bound) > 1e-3


@pytest.mark.parametrize('log_std', [-20.0, 2.0])
def test_extreme_deviations_give_finite_updates(log_std):
    policy = PolicyConfig(min_log_std=-20.0, max_log_std=5.0, initial_log_std=log_std
                          if log_std > -5.0 else -5.0)
    learner = make_learner(policy=policy)
    with torch.no_grad():
        learner.network.log_std.fill_(log_std)
    chunk = Rollout(CountingEnvironment([5, 7, 9, 40]), 8, seed=0).collect(
        learner.snapshot(), Stamp(1, 0, 1, 0))
    chunk = dataclasses.replace(
        chunk, critic_observation=np.zeros((9, 4, 2), np.float32),
        final_critic_observation=np.zeros((len(chunk.final_index), 2), np.float32))
    assert all(map(math.isfinite, learner.update([chunk]).values()))


def test_ratios_of_any_lag_are_clamped():
    """However unlikely the old policy found its actions, the update is finite."""
    for objective in ('clipped', 'decoupled', 'misread_dual_clip'):
        learner = make_learner(objective=objective, dual_clip=0.0)
        for shift in (-1e30, 1e30):
            chunk = full_chunk(1)
            chunk = dataclasses.replace(
                chunk, behaviour_log_prob=chunk.behaviour_log_prob + np.float32(shift))
            metrics = learner.update([chunk])
            assert all(map(math.isfinite, metrics.values()))
            assert metrics['ratio_max'] <= math.exp(20.0) * 1.0001


# ---- statistics


def test_statistics_are_in_float64_and_take_the_largest_float32():
    moments = RunningMoments(2)
    assert moments.mean.dtype == moments.variance.dtype == np.float64
    moments.merge(np.array([[1e30, LARGEST], [-1e30, -LARGEST]], np.float32))
    moments.merge(np.ones((3, 2), np.float32))
    assert np.isfinite(moments.mean).all() and np.isfinite(moments.variance).all()
    shift, scale = normalizer_arrays(moments.mean, moments.variance, moments.count)
    assert np.isfinite(shift).all() and (scale > 0.0).all()


def test_a_small_spread_far_from_zero_is_not_lost():
    """In float32 the variance of 1e4 ± 1e-2 would be noise, or negative."""
    rows = (1e4 + 1e-2 * np.random.default_rng(0).normal(size=(4000, 1))).astype(np.float32)
    moments = RunningMoments(1)
    for piece in np.split(rows, 40):
        moments.merge(piece)
    assert moments.variance[0] == pytest.approx(rows.astype(np.float64).var(), rel=1e-6)


@pytest.mark.filterwarnings('ignore:invalid value')
@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_statistics_refuse_what_would_spoil_them(value):
    moments = RunningMoments(2)
    moments.merge(np.ones((3, 2), np.float32))
    with pytest.raises(ValueError, match='must be finite'):
        moments.merge(np.array([[1.0, value]], np.float32))
    assert moments.count == 3.0 and (moments.mean == 1.0).all()


def test_scale_of_values_takes_huge_and_equal_values():
    scale = ScalarScale()
    scale.merge(np.full(10, 7.0, np.float32))
    # A deviation of 0 would be divided by.
    assert scale.std == 1e-4
    scale.merge(np.array([LARGEST, -LARGEST], np.float32))
    assert math.isfinite(scale.mean) and math.isfinite(scale.std)


# ---- policies: neither written, nor believed, nor acted on


def lost_policy(learner):
    with torch.no_grad():
        learner.network.policy[0].weight[0, 0] = np.nan
    return learner


def test_a_lost_policy_is_not_published():
    learner = lost_policy(make_learner())
    with pytest.raises(BadBatch, match='weights of the policy are not finite'):
        learner.snapshot()


def test_an_artefact_that_is_not_finite_is_not_written():
    snapshot = make_learner().snapshot()
    for name in snapshot.artefact.tensors:
        tensors = {key: tensor.copy() for key, tensor in snapshot.artefact.tensors.items()}
        tensors[name].flat[-1] = np.inf
        with pytest.raises(ArtefactError, match=f'tensor {name} is not finite'):
            PolicySnapshot.make(snapshot.card, tensors)


def huge_policy():
    """Make a policy of finite weights whose output is not finite."""
    learner = make_learner(policy=PolicyConfig(hidden_sizes=(8,), activation='relu'))
    with torch.no_grad():
        for layer in (learner.network.policy[0], learner.network.policy[2]):
            layer.weight.fill_(1e30)
    learner.policy_version = 6
    return learner.snapshot()


@pytest.mark.filterwarnings('ignore:overflow', 'ignore:invalid value')
def test_an_action_that_is_not_finite_is_named_and_reaches_nobody():
    snapshot = huge_policy()
    environment = CountingEnvironment([5, 7])
    rollout = Rollout(environment, 4, seed=0)
    words = 'policy of generation 0, version 6: gives .*(inf|nan).* of environment [01]$'
    with pytest.raises(PolicyError, match=words):
        rollout.collect(snapshot, Stamp(1, 0, 1, 0))
    assert environment.actions == []
    with pytest.raises(PolicyError, match=words):
        NumpyPolicy(snapshot.artefact).act(np.ones((2, 3), np.float32))


def test_an_observation_that_is_not_finite_gives_no_action():
    policy = NumpyPolicy(make_learner().snapshot().artefact)
    observation = np.ones((3, 3), np.float32)
    observation[1, 2] = np.nan
    with pytest.raises(PolicyError, match=r'the observation \[1\.0, 1\.0, nan\] of environment 1'):
        policy.act(observation)


# ---- checkpoints and the training loop


def test_a_checkpoint_that_is_not_finite_is_neither_written_nor_read(tmp_path):
    good = make_learner()
    path = save_checkpoint(tmp_path, good)
    data = path.read_bytes()
    with pytest.raises(ArtefactError, match=r'tensor network\.policy\.0\.weight is not finite'):
        save_checkpoint(tmp_path, lost_policy(make_learner()))
    lost = make_learner()
    lost.value_scale.mean = math.inf
    with pytest.raises(ArtefactError, match='tensor value_scale is not finite'):
        save_checkpoint(tmp_path, lost)
    assert path.read_bytes() == data
    tensors = safetensors.numpy.load(data)
    tensors['pending.mean'] = np.full_like(tensors['pending.mean'], np.nan)
    metadata = {'state': _state_text(data)}
    path.write_bytes(safetensors.numpy.save(tensors, metadata))
    with pytest.raises(RunError, match=r'damaged \(tensor pending\.mean is not finite\)'):
        load_checkpoint(tmp_path, make_learner())


def _state_text(data):
    from asyncppo_ros.robot.artefact import parse_safetensors
    return parse_safetensors(data)[0]['state']


@pytest.fixture
def make_training(tmp_path):
    def build(chunks, **learner):
        ppo = PpoConfig(minibatch_size=16, epochs=1, learning_rate=0.01, schedule='constant')
        config = Config(task='toy', env_steps=10 ** 6, run_dir=str(tmp_path / 'run'),
                        learner=LearnerConfig(ppo=ppo, publish_max_hz=1000.0, **learner))
        run, config = create(config)
        warnings = []
        training = Training(config, run, Learner(config, TASK, 3, 2, 1, critic_size=2),
                            DirectSource(chunks), Published(), [], warnings.append)
        return training, warnings
    return build


def test_without_a_checkpoint_what_was_before_goes_on(make_training):
    bad = [poisoned('reward', np.inf, seed) for seed in range(2)]
    training, warnings = make_training([full_chunk(0), *bad, full_chunk(4)], max_bad_batches=2)
    assert training.step(0.0)
    before = training.learner.network.policy_tensors()
    assert not training.step(0.0) and not training.step(0.0)
    learner = training.learner
    assert learner.identity == Identity(1, 1)
    assert learner.learning_rate_scale == pytest.approx(1.0 / 3.0)
    assert 'nothing to restore (no checkpoint in' in warnings[-1]
    assert 'goes on as generation 1, step size divided by 3' in warnings[-1]
    for name, tensor in learner.network.policy_tensors().items():
        np.testing.assert_array_equal(tensor, before[name])
    assert training.step(0.0) and learner.identity == Identity(1, 2)


def test_a_damaged_checkpoint_does_not_end_the_training(make_training):
    bad = [poisoned('reward', np.inf, seed) for seed in range(2)]
    training, warnings = make_training([full_chunk(0), *bad, full_chunk(4)], max_bad_batches=2)
    training.step(0.0)
    training.save()
    path = training.run.checkpoint / checkpoint.FILE
    path.write_bytes(path.read_bytes()[:1000])
    assert not training.step(0.0) and not training.step(0.0)
    assert 'damaged' in warnings[-1]
    assert training.step(0.0) and training.learner.identity == Identity(1, 2)


def test_the_step_size_falls_with_every_restore_and_the_next_learner_knows(make_training):
    bad = [poisoned('reward', np.inf, seed) for seed in range(4)]
    training, _ = make_training([full_chunk(0), *bad, full_chunk(5)], max_bad_batches=2)
    training.step(0.0)
    training.save()
    for _ in range(4):
        assert not training.step(0.0)
    assert training.step(0.0)
    assert training.row['learning_rate'] == pytest.approx(0.01 / 9.0)
    assert training.row['bad_batches'] == 4 and training.learner.generation == 2
    training.save()
    twin = Learner(training.config, TASK, 3, 2, 1, critic_size=2)
    load_checkpoint(training.run.checkpoint, twin)
    assert twin.learning_rate_scale == pytest.approx(1.0 / 9.0) and twin.bad_batches == 4
    for tensor in safetensors.numpy.load((training.run.checkpoint / checkpoint.FILE)
                                         .read_bytes()).values():
        assert np.isfinite(tensor).all()


def test_a_lost_state_is_told_instead_of_written(make_training):
    training, warnings = make_training([full_chunk(0)])
    training.step(0.0)
    training.save()
    good = (training.run.checkpoint / checkpoint.FILE).read_bytes()
    lost_policy(training.learner)
    training.save()
    assert 'NO CHECKPOINT WRITTEN' in warnings[-1]
    assert 'tensor network.policy.0.weight is not finite' in warnings[-1]
    assert (training.run.checkpoint / checkpoint.FILE).read_bytes() == good

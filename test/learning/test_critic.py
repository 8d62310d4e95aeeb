"""The critic: what it alone sees, and whose values advantages are made of."""

import dataclasses

import numpy as np
import pytest
import torch
from toys import CountingEnvironment, PrivilegedEnvironment, random_chunk, TASK

from asyncppo_ros.acting.rollout import Rollout, Stamp
from asyncppo_ros.config import Config, LearnerConfig, PpoConfig
from asyncppo_ros.learning import losses
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.learning.transitions import raw_critic_observations


def make_learner(critic_size=2, value_source='learner', gae_lambda=0.95, **ppo):
    ppo = {'minibatch_size': 32, 'epochs': 2, 'learning_rate': 0.01, **ppo}
    config = Config(learner=LearnerConfig(
        batch_size=64, value_source=value_source, gae_lambda=gae_lambda, ppo=PpoConfig(**ppo)))
    return Learner(config, TASK, 3, 2, run_id=1, critic_size=critic_size)


def collected(learner, environment=PrivilegedEnvironment, count=2):
    rollout = Rollout(environment([5, 7, 9, 40]), 16, 0, values=True)
    snapshot = learner.snapshot()
    return [rollout.collect(snapshot, Stamp(1, 0, 1, index)) for index in range(count)]


def with_source(learner, value_source):
    settings = dataclasses.replace(learner.config.learner, value_source=value_source)
    learner.config = dataclasses.replace(learner.config, learner=settings)
    return learner


def advantages(learner, chunks):
    return learner._estimate([learner._segment(chunk) for chunk in chunks]).advantage.numpy()


# What only the critic sees


def test_only_the_critic_sees_it():
    learner = make_learner()
    chunk = random_chunk(0, critic_size=2)
    shifted = dataclasses.replace(chunk, critic_observation=chunk.critic_observation + 1.0,
                                  final_critic_observation=chunk.final_critic_observation + 1.0)
    segments = [learner._segment(one) for one in (chunk, shifted)]
    with torch.no_grad():
        policies = [learner.network.parameters_of(one.observation) for one in segments]
        values = [learner._values(one.observation, one.critic_observation) for one in segments]
        finals = [learner._values(one.final_observation, one.final_critic_observation)
                  for one in segments]
    assert torch.equal(*policies)
    assert np.abs(values[0] - values[1]).min() > 1e-5
    assert np.abs(finals[0] - finals[1]).min() > 1e-5


def test_the_gradient_of_the_value_does_not_reach_the_policy():
    learner = make_learner()
    segment = learner._segment(random_chunk(0, critic_size=2))
    value = learner.network.value(segment.observation, segment.critic_observation)
    losses.value_loss(value, torch.ones_like(value)).mean().backward()
    assert all(parameter.grad is None for parameter in learner.network.policy.parameters())
    assert learner.network.log_std.grad is None
    first = next(learner.network.critic.parameters())
    # Both the columns of the observation and those of the critic's own.
    assert first.grad.abs().sum(dim=0).min() > 0.0 and first.shape[1] == 5


def test_a_critic_learns_what_only_it_can_see():
    # Returns follow from what the critic alone sees: with it the critic explains them.
    def explained(critic_size):
        learner = make_learner(critic_size, epochs=8)
        for seed in range(8):
            chunk = random_chunk(seed, steps=32, critic_size=2)
            chunk.reward[...] = chunk.critic_observation[:-1, :, 0]
            chunk.terminated[...], chunk.truncated[...] = True, False
            chunk = dataclasses.replace(
                chunk, final_index=chunk.final_index[:0],
                final_observation=chunk.final_observation[:0],
                final_critic_observation=chunk.final_critic_observation[:0, :critic_size],
                critic_observation=chunk.critic_observation[..., :critic_size])
            metrics = learner.update([chunk])
            learner.snapshot()
        return metrics['explained_variance']
    assert explained(2) > 0.8
    assert explained(0) < 0.2


def test_its_normalizer_changes_at_publication_only():
    learner = make_learner(value_source='actor')
    chunks = collected(learner)
    learner.update(chunks)
    assert learner.critic_normalizer.count == 0
    learner.snapshot()
    rows = raw_critic_observations(chunks)
    assert rows.shape == (128, 2) and learner.critic_normalizer.count == 128
    np.testing.assert_array_equal(rows[:64], chunks[0].critic_observation[:-1].reshape(-1, 2))
    np.testing.assert_allclose(learner.critic_normalizer.mean, rows.mean(0), rtol=1e-6)
    np.testing.assert_allclose(learner.critic_normalizer.variance, rows.var(0), rtol=1e-5)
    normalized = learner._segment(chunks[0]).critic_observation[:-1].numpy()
    assert abs(normalized.mean()) < 1.0 and normalized.std() < 2.0


def test_without_it_an_update_is_what_it_was():
    chunks = [random_chunk(seed) for seed in range(2)]
    wide = [random_chunk(seed, critic_size=2) for seed in range(2)]
    plain = make_learner(critic_size=0).update(chunks)
    seeing = make_learner(critic_size=2).update(wide)
    assert plain['explained_variance'] != seeing['explained_variance']
    # The critic is all that differs before the first step.
    assert plain['behaviour_kl'] == seeing['behaviour_kl']


# Whose values


@pytest.mark.parametrize('environment, critic_size', [
    (PrivilegedEnvironment, 2), (CountingEnvironment, 0)])
@pytest.mark.parametrize('settings', [{}, {'normalize_return': False}])
def test_at_zero_lag_actor_and_learner_value_alike(environment, critic_size, settings):
    learner = make_learner(critic_size, 'actor', **settings)
    for _ in range(3):
        chunks = collected(learner, environment)
        by_actor = advantages(learner, chunks)
        by_learner = advantages(with_source(learner, 'learner'), chunks)
        np.testing.assert_allclose(by_actor, by_learner, atol=1e-4, rtol=1e-4)
        assert by_actor.std() > 0.1
        with_source(learner, 'actor').update(chunks)


def test_with_lag_each_takes_its_own_critic():
    learner = make_learner(2, 'actor', gae_lambda=0.0)
    chunks = collected(learner)
    for seed in range(3):
        learner.update([random_chunk(seed, critic_size=2, value_size=1)])
        learner.snapshot()
    by_actor = advantages(learner, chunks)
    by_learner = advantages(with_source(learner, 'learner'), chunks)
    assert np.abs(by_actor - by_learner).max() > 0.1

    def by_hand(chunk, value, final_value):
        discount = learner.config.learner.discount
        rows = []
        for t, n in np.ndindex(chunk.reward.shape):
            following = value[t + 1, n]
            if chunk.terminated[t, n]:
                following = 0.0
            for k, (step, environment) in enumerate(chunk.final_index.tolist()):
                if (step, environment) == (t, n):
                    following = final_value[k]
            rows.append(chunk.reward[t, n] + discount * following - value[t, n])
        return rows

    old = [by_hand(chunk, chunk.value[..., 0], chunk.final_value[:, 0]) for chunk in chunks]
    new = []
    for chunk in chunks:
        segment = learner._segment(chunk)
        new.append(by_hand(
            chunk, learner._values(segment.observation, segment.critic_observation),
            learner._values(segment.final_observation, segment.final_critic_observation)))
    np.testing.assert_allclose(by_actor, np.concatenate(old), atol=1e-4)
    np.testing.assert_allclose(by_learner, np.concatenate(new), atol=1e-4)


def test_updates_with_values_of_the_actor_go_by_what_the_chunks_say():
    chunk = random_chunk(3, value_size=1)
    other = dataclasses.replace(chunk, value=chunk.value + 1.0)
    learner, twin, third = (make_learner(0, source) for source in ('actor', 'actor', 'learner'))
    metrics = [one.update([data]) for one, data in ((learner, chunk), (twin, other))]
    assert metrics[0]['explained_variance'] != metrics[1]['explained_variance']
    assert third.update([chunk]) == make_learner(0, 'learner').update([other])

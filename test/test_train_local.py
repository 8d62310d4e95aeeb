"""The synchronous loop: reproducible bit for bit, on fresh samples, and it learns."""

import dataclasses
import math

import numpy as np
import pytest

from asyncppo_ros.acting.rollout import environment_seed, Rollout
from asyncppo_ros.config import ActorConfig, Config, LearnerConfig, PpoConfig
from asyncppo_ros.learning.metrics import HISTOGRAMS, METRICS
from asyncppo_ros.run import resolve
from asyncppo_ros.train_local import train_local

# Seconds differ from run to run; nothing else may.
TIMES = ('time_s', 'env_steps_per_s', 'update_time', 'sample_age_histogram',
         *(name for name, metric in METRICS.items() if metric.group == 'age'))


def small(seed=0, env_steps=8192, **ppo):
    ppo = {'minibatch_size': 256, 'epochs': 3, 'learning_rate': 0.001, **ppo}
    return Config(task='cartpole_swingup', seed=seed, env_steps=env_steps,
                  actor=ActorConfig(num_envs=16, chunk_length=32),
                  learner=LearnerConfig(batch_size=1024, ppo=PpoConfig(**ppo)))


def rows_of(config):
    rows = []
    learner = train_local(config, on_update=lambda _, row: rows.append(row) or False)
    return [{name: value for name, value in row.items() if name not in TIMES}
            for row in rows], learner


def test_one_seed_gives_the_same_metrics_bit_for_bit():
    first, learner = rows_of(small())
    second, twin = rows_of(small())
    assert len(first) == 8
    assert [repr(row) for row in first] == [repr(row) for row in second]
    assert learner.snapshot().data == twin.snapshot().data
    other, _ = rows_of(small(seed=1))
    assert first != other


def test_every_sample_is_fresh():
    rows, _ = rows_of(small())
    # Actor (numpy) and learner (torch) agree on the density of every action before the update.
    assert max(row['first_abs_log_ratio_max'] for row in rows) <= 1e-3
    assert all(row['policy_lag_max'] == 0.0 for row in rows)


def test_metrics_are_finite_and_counters_add_up():
    rows, learner = rows_of(small())
    assert [row['env_steps'] for row in rows] == [1024 * (k + 1) for k in range(8)]
    assert rows[-1]['gradient_steps'] == 8 * 3 * 4 == learner.gradient_steps
    for row in rows:
        assert all(math.isfinite(value) for name, value in row.items()
                   if name not in HISTOGRAMS), row


def test_it_can_be_ended_after_any_update():
    learner = train_local(small(), on_update=lambda learner, _: learner.policy_version == 2)
    assert learner.policy_version == 2 and learner.env_steps == 2048


def test_seeds_of_environments_differ_by_actor_and_start():
    seeds = {environment_seed(seed, actor, incarnation)
             for seed in (0, 1) for actor in range(3) for incarnation in (1, 2)}
    assert len(seeds) == 12 and all(0 <= seed < 2 ** 31 for seed in seeds)


def test_reach_improves_within_seconds():
    config = Config(task='reach', env_steps=163_840, learner=LearnerConfig(
        batch_size=4096, discount=0.95, ppo=PpoConfig(learning_rate=0.001, epochs=5)))
    rows = []
    train_local(config, on_update=lambda _, row: rows.append(row) or False)
    assert rows[-1]['return_mean'] > rows[5]['return_mean'] + 10.0


@pytest.mark.parametrize('value_source', ['learner', 'actor'])
def test_a_critic_that_sees_more_trains_and_repeats(value_source):
    config = dataclasses.replace(small(env_steps=2048), task='quadruped_walk')
    learning = dataclasses.replace(config.learner, value_source=value_source)
    config = dataclasses.replace(config, learner=learning)
    first, learner = rows_of(config)
    second, _ = rows_of(config)
    assert [repr(row) for row in first] == [repr(row) for row in second]
    assert len(learner.critic_normalizer.mean) == 10 and learner.critic_normalizer.count == 2048
    assert all(math.isfinite(row['value_loss']) for row in first)
    assert max(row['first_abs_log_ratio_max'] for row in first) <= 1e-3
    policy = dataclasses.replace(config.policy, privileged_critic=False)
    without, blind = rows_of(dataclasses.replace(config, policy=policy))
    assert len(blind.critic_normalizer.mean) == 0
    assert without[0]['value_loss'] != first[0]['value_loss']


def test_cartpole_of_gymnasium_is_learned_with_choices():
    rows = []
    config = resolve({'task': 'gymnasium:CartPole-v1', 'env_steps': 30_000})
    train_local(config, on_update=lambda _, row: rows.append(row) or row['return_mean'] > 150.0)
    assert rows[0]['return_mean'] < 40.0 and rows[-1]['return_mean'] > 150.0
    assert rows[0]['first_abs_log_ratio_max'] <= 1e-3
    assert 'log_std_mean' not in rows[-1]


def spoil_batches(monkeypatch, spoiled):
    """Put a NaN into the first chunk of some batches, of two chunks each."""
    collect = Rollout.collect

    def spoiling(self, snapshot, stamp, *rest):
        chunk = collect(self, snapshot, stamp, *rest)
        if stamp.sequence in {2 * number for number in spoiled}:
            chunk.reward[3, 1] = np.nan
        return chunk

    monkeypatch.setattr(Rollout, 'collect', spoiling)


def test_bad_batches_are_refused_and_the_training_goes_on(monkeypatch):
    spoil_batches(monkeypatch, {1, 2, 3, 5})
    told, rows = [], []
    learner = train_local(small(), on_update=lambda _, row: rows.append(row) or False,
                          on_refused=lambda text: told.append(text) or False)
    assert [text.split(':')[0] for text in told] == [
        'update 2 refused and undone'] * 3 + ['update 3 refused and undone']
    assert 'reward of chunk 2 of actor 0 has a NaN' in told[0]
    # After the third in a row the step size falls, for good.
    assert told[2].endswith('step size divided by 3') and not told[3].endswith('by 3')
    assert learner.learning_rate_scale == pytest.approx(1 / 3)
    assert [(row['generation'], row['policy_version'], row['bad_batches']) for row in rows] == [
        (0, 1, 0), (1, 2, 3), (1, 3, 4), (1, 4, 4)]
    assert learner.env_steps == 8 * 1024 and all(row['policy_lag_max'] == 0.0 for row in rows)


def test_a_training_of_bad_batches_can_be_ended(monkeypatch):
    spoil_batches(monkeypatch, range(100))
    learner = train_local(small(), on_refused=lambda text: True)
    assert learner.bad_batches == 1 and learner.policy_version == 0

"""The synchronous loop: reproducible bit for bit, on fresh samples, and it learns."""

import math

from asyncppo_ros.acting.rollout import environment_seed
from asyncppo_ros.config import ActorConfig, Config, LearnerConfig, PpoConfig
from asyncppo_ros.train_local import train_local

# Seconds differ from run to run; nothing else may.
TIMES = ('time_s', 'env_steps_per_s', 'update_time')


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
        assert all(math.isfinite(value) for value in row.values()), row


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

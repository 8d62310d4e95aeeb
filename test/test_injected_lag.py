"""Lag on purpose: the chunks are those of old policies, and their stamps alone tell."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from asyncppo_ros.acting.rollout import Rollout
from asyncppo_ros.chunk import Identity
from asyncppo_ros.config import ActorConfig, Config, InjectedLagConfig, LearnerConfig, PpoConfig
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.injected_lag import check, PastGradientSteps, PastVersions, policies_of
from asyncppo_ros.launching import check_lag, open_run
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.robot.numpy_policy import NumpyPolicy
from asyncppo_ros.simulation.registry import make
from asyncppo_ros.tools import train
from asyncppo_ros.train_local import Collector, Dropped, train_local

# Of an update: 2 epochs × 3 minibatches over 3 chunks of 32 transitions.
STEPS = 6
CHUNK = 32


def config_with(updates=8, max_policy_lag=100, seed=0, **lag):
    return Config(
        task='cartpole_swingup', seed=seed, env_steps=updates * 3 * CHUNK,
        actor=ActorConfig(num_envs=4, chunk_length=8),
        learner=LearnerConfig(
            batch_size=3 * CHUNK, target_lag=0, max_policy_lag=max_policy_lag,
            ppo=PpoConfig(minibatch_size=CHUNK, epochs=2, learning_rate=0.01)),
        injected_lag=InjectedLagConfig(**lag))


def rows_of(config, **kwargs):
    rows = []
    train_local(config, on_update=lambda _, row: rows.append(row) or False, **kwargs)
    return rows


class Watched:
    """A learner and a collector by hand, and the policies and weights that there were."""

    def __init__(self, config):
        environment = make(config.task, config.actor.num_envs, 0)
        self.learner = Learner(config, environment.describe(), environment.observation_size,
                               environment.action_size, 1)
        rollout = Rollout(environment, config.actor.chunk_length, 0)
        self.collector = Collector(config, 1, rollout, self.learner, Dropped())
        self.snapshots = []
        self.weights = {0: self._weights()}
        taken = self.learner.after_gradient_step

        def after_gradient_step():
            taken()
            self.weights[self.learner.gradient_steps] = self._weights()

        self.learner.after_gradient_step = after_gradient_step
        self._publish()

    def update(self):
        """Give the batch that was collected, and what the update told of it."""
        batch = self.collector.next_batch()
        metrics = self.learner.update(batch.chunks)
        self._publish()
        return batch, metrics

    def _publish(self):
        self.snapshots.append(self.learner.snapshot())
        self.collector.published(self.snapshots[-1])

    def _weights(self):
        return self.learner.network.policy_tensors()


@pytest.mark.parametrize('lag', [1, 3])
def test_the_lag_in_versions_is_exact(lag):
    rows = rows_of(config_with(versions=lag))
    assert len(rows) == 8
    for updates, row in enumerate(rows):
        expected = min(lag, updates)
        assert row['policy_lag_min'] == row['policy_lag_max'] == expected
        assert row['policy_lag_histogram'] == [0] * expected + [3 * CHUNK]
        assert row['gradient_lag_min'] == row['gradient_lag_max'] == STEPS * expected
    # The first is fresh, those after it are not.
    assert rows[0]['first_abs_log_ratio_max'] <= 1e-3 < rows[1]['first_abs_log_ratio_max']
    assert rows[-1]['parameter_distance'] > rows[0]['parameter_distance'] == 0.0


def test_the_old_policy_acted():
    run = Watched(config_with(versions=2))
    for _ in range(5):
        batch, _ = run.update()
    # Version 4 was the newest when the last batch was collected.
    for chunk in batch.chunks:
        assert (chunk.policy_version, chunk.gradient_steps) == (2, 2 * STEPS)
        modes = [NumpyPolicy(run.snapshots[version].artefact).act(
            chunk.observation[:-1].reshape(CHUNK, -1)) for version in (2, 4)]
        told = np.tanh(chunk.behaviour_parameters.reshape(CHUNK, -1)[:, :1])
        np.testing.assert_allclose(told, modes[0], rtol=1e-5, atol=1e-6)
        assert np.abs(told - modes[1]).max() > 1e-3


@pytest.mark.parametrize('lag, versions', [(1, 1), (5, 1), (STEPS, 1), (7, 2), (13, 3)])
def test_the_lag_in_gradient_steps_is_exact(lag, versions):
    run = Watched(config_with(gradient_steps=lag))
    for updates in range(5):
        batch, metrics = run.update()
        expected = min(lag, updates * STEPS)
        assert {one.lag_gradient_steps for one in batch.measured} == {expected}
        if expected == lag:
            assert {one.lag_versions for one in batch.measured} == {versions}
        chunk = batch.chunks[0]
        assert chunk.gradient_steps == updates * STEPS - expected
        # It is remembered: what lag did to the ratio can be told apart.
        assert (metrics['parameter_distance'] > 0.0) == (expected > 0)
        weights = run.weights[chunk.gradient_steps]
        np.testing.assert_array_equal(chunk.behaviour_parameters[0, 0, 1:],
                                      weights['distribution.log_std'])


def test_a_policy_from_the_midst_of_an_update_has_its_weights_and_the_last_normalizer():
    run = Watched(config_with(gradient_steps=2))
    for _ in range(3):
        run.update()
    policies = run.collector._policies
    before = run.learner.network.policy_tensors(), run.learner.identity, run.learner.gradient_steps
    snapshot = policies.next()
    assert snapshot is policies.next()
    assert snapshot.identity == (0, 2) and snapshot.gradient_steps == 3 * STEPS - 2
    assert snapshot.env_steps == run.snapshots[2].env_steps
    for name, weights in run.weights[snapshot.gradient_steps].items():
        np.testing.assert_array_equal(snapshot.artefact.tensors[name], weights)
    for name in ('normalizer.mean', 'normalizer.count'):
        np.testing.assert_array_equal(snapshot.artefact.tensors[name],
                                      run.snapshots[2].artefact.tensors[name])
    after = run.learner.network.policy_tensors(), run.learner.identity, run.learner.gradient_steps
    assert before[1:] == after[1:]
    for name, weights in before[0].items():
        np.testing.assert_array_equal(after[0][name], weights)


def test_a_refused_update_makes_no_lag():
    policies = PastVersions(1)
    run = Watched(config_with())
    first, (batch, _) = run.snapshots[0], run.update()
    policies.published(first)
    # An update was undone, and what there was is published again.
    policies.published(first)
    policies.published(run.snapshots[1])
    policies.published(run.learner.snapshot())
    assert batch.lag_versions.maximum == 0 and policies.next() is first


def test_an_update_that_was_undone_is_no_past():
    run = Watched(config_with(gradient_steps=2))
    run.update()
    policies = run.collector._policies
    # As `Learner.update` does it: two steps, and everything is as before.
    run.learner.gradient_steps += 1
    run.learner.after_gradient_step()
    run.learner.gradient_steps -= 1
    policies.published(run.learner.snapshot())
    assert policies.next().gradient_steps <= run.learner.gradient_steps


def test_the_spread_is_uniform_within_its_bounds_and_seeded():
    def lags(seed):
        policies = PastVersions(2, 3, seed)
        for version in range(20):
            policies.published(SimpleNamespace(identity=Identity(0, version)))
        return [19 - policies.next().identity.policy_version for _ in range(400)]

    assert lags(0) == lags(0) != lags(1)
    values, counts = np.unique(lags(0), return_counts=True)
    assert values.tolist() == [2, 3, 4, 5] and counts.min() > 60
    rows = rows_of(config_with(updates=12, versions=1, spread=2))
    assert all(row['policy_lag_min'] >= 1 and row['policy_lag_max'] <= 3 for row in rows[3:])
    assert {row['policy_lag_max'] for row in rows} >= {2.0, 3.0}


def test_what_is_too_old_is_dropped_and_counts_as_simulated():
    config = config_with(updates=12, max_policy_lag=1, spread=4)
    rows = rows_of(config)
    assert max(row['policy_lag_max'] for row in rows) == 1.0
    for row in rows:
        assert row['transitions_consumed'] == row['env_steps'] == 3 * CHUNK * row['policy_version']
        assert row['transitions_dropped'] == CHUNK * row['chunks_dropped']
        assert row['transitions_produced'] == row['env_steps'] + row['transitions_dropped']
    assert rows[-1]['chunks_dropped'] > 6
    # The last batch may go beyond the budget; the step size went with what was simulated.
    assert rows[-1]['transitions_produced'] < config.env_steps + 3 * CHUNK
    assert len(rows) < 12
    assert rows[-1]['learning_rate'] < 0.01 * (1.0 - 0.5)


def test_a_continued_run_goes_on_counting():
    config = config_with(updates=4, max_policy_lag=1, spread=4)
    assert not rows_of(config, dropped=Dropped(12, 12 * CHUNK))
    rows = rows_of(config, dropped=Dropped(2, 2 * CHUNK))
    assert rows[0]['transitions_dropped'] >= 2 * CHUNK and len(rows) < 4
    assert Dropped.of(rows[0]).chunks == rows[0]['chunks_dropped'] >= 2


def test_a_run_without_injected_lag_drops_nothing_and_counts_the_same():
    rows = rows_of(config_with(updates=3, max_policy_lag=0))
    assert [row['transitions_produced'] for row in rows] == [96, 192, 288]
    assert {row['chunks_dropped'] for row in rows} == {0}


@pytest.mark.parametrize('lag, allowed', [
    ({'versions': 3}, 3), ({'gradient_steps': 13}, 3), ({'gradient_steps': 12}, 2),
    ({'versions': 2, 'spread': 9}, 2)])
def test_a_lag_at_which_nothing_is_learned_is_refused(lag, allowed):
    check(config_with(max_policy_lag=allowed, **lag))
    with pytest.raises(ConfigError, match=f'raise learner.max_policy_lag = {allowed - 1}') as why:
        check(config_with(max_policy_lag=allowed - 1, **lag))
    assert f'injected_lag.{next(iter(lag))}' in str(why.value)


def test_gradient_steps_choose_another_kind_of_past():
    config = config_with(gradient_steps=3)
    learner = Learner(config, {'task': 'toy'}, 3, 2, 1)
    assert isinstance(policies_of(config, learner), PastGradientSteps)
    assert isinstance(policies_of(config_with(), learner), PastVersions)


@pytest.mark.parametrize('name', ['versions', 'gradient_steps', 'spread'])
def test_an_asynchronous_training_injects_nothing(name, tmp_path, monkeypatch):
    check_lag(Config())
    config = dataclasses.replace(Config(), injected_lag=InjectedLagConfig(**{name: 2}))
    with pytest.raises(ConfigError, match=f'injected_lag.{name} = 2: must be 0'):
        check_lag(config)
    pytest.importorskip('rclpy')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match='only `asyncppo train-local` injects lag'):
        train.main([f'--injected_lag.{name}', '2'], StopRequest())
    assert not list(tmp_path.iterdir())


def test_a_launch_file_injects_nothing(tmp_path):
    file = tmp_path / 'lag.yaml'
    file.write_text('injected_lag: {versions: 2}\n')
    values = {'num_actors': 'auto', 'num_envs': '0', 'env_steps': '0', 'seed': '-1',
              'config': str(file), 'resume': '', 'task': 'reach', 'python': 'none',
              'run_dir': str(tmp_path / 'run')}
    with pytest.raises(ConfigError, match='injected_lag.versions = 2: must be 0'):
        open_run(values)
    assert not (tmp_path / 'run').exists()

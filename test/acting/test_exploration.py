"""Choices are drawn as often as the policy says, scored as the learner does, and sent whole."""

import numpy as np
import pytest
import torch
from toys import CountingEnvironment, TASK

from asyncppo_ros.acting.evaluation import evaluate
from asyncppo_ros.acting.exploration import CategoricalExploration
from asyncppo_ros.acting.rollout import layout_of, Rollout, Stamp
from asyncppo_ros.config import Config
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.robot.numpy_policy import NumpyPolicy
from asyncppo_ros.transport.codec import decode_chunk, encode_chunk

CHOICES = 3
STAMP = Stamp(run_id=1, actor_id=4, incarnation=2, sequence=9)


class Choosing(CountingEnvironment):
    """Gives 1 for the last choice."""

    action_size = 1

    def step(self, action, out):
        assert action.dtype == np.float32 and np.isin(action, range(CHOICES)).all()
        result = super().step(np.zeros_like(action), out)
        self.actions[-1] = action.copy()
        return result._replace(reward=(action[:, 0] == CHOICES - 1).astype(np.float32))

    def describe(self):
        return {**TASK, 'action': {'interface': 'discrete', 'choices': CHOICES}}


def learner_of(bias=(0.0, 1.0, -2.0)):
    learner = Learner(Config(), Choosing([5]).describe(), 3, 1, run_id=1)
    with torch.no_grad():
        learner.network.policy[-1].weight.mul_(100.0)
        learner.network.policy[-1].bias.copy_(torch.tensor(bias))
    return learner


def test_a_chunk_has_indices_and_the_logits_of_the_policy():
    learner = learner_of()
    environment = Choosing([5, 7, 100])
    rollout = Rollout(environment, 12, seed=0)
    chunk = rollout.collect(learner.snapshot(), STAMP)
    assert chunk.action.shape == (12, 3, 1) and chunk.action.dtype == np.float32
    assert chunk.behaviour_parameters.shape == (12, 3, CHOICES)
    np.testing.assert_array_equal(np.stack(environment.actions), chunk.action)
    with torch.no_grad():
        logits = learner.network.parameters_of(learner._normalized(chunk.observation[:-1]))
        log_prob = learner.network.distribution.log_prob(
            logits, torch.from_numpy(chunk.action.copy()))
    np.testing.assert_allclose(chunk.behaviour_parameters, logits, atol=1e-5)
    np.testing.assert_allclose(chunk.behaviour_log_prob, log_prob, atol=1e-5)


def test_choices_are_as_frequent_as_the_policy_says():
    steps, num_envs = 400, 100
    exploration = CategoricalExploration(steps, num_envs, CHOICES)
    policy = NumpyPolicy(learner_of().snapshot().artefact)
    exploration.begin(policy, np.random.Generator(np.random.SFC64(0)))
    observation = np.zeros((num_envs, 3), np.float32)
    parameters = np.empty((steps, num_envs, CHOICES), np.float32)
    action, command = np.empty((2, steps, num_envs, 1), np.float32)
    for step in range(steps):
        exploration.act(policy, observation, step, parameters[step], action[step], command[step])
    expected = np.exp([0.0, 1.0, -2.0]) / np.exp([0.0, 1.0, -2.0]).sum()
    found = np.bincount(action.astype(int).ravel(), minlength=CHOICES) / action.size
    # Four standard deviations of 40,000 draws at most.
    np.testing.assert_allclose(found, expected, atol=0.01)
    np.testing.assert_array_equal(action, command)


def test_it_goes_through_the_wire_and_an_update():
    learner = learner_of()
    environment = Choosing([5, 7, 100, 9])
    layout = layout_of(environment)
    assert (layout.action_size, layout.parameters_size) == (1, CHOICES)
    chunk = Rollout(environment, 64, seed=2).collect(learner.snapshot(), STAMP)
    received = decode_chunk(encode_chunk(chunk, layout), layout, 4096)
    np.testing.assert_array_equal(received.action, chunk.action)
    metrics = learner.update([received])
    assert metrics['first_abs_log_ratio_max'] <= 1e-3
    assert 'log_std_mean' not in metrics
    assert 0.0 < metrics['entropy'] < np.log(CHOICES)
    assert metrics['kl'] > 0.0 and metrics['behaviour_kl'] == pytest.approx(0.0, abs=1e-6)


def test_it_learns_the_better_choice():
    learner = learner_of(bias=(0.0, 0.0, 0.0))
    environment = Choosing([50] * 16)
    rollout = Rollout(environment, 64, seed=3)
    rewards = []
    for _ in range(8):
        chunk = rollout.collect(learner.snapshot(), STAMP)
        rewards.append(chunk.reward.mean())
        learner.update([chunk])
    assert rewards[0] < 0.6 and rewards[-1] > rewards[0] + 0.2


def test_the_deterministic_policy_takes_the_likeliest():
    environment = Choosing([4, 6])
    evaluate(NumpyPolicy(learner_of(bias=(0.0, 90.0, 0.0)).snapshot().artefact), environment)
    assert np.unique(environment.actions) == [1.0]

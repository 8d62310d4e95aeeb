"""Gradient steps written out by hand: the numbers are those of autograd."""

import numpy as np
import pytest
import torch
from toys import random_chunk, TASK

from asyncppo_ros.config import Config, LearnerConfig, PolicyConfig, PpoConfig
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.learning.checkpoint import load_checkpoint, save_checkpoint
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.learning.numpy_steps import NumpySteps
from asyncppo_ros.learning.samples import Samples, Scheduled
from asyncppo_ros.learning.steps import steps_for
from asyncppo_ros.learning.torch_steps import TorchSteps
from asyncppo_ros.policy.distributions import Categorical, TanhGaussian
from asyncppo_ros.policy.network import ActorCritic, Tanh

OBSERVATION, ACTION = 5, 3


def make_network(activation='tanh', critic_size=0, hidden=(7, 6), dtype=torch.float64):
    config = PolicyConfig(hidden_sizes=hidden, critic_hidden_sizes=(4,), activation=activation)
    network = ActorCritic(OBSERVATION, ACTION, TanhGaussian(), config,
                          torch.Generator().manual_seed(3), critic_size)
    return network.to(dtype)


def make_samples(network, size=40, critic_size=0, weighted=False):
    """Make some beyond the clip, some beyond the dual clip, some beyond the clamp of the ratio."""
    generator = torch.Generator().manual_seed(size)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    observation, action = normal(size, OBSERVATION), normal(size, ACTION)
    with torch.no_grad():
        log_prob = network.distribution.log_prob(network.parameters_of(observation), action)
    reference = log_prob - normal(size)
    reference[:3] -= 30.0
    return Samples(observation, normal(size, critic_size), action, reference, normal(size),
                   normal(size), torch.arange(size, dtype=torch.float64) % 4,
                   torch.rand(size, generator=generator, dtype=torch.float64)
                   if weighted else None)


@pytest.mark.parametrize(('ppo', 'network', 'samples'), [
    ({}, {}, {}),
    ({'dual_clip': 0.0}, {'activation': 'elu'}, {}),
    ({'dual_clip_above_lag': 1, 'max_gradient_norm': 0.01}, {'activation': 'relu'}, {}),
    ({'entropy_coefficient': 0.01}, {'critic_size': 2}, {'critic_size': 2}),
    ({'value_coefficient': 3.0, 'entropy_coefficient': 0.1}, {}, {'weighted': True}),
    ({}, {'hidden': ()}, {'size': 1})])
def test_steps_are_those_of_autograd(ppo, network, samples):
    settings = PpoConfig(minibatch_size=16, **ppo)
    found = []
    for kind in (TorchSteps, NumpySteps):
        trained = make_network(**network)
        optimizer = torch.optim.Adam(trained.parameters(), eps=1e-5)
        steps = kind(trained, optimizer, settings)
        given = make_samples(trained, **samples)
        numbers = []
        for update in range(2):
            steps.begin_update()
            order = torch.randperm(len(given.action),
                                   generator=torch.Generator().manual_seed(update))
            numbers += [steps.step(minibatch, Scheduled(0.2, settings.entropy_coefficient, 0.01))
                        for minibatch in steps.minibatches(given, order)]
        state = optimizer.state_dict()
        found.append((torch.stack(numbers), list(trained.parameters()), state))
    (expected, parameters, state), (numbers, ours, our_state) = found
    if not samples:
        # Clipped, dually clipped where that is on, and scaled down.
        assert (expected[:, 4] > 0.0).all() and (expected[:, 5] > 0.0).any() == bool(
            settings.dual_clip)
    torch.testing.assert_close(numbers, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(ours, parameters, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(our_state, state, rtol=1e-9, atol=1e-12)


def test_what_is_not_finite_is_told():
    trained = make_network()
    steps = NumpySteps(trained, torch.optim.Adam(trained.parameters()), PpoConfig())
    steps.begin_update()
    given = make_samples(trained)
    for name in ('observation', 'action', 'reference', 'advantage', 'target'):
        spoilt = getattr(given, name).clone()
        spoilt.view(-1)[3] = np.nan
        minibatch, = steps.minibatches(given._replace(**{name: spoilt}), torch.arange(40))
        numbers = steps.step(minibatch, Scheduled(0.2, 0.0, 0.0))
        assert not torch.isfinite(numbers).all(), name
        trained = make_network()
        steps = NumpySteps(trained, torch.optim.Adam(trained.parameters()), PpoConfig())
        steps.begin_update()


def make_learner(gradients):
    return Learner(Config(env_steps=10_000, learner=LearnerConfig(
        gradients=gradients, ppo=PpoConfig(minibatch_size=16, epochs=2, learning_rate=0.01))),
        TASK, 3, 2, run_id=1)


@pytest.mark.parametrize(('before', 'after'), [('torch', 'numpy'), ('numpy', 'torch'),
                                               ('numpy', 'numpy')])
def test_a_checkpoint_goes_on_with_either(before, after, tmp_path):
    straight, first = make_learner(before), make_learner(before)
    for learner in (straight, first):
        learner.update([random_chunk(1), random_chunk(2)])
    save_checkpoint(tmp_path, first, {})
    second = make_learner(after)
    load_checkpoint(tmp_path, second)
    metrics = [learner.update([random_chunk(3)]) for learner in (straight, second)]
    assert metrics[1] == pytest.approx(metrics[0], rel=1e-4, abs=1e-5)
    for one, other in zip(straight.network.parameters(), second.network.parameters()):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-6)


def test_which_way_is_taken(monkeypatch):
    network = make_network(dtype=torch.float32)
    optimizer = torch.optim.Adam(network.parameters())

    def taken(**settings):
        return type(steps_for(LearnerConfig(**settings), network, optimizer))

    monkeypatch.setattr(torch, 'get_num_threads', lambda: 4)
    assert taken() is NumpySteps
    assert taken(gradients='torch') is TorchSteps
    assert taken(ppo=PpoConfig(objective='misread_dual_clip')) is TorchSteps
    # So large that several threads are worth more than few calls.
    large = PpoConfig(minibatch_size=1_000_000)
    assert taken(ppo=large) is TorchSteps
    assert taken(ppo=large, gradients='numpy') is NumpySteps
    monkeypatch.setattr(torch, 'get_num_threads', lambda: 1)
    assert taken(ppo=large) is NumpySteps
    network.distribution = Categorical(ACTION)
    assert taken() is TorchSteps
    with pytest.raises(ConfigError, match='learner.gradients = numpy: needs'):
        taken(gradients='numpy')


def test_tanh_is_tanh_with_and_without_gradients():
    values = torch.linspace(-9.0, 9.0, 101)
    expected = torch.tanh(values.double())
    torch.testing.assert_close(Tanh()(values.clone()).double(), expected, rtol=1e-6, atol=1e-7)
    values.requires_grad_()
    found = Tanh()(values)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-7)
    assert found.requires_grad and values.detach()[0] == -9.0

"""Sources that count more or less than others: what their weights do to the loss, and no more."""

import pytest
import torch
from toys import random_chunk, TASK

from asyncppo_ros.chunk import Identity
from asyncppo_ros.config import Config, LearnerConfig, PpoConfig
from asyncppo_ros.learning.batcher import Batcher
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.learning.losses import weighted_mean
from asyncppo_ros.learning.torch_steps import TorchSteps


def make_learner(minibatch_size=1000, **ppo):
    # One gradient step of plain means: nothing in it looks at the batch as a whole.
    ppo = {'epochs': 1, 'learning_rate': 0.1, 'schedule': 'constant', 'max_gradient_norm': 1000.0,
           'normalize_advantage': False, 'normalize_return': False, **ppo}
    config = Config(learner=LearnerConfig(
        batch_size=64, gradients='torch', ppo=PpoConfig(
            minibatch_size=minibatch_size, entropy_coefficient=0.01, **ppo)))
    learner = Learner(config, TASK, 3, 2, run_id=1)
    learner.optimizer = torch.optim.SGD(learner._parameters, 0.1)
    learner._steps = TorchSteps(learner.network, learner.optimizer, learner.ppo)
    learner._check_state = lambda: None
    return learner


def weights_after(chunks, weights=(), **ppo):
    learner = make_learner(**ppo)
    metrics = learner.update(chunks, weights=weights)
    return torch.cat([parameter.detach().flatten() for parameter in learner._parameters]), metrics


@pytest.mark.parametrize('weight', [0.3, 1.0, 7.0])
@pytest.mark.parametrize('ppo', [{}, {'minibatch_size': 20, 'epochs': 3, 'normalize_return': True,
                                      'normalize_advantage': True}])
def test_equal_weights_change_nothing_in_any_bit(weight, ppo):
    chunks = [random_chunk(seed) for seed in range(3)]
    expected, metrics = weights_after(chunks, **ppo)
    found, same_metrics = weights_after(chunks, [weight] * 3, **ppo)
    assert torch.equal(found, expected) and same_metrics == metrics


def test_a_weight_of_two_is_the_chunk_twice():
    one, other = random_chunk(1), random_chunk(2, steps=5)
    expected, twice = weights_after([one, one, other])
    found, weighted = weights_after([one, other], [3.0, 1.5])
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-6)
    for name in ('policy_loss', 'value_loss', 'entropy'):
        assert weighted[name] == pytest.approx(twice[name], rel=1e-5), name
    unweighted, _ = weights_after([one, other])
    assert (unweighted - expected).abs().max() > 1e-4


def test_a_weight_of_zero_teaches_nothing():
    one, other = random_chunk(1), random_chunk(2)
    expected, _ = weights_after([one])
    found, _ = weights_after([one, other], [0.5, 0.0])
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-6)
    # Not even where there is nothing else.
    untouched = torch.cat([parameter.detach().flatten()
                           for parameter in make_learner()._parameters])
    found, metrics = weights_after([one, other], [0.0, 0.0])
    assert torch.equal(found, untouched) and metrics['value_loss'] == 0.0


def test_every_minibatch_has_weights_of_mean_one():
    """Else a minibatch with much of the heavy source would make a longer step."""
    values = torch.tensor([1.0, 2.0, 4.0])
    assert weighted_mean(values, None) == values.mean()
    assert weighted_mean(values, torch.tensor([2.0, 2.0, 8.0])) == pytest.approx(38.0 / 12.0)
    assert weighted_mean(torch.ones(3), torch.tensor([0.0, 0.1, 900.0])) == pytest.approx(1.0)


def test_one_weight_for_each_chunk():
    with pytest.raises(ValueError, match='zip'):
        make_learner().update([random_chunk(1), random_chunk(2)], weights=[1.0])


def test_a_batch_knows_the_weight_of_each_chunk():
    batcher = Batcher(96, 8)
    for version, weight in ((2, 2.0), (0, 0.5), (1, 1.0)):
        batcher.offer(random_chunk(policy_version=version), 0, weight=weight)
    batch = batcher.next_batch(Identity(0, 2), 0, 0.0)
    # The oldest first, and each with its own.
    assert [chunk.policy_version for chunk in batch.chunks] == [0, 1, 2]
    assert batch.weights == (0.5, 1.0, 2.0)

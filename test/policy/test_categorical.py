"""Categorical against torch and by hand, and its policy from the network to numpy."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import kl_divergence

from asyncppo_ros.config import Config
from asyncppo_ros.errors import ArtefactError
from asyncppo_ros.learning.checkpoint import load_checkpoint, load_policy, save_checkpoint
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.policy.distributions import Categorical, distribution_for, TanhGaussian
from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.robot.numpy_policy import categorical_log_prob, NumpyPolicy

CHOICES = 5
FAMILY = Categorical(CHOICES)
TASK = {'task': 'choosing', 'control_dt': 0.1, 'deployable': False,
        'observation': [{'name': 'counter', 'size': 3}], 'start_pose': {},
        'action': {'joints': ['action0'], 'interface': 'discrete', 'choices': CHOICES}}


def random_logits(seed, count=200, scale=3.0):
    return scale * torch.randn(count, CHOICES, generator=torch.Generator().manual_seed(seed))


def random_actions(seed, count=200):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(CHOICES, (count, 1), generator=generator).float()


def learner_of(task=TASK, seed=0):
    return Learner(Config(seed=seed), task, 3, 1, run_id=1)


def test_equal_to_torch():
    logits, other, action = random_logits(0), random_logits(1), random_actions(2)
    theirs = TorchCategorical(logits=logits)
    torch.testing.assert_close(FAMILY.log_prob(logits, action), theirs.log_prob(action[:, 0]))
    torch.testing.assert_close(FAMILY.entropy(logits), theirs.entropy())
    torch.testing.assert_close(FAMILY.kl(logits, other), kl_divergence(
        theirs, TorchCategorical(logits=other)))
    assert float(FAMILY.kl(logits, logits).abs().max()) == 0.0
    np.testing.assert_allclose(categorical_log_prob(logits.numpy(), action.numpy()),
                               FAMILY.log_prob(logits, action), atol=1e-5)


def test_large_logits_stay_finite_with_their_gradients():
    logits = torch.tensor([[1e6, -1e6, 0.0, 1e6, 5.0], [-1e30, 0.0, 1e30, 7.0, 7.0]],
                          requires_grad=True)
    action = torch.tensor([[1.0], [2.0]])
    values = torch.cat((FAMILY.log_prob(logits, action), FAMILY.entropy(logits),
                        FAMILY.kl(logits, logits.flip(0))))
    values.sum().backward()
    assert torch.isfinite(values).all() and torch.isfinite(logits.grad).all()
    assert float(FAMILY.entropy(logits.detach())[0]) == pytest.approx(math.log(2.0))
    assert np.isfinite(categorical_log_prob(logits.detach().numpy(), action.numpy())).all()


@pytest.mark.parametrize('action', [-1.0, 0.5, 5.0, 1e9, math.inf, math.nan])
def test_what_is_no_choice_has_no_log_prob(action):
    """So that the learner refuses the batch instead of reading beside the logits."""
    log_prob = FAMILY.log_prob(random_logits(0, 2), torch.tensor([[action], [1.0]]))
    assert torch.isnan(log_prob).tolist() == [True, False]


def test_the_task_decides():
    assert distribution_for(TASK['action']).name == 'categorical'
    assert isinstance(distribution_for({'interface': 'effort'}), TanhGaussian)
    assert isinstance(distribution_for({}), TanhGaussian)


def test_numpy_says_what_torch_says():
    learner = learner_of()
    rng = np.random.default_rng(0)
    learner.pending_normalizer.merge(rng.normal([1, -2, 300], [3, 0.3, 120], (500, 3)))
    observation = rng.normal([1, -2, 300], [3, 0.3, 120], (200, 3)).astype(np.float32)
    with torch.no_grad():
        # The first policy is nearly uniform; this one is not.
        learner.network.policy[-1].weight.mul_(300.0)
    policy = NumpyPolicy(learner.snapshot().artefact)
    with torch.no_grad():
        logits = learner.network.parameters_of(learner._normalized(observation))
    assert logits.shape == (200, CHOICES) and float(logits.std()) > 0.5
    np.testing.assert_allclose(policy.head(observation), logits, atol=1e-4)
    np.testing.assert_array_equal(policy.act(observation)[:, 0], logits.argmax(-1))
    assert policy.act(observation).dtype == np.float32 and len(policy.log_std) == 0


def test_the_first_policy_is_nearly_uniform():
    learner = learner_of()
    with torch.no_grad():
        entropy = FAMILY.entropy(learner.network.parameters_of(torch.randn(50, 3)))
    assert float(entropy.min()) > math.log(CHOICES) - 1e-3


def test_the_card_says_so_and_unknown_ones_are_refused():
    snapshot = learner_of().snapshot()
    card = snapshot.card['architecture']
    assert (card['distribution'], card['choices'], card['action_size']) == (
        'categorical', CHOICES, 1)
    for changed, message in (({'distribution': 'beta'}, 'architecture.distribution = beta'),
                             ({'choices': 4}, 'policy.2.weight has shape')):
        rest = {key: value for key, value in snapshot.card.items() if key != 'hash'}
        other = PolicySnapshot.make({**rest, 'architecture': {**card, **changed}},
                                    snapshot.artefact.tensors)
        with pytest.raises(ArtefactError, match=message):
            NumpyPolicy(other.artefact)


def test_checkpoint_and_init_from(tmp_path):
    learner = learner_of(seed=3)
    save_checkpoint(tmp_path, learner)
    twin = learner_of(seed=4)
    load_checkpoint(tmp_path, twin)
    twin.generation = 0
    assert twin.snapshot().data == learner.snapshot().data
    new = learner_of(seed=5)
    load_policy(learner.snapshot().artefact, new)
    for name, tensor in learner.network.policy_tensors().items():
        np.testing.assert_array_equal(new.network.policy_tensors()[name], tensor)
    continuous = learner_of({**TASK, 'action': {'joints': ['action0'], 'interface': 'effort'}})
    with pytest.raises(ArtefactError, match='its action entries differ'):
        load_policy(learner.snapshot().artefact, continuous)

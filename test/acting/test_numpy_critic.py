"""The critic that travels with a policy: as the learner's, and of no concern to a robot."""

import numpy as np
import pytest
from toys import PrivilegedEnvironment, random_chunk, TASK

from asyncppo_ros.acting.numpy_critic import NumpyCritic
from asyncppo_ros.acting.rollout import Rollout, Stamp
from asyncppo_ros.config import Config, LearnerConfig, PolicyConfig, PpoConfig
from asyncppo_ros.errors import ArtefactError
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.robot.artefact import read_artefact
from asyncppo_ros.robot.numpy_policy import NumpyPolicy

STAMP = Stamp(1, 0, 1, 0)


def make_learner(critic_size=2, value_source='actor', activation='tanh', **ppo):
    config = Config(policy=PolicyConfig(activation=activation, critic_hidden_sizes=(16, 8)),
                    learner=LearnerConfig(value_source=value_source,
                                          ppo=PpoConfig(minibatch_size=16, epochs=2, **ppo)))
    return Learner(config, TASK, 3, 2, run_id=1, critic_size=critic_size)


def trained(**settings):
    """Give a learner whose normalizers, critic and scale of returns are not as at the start."""
    learner = make_learner(**settings)
    for seed in range(3):
        learner.update([random_chunk(seed, critic_size=settings.get('critic_size', 2),
                                     value_size=1)])
        learner.snapshot()
    return learner


@pytest.mark.parametrize('settings', [
    {}, {'critic_size': 0}, {'activation': 'elu'}, {'activation': 'relu'},
    {'normalize_return': False}])
def test_it_says_what_the_learners_critic_says(settings):
    learner = trained(**settings)
    chunk = random_chunk(9, critic_size=settings.get('critic_size', 2))
    critic = NumpyCritic(learner.snapshot().artefact)
    value = critic.value(chunk.observation, chunk.critic_observation)
    assert value.dtype == np.float32 and value.shape == (9, 4)
    assert value.std() > 0.1
    # The statistics gathered since took effect with the snapshot, in the learner too.
    segment = learner._segment(chunk)
    expected = learner._values(segment.observation, segment.critic_observation)
    np.testing.assert_allclose(value, expected, atol=1e-5, rtol=1e-5)


def test_a_rollout_fills_in_the_values_of_every_row():
    learner = trained()
    snapshot = learner.snapshot()
    chunk = Rollout(PrivilegedEnvironment([5, 7, 100]), 12, 0, values=True).collect(
        snapshot, STAMP)
    critic = NumpyCritic(snapshot.artefact)
    assert chunk.value.shape == (13, 3, 1) and chunk.final_value.shape == (2, 1)
    for index in np.ndindex(13, 3):
        alone = critic.value(chunk.observation[index][None], chunk.critic_observation[index][None])
        assert chunk.value[index][0] == pytest.approx(alone[0], abs=1e-5)
    np.testing.assert_allclose(
        chunk.final_value[:, 0],
        critic.value(chunk.final_observation, chunk.final_critic_observation), atol=1e-6)


def test_a_robot_runs_the_policy_as_if_it_had_no_critic(tmp_path):
    learner = trained()
    (tmp_path / 'policy.safetensors').write_bytes(learner.snapshot().data)
    artefact = read_artefact(tmp_path / 'policy.safetensors')
    assert artefact.card['critic'] == {'hidden_sizes': [16, 8], 'critic_size': 2, 'terms': []}
    bare = {name: tensor for name, tensor in artefact.tensors.items()
            if not name.startswith('critic.')}
    assert len(bare) == len(artefact.tensors) - 6 - 4
    without = PolicySnapshot.make({**artefact.card}, bare)
    observation = random_chunk(5).observation[0]
    np.testing.assert_array_equal(NumpyPolicy(artefact).act(observation),
                                  NumpyPolicy(without.artefact).act(observation))


def test_no_critic_travels_unless_it_is_asked_for():
    artefact = trained(value_source='learner').snapshot().artefact
    assert 'critic' not in artefact.card
    assert not [name for name in artefact.tensors if name.startswith('critic.')]
    with pytest.raises(ArtefactError, match='needs learner.value_source = actor'):
        NumpyCritic(artefact)


@pytest.mark.parametrize('name, tensor', [
    ('critic.0.weight', np.zeros((16, 3), np.float32)), ('critic.2.bias', None),
    ('critic.normalizer.mean', np.zeros(3)), ('critic.scale', np.zeros(1))])
def test_a_critic_that_does_not_fit_its_card_is_refused(name, tensor):
    artefact = make_learner().snapshot().artefact
    tensors = {key: value for key, value in artefact.tensors.items() if key != name}
    if tensor is not None:
        tensors[name] = tensor
    with pytest.raises(ArtefactError, match=f'tensor {name} has shape'):
        NumpyCritic(PolicySnapshot.make(dict(artefact.card), tensors).artefact)

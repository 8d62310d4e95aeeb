"""The artefact: read with numpy alone, and refused when anything about it is wrong."""

import json

import numpy as np
import pytest
import safetensors.numpy
import torch
from toys import TASK

from asyncppo_ros.chunk import Identity
from asyncppo_ros.config import Config, PolicyConfig
from asyncppo_ros.errors import ArtefactError
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.robot.artefact import parse_artefact, parse_safetensors, read_artefact
from asyncppo_ros.robot.numpy_policy import normalizer_arrays, NumpyPolicy


def make_learner(activation='tanh', **policy):
    config = Config(policy=PolicyConfig(hidden_sizes=(16, 8), activation=activation, **policy))
    return Learner(config, TASK, 3, 2, run_id=7)


@pytest.fixture(scope='module')
def snapshot():
    learner = make_learner()
    learner.pending_normalizer.merge(np.random.default_rng(0).normal(
        [1, -2, 300], [1, 0.1, 40], (1000, 3)).astype(np.float32))
    learner.generation, learner.policy_version = 2, 5
    return learner.snapshot()


def test_bytes_hold_everything(snapshot):
    again = PolicySnapshot.from_bytes(snapshot.data)
    assert again.identity == Identity(2, 5) and again.run_id == 7
    assert again.card == json.loads(json.dumps(snapshot.card))
    for name, tensor in snapshot.artefact.tensors.items():
        np.testing.assert_array_equal(again.artefact.tensors[name], tensor)
        assert not again.artefact.tensors[name].flags.writeable


def test_own_reader_agrees_with_the_library(snapshot):
    _, tensors = parse_safetensors(snapshot.data)
    theirs = safetensors.numpy.load(snapshot.data)
    assert tensors.keys() == theirs.keys()
    for name in theirs:
        np.testing.assert_array_equal(tensors[name], theirs[name])


@pytest.mark.parametrize('activation', ['tanh', 'elu', 'relu'])
def test_numpy_forward_equals_torch(activation):
    learner = make_learner(activation)
    rng = np.random.default_rng(1)
    with torch.no_grad():
        for parameter in learner.network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    learner.pending_normalizer.merge(
        rng.normal([1, -2, 300], [1, 0.1, 40], (1000, 3)).astype(np.float32))
    policy = NumpyPolicy(learner.snapshot().artefact)
    observation = rng.normal([1, -2, 300], [3, 0.3, 120], (200, 3)).astype(np.float32)
    with torch.no_grad():
        parameters = learner.network.parameters_of(learner._normalized(observation))
    mean, log_std = parameters.chunk(2, -1)
    np.testing.assert_allclose(policy.head(observation), mean, atol=1e-5)
    np.testing.assert_allclose(policy.log_std, log_std[0], atol=1e-6)
    np.testing.assert_allclose(policy.act(observation), torch.tanh(mean), atol=1e-5)
    np.testing.assert_array_equal(policy.head(observation[:1]), policy.head(observation[:1]))


@pytest.mark.parametrize('length', [0, 4, 8, 100, -1])
def test_cut_short_is_refused(snapshot, tmp_path, length):
    path = tmp_path / 'policy.safetensors'
    path.write_bytes(snapshot.data[:length])
    with pytest.raises(ArtefactError, match='policy .*policy.safetensors: ') as error:
        read_artefact(path)
    assert '\n' not in str(error.value)


def test_every_altered_byte_is_refused(snapshot):
    rng = np.random.default_rng(2)
    for position in rng.integers(0, len(snapshot.data), 300):
        data = bytearray(snapshot.data)
        data[position] ^= 1 << rng.integers(8)
        with pytest.raises(ArtefactError):
            parse_artefact(bytes(data))


def test_missing_file_and_foreign_files(tmp_path):
    with pytest.raises(ArtefactError, match='No such file'):
        read_artefact(tmp_path / 'none.safetensors')
    foreign = tmp_path / 'foreign.safetensors'
    foreign.write_bytes(safetensors.numpy.save({'x': np.zeros(3, np.float32)}))
    with pytest.raises(ArtefactError, match='has no card'):
        read_artefact(foreign)


def test_tensors_that_do_not_fit_the_card_are_named(snapshot):
    tensors = dict(snapshot.artefact.tensors)
    tensors['policy.1.bias'] = np.zeros(9, np.float32)
    card = {key: value for key, value in snapshot.card.items() if key != 'hash'}
    with pytest.raises(ArtefactError, match=r'tensor policy.1.bias has shape \(9,\), its card '
                                            r'says \(8,\)'):
        NumpyPolicy(PolicySnapshot.make(card, tensors).artefact)


def test_not_finite_is_refused(snapshot):
    tensors = dict(snapshot.artefact.tensors)
    tensors['policy.0.bias'] = np.full(16, np.nan, np.float32)
    card = {key: value for key, value in snapshot.card.items() if key != 'hash'}
    with pytest.raises(ArtefactError, match='tensor policy.0.bias is not finite'):
        parse_artefact(PolicySnapshot.make(card, tensors).data)


def test_a_term_that_never_moved_is_not_blown_up():
    shift, scale = normalizer_arrays(np.array([5.0, 1.0]), np.array([0.0, 4.0]), 100.0)
    np.testing.assert_allclose(shift, [5.0, 1.0])
    np.testing.assert_allclose(scale, [1.0, 0.5])
    shift, scale = normalizer_arrays(np.array([5.0]), np.array([9.0]), 0.0)
    assert shift == [0.0] and scale == [1.0]


KEY, OTHER_KEY = bytes(range(32)), bytes(32)


@pytest.fixture(scope='module')
def signed():
    learner = make_learner()
    learner.signing_key = KEY
    return learner.snapshot()


def test_a_signed_policy_is_read_with_its_key_and_without_any(signed, tmp_path):
    path = tmp_path / 'policy.safetensors'
    path.write_bytes(signed.data)
    assert read_artefact(path, KEY).card == read_artefact(path).card
    assert PolicySnapshot.from_bytes(signed.data, KEY).identity == signed.identity
    # The library reads it as before, and the signature is no part of what is signed.
    assert safetensors.numpy.load(signed.data).keys() == signed.artefact.tensors.keys()
    metadata, _ = parse_safetensors(signed.data)
    unsigned = PolicySnapshot.make({key: value for key, value in signed.card.items()
                                    if key != 'hash'}, signed.artefact.tensors)
    assert unsigned.card['hash'] == signed.card['hash'] and len(metadata['signature']) == 64


def test_a_policy_without_the_right_signature_is_refused(signed, snapshot, tmp_path):
    with pytest.raises(ArtefactError, match='is signed with another key'):
        parse_artefact(signed.data, OTHER_KEY)
    path = tmp_path / 'policy.safetensors'
    path.write_bytes(snapshot.data)
    with pytest.raises(ArtefactError, match='policy .*safetensors: is not signed'):
        read_artefact(path, KEY)


def resigned(signed, signature):
    """Give the same policy with another signature."""
    tensors = {name: np.array(tensor) for name, tensor in signed.artefact.tensors.items()}
    return safetensors.numpy.save(tensors, {
        'card': json.dumps(signed.card, sort_keys=True), 'signature': signature})


@pytest.mark.parametrize('signature', ['', 'x', '0' * 64, 'ä' * 64, '\ud7ff'])
def test_a_made_up_signature_is_refused(signed, signature):
    with pytest.raises(ArtefactError, match='is signed with another key'):
        parse_artefact(resigned(signed, signature), KEY)


def test_the_signature_of_another_policy_is_refused(signed):
    learner = make_learner()
    learner.signing_key, learner.policy_version = KEY, 9
    metadata, _ = parse_safetensors(learner.snapshot().data)
    with pytest.raises(ArtefactError, match='is signed with another key'):
        parse_artefact(resigned(signed, metadata['signature']), KEY)


def test_every_altered_byte_of_a_signed_policy_is_refused(signed):
    rng = np.random.default_rng(3)
    for position in rng.integers(0, len(signed.data), 300):
        data = bytearray(signed.data)
        data[position] ^= 1 << rng.integers(8)
        with pytest.raises(ArtefactError):
            parse_artefact(bytes(data), KEY)

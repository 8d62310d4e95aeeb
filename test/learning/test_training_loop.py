"""Training without ROS and sockets: publication, refusal and restore, full disks."""

import json

import numpy as np
import pytest
from toys import random_chunk, TASK

from asyncppo_ros.chunk import Identity
from asyncppo_ros.config import Config, LearnerConfig, PpoConfig
from asyncppo_ros.learning import checkpoint
from asyncppo_ros.learning.batcher import Batcher
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.learning.metrics import JsonlWriter
from asyncppo_ros.learning.training import Training
from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.run import create


class DirectSource:
    """Gives one chunk per batch, and notes what it was told."""

    def __init__(self, chunks=()):
        self.chunks = list(chunks)
        self.told = []

    def next_batch(self, current, gradient_steps, timeout):
        if not self.chunks:
            return None
        batcher = Batcher(1, 10 ** 7)
        batcher.offer(self.chunks.pop(0), 0, weight=2.5)
        return batcher.next_batch(Identity(current.generation, 10 ** 6), 0, 0.0)

    def updated(self, version):
        self.told.append(('updated', version))

    def published(self, identity, data=None):
        self.told.append(('published', identity))

    def restored(self, identity):
        self.told.append(('restored', identity))

    def flow(self):
        return {'actors': 1}

    def books(self):
        return {'accounts': []}


class Published(list):
    def publish(self, data, identity):
        self.append((identity, data))


@pytest.fixture
def make(tmp_path):
    def build(chunks, **learner):
        learner = {'publish_max_hz': 1000.0, **learner}
        ppo = PpoConfig(minibatch_size=16, epochs=1, learning_rate=0.01, schedule='constant')
        config = Config(task='toy', env_steps=10 ** 6, run_dir=str(tmp_path / 'run'),
                        learner=LearnerConfig(ppo=ppo, **learner))
        run, config = create(config)
        source, published, warnings = DirectSource(chunks), Published(), []
        training = Training(config, run, Learner(config, TASK, 3, 2, 1), source, published,
                            [JsonlWriter(run.metrics_file)], warnings.append)
        return training, source, published, warnings
    return build


def poisoned(seed):
    chunk = random_chunk(seed)
    chunk.reward[3, 1] = np.inf
    return chunk


def test_each_update_is_published_and_kept_as_the_same_bytes(make):
    training, source, published, _ = make([random_chunk(seed) for seed in range(3)])
    training.publish_if_due(force=True)
    while training.step(0.0):
        pass
    training.publish_last()
    assert [identity for identity, _ in published] == [Identity(0, k) for k in range(4)]
    for identity, data in published:
        assert PolicySnapshot.from_bytes(data).identity == identity
    # The last one is on disk, although publication is faster than files are written.
    assert training.run.policy_file.read_bytes() == published[-1][1]
    kept = {path.name: path.read_bytes() for path in training.run.policies.iterdir()}
    assert kept['policy-g000-v000000.safetensors'] == published[0][1]
    rows = [json.loads(line) for line in training.run.metrics_file.read_text().splitlines()]
    assert [row['policy_version'] for row in rows] == [1, 2, 3]
    assert rows[0]['actors'] == 1 and rows[0]['policy_lag_mean'] == 10 ** 6


def test_the_weights_of_a_batch_reach_the_update(make, monkeypatch):
    training, _, _, _ = make([random_chunk(0)])
    update, seen = training.learner.update, []

    def watched(chunks, should_stop, weights):
        seen.append(weights)
        return update(chunks, should_stop, weights)

    monkeypatch.setattr(training.learner, 'update', watched)
    assert training.step(0.0) and seen == [(2.5,)]


def test_publication_waits_for_its_triggers(make):
    training, _, published, _ = make([random_chunk(seed) for seed in range(5)],
                                     publish_updates=2, publish_seconds=100.0)
    training.publish_if_due(force=True)
    while training.step(0.0):
        pass
    assert [identity.policy_version for identity, _ in published] == [0, 2, 4]
    training.publish_if_due(force=True)
    training.publish_if_due(force=True)
    assert [identity.policy_version for identity, _ in published] == [0, 2, 4, 5]


def test_publication_is_never_faster_than_allowed(make):
    training, _, published, _ = make([random_chunk(seed) for seed in range(5)],
                                     publish_max_hz=0.1)
    training.publish_if_due(force=True)
    while training.step(0.0):
        pass
    assert len(published) == 1


def test_bad_batches_are_refused_named_and_in_the_end_restored(make):
    chunks = [random_chunk(0), *(poisoned(seed) for seed in range(1, 4)), random_chunk(4)]
    training, source, _, warnings = make(chunks, max_bad_batches=3)
    training.publish_if_due(force=True)
    assert training.step(0.0)
    training.save()
    good = training.learner.network.policy_tensors()
    for _ in range(3):
        assert not training.step(0.0)
    learner = training.learner
    assert learner.identity == Identity(1, 1) and learner.bad_batches == 3
    assert learner.learning_rate_scale == pytest.approx(1 / 3)
    assert learner.env_steps == 4 * 32
    for name, tensor in learner.network.policy_tensors().items():
        np.testing.assert_array_equal(tensor, good[name])
    assert ('restored', Identity(1, 1)) in source.told
    assert 'refused and undone, chunks of actors [0]' in warnings[0]
    assert 'restored the last good checkpoint as generation 1' in warnings[-1]
    assert training.step(0.0) and learner.identity == Identity(1, 2)
    # The source hears of the end of every update, refused or not: permits depend on it.
    assert [version for what, version in source.told if what == 'updated'] == [1, 1, 1, 1, 2]


def test_a_full_disk_is_told_and_training_goes_on(make, monkeypatch):
    training, _, _, warnings = make([random_chunk(0), random_chunk(1)])
    training.publish_if_due(force=True)
    training.step(0.0)
    training.save()
    good = (training.run.checkpoint / checkpoint.FILE).read_bytes()

    def full(*_):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr('os.fsync', full)
    training.save()
    assert 'NO CHECKPOINT WRITTEN' in warnings[-1] and 'No space left' in warnings[-1]
    assert (training.run.checkpoint / checkpoint.FILE).read_bytes() == good
    assert training.step(0.0)


def test_old_policies_are_removed(make):
    training, _, _, _ = make([random_chunk(seed) for seed in range(6)], keep_policies=2)
    training.publish_if_due(force=True)
    while training.step(0.0):
        training._policy_file_at = -1e9
    names = sorted(path.name for path in training.run.policies.glob('policy-*'))
    assert len(names) == 2

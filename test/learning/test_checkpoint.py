"""Save and restore: the update after a restart equals the update without one."""

import json

import pytest
import safetensors.numpy
from toys import random_chunk, TASK

from asyncppo_ros.chunk import Identity
from asyncppo_ros.config import Config, LearnerConfig, PolicyConfig, PpoConfig
from asyncppo_ros.errors import ArtefactError, RunError
from asyncppo_ros.learning import checkpoint
from asyncppo_ros.learning.checkpoint import load_checkpoint, load_policy, save_checkpoint
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.robot.artefact import parse_safetensors


def make_learner(task=TASK, hidden=(16,)):
    config = Config(policy=PolicyConfig(hidden_sizes=hidden),
                    learner=LearnerConfig(ppo=PpoConfig(minibatch_size=16, epochs=2)))
    return Learner(config, task, 3, 2, run_id=1)


def test_training_goes_on_as_if_nothing_had_happened(tmp_path):
    learner = make_learner()
    for seed in range(3):
        learner.update([random_chunk(seed)])
        learner.snapshot()
    learner.update([random_chunk(3)])  # not yet published: pending statistics differ
    save_checkpoint(tmp_path, learner, {'elapsed_s': 12.5})
    twin = make_learner()
    assert load_checkpoint(tmp_path, twin) == {'elapsed_s': 12.5}
    assert twin.identity == Identity(1, 4) > learner.identity
    assert learner.update([random_chunk(4)]) == twin.update([random_chunk(4)])
    twin.generation = learner.generation
    assert learner.snapshot().data == twin.snapshot().data


def test_learning_rate_is_continuous(tmp_path):
    learner = make_learner()
    learner.learning_rate, learner.learning_rate_scale = 1.25e-4, 0.5
    save_checkpoint(tmp_path, learner)
    twin = make_learner()
    load_checkpoint(tmp_path, twin)
    assert (twin.learning_rate, twin.learning_rate_scale) == (1.25e-4, 0.5)


def test_a_full_disk_leaves_the_last_good_one(tmp_path, monkeypatch):
    learner = make_learner()
    learner.update([random_chunk(0)])
    save_checkpoint(tmp_path, learner)
    good = (tmp_path / checkpoint.FILE).read_bytes()

    def full(*_):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr('os.fsync', full)
    learner.update([random_chunk(1)])
    with pytest.raises(OSError, match='No space left'):
        save_checkpoint(tmp_path, learner)
    assert (tmp_path / checkpoint.FILE).read_bytes() == good
    assert not list(tmp_path.glob('.*'))
    load_checkpoint(tmp_path, make_learner())


def test_the_one_before_is_kept(tmp_path):
    learner = make_learner()
    save_checkpoint(tmp_path, learner)
    first = (tmp_path / checkpoint.FILE).read_bytes()
    learner.update([random_chunk(0)])
    save_checkpoint(tmp_path, learner)
    assert (tmp_path / 'previous.safetensors').read_bytes() == first


def test_missing_damaged_and_foreign_checkpoints(tmp_path):
    with pytest.raises(RunError, match='no checkpoint in .*: nothing to resume'):
        load_checkpoint(tmp_path, make_learner())
    save_checkpoint(tmp_path, make_learner())
    with pytest.raises(RunError, match='was made by task toy, this run has task other'):
        load_checkpoint(tmp_path, make_learner(task={**TASK, 'task': 'other'}))
    with pytest.raises(RunError, match=r'its network differs: hidden_sizes \[16\] \(now \[32\]\)'):
        load_checkpoint(tmp_path, make_learner(hidden=(32,)))
    path = tmp_path / checkpoint.FILE
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(RunError, match='damaged'):
        load_checkpoint(tmp_path, make_learner())


def privileged_learner(critic_size=2, name='clock', hidden=(16,)):
    task = {**TASK, 'critic_observation': [{'name': name, 'size': critic_size}]}
    config = Config(policy=PolicyConfig(hidden_sizes=(16,), critic_hidden_sizes=hidden),
                    learner=LearnerConfig(ppo=PpoConfig(minibatch_size=16, epochs=2)))
    return Learner(config, task, 3, 2, run_id=1, critic_size=critic_size)


def test_what_is_known_of_the_critics_terms_is_restored(tmp_path):
    learner = privileged_learner()
    for seed in range(3):
        learner.update([random_chunk(seed, critic_size=2)])
        learner.snapshot()
    learner.update([random_chunk(3, critic_size=2)])
    save_checkpoint(tmp_path, learner)
    twin = privileged_learner()
    load_checkpoint(tmp_path, twin)
    assert learner.critic_normalizer.count != learner.pending_critic_normalizer.count
    for _ in range(2):
        chunks = [random_chunk(4, critic_size=2)]
        assert learner.update(chunks) == twin.update(chunks)
        learner.snapshot(), twin.snapshot()
        assert (learner.critic_normalizer.mean == twin.critic_normalizer.mean).all()
        assert (learner.critic_normalizer.variance == twin.critic_normalizer.variance).all()


@pytest.mark.parametrize('other, words', [
    (make_learner, r'critic_size 2 \(now 0\), terms \[\'clock\'\] \(now \[\]\)'),
    (lambda: privileged_learner(3), r'critic_size 2 \(now 3\)$'),
    (lambda: privileged_learner(name='sun'), r'terms \[\'clock\'\] \(now \[\'sun\'\]\)'),
    (lambda: privileged_learner(hidden=(8,)), r'hidden_sizes \[16\] \(now \[8\]\)')])
def test_a_critic_that_sees_something_else_is_refused(tmp_path, other, words):
    save_checkpoint(tmp_path, privileged_learner())
    with pytest.raises(RunError, match=r'its critic \(.*\) differs: .*' + words):
        load_checkpoint(tmp_path, other())


def test_checkpoints_from_before_critics_saw_more_are_still_read(tmp_path):
    learner = make_learner()
    learner.update([random_chunk(0)])
    path = save_checkpoint(tmp_path, learner)
    metadata, tensors = parse_safetensors(path.read_bytes())
    state = json.loads(metadata['state'])
    del state['critic']
    old = {name: tensor for name, tensor in tensors.items() if 'critic_normalizer' not in name
           and 'pending_critic' not in name}
    path.write_bytes(safetensors.numpy.save(old, {'state': json.dumps(state)}))
    twin = make_learner()
    load_checkpoint(tmp_path, twin)
    assert learner.update([random_chunk(1)]) == twin.update([random_chunk(1)])
    with pytest.raises(RunError, match=r'critic_size 0 \(now 2\)'):
        load_checkpoint(tmp_path, privileged_learner())


def test_a_new_run_begins_from_a_policy_whatever_its_critic_saw():
    trained = privileged_learner()
    trained.update([random_chunk(0, critic_size=2)])
    new = make_learner()
    load_policy(trained.snapshot().artefact, new)
    assert (new.normalizer.mean == trained.normalizer.mean).all() and new.normalizer.count
    theirs = new.snapshot().artefact
    again = privileged_learner()
    load_policy(theirs, again)
    # Its critic begins anew, as ever.
    assert again.critic_normalizer.count == 0


def test_a_new_run_begins_from_a_policy():
    trained = make_learner()
    for seed in range(3):
        trained.update([random_chunk(seed)])
    artefact = trained.snapshot().artefact
    new = make_learner()
    load_policy(artefact, new)
    ours, theirs = new.snapshot().artefact, artefact
    for name, tensor in theirs.tensors.items():
        assert (ours.tensors[name] == tensor).all(), name
    assert new.policy_version == 0 and new.env_steps == 0
    with pytest.raises(ArtefactError, match='its action entries differ'):
        load_policy(artefact, make_learner(task={**TASK, 'action': {'joints': ['a']}}))
    with pytest.raises(ArtefactError, match='hidden_sizes'):
        load_policy(artefact, make_learner(hidden=(8,)))

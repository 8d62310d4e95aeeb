"""The first policy after each milestone is kept: once, and for ever."""

import pytest
from test_training_loop import make  # noqa: F401 - a fixture
from toys import random_chunk

from asyncppo_ros.learning.milestones import milestone_file, Milestones
from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.run import Run

# Transitions of a chunk of `random_chunk`.
BATCH = 32


def steps_of(run, milestone):
    return PolicySnapshot.from_bytes(milestone_file(run, milestone).read_bytes()).env_steps


def train(training):
    training.publish_if_due(force=True)
    while training.step(0.0):
        training._policy_file_at = -1e9


def test_the_first_policy_after_each_is_kept(make):  # noqa: F811
    training, _, published, _ = make([random_chunk(seed) for seed in range(6)], keep_policies=1,
                                     milestones=(100, 33, 40, 10 ** 6))
    train(training)
    run = training.run
    assert [steps_of(run, milestone) for milestone in (33, 40, 100)] == [64, 64, 128]
    assert not milestone_file(run, 10 ** 6).exists()
    # The very bytes that were published, beside the policies that come and go.
    assert milestone_file(run, 100).read_bytes() == published[4][1]
    assert len(list(run.policies.glob('policy-*'))) == 1


def test_a_resumed_run_keeps_what_it_has(make):  # noqa: F811
    training, _, _, _ = make([random_chunk(seed) for seed in range(3)], milestones=(40,))
    train(training)
    again = Milestones(training.run, (40, 200))
    assert not again.due(199) and again.due(200)
    before = milestone_file(training.run, 40).read_bytes()
    training.learner.env_steps = 300
    again.keep(training.learner.snapshot())
    assert milestone_file(training.run, 40).read_bytes() == before
    assert steps_of(training.run, 200) == 300 and not again.due(10 ** 9)


def test_a_full_disk_is_told_and_the_next_policy_is_kept(make, monkeypatch):  # noqa: F811
    training, _, _, warnings = make([random_chunk(seed) for seed in range(3)], milestones=(20,))
    training.publish_if_due(force=True)

    def full(*_):
        raise OSError(28, 'No space left on device')

    with monkeypatch.context() as patched:
        patched.setattr('asyncppo_ros.learning.milestones.replace_file', full)
        assert training.step(0.0)
    assert 'MILESTONE NOT KEPT' in warnings[-1] and training.outages
    assert training.step(0.0) and not training.outages
    assert steps_of(training.run, 20) == 2 * BATCH


@pytest.mark.parametrize('milestones', [(), (0,)])
def test_none(tmp_path, milestones):
    assert not Milestones(Run(tmp_path), milestones).due(10 ** 9)

"""Two ranks of a learner are one: same parameters, same metrics; and what compression sends."""

import numpy as np
import pytest
import torch
from toys import random_chunk, TASK

from asyncppo_ros.cluster import data_parallel
from asyncppo_ros.cluster.rank_steps import positions
from asyncppo_ros.cluster.ranks import started
from asyncppo_ros.config import Config, LearnerConfig, PolicyConfig, PpoConfig
from asyncppo_ros.errors import RankError
from asyncppo_ros.learning import learner as learner_module
from asyncppo_ros.learning import transitions
from asyncppo_ros.learning.checkpoint import load_checkpoint, save_checkpoint
from asyncppo_ros.learning.learner import BadBatch, Learner

# Two chunks of 32 transitions: minibatches of 21, 21, 21 and 1, of which rank 1 has 10 and 0.
MINIBATCH = 21
UPDATES = 20


@pytest.fixture(scope='module')
def ranks():
    """Start one further rank, once for all tests: it takes a new network whenever it is told."""
    found = started(2, torch.device('cpu'))
    yield found
    found.close()


@pytest.fixture
def make_learner(ranks, monkeypatch):
    monkeypatch.setattr(data_parallel, 'started', lambda size, device, logs: ranks)

    def make(number_of_ranks, critic_size=0, hidden=(8, 7), **settings):
        ppo = PpoConfig(minibatch_size=MINIBATCH, epochs=2, learning_rate=0.003,
                        schedule='constant', entropy_coefficient=0.01)
        return Learner(Config(
            env_steps=10_000, policy=PolicyConfig(hidden_sizes=hidden, critic_hidden_sizes=hidden),
            learner=LearnerConfig(ranks=number_of_ranks, ppo=ppo, **settings)),
            TASK, 3, 2, run_id=1, critic_size=critic_size)
    return make


@pytest.fixture
def in_float64(monkeypatch):
    """Let a whole learner calculate in float64."""
    def on_device(array, device):
        return torch.from_numpy(array).double()

    for module in (learner_module, transitions):
        monkeypatch.setattr(module, 'on_device', on_device)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def chunks(update, **sizes):
    return [random_chunk(2 * update + place, policy_version=update, **sizes) for place in (0, 1)]


def parameters_of(learner):
    return [parameter.detach().clone() for parameter in learner.network.parameters()]


def assert_equal(one, two, tolerance):
    torch.testing.assert_close(parameters_of(two), parameters_of(one), rtol=0.0, atol=tolerance)
    torch.testing.assert_close(two.optimizer.state_dict()['state'],
                               one.optimizer.state_dict()['state'], rtol=0.0, atol=tolerance)


@pytest.mark.parametrize(('gradients', 'critic_size', 'weights'), [
    ('numpy', 0, ()), ('torch', 2, (1.0, 3.0)), ('numpy', 2, (0.0, 1.0))])
def test_two_ranks_are_one_learner(gradients, critic_size, weights, make_learner, in_float64):
    one, two = (make_learner(number, critic_size, gradients=gradients) for number in (1, 2))
    begun = parameters_of(one)
    for update in range(UPDATES):
        given = chunks(update, critic_size=critic_size)
        alone, together = (learner.update(given, weights=weights) for learner in (one, two))
        assert together.pop('gradient_bytes') > 0.0
        assert together == pytest.approx(alone, rel=1e-7, abs=1e-9)
    assert_equal(one, two, 1e-9)
    assert max(float((now - then).abs().max())
               for now, then in zip(parameters_of(one), begun)) > 0.01
    assert one.policy_version == UPDATES and one.gradient_steps == UPDATES * 2 * 4


def test_what_is_put_back_or_restored_is_so_on_every_rank(make_learner, in_float64, tmp_path,
                                                         monkeypatch):
    one, two = (make_learner(number) for number in (1, 2))
    for learner in (one, two):
        learner.update(chunks(0))
    save_checkpoint(tmp_path, one)

    def refuse():
        raise BadBatch('so it is')

    for learner in (one, two):
        with monkeypatch.context() as patch:
            patch.setattr(learner, '_check_state', refuse)
            with pytest.raises(BadBatch):
                learner.update(chunks(1))
        learner.update(chunks(2))
    assert_equal(one, two, 1e-12)
    for learner in (one, two):
        load_checkpoint(tmp_path, learner)
        learner.update(chunks(3))
    assert_equal(one, two, 1e-12)


def test_an_update_that_is_cut_short_is_so_on_every_rank(make_learner, in_float64):
    one, two = (make_learner(number) for number in (1, 2))
    for update, steps in enumerate((3, 8)):
        for learner in (one, two):
            end = learner.gradient_steps + steps
            learner.update(chunks(update),
                           should_stop=lambda learner=learner, end=end:
                           learner.gradient_steps >= end)
    assert one.gradient_steps == two.gradient_steps == 11
    assert_equal(one, two, 1e-12)


def test_numbers_that_are_not_finite_are_told(make_learner):
    for compression in ('none', 'powersgd'):
        learner = make_learner(2, gradient_compression=compression,
                               powersgd_start=2)
        learner.update(chunks(0))
        before = parameters_of(learner)
        spoilt = chunks(1)
        # Finite, so that only the loss tells.
        spoilt[1].reward[:] = 3e38
        with pytest.raises(BadBatch), np.errstate(all='ignore'):
            learner.update(spoilt)
        torch.testing.assert_close(parameters_of(learner), before, rtol=0.0, atol=0.0)
        learner.update(chunks(1))


# Of the bytes of float32, at least and at most; and how far from the uncompressed parameters, as
# a share of the way that those went.
@pytest.mark.parametrize(('compression', 'least', 'most', 'distance'), [
    ('bf16', 0.45, 0.55, 0.05), ('powersgd', 0.1, 0.4, 0.8)])
def test_compressed_gradients_are_fewer_bytes(compression, least, most, distance, make_learner):
    sizes, ends = [], []
    for kind in ('none', compression):
        learner = make_learner(2, hidden=(48, 48), gradient_compression=kind, powersgd_start=2)
        begun = torch.cat([part.flatten() for part in parameters_of(learner)])
        for update in range(4):
            metrics = learner.update(chunks(update))
        sizes.append(metrics['gradient_bytes'])
        ends.append(torch.cat([part.flatten() for part in parameters_of(learner)]))
    assert least < sizes[1] / sizes[0] < most
    assert len(begun) * 4 < sizes[0] < len(begun) * 4 * 1.1
    assert 0.0 < float((ends[1] - ends[0]).norm() / (ends[0] - begun).norm()) < distance


def test_a_minibatch_is_divided_without_rest():
    for count, minibatch_size, ranks in ((64, 21, 2), (10, 4, 3), (5, 7, 4), (1, 1, 2)):
        all_places = [positions(count, minibatch_size, rank, ranks) for rank in range(ranks)]
        assert sorted(np.concatenate(all_places)) == list(range(count))
        for begin in range(0, count, minibatch_size):
            sizes = [np.count_nonzero((places >= begin) & (places < begin + minibatch_size))
                     for places in all_places]
            assert max(sizes) - min(sizes) <= 1


def test_a_rank_that_is_killed_ends_the_update(ranks, make_learner):
    """Last: no rank is left after it."""
    learner = make_learner(2)
    learner.update(chunks(0))
    before, versions = parameters_of(learner), learner.policy_version

    def kill():
        if learner.gradient_steps == 12:
            ranks.processes[0].kill()

    learner.after_gradient_step = kill
    with pytest.raises(RankError, match='rank 1 of the learner ended with signal SIGKILL.*resume'):
        learner.update(chunks(1))
    assert learner.policy_version == versions and learner.gradient_steps == 8
    torch.testing.assert_close(parameters_of(learner), before, rtol=0.0, atol=0.0)
    learner.snapshot()
    learner.close()
    assert not torch.distributed.is_initialized()

"""A chunk: nothing unset, one policy, episodes that run on, the true final observations."""

import numpy as np
import torch
from toys import CountingEnvironment, PrivilegedEnvironment, TASK

from asyncppo_ros.acting.evaluation import evaluate
from asyncppo_ros.acting.rollout import layout_of, Rollout, Stamp
from asyncppo_ros.config import Config
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.robot.numpy_policy import NumpyPolicy

STAMP = Stamp(run_id=1, actor_id=4, incarnation=2, sequence=9)


def snapshot_of(seed=0, version=3):
    learner = Learner(Config(seed=seed), TASK, 3, 2, run_id=1)
    learner.policy_version, learner.gradient_steps = version, 30
    return learner.snapshot(), learner


def test_chunk_is_stamped_and_complete():
    snapshot, _ = snapshot_of()
    rollout = Rollout(CountingEnvironment([5, 7, 100]), 12, seed=0)
    chunk = rollout.collect(snapshot, STAMP)
    assert (chunk.run_id, *chunk.source, chunk.sequence) == STAMP
    assert chunk.identity == (0, 3) and chunk.gradient_steps == 30
    assert chunk.transitions == 36 and chunk.collecting_ns > 0
    for name in ('observation', 'action', 'behaviour_log_prob', 'behaviour_parameters', 'reward'):
        assert np.isfinite(getattr(chunk, name)).all(), name


def test_episodes_are_where_they_ended():
    snapshot, _ = snapshot_of()
    chunk = Rollout(CountingEnvironment([5, 7, 100]), 12, seed=0).collect(snapshot, STAMP)
    # Environment 0 is truncated after steps 4 and 9, environment 1 terminates after step 6.
    assert [tuple(index) for index in chunk.final_index] == [(4, 0), (9, 0)]
    np.testing.assert_array_equal(np.argwhere(chunk.truncated), [[4, 0], [9, 0]])
    np.testing.assert_array_equal(np.argwhere(chunk.terminated), [[6, 1]])
    # The true last observation, not the first of the next episode, which is row t + 1.
    np.testing.assert_array_equal(chunk.final_observation, [[0, 5, 0], [1, 5, 0]])
    np.testing.assert_array_equal(chunk.observation[5, 0], [1, 0, 0])
    np.testing.assert_array_equal(chunk.episodes, [[15, 5, -1], [28, 7, -1], [15, 5, -1]])


def test_what_only_the_critic_sees_belongs_to_the_same_rows():
    snapshot, _ = snapshot_of()
    plain = Rollout(CountingEnvironment([5, 7, 100]), 12, seed=0)
    rollout = Rollout(PrivilegedEnvironment([5, 7, 100]), 12, seed=0)
    for _ in range(2):
        chunk, without = (one.collect(snapshot, STAMP) for one in (rollout, plain))
        for rows, critic_rows in ((chunk.observation, chunk.critic_observation),
                                  (chunk.final_observation, chunk.final_critic_observation)):
            np.testing.assert_array_equal(critic_rows[..., 0], 100 * rows[..., 0] + rows[..., 1])
            np.testing.assert_array_equal(critic_rows[..., 1], -rows[..., 2])
        # The policy does as without.
        np.testing.assert_array_equal(chunk.action, without.action)
        assert without.critic_observation.shape == (13, 3, 0) and not without.value.size
        assert without.final_critic_observation.shape == (len(without.final_index), 0)


def test_a_chunk_that_is_cut_short_keeps_what_the_critic_sees():
    snapshot, _ = snapshot_of()
    steps = iter(range(1, 9))
    chunk = Rollout(PrivilegedEnvironment([5, 7, 100]), 12, seed=0).collect(
        snapshot, STAMP, lambda: next(steps) == 8)
    assert chunk.critic_observation.shape == (9, 3, 2)
    np.testing.assert_array_equal(
        chunk.critic_observation[..., 0],
        100 * chunk.observation[..., 0] + chunk.observation[..., 1])


def test_the_next_chunk_goes_on():
    snapshot, _ = snapshot_of()
    rollout = Rollout(CountingEnvironment([5, 7, 100]), 4, seed=0)
    first = rollout.collect(snapshot, STAMP)
    second = rollout.collect(snapshot, STAMP)
    np.testing.assert_array_equal(first.observation[-1], second.observation[0])
    np.testing.assert_array_equal(second.observation[1:, 2, 1], [5, 6, 7, 8])


def test_log_prob_is_that_of_the_stored_action():
    snapshot, learner = snapshot_of()
    chunk = Rollout(CountingEnvironment([50, 50]), 10, seed=1).collect(snapshot, STAMP)
    with torch.no_grad():
        parameters = learner.network.parameters_of(learner._normalized(chunk.observation[:-1]))
        log_prob = learner.network.distribution.log_prob(
            parameters, torch.from_numpy(chunk.action.copy()))
    np.testing.assert_allclose(chunk.behaviour_log_prob, log_prob, atol=1e-4)
    np.testing.assert_allclose(chunk.behaviour_parameters, parameters, atol=1e-5)


def test_the_environment_gets_the_tanh_of_the_action():
    snapshot, _ = snapshot_of()
    environment = CountingEnvironment([50, 50])
    chunk = Rollout(environment, 6, seed=1).collect(snapshot, STAMP)
    np.testing.assert_array_equal(np.stack(environment.actions), np.tanh(chunk.action))


def test_cut_short_keeps_what_was_collected():
    snapshot, _ = snapshot_of()
    whole = Rollout(CountingEnvironment([5, 7, 100]), 12, seed=3).collect(snapshot, STAMP)
    counted = []
    rollout = Rollout(CountingEnvironment([5, 7, 100]), 12, seed=3)
    cut = rollout.collect(snapshot, STAMP, lambda: len(counted) == 5, counted.append)
    assert cut.reward.shape == (5, 3) and counted == [3] * 5
    np.testing.assert_array_equal(cut.observation, whole.observation[:6])
    np.testing.assert_array_equal(cut.action, whole.action[:5])
    np.testing.assert_array_equal(cut.behaviour_log_prob, whole.behaviour_log_prob[:5])
    np.testing.assert_array_equal(cut.final_index, [[4, 0]])


def test_the_rest_of_a_cut_chunk_follows():
    """Whatever is cut, chunks fill whole ones, so that batches of whole ones are not overfull."""
    snapshot, _ = snapshot_of()
    rollout = Rollout(CountingEnvironment([50, 50]), 12, seed=0)

    def length(cut_after):
        counted = []
        chunk = rollout.collect(snapshot, STAMP, lambda: len(counted) == cut_after,
                                counted.append)
        return len(chunk.reward)

    assert [length(cut) for cut in (5, 1, 0, 0, 12, 0)] == [5, 1, 6, 12, 12, 12]


def test_seeds_decide_the_noise():
    snapshot, _ = snapshot_of()
    chunks = [Rollout(CountingEnvironment([50, 50]), 6, seed).collect(snapshot, STAMP)
              for seed in (1, 1, 2)]
    np.testing.assert_array_equal(chunks[0].action, chunks[1].action)
    assert not np.array_equal(chunks[0].action, chunks[2].action)


def test_layouts_tell_tasks_of_equal_sizes_apart():
    environment = CountingEnvironment([5])
    layout = layout_of(environment)
    assert layout.sizes() == {'O': 3, 'A': 2, 'P': 4, 'C': 0, 'V': 0}
    other = CountingEnvironment([5])
    other.describe = lambda: {**TASK, 'observation': [{'name': 'counter', 'size': 3, 'scale': 2}]}
    assert layout_of(other).digest() != layout.digest()
    privileged = PrivilegedEnvironment([5])
    assert layout_of(privileged).sizes() == {'O': 3, 'A': 2, 'P': 4, 'C': 2, 'V': 0}
    assert layout_of(environment, values=True).sizes() == {
        'O': 3, 'A': 2, 'P': 4, 'C': 0, 'V': 1}
    assert layout.digest() != layout_of(privileged).digest() != layout_of(
        privileged, values=True).digest()
    # Terms of one size, too, are told apart.
    before = layout_of(privileged).digest()
    privileged.describe = lambda: {**TASK, 'critic_observation': [{'name': 'other', 'size': 2}]}
    assert layout_of(privileged).digest() != before


def test_evaluation_counts_each_environment_once():
    snapshot, _ = snapshot_of()
    score = evaluate(NumpyPolicy(snapshot.artefact), CountingEnvironment([2, 30, 4]))
    assert score['episodes'] == 3 and score['success'] is None
    assert score['length_mean'] == 12.0
    assert score['return_mean'] == (3 + 465 + 10) / 3
    assert score['measures'] == {}

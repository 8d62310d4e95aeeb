"""A control step that did not come about is in no chunk, and nothing is invented in its place."""

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from toys import CountingEnvironment, FlakyEnvironment, TASK

from asyncppo_ros.acting.numpy_critic import NumpyCritic
from asyncppo_ros.acting.rollout import layout_of, Rollout, Stamp
from asyncppo_ros.config import Config, LearnerConfig
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.transport.codec import decode_chunk, encode_chunk

STAMP = Stamp(run_id=1, actor_id=4, incarnation=2, sequence=9)
LENGTHS = (5, 7, 100)


@pytest.fixture(scope='module')
def snapshot():
    config = Config(learner=LearnerConfig(value_source='actor'))
    task = {**TASK, 'critic_observation': [{'name': 'clock', 'size': 2}]}
    return Learner(config, task, 3, 2, run_id=1, critic_size=2).snapshot()


def rollout_of(environment, chunk_length=6, **options):
    return Rollout(environment, chunk_length, seed=0, values=True, **options)


def collected(rollout, snapshot, calls):
    """Collect, put every chunk over the wire, and check that the counts of steps agree."""
    chunks = []
    for _ in range(calls):
        stepped = []
        chunk = rollout.collect(snapshot, STAMP, stepped=stepped.append)
        assert sum(stepped) == (0 if chunk is None else chunk.transitions)
        if chunk is not None:
            # Every check of the receiver, the ends among them.
            chunks.append(decode_chunk(encode_chunk(chunk, rollout.layout), rollout.layout, 4096))
    return chunks


def transitions_of(chunks):
    """Give (row before, action, reward, terminated, truncated, row after) of every step."""
    found = []
    for chunk in chunks:
        final = {tuple(index): row for index, row
                 in zip(chunk.final_index.tolist(), chunk.final_observation)}
        for t in range(len(chunk.reward)):
            after = chunk.observation[t + 1].copy()
            for n in range(after.shape[0]):
                after[n] = final.get((t, n), after[n])
            found.append((chunk.observation[t], np.tanh(chunk.action[t]), chunk.reward[t],
                          chunk.terminated[t], chunk.truncated[t], after))
    return found


def test_the_step_before_is_truncated_with_its_own_last_observation(snapshot):
    environment = FlakyEnvironment(LENGTHS, missed=[3])
    told = []
    rollout = rollout_of(environment, warn=told.append)
    chunk, = collected(rollout, snapshot, 1)
    assert chunk.reward.shape == (3, 3)
    np.testing.assert_array_equal(np.argwhere(chunk.truncated), [[2, 0], [2, 1], [2, 2]])
    np.testing.assert_array_equal(chunk.final_observation, chunk.observation[3])
    np.testing.assert_array_equal(chunk.final_observation, [[1, 3, 0], [1, 3, 1], [1, 3, 2]])
    np.testing.assert_array_equal(chunk.final_critic_observation, [[103, 0], [103, -1], [103, -2]])
    critic = NumpyCritic(snapshot.artefact)
    np.testing.assert_array_equal(chunk.final_value[:, 0], critic.value(
        chunk.final_observation, chunk.final_critic_observation))
    # How the episode would have ended nobody knows, so it is none that counts.
    assert not len(chunk.episodes)
    assert rollout.missed_steps == 1 and told == ['no joint state came']
    following, = collected(rollout, snapshot, 1)
    np.testing.assert_array_equal(following.observation[0], [[2, 0, 0], [2, 0, 1], [2, 0, 2]])


def test_what_has_ended_already_stays_as_it_ended(snapshot):
    # Step 4 ends the episode of environment 0, step 6 that of environment 1; then one is missed.
    first, = collected(rollout_of(FlakyEnvironment(LENGTHS, [5])), snapshot, 1)
    np.testing.assert_array_equal(np.argwhere(first.truncated), [[4, 0], [4, 1], [4, 2]])
    np.testing.assert_array_equal(sorted(first.final_observation.tolist()),
                                  [[1, 5, 0], [1, 5, 1], [1, 5, 2]])
    np.testing.assert_array_equal(first.episodes, [[15, 5, -1]])
    second, = collected(rollout_of(FlakyEnvironment(LENGTHS, [7]), 9), snapshot, 1)
    np.testing.assert_array_equal(np.argwhere(second.terminated), [[6, 1]])
    assert not (second.truncated & second.terminated).any()


def test_without_a_first_step_there_is_no_chunk(snapshot):
    environment = FlakyEnvironment(LENGTHS, missed=[0, 1], missed_resets=[1])
    rollout = rollout_of(environment)
    assert not collected(rollout, snapshot, 3)
    assert rollout.missed_steps == 3 and environment.resets == 3
    chunk, = collected(rollout, snapshot, 1)
    np.testing.assert_array_equal(chunk.observation[0, :, 1], 0)


def test_a_missed_reset_is_tried_again_before_a_policy_is_chosen(snapshot):
    environment = FlakyEnvironment(LENGTHS, [], missed_resets=[0, 1])
    rollout = rollout_of(environment)
    assert [rollout.ready() for _ in range(4)] == [False, False, True, True]
    assert environment.resets == 3 and rollout.missed_steps == 2


@settings(max_examples=60, deadline=None)
@given(missed=st.sets(st.integers(0, 40)), missed_resets=st.sets(st.integers(0, 12)),
       chunk_length=st.integers(1, 9),
       lengths=st.lists(st.integers(1, 12), min_size=1, max_size=3))
def test_whatever_is_missed_the_transitions_are_the_true_ones(
        snapshot, missed, missed_resets, chunk_length, lengths):
    environment = FlakyEnvironment(lengths, missed, missed_resets)
    rollout = rollout_of(environment, chunk_length)
    chunks = collected(rollout, snapshot, 30)
    found = transitions_of(chunks)
    assert len(found) == len(environment.happened)
    interruptions = 0
    for (*are, truncated, after), (*were, by_itself, followed) in zip(found,
                                                                      environment.happened):
        for name, is_, was in zip(('observation', 'action', 'reward', 'terminated'), are, were):
            np.testing.assert_array_equal(is_, was, name)
        np.testing.assert_array_equal(after, followed)
        # A step is truncated by itself, or all that have not ended are, by what came after.
        if not (truncated == by_itself).all():
            interruptions += 1
            assert (truncated | were[3]).all()
    # Only a missed step ends these chunks early, and then nothing goes on from their last step.
    for chunk in chunks:
        assert (len(chunk.reward) == chunk_length
                or (chunk.terminated[-1] | chunk.truncated[-1]).all())
    missed_steps = len([number for number in missed if number < environment.steps])
    missed_resets = len([number for number in missed_resets if number < environment.resets])
    assert rollout.missed_steps == missed_steps + missed_resets
    assert interruptions <= missed_steps


class OneEpisode(CountingEnvironment):
    """Begins the next episode only when it is asked to, as a robot does."""

    needs_reset = False

    def reset(self, out):
        self.episode += 1
        self.step_in_episode[:] = 0
        self.needs_reset = False
        self._write(out)

    def step(self, action, out):
        assert not self.needs_reset
        result = super().step(action, out)
        if result.truncated.any():
            self.needs_reset = True
            out[result.final_index] = result.final_observation
        return result


def test_an_environment_that_waits_for_its_reset_ends_the_chunk(snapshot):
    environment = OneEpisode([4])
    rollout = Rollout(environment, 6, seed=0)
    assert layout_of(environment).critic_size == 0
    chunk, following = (rollout.collect(snapshot, STAMP) for _ in range(2))
    assert chunk.reward.shape == (4, 1) and following.reward.shape == (4, 1)
    np.testing.assert_array_equal(np.argwhere(chunk.truncated), [[3, 0]])
    np.testing.assert_array_equal(chunk.final_observation, chunk.observation[4])
    np.testing.assert_array_equal(chunk.episodes, [[10, 4, -1]])
    assert following.observation[0, 0, 1] == 0 and rollout.missed_steps == 0

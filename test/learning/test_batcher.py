"""The batcher: order, sizes, drops, and the age of what is consumed."""

import threading
import time

import numpy as np
import pytest

from asyncppo_ros.chunk import ARRAYS, Chunk, Identity, INTEGERS
from asyncppo_ros.learning.batcher import Batcher, policy_lag, Spread


def chunk(version=0, transitions=4, generation=1, sequence=0, gradient_steps=0, **durations):
    """Make a chunk whose arrays do not matter."""
    integers = {name: 0 for name in INTEGERS} | {
        'policy_version': version, 'generation': generation, 'sequence': sequence,
        'gradient_steps': gradient_steps, **durations}
    empty = np.zeros((0, 1), np.float32)
    step = np.zeros((transitions, 1), np.float32)
    arrays = dict.fromkeys((name for name, _, _ in ARRAYS), empty)
    steps = dict.fromkeys(('behaviour_log_prob', 'reward', 'terminated', 'truncated'), step)
    return Chunk(**integers, **arrays | steps)


def test_chunks_come_out_as_they_came_in():
    batcher = Batcher(10, 8)
    for sequence in range(5):
        batcher.offer(chunk(sequence=sequence), 0)
    batch = batcher.next_batch(Identity(1, 0), 0, 0.0)
    assert [one.sequence for one in batch.chunks] == [0, 1, 2]
    assert batch.transitions == 12
    assert batcher.transitions == 8
    assert batcher.next_batch(Identity(1, 0), 0, 0.0) is None


def test_the_old_are_dropped_and_reported():
    dropped = []
    batcher = Batcher(8, 2, dropped.extend)
    for version in (0, 3, 1, 4):
        batcher.offer(chunk(version), 0)
    batch = batcher.next_batch(Identity(1, 4), 0, 0.0)
    assert [one.policy_version for one in batch.chunks] == [3, 4]
    assert [one.policy_version for one in dropped] == [0, 1]
    assert batch.lag_versions == Spread(0.0, 0.5, 1.0, 1.0)
    assert batcher.transitions == 0


def test_drops_are_reported_before_any_wait():
    dropped = []
    batcher = Batcher(8, 0, dropped.extend)
    batcher.offer(chunk(0), 0)
    assert batcher.next_batch(Identity(1, 1), 0, 0.05) is None
    assert len(dropped) == 1


def test_who_waits_is_woken_by_a_full_batch_and_by_what_is_too_old_alone():
    looks, dropped = [], []

    class Watched(Batcher):
        def _remove_stale(self, current):
            looks.append(self.transitions)
            return super()._remove_stale(current)

    batcher = Watched(12, 1, dropped.extend)
    batches = []
    waiting = threading.Thread(
        target=lambda: batches.append(batcher.next_batch(Identity(1, 5), 0, 20.0)))
    waiting.start()
    wait_until(lambda: looks)
    for sequence in range(2):
        batcher.offer(chunk(5, sequence=sequence), 0)
    batcher.offer(chunk(3), 0)
    # It makes room for new permits at once.
    wait_until(lambda: dropped)
    batcher.offer(chunk(5, sequence=2), 0)
    waiting.join(20.0)
    assert [one.sequence for one in batches[0].chunks] == [0, 1, 2]
    assert looks[0] == 0 and 8 not in looks[:-2] and len(looks) <= 5


def wait_until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_versions_go_on_across_generations():
    assert policy_lag(chunk(5, generation=1), Identity(2, 7)) == 2
    # Policy 9 of generation 1 is no ancestor of 2.7, which began from an older checkpoint.
    assert policy_lag(chunk(9, generation=1), Identity(2, 7)) is None
    assert policy_lag(chunk(5, generation=3), Identity(2, 7)) is None


def test_the_age_is_the_sum_of_its_parts():
    batcher = Batcher(8, 8, clock_ns=lambda: 30_000_000)
    batcher.offer(chunk(collecting_ns=4_000_000, waiting_ns=1_000_000), 10_000_000, 500_000)
    batcher.offer(chunk(collecting_ns=6_000_000, waiting_ns=0), 20_000_000, 500_000)
    age = batcher.next_batch(Identity(1, 0), 0, 0.0).sample_age
    assert age.collecting == pytest.approx(Spread(4.0, 5.0, 6.0, 6.0))
    assert age.waiting.maximum == pytest.approx(1.0)
    assert age.transport.mean == pytest.approx(0.5)
    assert age.learner.mean == pytest.approx(15.0)
    assert age.total == pytest.approx(Spread(16.5, 21.0, 25.5, 25.5))


def test_the_lag_is_counted_in_gradient_steps_too():
    batcher = Batcher(8, 8)
    batcher.offer(chunk(gradient_steps=10), 0)
    batcher.offer(chunk(gradient_steps=30), 0)
    lag = batcher.next_batch(Identity(1, 0), 40, 0.0).lag_gradient_steps
    assert (lag.minimum, lag.mean, lag.maximum) == (10.0, 20.0, 30.0)


def test_a_waiting_learner_is_woken():
    batcher = Batcher(8, 8)
    batcher.offer(chunk(), 0)
    timer = threading.Timer(0.1, batcher.offer, (chunk(), 0))
    timer.start()
    begun = time.monotonic()
    assert batcher.next_batch(Identity(1, 0), 0, 10.0) is not None
    assert time.monotonic() - begun < 5.0
    timer.join()


def test_the_oldest_policy_goes_first_and_of_equals_the_first_to_arrive():
    batcher = Batcher(8, 8)
    for sequence, version in enumerate((3, 2, 3, 2)):
        batcher.offer(chunk(version, sequence=sequence), 0)
    order = [one.sequence for _ in range(2)
             for one in batcher.next_batch(Identity(1, 3), 0, 0.0).chunks]
    assert order == [1, 3, 0, 2]


def test_a_source_with_a_stricter_limit_goes_before_others():
    batcher = Batcher(8, 8)
    for sequence, target_lag in enumerate((4, 4, 1, 4)):
        batcher.offer(chunk(2, sequence=sequence), 0, target_lag=target_lag)
    assert batcher.next_batch(Identity(1, 2), 0, 0.0).chunks[0].sequence == 2


def test_a_source_may_have_a_bound_of_its_own():
    dropped = []
    batcher = Batcher(8, 2, dropped.extend)
    batcher.offer(chunk(0, sequence=0), 0)
    batcher.offer(chunk(0, sequence=1), 0, max_policy_lag=5)
    batcher.offer(chunk(4, sequence=2), 0, max_policy_lag=0)
    batcher.offer(chunk(5, sequence=3), 0, max_policy_lag=0)
    batch = batcher.next_batch(Identity(1, 5), 0, 0.0)
    assert [one.sequence for one in batch.chunks] == [1, 3]
    assert [one.sequence for one in dropped] == [0, 2]


def test_what_is_beyond_the_capacity_is_dropped_oldest_first():
    dropped = []
    batcher = Batcher(8, 8, dropped.extend, capacity=12)
    for sequence, version in enumerate((1, 0, 2, 3)):
        batcher.offer(chunk(version, sequence=sequence), 0)
    assert [one.sequence for one in dropped] == [1] and batcher.transitions == 12
    batcher.offer(chunk(0, 9, sequence=4), 0)
    # Older than all that waits: it is the first to go, but makes no room for itself.
    assert dropped[1].sequence == 4 and batcher.transitions == 12

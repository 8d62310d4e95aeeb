"""The batcher: order, sizes, drops, and the age of what is consumed."""

import threading
import time

import numpy as np
import pytest

from asyncppo_ros.chunk import Chunk, Identity, INTEGERS
from asyncppo_ros.learning.batcher import Batcher, policy_lag, Spread


def chunk(version=0, transitions=4, generation=1, sequence=0, gradient_steps=0, **durations):
    """Make a chunk whose arrays do not matter."""
    integers = {name: 0 for name in INTEGERS} | {
        'policy_version': version, 'generation': generation, 'sequence': sequence,
        'gradient_steps': gradient_steps, **durations}
    empty = np.zeros((0, 1), np.float32)
    step = np.zeros((transitions, 1), np.float32)
    return Chunk(**integers, observation=empty, action=empty, behaviour_log_prob=step,
                 behaviour_parameters=empty, reward=step, terminated=step, truncated=step,
                 final_observation=empty, final_index=empty, episodes=empty)


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

"""
Chunks in, batches out, with the age of everything measured when it is consumed.

Those go first that are due first: of one limit on the lag, those of the oldest policy, and of
equals the first to arrive.  The mean lag is that of any other order, the largest is smaller.
"""

from bisect import insort_right
from collections import deque
from collections.abc import Callable, Sequence
import math
import threading
import time
from typing import NamedTuple

import numpy as np

from asyncppo_ros.chunk import Chunk, Identity


class ReceivedChunk(NamedTuple):
    """
    A chunk that passed every check.

    Attributes
    ----------
    chunk : Chunk
    received_ns : int
        The learner's steady clock when it arrived [ns].
    transport_ns : int
        Half a round trip, measured by the actor [ns].
    due : int
        Version of the learner at which it should be consumed.
    max_policy_lag : int
        It is dropped when it is older [versions].
    weight : float
        Of its transitions in the loss, relative to those of other sources.

    """

    chunk: Chunk
    received_ns: int
    transport_ns: int
    due: int
    max_policy_lag: int
    weight: float = 1.0


class MeasuredChunk(NamedTuple):
    """
    A chunk as it was consumed.

    Attributes
    ----------
    chunk : Chunk
    lag_versions, lag_gradient_steps : int
        Learner minus behaviour policy.
    collecting, waiting, transport, learner : float
        The parts of its age [ms].

    """

    chunk: Chunk
    lag_versions: int
    lag_gradient_steps: int
    collecting: float
    waiting: float
    transport: float
    learner: float

    @property
    def age(self) -> float:
        """Time from its first step to its use [ms]."""
        return self.collecting + self.waiting + self.transport + self.learner


class Spread(NamedTuple):
    """Smallest, mean, 95th percentile and largest of a number over the chunks of a batch."""

    minimum: float
    mean: float
    p95: float
    maximum: float

    @classmethod
    def of(cls, values: Sequence[float]) -> 'Spread':
        """Summarize at least one value."""
        array = np.sort(np.asarray(values, np.float64))
        # The smallest value that 95 % of all do not exceed.
        p95 = array[math.ceil(0.95 * len(array)) - 1]
        return cls(float(array[0]), float(array.mean()), float(p95), float(array[-1]))


class SampleAge(NamedTuple):
    """
    Time from the first step of a chunk to its use [ms], in its parts.

    Every part is measured by one clock; `total` is their sum, chunk by chunk.
    """

    collecting: Spread
    waiting: Spread
    transport: Spread
    learner: Spread
    total: Spread


class ConsumedChunks(NamedTuple):
    """
    The chunks of one update.

    Attributes
    ----------
    chunks : tuple of Chunk
        In the order of their use, together at least `batch_size` transitions.
    transitions : int
    lag_versions, lag_gradient_steps : Spread
        Learner minus behaviour policy, one value per chunk.
    sample_age : SampleAge
    measured : tuple of MeasuredChunk
        The same, chunk by chunk.
    weights : tuple of float
        Of each chunk in the loss, relative to the others.

    """

    chunks: tuple[Chunk, ...]
    transitions: int
    lag_versions: Spread
    lag_gradient_steps: Spread
    sample_age: SampleAge
    measured: tuple[MeasuredChunk, ...]
    weights: tuple[float, ...]


def policy_lag(chunk: Chunk, current: Identity) -> int | None:
    """
    Give the age of a chunk's policy in versions, ≥ 0.

    Versions go on across generations.  None: the policy is none of this learner's past, because
    a later generation began from an older state.
    """
    lag = current.policy_version - chunk.policy_version
    if lag < 0 or chunk.generation > current.generation:
        return None
    return lag


class Batcher:
    """
    Collects chunks until they make a batch; thread-safe.

    Parameters
    ----------
    batch_size : int
        Fewest transitions of a batch.
    max_policy_lag : int
        Chunks that are older when they would be consumed are dropped [versions].
    on_dropped : callable
        Is given the chunks that were dropped, outside the lock.
    capacity : int, optional
        The most transitions that wait, where no permits bound them: those that are due first
        are dropped for those that come.  At least `batch_size`.
    clock_ns : callable
        The learner's steady clock [ns].

    """

    def __init__(self, batch_size: int, max_policy_lag: int,
                 on_dropped: Callable[[list[Chunk]], None] = lambda chunks: None,
                 capacity: float = math.inf,
                 clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.batch_size = batch_size
        self.max_policy_lag = max_policy_lag
        self.on_dropped = on_dropped
        self._capacity = max(capacity, batch_size)
        self._clock_ns = clock_ns
        self._queue: deque[ReceivedChunk] = deque()
        self._transitions = 0
        self._current = Identity(0, 0)
        self._arrived = threading.Condition()

    @property
    def transitions(self) -> int:
        """Number of transitions that wait."""
        return self._transitions

    def offer(self, chunk: Chunk, received_ns: int, transport_ns: int = 0,
              target_lag: int = 0, max_policy_lag: int | None = None,
              weight: float = 1.0) -> None:
        """
        Add a checked chunk; never waits (permits or the capacity bound how much there is).

        Parameters
        ----------
        chunk : Chunk
        received_ns : int
            The learner's steady clock when it arrived [ns].
        transport_ns : int
            Half a round trip, measured by the actor [ns].
        target_lag : int
            Limit of its source [versions]: says when it is due.
        max_policy_lag : int, optional
            Bound of its source alone [versions].
        weight : float
            Of its source in the loss.

        """
        bound = self.max_policy_lag if max_policy_lag is None else max_policy_lag
        received = ReceivedChunk(chunk, received_ns, transport_ns,
                                 chunk.policy_version + target_lag, bound, weight)
        with self._arrived:
            # Nearly always at the end.
            insort_right(self._queue, received, key=_due)
            self._transitions += chunk.transitions
            dropped = []
            while self._transitions > self._capacity:
                dropped.append(self._queue.popleft().chunk)
                self._transitions -= dropped[-1].transitions
            # A look at all that waits, for each that comes, would cost the more the more do.
            if self._transitions >= self.batch_size or _is_stale(received, self._current):
                self._arrived.notify_all()
        if dropped:
            self.on_dropped(dropped)

    def next_batch(self, current: Identity, gradient_steps: int,
                   timeout: float) -> ConsumedChunks | None:
        """
        Take the next batch.

        Parameters
        ----------
        current : Identity
            The learner's policy; fixed for as long as this call takes.
        gradient_steps : int
            The learner's, for the lag.
        timeout : float
            Longest wait [s]; 0 = do not wait.

        Returns
        -------
        batch : ConsumedChunks or None
            None when there is no full batch in time.

        """
        deadline = time.monotonic() + timeout
        while True:
            with self._arrived:
                self._current = current
                dropped = self._remove_stale(current)
                taken = self._take() if self._transitions >= self.batch_size else []
                if not taken and not dropped:
                    # Drops are reported before any wait: they make room for new permits.
                    remaining = deadline - time.monotonic()
                    if remaining <= 0.0:
                        return None
                    self._arrived.wait(remaining)
            if dropped:
                self.on_dropped(dropped)
            if taken:
                return self._measured(taken, current, gradient_steps)

    def _remove_stale(self, current: Identity) -> list[Chunk]:
        kept: deque[ReceivedChunk] = deque()
        dropped = []
        for received in self._queue:
            if _is_stale(received, current):
                dropped.append(received.chunk)
                self._transitions -= received.chunk.transitions
            else:
                kept.append(received)
        self._queue = kept
        return dropped

    def _take(self) -> list[ReceivedChunk]:
        taken, transitions = [], 0
        while transitions < self.batch_size:
            received = self._queue.popleft()
            taken.append(received)
            transitions += received.chunk.transitions
        self._transitions -= transitions
        return taken

    def _measured(self, taken: list[ReceivedChunk], current: Identity,
                  gradient_steps: int) -> ConsumedChunks:
        now_ns = self._clock_ns()
        measured = tuple(MeasuredChunk(
            received.chunk, policy_lag(received.chunk, current) or 0,
            # A refused batch takes gradient steps back, so the difference may dip below 0.
            max(0, gradient_steps - received.chunk.gradient_steps),
            received.chunk.collecting_ns * 1e-6, received.chunk.waiting_ns * 1e-6,
            received.transport_ns * 1e-6, (now_ns - received.received_ns) * 1e-6)
            for received in taken)
        parts = np.array([one[3:] for one in measured])  # [chunk, part]
        return ConsumedChunks(
            tuple(one.chunk for one in measured),
            sum(one.chunk.transitions for one in measured),
            Spread.of([one.lag_versions for one in measured]),
            Spread.of([one.lag_gradient_steps for one in measured]),
            SampleAge(*(Spread.of(part) for part in (*parts.T, parts.sum(1)))),
            measured, tuple(received.weight for received in taken))


def _is_stale(received: ReceivedChunk, current: Identity) -> bool:
    lag = policy_lag(received.chunk, current)
    return lag is None or lag > received.max_policy_lag


def _due(received: ReceivedChunk) -> int:
    return received.due

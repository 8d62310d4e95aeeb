"""Chunks that an actor has finished and the learner has not acknowledged.  No I/O, no clock."""

from collections import deque
from typing import NamedTuple

from asyncppo_ros.chunk import Chunk


class Pending(NamedTuple):
    """
    A finished chunk.

    Attributes
    ----------
    chunk : Chunk
    finished_ns : int
        The actor's clock when it was finished [ns].
    before : int
        Transitions of all chunks of this incarnation before it.

    """

    chunk: Chunk
    finished_ns: int
    before: int


class PendingChunks:
    """
    A queue that is emptied by acknowledgement, not by sending.

    Attributes
    ----------
    next_sequence : int
        Of the next chunk to be finished.
    handed : int
        Chunks below this sequence were handed to the socket.

    """

    def __init__(self) -> None:
        self.next_sequence = 0
        self.handed = 0
        self._queue: deque[Pending] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def first(self) -> int:
        """Sequence of the oldest chunk that is not acknowledged."""
        return self.next_sequence - len(self._queue)

    @property
    def oldest(self) -> Pending | None:
        """The oldest chunk that is not acknowledged."""
        return self._queue[0] if self._queue else None

    def finished(self, pending: Pending) -> None:
        """
        Add the next chunk.

        Raises
        ------
        ValueError
            Its sequence is not `next_sequence`.

        """
        if pending.chunk.sequence != self.next_sequence:
            raise ValueError(f'chunk {pending.chunk.sequence} where {self.next_sequence} is next')
        self._queue.append(pending)
        self.next_sequence += 1

    def to_hand_over(self) -> Pending | None:
        """Give the oldest chunk that was not handed to the socket; None = there is none."""
        if self.handed >= self.next_sequence:
            return None
        return self._queue[self.handed - self.first]

    def acknowledged(self, expected: int) -> None:
        """Forget the chunks below `expected`."""
        while self._queue and self._queue[0].chunk.sequence < expected:
            self._queue.popleft()
        self.handed = max(self.handed, self.first)

    def rewind(self) -> None:
        """Begin again with the oldest that is not acknowledged: those after it were lost."""
        self.handed = self.first

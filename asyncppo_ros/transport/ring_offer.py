"""How an actor comes to use a ring: it offers one with its hello, and the learner answers."""

import dataclasses

import numpy as np

from asyncppo_ros.chunk import Chunk
from asyncppo_ros.errors import RunError
from asyncppo_ros.transport.messages import ChunkNotice, Hello
from asyncppo_ros.transport.ring import RingWriter


class RingOffer:
    """
    The ring of an actor through all its sessions with learners; each session has a new one.

    Parameters
    ----------
    kind : str
        `auto` = offer one, `zmq` = never, `shm` = insist on it.
    slots : int

    Attributes
    ----------
    is_used : bool
        The learner reads the ring of this session: all chunks go through it, in order.

    """

    def __init__(self, kind: str, slots: int) -> None:
        self.is_used = False
        self._kind = kind
        self._slots = slots
        self._first = 0
        self._ring: RingWriter | None = None

    def added_to(self, hello: Hello) -> Hello:
        """
        Offer a ring in a hello.

        Raises
        ------
        RunError
            The kind is `shm` and this platform cannot do that.

        """
        if self._kind == 'zmq':
            return hello
        if self._ring is None:
            try:
                self._ring = RingWriter(hello.layout, hello.chunk_length, hello.num_envs,
                                        self._slots)
            except OSError as error:
                if self._kind == 'shm':
                    raise RunError(f'transport.kind = shm: no shared memory here ({error}); '
                                   'auto takes sockets then') from None
                self._kind = 'zmq'
                return hello
        return dataclasses.replace(hello, ring_fd=self._ring.descriptor,
                                   ring_token=self._ring.token)

    def answered(self, is_accepted: bool, first: int, host: str) -> None:
        """
        Begin a session, in which chunk `first` is the first that is handed over.

        Raises
        ------
        RunError
            The kind is `shm` and the learner does not read the ring.

        """
        if self._kind == 'shm' and not is_accepted:
            raise RunError(
                f'transport.kind = shm: the learner on {host} does not reach the memory of this '
                'actor (another host, container or user, or it has transport.kind zmq); auto '
                'takes sockets then')
        self.is_used = is_accepted and self._ring is not None
        self._first = first
        if not is_accepted:
            self.close()

    def session_over(self) -> None:
        """Let the learner of this session take no more."""
        self.is_used = False
        self.close()

    def acknowledged(self) -> int:
        """Give the sequence below which the learner has taken all chunks of this session."""
        if not self.is_used or self._ring is None:
            return 0
        return self._first + min(self._ring.taken, self._ring.filled)

    def buffer(self) -> np.ndarray | None:
        """Lend the memory of the next slot; None = there is none, or it is full."""
        return self._ring.buffer() if self.is_used and self._ring is not None else None

    def publish(self, chunk: Chunk, notice: ChunkNotice) -> bool:
        """Hand a chunk over; False = all slots are full."""
        return self._ring is not None and self._ring.publish(chunk, notice)

    def bell_is_due(self) -> bool:
        """Say whether the learner must be told that there is something, and note that it is."""
        ring = self._ring
        return (self.is_used and ring is not None and ring.filled > ring.taken
                and ring.bell_is_due())

    def bell_failed(self) -> None:
        """Note that the learner could not be told."""
        if self._ring is not None:
            self._ring.bell_failed()

    def close(self) -> None:
        """Let go of the ring; chunks that lie in it keep its memory."""
        if self._ring is not None:
            self._ring.close()
            self._ring = None

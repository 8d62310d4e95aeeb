"""The transport without sockets, for one process."""

import uuid

import numpy as np

from asyncppo_ros.chunk import Chunk, Identity, Source
from asyncppo_ros.errors import RunError
from asyncppo_ros.learning.ledger import ActorLedger
from asyncppo_ros.transport.chunk_sender import ChunkSender
from asyncppo_ros.transport.intake import Intake
from asyncppo_ros.transport.messages import Bye, ChunkNotice, Hello, Refused


class InMemoryChunkSender(ChunkSender):
    """
    A `ChunkSender` that hands chunks to the intake directly.

    Raises
    ------
    RunError
        The intake refuses the actor; the text says why.

    """

    def __init__(self, intake: Intake, hello: Hello) -> None:
        self._intake = intake
        self._peer = uuid.uuid4().bytes
        welcome = intake.join(self._peer, hello)
        if isinstance(welcome, Refused):
            raise RunError(f'the learner refused this actor: {welcome.text}')
        self.run_id = welcome.run_id
        self.source = Source(hello.actor_id, welcome.incarnation)
        self._next_sequence = welcome.next_sequence
        self.ledger = ActorLedger(self.source, welcome.run_dir or None)

    @property
    def next_sequence(self) -> int:
        """Of the next chunk."""
        return self._next_sequence

    @property
    def stopped(self) -> bool:
        """Whether the run is over."""
        return self._intake.stopping

    def poll(self, timeout: float = 0.0) -> None:
        """Do nothing: permits are looked up when they are asked for."""

    def permit_for(self, sequence: int) -> Identity | None:
        """Give the oldest policy chunk `sequence` may be collected with; None = not yet."""
        permit = self._intake.permit(self.source)
        if permit is None or sequence >= permit.limit or self.stopped:
            return None
        return permit.minimum

    def buffer(self) -> np.ndarray | None:
        """Lend nothing: chunks are handed over as they lie."""
        return None

    def send(self, chunk: Chunk) -> None:
        """Hand a finished chunk over; one that fails a check is counted, as over a socket."""
        before = self.ledger.counters.transitions
        self.ledger.completed(chunk.transitions)
        self._next_sequence += 1
        self._intake.deliver(self._peer, ChunkNotice(chunk.sequence, chunk.transitions, before,
                                                     0), chunk)

    def close(self) -> None:
        """Say goodbye."""
        self._intake.leave(self._peer, Bye(**vars(self.ledger.counters)))

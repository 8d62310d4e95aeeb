"""What an actor needs of a transport."""

from typing import Protocol

import numpy as np

from asyncppo_ros.chunk import Chunk, Identity, Source
from asyncppo_ros.learning.ledger import ActorLedger


class ChunkSender(Protocol):
    """
    What an actor needs of a transport; used by one thread.

    Attributes
    ----------
    run_id : int
        Goes into every chunk.
    source : Source
        Actor and incarnation as the learner assigned them.
    next_sequence : int
        Of the next chunk; `send` raises it by one.
    ledger : ActorLedger
        The actor calls ``ledger.stepped(N)`` after each control step of N environments.
    stopped : bool
        The run is over: send the chunk at hand, cut short, and close.

    """

    run_id: int
    source: Source
    ledger: ActorLedger

    @property
    def next_sequence(self) -> int:
        """See above."""

    @property
    def stopped(self) -> bool:
        """See above."""

    def poll(self, timeout: float = 0.0) -> None:
        """
        Handle what has arrived and send what is due; wait up to `timeout` [s] for the first.

        Call it at least every `heartbeat_timeout_s` / 2, also while collecting.
        """

    def permit_for(self, sequence: int) -> Identity | None:
        """Give the oldest policy chunk `sequence` may be collected with; None = not yet."""

    def buffer(self) -> np.ndarray | None:
        """Lend memory for the `ChunkBuffer` of the next chunk; None = it is to make its own."""

    def send(self, chunk: Chunk) -> None:
        """Send a finished chunk; never waits, and the chunk's memory is not to be reused."""

    def close(self) -> None:
        """Say goodbye with the final counters."""

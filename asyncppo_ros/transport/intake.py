"""Between any transport and the learner: one lock around reception, permits and books."""

from collections.abc import Callable, Sequence
import threading
import time
from typing import Any

from asyncppo_ros.chunk import Chunk, Identity, Source
from asyncppo_ros.errors import CodecError
from asyncppo_ros.learning.batcher import Batcher, ConsumedChunks
from asyncppo_ros.learning.books import Books
from asyncppo_ros.transport.admission import Session
from asyncppo_ros.transport.messages import Bye, ChunkNotice, Hello, Refused, Welcome
from asyncppo_ros.transport.permits import Permit, PermitBook
from asyncppo_ros.transport.reception import Post, Reception


class Intake:
    """
    What the learner and the transport share; any thread may call anything.

    The learner calls `next_batch`, `updated`, `published` and the like.  The transport calls
    `handle` or `deliver`, `join`, `leave`, `expire` and `stop`, and takes what is to be sent
    by `post_to`.

    Parameters
    ----------
    session : Session
    permits : PermitBook
    batcher : Batcher
        Its `on_dropped` is set to this intake.
    books : Books
    warn : callable
        Takes one line for people, from any thread.

    Attributes
    ----------
    chunks_consumed, chunks_dropped : int

    """

    def __init__(self, session: Session, permits: PermitBook, batcher: Batcher, books: Books,
                 warn: Callable[[str], None] = print,
                 clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._lock = threading.RLock()
        self._session = session
        self._permits = permits
        self._batcher = batcher
        self._books = books
        self._reception = Reception(session, permits, batcher, books, warn, clock_ns)
        self.chunks_consumed = 0
        self.chunks_dropped = 0
        batcher.on_dropped = self._dropped
        self._death: Exception | None = None

    # What the learner does

    def next_batch(self, current: Identity, gradient_steps: int,
                   timeout: float) -> ConsumedChunks | None:
        """
        Take the next batch: an update begins, which `updated` ends.

        Parameters
        ----------
        current : Identity
            The learner's policy.
        gradient_steps : int
            The learner's, for the lag.
        timeout : float
            Longest wait [s].

        Returns
        -------
        batch : ConsumedChunks or None
            None when there is no full batch in time.

        Raises
        ------
        RuntimeError
            The transport died.

        """
        if self._death is not None:
            raise RuntimeError('the thread that receives chunks died') from self._death
        batch = self._batcher.next_batch(current, gradient_steps, timeout)
        if batch is not None:
            with self._lock:
                self.chunks_consumed += len(batch.chunks)
                for chunk in batch.chunks:
                    self._books.consumed(chunk.source, chunk.transitions)
                self._reception.tell(self._permits.batch_taken(batch.transitions))
        return batch

    def updated(self, version: int) -> None:
        """Report the end of an update (of a refused one, with the version unchanged)."""
        with self._lock:
            self._reception.tell(self._permits.updated(version))

    def published(self, identity: Identity, data: bytes | None = None) -> None:
        """
        Report that a policy can be had from now on (also the first one).

        Parameters
        ----------
        identity : Identity
        data : bytes, optional
            The policy, for actors that ask for it.

        """
        with self._lock:
            self._reception.published(identity, data, self._permits.published(identity))

    def restored(self, identity: Identity) -> None:
        """Report that the learner goes on from an older state under a new generation."""
        with self._lock:
            self._reception.tell(self._permits.restored(identity))

    def pause(self) -> None:
        """Grant nothing until `resume`."""
        with self._lock:
            self._reception.tell(self._permits.paused())

    def resume(self) -> None:
        """Grant again."""
        with self._lock:
            self._reception.tell(self._permits.resumed())

    # What can be seen

    @property
    def largest_frame(self) -> int:
        """Bytes above which no transport needs to take a frame."""
        return self._session.largest_frame

    @property
    def sources(self) -> list[Source]:
        """Name the actors that are connected."""
        with self._lock:
            return self._reception.sources

    @property
    def actor_wait(self) -> float:
        """Share of time that actors wait for permits and policies, in [0, 1]."""
        with self._lock:
            return self._reception.actor_wait

    @property
    def policy_silence(self) -> dict[Source, float]:
        """For how long the policy topic has been silent, as each connected actor sees it [s]."""
        with self._lock:
            return self._reception.policy_silence

    @property
    def under_way(self) -> int:
        """Transitions granted or received that are not yet consumed or dropped."""
        with self._lock:
            return self._permits.under_way

    @property
    def waiting(self) -> int:
        """Transitions that wait for the learner."""
        return self._batcher.transitions

    @property
    def chunks_received(self) -> int:
        """Chunks that passed every check."""
        return self._reception.chunks_received

    @property
    def chunks_cut(self) -> int:
        """Chunks among them that had been ended before their full length."""
        return self._reception.chunks_cut

    @property
    def chunks_from_rings(self) -> int:
        """Those of `chunks_received` that came through shared memory."""
        return self._reception.chunks_from_rings

    @property
    def stopping(self) -> bool:
        """Whether the actors were told that the run is over."""
        return self._reception.stopping

    def permit(self, source: Source) -> Permit | None:
        """Give the permit of an actor; None = not connected."""
        with self._lock:
            return self._permits.permit(source)

    def refused(self) -> dict[str, int]:
        """Count the refused messages by cause."""
        with self._lock:
            return self._reception.refusals.by_cause()

    def refused_of(self, source: Source | None) -> dict[str, int]:
        """Count the refused messages of an actor (None = of strangers) by cause."""
        with self._lock:
            return {cause: count for (sender, cause), count
                    in self._reception.refusals.counts.items() if sender == source}

    def refused_connections(self) -> dict[str, int]:
        """Count the refused connections by cause."""
        with self._lock:
            return dict(self._reception.refusals.connections)

    def gaps(self) -> dict[Source, int]:
        """Count the chunks of each actor that were lost on the way."""
        with self._lock:
            return dict(self._reception.gaps)

    def missed_steps(self) -> int:
        """Count the control steps that did not come about, of all actors, also of those gone."""
        with self._lock:
            return sum(self._reception.missed_steps.values())

    def saturated(self) -> int:
        """Count the numbers of all observations that were too large for float16."""
        with self._lock:
            return sum(self._reception.saturated.values())

    def books_state(self) -> dict[str, Any]:
        """Give the books for a checkpoint."""
        with self._lock:
            return self._books.state()

    def books_totals(self) -> dict[str, int]:
        """Give the sum of each column of the books."""
        with self._lock:
            return self._books.totals()

    def write_books(self) -> list[str]:
        """Write ``books.json`` and say what does not balance."""
        with self._lock:
            return self._books.write()

    # What the transport does

    def post_to(self, post: Post) -> None:
        """Hand every message that is to be sent to `post`, which must not wait."""
        with self._lock:
            self._reception.post = post

    def handle(self, peer: bytes, frames: Sequence[bytes]) -> None:
        """Take in whatever a peer sent; what fails a check is counted and its sender named."""
        with self._lock:
            try:
                self._reception.handle(peer, frames)
            except Exception as error:
                # A receiver that is dead without a word would be worse than any message.
                self._reception.failed(peer, error)

    def refuse_connection(self, address: str, error: CodecError) -> None:
        """Count a connection that was refused before anything could be sent."""
        with self._lock:
            self._reception.refusals.refused_connection(address, error)

    def drain(self) -> None:
        """Take in what lies in shared memory, also where no message said so."""
        with self._lock:
            self._reception.drain_all()

    def deliver(self, peer: bytes, notice: ChunkNotice, chunk: Chunk) -> None:
        """Take in a chunk that was never encoded."""
        with self._lock:
            self._reception.deliver(peer, notice, chunk)

    def join(self, peer: bytes, hello: Hello) -> Welcome | Refused:
        """Take an actor in and give it its first permit, or say in words why not."""
        with self._lock:
            answer = self._reception.join(peer, hello)
            if isinstance(answer, Welcome):
                self._reception.grant_first(peer)
            return answer

    def leave(self, peer: bytes, bye: Bye | None = None) -> None:
        """Close the account of an actor that says goodbye."""
        with self._lock:
            self._reception.leave(peer, bye)

    def expire(self) -> None:
        """Let go of actors that have been silent for too long."""
        with self._lock:
            self._reception.expire()

    def stop(self) -> None:
        """Tell all actors, now and later, that the run is over."""
        with self._lock:
            self._reception.stop()

    def receiver_died(self, error: Exception) -> None:
        """Let the learner know that nothing will come any more: `next_batch` raises."""
        self._death = error

    def leave_all(self) -> None:
        """Close the accounts of all who have not said goodbye: nobody listens any more."""
        with self._lock:
            self._reception.leave_all()

    def _dropped(self, chunks: list[Chunk]) -> None:
        with self._lock:
            self.chunks_dropped += len(chunks)
            for chunk in chunks:
                self._books.dropped(chunk.source, chunk.transitions)
            self._reception.tell(self._permits.dropped(
                sum(chunk.transitions for chunk in chunks)))

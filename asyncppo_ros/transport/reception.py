"""What the learner does with each message of an actor.  No sockets, no threads, no waiting."""

from collections import Counter
from collections.abc import Callable, Sequence
import dataclasses
import socket
from typing import Protocol

from asyncppo_ros.chunk import Chunk, Identity, NO_POLICY, Source
from asyncppo_ros.errors import CodecError
from asyncppo_ros.learning.batcher import Batcher
from asyncppo_ros.learning.books import Books
from asyncppo_ros.learning.ledger import RING
from asyncppo_ros.transport import messages
from asyncppo_ros.transport.admission import check_chunk, Session, why_refused
from asyncppo_ros.transport.codec import checked_arrays, decode_chunk
from asyncppo_ros.transport.half import saturated
from asyncppo_ros.transport.messages import ChunkNotice, Hello, Message
from asyncppo_ros.transport.permits import Changes, PermitBook
from asyncppo_ros.transport.refusals import name_of, RefusalLog
from asyncppo_ros.transport.ring import open_ring, RingItem, RingReader


class Post(Protocol):
    """Takes what the transport is to send to a peer, without waiting."""

    def __call__(self, peer: bytes, message: Message, payload: bytes | None = None) -> None:
        """Send `payload`, where there is one, as the frame after the message."""


@dataclasses.dataclass
class _Peer:
    """An actor that was welcomed."""

    source: Source
    hello: Hello
    heard_ns: int
    sent_ns: int = 0
    waited_ns: int = 0
    wait: float = 0.0
    policy_silent_ms: int = 0
    skipped: set[int] = dataclasses.field(default_factory=set)
    ring: RingReader | None = None

    @property
    def chunk_transitions(self) -> int:
        """Transitions of a full chunk."""
        return self.hello.num_envs * self.hello.chunk_length

    @property
    def target_lag(self) -> int | None:
        """Limit of this source alone [versions]; None = the learner's."""
        return None if self.hello.target_lag < 0 else self.hello.target_lag

    @property
    def max_policy_lag(self) -> int | None:
        """Bound of this source alone [versions]; None = the learner's."""
        return None if self.hello.max_policy_lag < 0 else self.hello.max_policy_lag

    def note(self, message: messages.Heartbeat) -> None:
        """Note what an actor says of itself; its waits, as a share of the time since the last."""
        passed = message.sent_ns - self.sent_ns
        if self.sent_ns and passed > 0:
            self.wait = min(1.0, max(0, message.waited_ns - self.waited_ns) / passed)
        self.sent_ns, self.waited_ns = message.sent_ns, message.waited_ns
        self.policy_silent_ms = message.policy_silent_ms


class Reception:
    """
    Knows the actors; hands their chunks to the batcher and their numbers to permits and books.

    A peer is whatever bytes the transport tells its connections apart by.

    Attributes
    ----------
    post : Post
        Takes what the transport is to send.
    gaps : Counter
        source → chunks that were lost on the way.
    missed_steps : Counter
        source → control steps that did not come about.
    saturated : Counter
        source → numbers of its observations that were too large for float16.
    newest : Identity
        The newest published policy.

    """

    def __init__(self, session: Session, permits: PermitBook, batcher: Batcher, books: Books,
                 warn: Callable[[str], None], clock_ns: Callable[[], int]) -> None:
        self.post: Post = lambda peer, message, payload=None: None
        self.refusals = RefusalLog(warn)
        self.gaps: Counter[Source] = Counter()
        self.missed_steps: Counter[Source] = Counter()
        self.saturated: Counter[Source] = Counter()
        self.chunks_received = 0
        self.chunks_from_rings = 0
        self.chunks_cut = 0
        self.newest = NO_POLICY
        self._policy: bytes | None = None
        self.stopping = False
        self._session = session
        self._permits = permits
        self._batcher = batcher
        self._books = books
        self._warn = warn
        self._clock_ns = clock_ns
        self._peers: dict[bytes, _Peer] = {}
        self._peer_of: dict[Source, bytes] = {}
        # To look at each of hundreds of peers after every message costs as much as the message.
        self._with_rings: dict[bytes, None] = {}
        # Actors of an earlier learner of this run may still come back.
        self._missing = {source: clock_ns() for source in books.alive()}

    @property
    def sources(self) -> list[Source]:
        """Name the actors that are connected."""
        return list(self._peer_of)

    @property
    def actor_wait(self) -> float:
        """Mean share of time that the connected actors waited, by their last heartbeats."""
        waits = [known.wait for known in self._peers.values()]
        return sum(waits) / len(waits) if waits else 0.0

    @property
    def policy_silence(self) -> dict[Source, float]:
        """For how long the policy topic has been silent, as the connected actors see it [s]."""
        return {known.source: known.policy_silent_ms * 1e-3 for known in self._peers.values()}

    def handle(self, peer: bytes, frames: Sequence[bytes]) -> None:
        """Take in whatever a peer sent; what fails a check is counted and its sender named."""
        # What lies in its ring was sent before this message.
        self.drain(peer)
        try:
            message = messages.decode(frames)
            if isinstance(message, ChunkNotice):
                self._chunk(peer, message, lambda known: self._decoded(known, frames[2:]))
            else:
                self._control(peer, message)
        except CodecError as error:
            self._refuse(peer, error)

    def deliver(self, peer: bytes, notice: ChunkNotice, chunk: Chunk) -> None:
        """Take in a chunk that was never encoded."""
        try:
            self._chunk(peer, notice, lambda known: checked_arrays(chunk))
        except CodecError as error:
            self._refuse(peer, error)

    def join(self, peer: bytes, hello: Hello) -> messages.Welcome | messages.Refused:
        """Take an actor in, or say in words why not; `grant_first` follows a welcome."""
        refusal = why_refused(hello, self._session.run_id, self._session.layout,
                              self._session.max_transitions, self._session.limits)
        source = self._source_for(peer, hello)
        if refusal is None and self._peer_of.get(source, peer) != peer:
            refusal = f'{name_of(source)} is already connected'
        if refusal is not None:
            return messages.Refused(refusal)
        self._books.joined(source, hello.next_sequence, hello.before)
        self._missing.pop(source, None)
        self._close_ring(peer)
        ring = open_ring(hello) if self._session.rings else None
        self._peers[peer] = _Peer(source, hello, self._clock_ns(), ring=ring)
        if ring is not None:
            self._with_rings[peer] = None
        self._peer_of[source] = peer
        return messages.Welcome(
            self._session.run_id, self._permits.generation, source.incarnation,
            self._books.expected(source), round(self._session.heartbeat_s * 1e3),
            round(self._session.heartbeat_timeout_s * 1e3), socket.gethostname(),
            self._session.run_dir, ring is not None)

    def grant_first(self, peer: bytes) -> None:
        """Give an actor that has just been welcomed its first permit."""
        known = self._peers[peer]
        next_sequence = max(self._books.expected(known.source), known.hello.next_sequence)
        self.tell(self._permits.joined(known.source, known.chunk_transitions, next_sequence,
                                       known.target_lag))

    def leave(self, peer: bytes, bye: messages.Bye | None = None) -> None:
        """Close the account of an actor that says goodbye or went silent."""
        self.drain(peer)
        self._close_ring(peer)
        gone = self._peers.pop(peer, None)
        if gone is None:
            return
        del self._peer_of[gone.source]
        self._books.gone(gone.source, bye)
        self.tell(self._permits.left(gone.source))

    def expire(self) -> None:
        """Let go of actors that have been silent for too long."""
        timeout_s = self._session.heartbeat_timeout_s
        limit = self._clock_ns() - round(timeout_s * 1e9)
        for peer, known in list(self._peers.items()):
            if known.heard_ns < limit:
                self._warn(f'{name_of(known.source)}: silent for more than {timeout_s:g} s; '
                           'its permits are freed')
                self.leave(peer)
        for source, since in list(self._missing.items()):
            if since < limit:
                del self._missing[source]
                self._books.gone(source)

    def drain(self, peer: bytes) -> None:
        """Take in all that lies in the ring of a peer, if it has one."""
        known = self._peers.get(peer)
        if known is None or known.ring is None:
            return
        try:
            for item in known.ring.drain():
                self._from_ring(peer, known, item)
            known.ring.silence_bell()
            # What came between the last look and the silence rang no bell.
            for item in known.ring.drain():
                self._from_ring(peer, known, item)
        except CodecError as error:
            self._refuse(peer, error)
            self._close_ring(peer)
            self.leave(peer)
            self.post(peer, messages.Who())

    def drain_all(self) -> None:
        """Take in all that lies in any ring."""
        for peer in list(self._with_rings):
            self.drain(peer)

    def failed(self, peer: bytes, error: Exception) -> None:
        """Count a message that the package itself stumbled over."""
        self._refuse(peer, CodecError('internal', repr(error)))

    def stop(self) -> None:
        """Tell all actors, now and later, that the run is over."""
        self.stopping = True
        self._permits.paused()
        for peer in self._peers:
            self.post(peer, messages.Stop())

    def leave_all(self) -> None:
        """Close the accounts of all who have not said goodbye."""
        for peer in list(self._peers):
            self.leave(peer)
        while self._missing:
            self._books.gone(self._missing.popitem()[0])

    def published(self, identity: Identity, data: bytes | None, changes: Changes) -> None:
        """
        Tell all actors that there is a newer policy, and keep it for those who ask.

        A permit that it allows tells of it, too.
        """
        if identity <= self.newest:
            self.tell(changes)
            return
        self.newest, self._policy = identity, data
        news = messages.News(*identity)
        for peer, known in self._peers.items():
            if known.source not in changes:
                self.post(peer, news)
        self.tell(changes)

    def tell(self, changes: Changes) -> None:
        """Send permits to those that are connected."""
        for source, permit in changes.items():
            if source in self._peer_of:
                self.post(self._peer_of[source], messages.PermitMessage(
                    permit.limit, *permit.minimum, self._books.expected(source), *self.newest))

    def _control(self, peer: bytes, message: Message) -> None:
        if isinstance(message, Hello):
            answer = messages.Stop() if self.stopping else self.join(peer, message)
            self.post(peer, answer)
            if isinstance(answer, messages.Welcome):
                self.post(peer, messages.News(*self.newest))
                self.grant_first(peer)
            elif isinstance(answer, messages.Refused):
                raise CodecError('hello', f'actor {message.actor_id} on {message.host}: '
                                 f'{answer.text}')
        elif isinstance(message, messages.Heartbeat):
            self._heartbeat(peer, message)
        elif isinstance(message, messages.Bye):
            self.leave(peer, message)
        elif isinstance(message, messages.Bell):
            self._known(peer)  # its ring is empty by now
        elif isinstance(message, messages.Fetch):
            self._fetch(peer, Identity(message.generation, message.version))
        else:
            raise CodecError('kind', f'{type(message).__name__} is for actors')

    def _heartbeat(self, peer: bytes, message: messages.Heartbeat) -> None:
        known = self._known(peer)
        if known is None:
            return
        self._books.claimed(known.source, message)
        known.note(message)
        self.missed_steps[known.source] = message.missed_steps
        self.post(peer, messages.Pong(message.sent_ns, message.handed,
                                      self._books.expected(known.source), *self.newest))
        # Repeated, because the messages that brought them first may be lost.
        permit = self._permits.permit(known.source)
        if permit is not None:
            self.tell({known.source: permit})
        if self.stopping:
            self.post(peer, messages.Stop())

    def _fetch(self, peer: bytes, have: Identity) -> None:
        if self._known(peer) is not None and self._policy is not None and self.newest > have:
            self.post(peer, messages.Policy(*self.newest, len(self._policy)), self._policy)

    def _from_ring(self, peer: bytes, known: _Peer, item: RingItem) -> None:
        # Where not even the notice can be believed, it was a chunk of full size, and the next.
        notice = item.notice or ChunkNotice(self._books.expected(known.source),
                                            known.chunk_transitions, 0, 0)
        try:
            self._chunk(peer, notice, lambda known: item.checked())
        except CodecError as error:
            self._refuse(peer, error)
        except Exception as error:
            # The slots after this one are to be read all the same.
            self.failed(peer, error)
        else:
            self.chunks_from_rings += 1

    def _close_ring(self, peer: bytes) -> None:
        known = self._peers.get(peer)
        if known is not None and known.ring is not None:
            known.ring.close()
            known.ring = None
            del self._with_rings[peer]

    def _chunk(self, peer: bytes, notice: ChunkNotice,
               decoded: Callable[[_Peer], Chunk]) -> None:
        received_ns = self._clock_ns()
        known = self._known(peer)
        if known is None:
            raise CodecError('unknown', 'a chunk of an actor that has not said hello')
        self._check_sequence(known, notice)
        try:
            chunk = decoded(known)
            check_chunk(chunk, notice, known.source, known.hello.num_envs,
                        self._session.run_id, self.newest)
        except CodecError:
            claimed = max(0, min(notice.transitions, known.chunk_transitions))
            self._books.refused(known.source, claimed)
            self.tell(self._permits.received(known.source, notice.sequence, 0))
            raise
        self._books.received(known.source, chunk.transitions)
        self.chunks_received += 1
        if chunk.reward.shape[0] < known.hello.chunk_length:
            self.chunks_cut += 1
        self._batcher.offer(chunk, received_ns, notice.transport_ns,
                            self._permits.target_lag_of(known.source), known.max_policy_lag,
                            known.hello.weight)
        self.tell(self._permits.received(known.source, chunk.sequence, chunk.transitions))

    def _decoded(self, known: _Peer, frames: Sequence[bytes]) -> Chunk:
        layout = self._session.layout
        chunk = decode_chunk(frames, layout, known.chunk_transitions)
        if layout.observation_dtype == 'float16' and (count := saturated(chunk)):
            if not self.saturated[known.source]:
                self._warn(f'{name_of(known.source)}: its observations have numbers that float16 '
                           'cuts to ±65504; transport.observation_dtype bfloat16 does not')
            self.saturated[known.source] += count
        return chunk

    def _check_sequence(self, known: _Peer, notice: ChunkNotice) -> None:
        expected = self._books.expected(known.source)
        missing = notice.sequence - expected
        if missing < 0:
            late = notice.sequence in known.skipped
            known.skipped.discard(notice.sequence)
            raise CodecError('reordered' if late else 'duplicate',
                             f'chunk {notice.sequence} where {expected} is expected')
        if missing > RING:
            raise CodecError('sequence', f'chunk {notice.sequence} where {expected} is expected')
        if missing:
            self.gaps[known.source] += missing
            known.skipped = set(range(expected, notice.sequence))
            self._books.skipped(known.source, notice.sequence, notice.before)

    def _known(self, peer: bytes) -> _Peer | None:
        known = self._peers.get(peer)
        if known is None:
            self.post(peer, messages.Stop() if self.stopping else messages.Who())
        else:
            known.heard_ns = self._clock_ns()
        return known

    def _source_for(self, peer: bytes, hello: Hello) -> Source:
        if peer in self._peers:
            return self._peers[peer].source
        incarnation = hello.incarnation or self._books.last_incarnation(hello.actor_id) + 1
        return Source(hello.actor_id, incarnation)

    def _refuse(self, peer: bytes, error: CodecError) -> None:
        known = self._peers.get(peer)
        self.refusals.refused(peer, known.source if known else None, error)

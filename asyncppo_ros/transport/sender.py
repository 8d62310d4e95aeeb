"""The actor's end over ZeroMQ: ask for permits, send chunks, show signs of life."""

from collections import deque
from collections.abc import Callable
import dataclasses
import socket
import time

import numpy as np
import zmq

from asyncppo_ros.chunk import Chunk, Identity, NO_POLICY, Source
from asyncppo_ros.errors import CodecError, RunError
from asyncppo_ros.learning.ledger import ActorLedger, open_ledger
from asyncppo_ros.transport import messages
from asyncppo_ros.transport.chunk_sender import ChunkSender
from asyncppo_ros.transport.codec import encode_chunk, with_waiting
from asyncppo_ros.transport.keys import ActorKeys
from asyncppo_ros.transport.messages import ChunkNotice, decode, encode, Hello, Message
from asyncppo_ros.transport.pending import Pending, PendingChunks
from asyncppo_ros.transport.permits import Permit
from asyncppo_ros.transport.ring import SLOTS
from asyncppo_ros.transport.ring_offer import RingOffer
from asyncppo_ros.transport.zeromq import Doorbell, has_message, open_dealer, send_at_once

# Between two hellos that nobody answers.
_HELLO_AGAIN_S = 0.5
_LINGER_MS = 1000
# An actor that leaves looks this often for a free slot.
_SLOT_S = 0.002
# An answer waits in the socket while a chunk is collected, so the best of these is taken.
_ROUND_TRIPS = 64


class ZmqChunkSender(ChunkSender):
    """
    A `ChunkSender` over a ZeroMQ DEALER socket.

    A chunk is kept until the learner has acknowledged it, so that a cut connection or a learner
    that starts again costs nothing that can be sent again.  Permits bound how many are kept.

    Parameters
    ----------
    address : str
        Where the learner is bound.
    hello : Hello
        From `messages.hello`.
    keys : ActorKeys, optional
        To encrypt with.
    kind : str
        How chunks travel, see `TransportConfig.kind`.
    slots : int
        Of the ring, see `ring.slots_for`.
    context : zmq.Context, optional
        That many senders of one process share; it outlives them.

    """

    def __init__(self, address: str, hello: Hello, keys: ActorKeys | None = None,
                 kind: str = 'auto', slots: int = SLOTS,
                 context: zmq.Context | None = None) -> None:
        self.run_id = 0
        self.generation = 0
        self.source = Source(hello.actor_id, 0)
        self.ledger = ActorLedger(self.source)
        self._stopped = False
        self.newest = NO_POLICY
        self.welcomed = False
        self.waited_ns = 0
        self.policy_silent_ms = 0
        self.missed_steps = 0
        self.on_news: Callable[[], None] = lambda: None
        self._policy: bytes | None = None
        self._hello = hello
        self._hello_at = 0.0
        self._hello_ns = 0
        self._heartbeat_s = 0.5
        self._heartbeat_at = 0.0
        self._heard_at = time.monotonic()
        self._permit = Permit(0, NO_POLICY)
        self._pending = PendingChunks()
        self._ring = RingOffer(kind, slots)
        self._round_trips: deque[int] = deque(maxlen=_ROUND_TRIPS)
        self._refused = ''
        self._shares_context = context is not None
        self._context, self._socket = open_dealer(address, keys, context)
        self._doorbell = Doorbell(self._socket, address, keys is not None)

    @property
    def next_sequence(self) -> int:
        """Of the next chunk."""
        return self._pending.next_sequence

    @property
    def stopped(self) -> bool:
        """Whether the run is over."""
        return self._stopped

    @property
    def transport_ns(self) -> int:
        """Half a round trip [ns]."""
        return min(self._round_trips, default=0) // 2

    @property
    def silent_s(self) -> float:
        """Time since the learner was last heard [s]."""
        return time.monotonic() - self._heard_at

    @property
    def descriptor(self) -> int:
        """
        File descriptor for ``epoll``, where one thread has many senders.

        It tells of changes, not of states (``ZMQ_FD``): call `poll` after it, and after `send`.
        """
        return int(self._socket.getsockopt(zmq.FD))

    @property
    def trouble(self) -> str:
        """Why no connection comes about, for people; '' = nothing is known to be wrong."""
        return self._doorbell.trouble

    def connect(self, timeout: float = 10.0) -> bool:
        """
        Say hello until the learner answers.

        Returns
        -------
        welcomed : bool
            False when `timeout` [s] passed without an answer; call again to wait on.

        Raises
        ------
        RunError
            The learner refused this actor: another task, protocol or run; or the ring that
            `kind` demands.  The text says which.

        """
        deadline = time.monotonic() + timeout
        while not (self.welcomed or self.stopped) and time.monotonic() < deadline:
            self.poll(min(0.05, max(0.0, deadline - time.monotonic())))
        return self.welcomed

    def poll(self, timeout: float = 0.0) -> None:
        """
        Handle what has arrived and send what is due; wait up to `timeout` [s] for the first.

        Raises
        ------
        RunError
            The learner refused this actor.

        """
        self._send_due()
        if timeout > 0.0:
            self._socket.poll(round(timeout * 1e3))
        if self._receive():
            self._hand_over()
        if self._refused:
            raise RunError(f'the learner refused this actor: {self._refused}')

    def permit_for(self, sequence: int) -> Identity | None:
        """Give the oldest policy chunk `sequence` may be collected with; None = not yet."""
        if self.stopped or not self.welcomed or sequence >= self._permit.limit:
            return None
        return self._permit.minimum

    def buffer(self) -> np.ndarray | None:
        """Lend the memory of the ring that the next chunk is sent from; None = none is free."""
        self._pending.acknowledged(self._ring.acknowledged())
        # Chunks go in order: one that still waits for a slot goes first.
        if not self.welcomed or self._pending.to_hand_over() is not None:
            return None
        return self._ring.buffer()

    def send(self, chunk: Chunk) -> None:
        """
        Send a finished chunk, or keep it until the learner is back.

        Raises
        ------
        ValueError
            Its sequence is not `next_sequence`.

        """
        self._pending.finished(Pending(chunk, time.monotonic_ns(),
                                       self.ledger.counters.transitions))
        self.ledger.completed(chunk.transitions)
        self._hand_over()

    def fetch(self, have: Identity) -> bool:
        """Ask for a policy that is newer than `have`; False = it could not be sent."""
        return self.welcomed and self._transmit(encode(messages.Fetch(*have)))

    def take_policy(self) -> bytes | None:
        """Give, once, the bytes of the policy that the learner sent; None = nothing new."""
        data, self._policy = self._policy, None
        return data

    def close(self) -> None:
        """Send what is left, say goodbye with the final counters, and close."""
        if self._socket.closed:
            return
        self._hand_over()
        self._wait_for_slots(_LINGER_MS * 1e-3)
        if self.welcomed:
            self._transmit(encode(messages.Bye(**vars(self.ledger.counters))))
        self._ring.close()
        self._doorbell.close()
        self._socket.close(linger=_LINGER_MS)
        if not self._shares_context:
            self._context.term()

    def _receive(self) -> bool:
        """Handle all that has arrived; say whether anything has."""
        arrived = False
        while has_message(self._socket):
            frames = self._socket.recv_multipart(zmq.NOBLOCK)
            arrived = True
            try:
                self._handle(decode(frames), frames[2:])
            except CodecError:
                continue  # not from a learner; permits are absolute, so nothing is missed
        return arrived

    def _send_due(self) -> None:
        now = time.monotonic()
        if not self.welcomed:
            self._doorbell.look()
            if now >= self._hello_at and self._say_hello():
                self._hello_at = now + _HELLO_AGAIN_S
            return
        self._hand_over()
        if now >= self._heartbeat_at:
            self._doorbell.look()
            self._transmit(encode(messages.Heartbeat(
                **vars(self.ledger.counters), sent_ns=time.monotonic_ns(),
                handed=self._pending.handed, waited_ns=self.waited_ns,
                policy_silent_ms=self.policy_silent_ms, missed_steps=self.missed_steps)))
            self._heartbeat_at = now + self._heartbeat_s

    def _say_hello(self) -> bool:
        self._hello_ns = time.monotonic_ns()
        oldest = self._pending.oldest
        before = oldest.before if oldest else self.ledger.counters.transitions
        return self._transmit(encode(dataclasses.replace(
            self._ring.added_to(self._hello), incarnation=self.source.incarnation,
            run_id=self.run_id, next_sequence=self._pending.first, before=before)))

    def _hand_over(self) -> None:
        self._pending.acknowledged(self._ring.acknowledged())
        while self.welcomed and (pending := self._pending.to_hand_over()) is not None:
            chunk = with_waiting(pending.chunk, time.monotonic_ns() - pending.finished_ns)
            notice = ChunkNotice(chunk.sequence, chunk.transitions, pending.before,
                                 self.transport_ns)
            if not self._handed_over(chunk, notice):
                break
            self._pending.handed += 1
        if self._ring.bell_is_due() and not self._transmit(encode(messages.Bell())):
            self._ring.bell_failed()

    def _handed_over(self, chunk: Chunk, notice: ChunkNotice) -> bool:
        if self._ring.is_used:
            return self._ring.publish(chunk, notice)
        return self._transmit([*encode(notice), *encode_chunk(chunk, self._hello.layout)])

    def _wait_for_slots(self, timeout: float) -> None:
        """Wait as a socket lingers: until the last chunks are handed over, or up to `timeout`."""
        deadline = time.monotonic() + timeout
        while (self.welcomed and self._ring.is_used
               and self._pending.to_hand_over() is not None and time.monotonic() < deadline):
            time.sleep(_SLOT_S)
            self._hand_over()

    def _transmit(self, frames: list) -> bool:
        try:
            send_at_once(self._socket, frames)
        except zmq.Again:
            return False
        return True

    def _handle(self, message: Message, rest: list[bytes]) -> None:
        self._heard_at = time.monotonic()
        if isinstance(message, messages.Welcome):
            self._welcome(message)
        elif isinstance(message, messages.PermitMessage):
            self._learned_of(message.newest)
            self._permit = Permit(message.limit, message.minimum)
            self._pending.acknowledged(message.expected)
        elif isinstance(message, messages.Pong):
            self._pong(message)
        elif isinstance(message, messages.News):
            self._learned_of(Identity(message.generation, message.version))
        elif isinstance(message, messages.Policy):
            self._policy = rest[0] if rest and len(rest[0]) == message.size else None
        elif isinstance(message, messages.Who) and self.welcomed:
            # More of them may answer what was sent before the next hello, which offers a ring.
            self.welcomed, self._hello_at = False, 0.0
            self._pending.acknowledged(self._ring.acknowledged())
            self._ring.session_over()
        elif isinstance(message, messages.Stop):
            self._stopped = True
        elif isinstance(message, messages.Refused):
            self._refused = message.text

    def _welcome(self, message: messages.Welcome) -> None:
        if self.welcomed:
            return  # the answer to a hello that was said twice
        self._round_trips.append(time.monotonic_ns() - self._hello_ns)
        if self.run_id == 0:
            self.run_id = message.run_id
            self.source = Source(self._hello.actor_id, message.incarnation)
            self.ledger = open_ledger(
                self.source, message.run_dir if message.host == socket.gethostname() else '')
        self.generation = message.generation
        self.welcomed = True
        self._doorbell.answered()
        self._heartbeat_s = message.heartbeat_ms * 1e-3
        # Fresh permits follow; what this learner lacks is sent again.
        self._permit = Permit(0, NO_POLICY)
        self._pending.acknowledged(message.next_sequence)
        self._pending.rewind()
        self._ring.answered(message.ring, self._pending.first, message.host)

    def _pong(self, message: messages.Pong) -> None:
        self._round_trips.append(time.monotonic_ns() - message.sent_ns)
        self._learned_of(Identity(message.generation, message.version))
        self._pending.acknowledged(message.expected)
        if message.expected < message.handed and not self._ring.is_used:
            # Chunks sent before that heartbeat did not arrive: a connection was cut.
            self._pending.rewind()

    def _learned_of(self, identity: Identity) -> None:
        if identity > self.newest:
            self.newest = identity
            self.on_news()

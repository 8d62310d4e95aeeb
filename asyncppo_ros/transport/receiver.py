"""The learner's end: one thread owns the ROUTER socket."""

from collections import deque
import contextlib
import os
import threading
import time

import zmq

from asyncppo_ros.errors import AddressError
from asyncppo_ros.transport.gatekeeper import Gatekeeper
from asyncppo_ros.transport.intake import Intake
from asyncppo_ros.transport.keys import LearnerKeys
from asyncppo_ros.transport.messages import encode, Message, News
from asyncppo_ros.transport.zeromq import bind, notice_cuts, send_at_once

_TICK_MS = 100
# Messages taken before answers are sent and time is looked at.
_BURST = 64
_LINGER_MS = 500


class ZmqChunkReceiver:
    """
    Receives chunks and grants permits over a ZeroMQ ROUTER socket.

    Parameters
    ----------
    intake : Intake
        Takes what comes in.
    address : str
        To bind; ``tcp://127.0.0.1:*`` takes a free port.
    allow_plain_text : bool
        Allow an address that other hosts reach though nothing is encrypted.
    keys : LearnerKeys, optional
        To encrypt with; then only those whose key is authorized can connect.

    Raises
    ------
    AddressError
        The address is in use, malformed, or reachable by others without encryption.

    """

    def __init__(self, intake: Intake, address: str, allow_plain_text: bool = False,
                 keys: LearnerKeys | None = None) -> None:
        self._intake = intake
        self._outbox: deque[tuple[bytes, Message, bytes | None]] = deque()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._set_options()
        self._gatekeeper = keys and Gatekeeper(self._socket, keys, intake.refuse_connection)
        try:
            self.address = bind(self._socket, address, allow_plain_text, keys is not None)
        except AddressError:
            self._dismiss()
            self._context.destroy(linger=0)
            raise
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        intake.post_to(self._post)

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name='chunk receiver', daemon=True)
        self._thread.start()

    def close(self, timeout: float = 2.0) -> None:
        """Tell all actors to stop, take their last chunks for up to `timeout` [s], and close."""
        if self._socket.closed:
            return
        self._intake.stop()
        deadline = time.monotonic() + timeout
        while self._thread and self._intake.sources and time.monotonic() < deadline:
            time.sleep(0.01)
        self._closing = True
        self._wake()
        if self._thread:
            self._thread.join()
        self._intake.post_to(lambda peer, message, payload=None: None)
        self._intake.leave_all()
        self._dismiss()
        self._socket.close()
        self._context.term()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _set_options(self) -> None:
        self._socket.linger = _LINGER_MS
        # An actor that reconnects takes its old connection over, instead of being shut out.
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        notice_cuts(self._socket)
        # Who claims to send more than any chunk is cut off before memory is taken for it.
        self._socket.setsockopt(zmq.MAXMSGSIZE, self._intake.largest_frame)

    def _dismiss(self) -> None:
        if self._gatekeeper is not None:
            self._gatekeeper.close()

    def _post(self, peer: bytes, message: Message, payload: bytes | None = None) -> None:
        self._outbox.append((peer, message, payload))
        # Whatever lay there before is sent by a thread that is awake, and this after it.
        if len(self._outbox) == 1 and threading.current_thread() is not self._thread:
            self._wake()

    def _wake(self) -> None:
        # A full pipe is reason enough to wake.
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b'.')

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:
            # Dead without a word, it would leave the learner to wait for ever.
            self._intake.receiver_died(error)

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._wake_read, zmq.POLLIN)
        watched = self._gatekeeper.sockets if self._gatekeeper else ()
        for watch in watched:
            poller.register(watch, zmq.POLLIN)
        expire_at = 0.0
        while not self._closing:
            ready = dict(poller.poll(_TICK_MS))
            if self._wake_read in ready:
                os.read(self._wake_read, 4096)
            if self._gatekeeper is not None and any(watch in ready for watch in watched):
                self._gatekeeper.serve()
            if self._socket in ready:
                self._receive()
            self._intake.drain()
            if time.monotonic() >= expire_at:
                # Of a thousand actors each look costs as much as a message.
                self._intake.expire()
                expire_at = time.monotonic() + _TICK_MS * 1e-3
            self._send()

    def _receive(self) -> None:
        for _ in range(_BURST):
            try:
                peer, *frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._intake.handle(peer, frames)
            self._send()

    def _send(self) -> None:
        news, encoded_news = None, []
        while self._outbox:
            peer, message, payload = self._outbox.popleft()
            if isinstance(message, News) and message is not news:
                news, encoded_news = message, encode(message)
            encoded = encoded_news if message is news else encode(message)
            frames = [peer, *encoded] + ([] if payload is None else [payload])
            try:
                send_at_once(self._socket, frames)
            except zmq.ZMQError:
                # Gone, or not reading: everything that matters is repeated with heartbeats.
                continue

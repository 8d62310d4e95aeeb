"""The learner's end: one thread owns the ROUTER socket."""

from collections import deque
import contextlib
import os
import threading
import time

import zmq

from asyncppo_ros.errors import AddressError
from asyncppo_ros.transport.intake import Intake
from asyncppo_ros.transport.messages import encode, Message
from asyncppo_ros.transport.zeromq import bind, notice_cuts

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
        Allow an address that other hosts reach.

    Raises
    ------
    AddressError
        The address is in use, malformed, or reachable by others without encryption.

    """

    def __init__(self, intake: Intake, address: str, allow_plain_text: bool = False) -> None:
        self._intake = intake
        self._outbox: deque[tuple[bytes, Message]] = deque()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._set_options()
        try:
            self.address = bind(self._socket, address, allow_plain_text)
        except AddressError:
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
        self._intake.post_to(lambda peer, message: None)
        self._intake.leave_all()
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
        # Permits bound what comes in; a limit in messages would only hide a chunk.
        self._socket.rcvhwm = 0

    def _post(self, peer: bytes, message: Message) -> None:
        self._outbox.append((peer, message))
        if threading.current_thread() is not self._thread:
            self._wake()

    def _wake(self) -> None:
        # A full pipe is reason enough to wake.
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b'.')

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._wake_read, zmq.POLLIN)
        while not self._closing:
            ready = dict(poller.poll(_TICK_MS))
            if self._wake_read in ready:
                os.read(self._wake_read, 4096)
            if self._socket in ready:
                self._receive()
            self._intake.expire()
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
        while self._outbox:
            peer, message = self._outbox.popleft()
            try:
                self._socket.send_multipart([peer, *encode(message)], zmq.NOBLOCK)
            except zmq.ZMQError:
                # Gone, or not reading: everything that matters is repeated with heartbeats.
                continue

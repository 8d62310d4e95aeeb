"""Who may connect to the learner: answers ZAP requests and watches handshakes that fail."""

from collections.abc import Callable
import contextlib
import os
import pathlib
import socket
import struct

import zmq

from asyncppo_ros.errors import CodecError, ConfigError
from asyncppo_ros.transport.keys import fingerprint, LearnerKeys, read_public_key

_ZAP_ENDPOINT = 'inproc://zeromq.zap.01'
_DOMAIN = b'asyncppo'
_FAILURES = {
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: 'the connection ended within the handshake; '
                                          'has the peer the right transport.keys?',
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: 'the handshake failed'}
_DETAILS = {
    zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH: 'the peer does not encrypt; it needs '
                                                'transport.keys',
    zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC: 'the peer has another key for this learner; copy '
                                           'learner.key to it again'}
_EVENTS = (zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
           | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)

Refused = Callable[[str, CodecError], None]


class Gatekeeper:
    """
    Lets those in whose public key lies in the folder of the authorized, and names the others.

    A key is known from when its file lies there until it is removed.  ZeroMQ asks only when a
    connection is made: one that stands is not cut.

    Parameters
    ----------
    server : zmq.Socket
        Not yet bound.
    keys : LearnerKeys
    refused : callable
        Takes the address of a peer, or '' where it is not known any more, and why it was
        refused: cause ``curve_key`` or ``curve_handshake``.

    """

    def __init__(self, server: zmq.Socket, keys: LearnerKeys, refused: Refused) -> None:
        self._server = server
        self._authorized = _Authorized(keys.authorized)
        self._refused = refused
        server.setsockopt(zmq.CURVE_SERVER, 1)
        server.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
        server.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
        server.setsockopt(zmq.ZAP_DOMAIN, _DOMAIN)
        # Without somebody at this address ZeroMQ would let everyone in.
        self._zap = server.context.socket(zmq.REP)
        self._zap.bind(_ZAP_ENDPOINT)
        self._monitor = server.get_monitor_socket(_EVENTS)
        self._addresses: dict[int, str] = {}
        self._failure: CodecError | None = None

    @property
    def sockets(self) -> tuple[zmq.Socket, zmq.Socket]:
        """What to poll; `serve` handles whatever arrives."""
        return self._zap, self._monitor

    def serve(self) -> None:
        """Answer and note what has arrived, without waiting."""
        # First, because the address of a peer can be asked for only while it is connected.
        self._drain(self._monitor, self._note)
        self._drain(self._zap, self._answer)

    def close(self) -> None:
        """Close, before `server` is closed."""
        self._server.disable_monitor()
        self._monitor.close(linger=0)
        self._zap.close(linger=0)

    @staticmethod
    def _drain(source: zmq.Socket, handle: Callable[[list[bytes]], None]) -> None:
        while True:
            try:
                handle(source.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                return

    def _answer(self, request: list[bytes]) -> None:
        """Answer a request of ZeroMQ's authentication protocol (RFC 27)."""
        version, request_id, _, address, _, mechanism, *credentials = request
        allowed = (mechanism == b'CURVE' and len(credentials) == 1
                   and credentials[0] in self._authorized.current())
        self._zap.send_multipart([version, request_id, *(
            (b'200', b'OK') if allowed else (b'400', b'not authorized')), b'', b''])
        if not allowed:
            key = fingerprint(credentials[0]) if mechanism == b'CURVE' and credentials else '?'
            self._refused(address.decode(errors='replace'), CodecError(
                'curve_key', f'key {key} is not among those in {self._authorized.folder}; '
                '`asyncppo keys DIR --add NAME` makes further ones'))

    def _note(self, event: list[bytes]) -> None:
        kind, value = struct.unpack('=HI', event[0])
        if kind == zmq.EVENT_ACCEPTED:
            self._addresses[value] = _peer_address(value)
        elif kind == zmq.EVENT_DISCONNECTED:
            # It follows the failure, both from the one thread that serves connections.
            address = self._addresses.pop(value, '')
            if self._failure is not None:
                self._refused(address, self._failure)
                self._failure = None
        else:
            self._failure = CodecError('curve_handshake', _DETAILS.get(value, _FAILURES[kind]))


class _Authorized:
    """The public keys in a folder, read again whenever something in it has changed."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self._state: frozenset[tuple[str, int]] | None = None
        self._keys: frozenset[bytes] = frozenset()

    def current(self) -> frozenset[bytes]:
        """Give the keys, raw."""
        state = self._look()
        if state != self._state:
            self._state = state
            self._keys = frozenset(self._read(name) for name, _ in state) - {b''}
        return self._keys

    def _look(self) -> frozenset[tuple[str, int]]:
        # A folder that is gone authorizes nobody.
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            return frozenset((entry.name, entry.stat().st_mtime_ns) for entry in entries
                             if entry.name.endswith('.key'))
        return frozenset()

    def _read(self, name: str) -> bytes:
        # A file that is being copied is damaged for a moment; the next look reads it again.
        with contextlib.suppress(ConfigError):
            return zmq.utils.z85.decode(read_public_key(self.folder / name))
        return b''


def _peer_address(descriptor: int) -> str:
    """Ask for the address at the other end of a connection that ZeroMQ has accepted."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            return str(connection.getpeername()[0])
    except (OSError, IndexError):
        return ''  # closed already

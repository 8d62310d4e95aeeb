"""What every ZeroMQ socket of the package has in common."""

from collections.abc import Sequence
import errno
import ipaddress
import socket
import struct
import time
import uuid

import zmq

from asyncppo_ros.errors import AddressError
from asyncppo_ros.transport.keys import ActorKeys

# Plain numbers: of the 10 us that `send_multipart` takes for five frames, 6 are Python's
# arithmetic with enumerations.
_AT_ONCE, _AND_MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
_EVENTS, _ARRIVED = int(zmq.EVENTS), int(zmq.POLLIN)
_PING_MS = 1000
_PING_TIMEOUT_MS = 5000
_RECONNECT_MS = 100
_RECONNECT_MAX_MS = 1000
# Left to itself the kernel repeats the first packet of a connection ever more seldom, so that a
# cut of half a minute would cost a whole one.
_CONNECT_MS = 3000
# ZeroMQ gives up on a peer that refused it; an actor tries again this often.
_KNOCK_AGAIN_S = 1.0
# What stands for every interface of a host, and how this host reaches itself there.
_WILDCARDS = {'0.0.0.0': '127.0.0.1', '*': '127.0.0.1', '[::]': '[::1]'}


def send_at_once(socket: zmq.Socket, frames: Sequence[bytes | memoryview | zmq.Frame]) -> None:
    """
    Send a message without waiting, as `send_multipart` does in twice the time.

    Raises
    ------
    zmq.Again
        There is nobody, or no room.

    """
    for frame in frames[:-1]:
        socket.send(frame, _AND_MORE)
    socket.send(frames[-1], _AT_ONCE)


def has_message(socket: zmq.Socket) -> bool:
    """Say whether a message waits, in half the time of a `zmq.Again`."""
    return bool(int(socket.getsockopt(_EVENTS)) & _ARRIVED)


def notice_cuts(socket: zmq.Socket) -> None:
    """Let ZeroMQ notice a connection that is cut without a word."""
    socket.setsockopt(zmq.HEARTBEAT_IVL, _PING_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, _PING_TIMEOUT_MS)


def connectable(address: str) -> str:
    """Give the address by which this host reaches what is bound at `address`."""
    scheme, _, rest = address.partition('://')
    host, _, port = rest.rpartition(':')
    return f'{scheme}://{_WILDCARDS[host]}:{port}' if host in _WILDCARDS else address


def bind(socket: zmq.Socket, address: str, allow_plain_text: bool,
         encrypted: bool = False) -> str:
    """
    Bind a socket.

    Parameters
    ----------
    socket : zmq.Socket
    address : str
    allow_plain_text : bool
        Allow an address that other hosts reach though nothing is encrypted.
    encrypted : bool
        The socket has keys, so any address will do.

    Returns
    -------
    address : str
        With the port where ``:*`` was asked for.

    Raises
    ------
    AddressError
        The address is in use, malformed, or reachable by other hosts without encryption.

    """
    check_address(address, allow_plain_text or encrypted)
    _allow_ipv6(socket, address)
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        raise _not_bound(address, error) from None
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)


def try_address(address: str, allow_plain_text: bool, encrypted: bool) -> None:
    """
    Find out whether `bind` would succeed; actors that wait for a learner do not meet anybody.

    Raises
    ------
    AddressError
        See `bind`.

    """
    scheme, _, rest = address.partition('://')
    host, _, port = rest.rpartition(':')
    if scheme == 'ipc':
        # To bind it is to take it away from whoever has it.
        return
    if scheme == 'tcp' and port.isdecimal() and int(port) < 65536:
        check_address(address, allow_plain_text or encrypted)
        _try_port(address, '0.0.0.0' if host == '*' else host.strip('[]'), port)
        return
    context = zmq.Context()
    try:
        bind(context.socket(zmq.ROUTER), address, allow_plain_text, encrypted)
    finally:
        context.destroy(linger=0)


def _try_port(address: str, host: str, port: str) -> None:
    """Bind a port without listening at it."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        # It may be the name of an interface, which ZeroMQ knows.
        return
    with socket.socket(family, kind) as trial:
        # As ZeroMQ does: connections of before do not matter.
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(place)
        except OSError as error:
            raise _not_bound(address, error) from None


def _not_bound(address: str, error: OSError | zmq.ZMQError) -> AddressError:
    if error.errno == errno.EADDRINUSE:
        return AddressError(f'transport.address = {address}: in use by another process; '
                            'choose another with --transport.address')
    return AddressError(f'transport.address = {address}: cannot be bound ({error.strerror}); '
                        'expected something like tcp://127.0.0.1:5577')


def open_dealer(address: str, keys: ActorKeys | None = None,
                context: zmq.Context | None = None) -> tuple[zmq.Context, zmq.Socket]:
    """
    Make the socket of an actor; it connects as soon as somebody is bound at the address.

    With keys it speaks to the learner that has the secret of `keys.learner`, and to nobody else.
    Without a context it gets one of its own.

    Raises
    ------
    AddressError
        The address is malformed.

    """
    own = context is None
    context = context or zmq.Context()
    socket = context.socket(zmq.DEALER)
    # The learner knows the actor again when the connection was cut.
    socket.setsockopt(zmq.ROUTING_ID, b'A' + uuid.uuid4().bytes)
    # Nothing is queued for a learner that is not there: it would be lost unseen.
    socket.setsockopt(zmq.IMMEDIATE, 1)
    socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_MAX_MS)
    socket.setsockopt(zmq.CONNECT_TIMEOUT, _CONNECT_MS)
    socket.linger = 0
    notice_cuts(socket)
    _allow_ipv6(socket, address)
    if keys is not None:
        socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
        socket.setsockopt(zmq.CURVE_SERVERKEY, keys.learner)
    try:
        socket.connect(address)
    except zmq.ZMQError as error:
        socket.close()
        if own:
            context.destroy(linger=0)
        raise AddressError(f'transport.address = {address}: cannot be used ({error.strerror}); '
                           'expected something like tcp://127.0.0.1:5577') from None
    return context, socket


class Doorbell:
    """
    Rings again where an actor was turned away, and knows why it was.

    Parameters
    ----------
    socket : zmq.Socket
        From `open_dealer`.
    address : str
    encrypted : bool
        The socket has keys.

    Attributes
    ----------
    trouble : str
        Why there is no connection, for people; '' = nothing is known to be wrong.
    greeted : bool
        Somebody has shaken hands.

    """

    def __init__(self, socket: zmq.Socket, address: str, encrypted: bool) -> None:
        self.trouble = ''
        self.greeted = False
        self._socket = socket
        self._address = address
        self._encrypted = encrypted
        self._ring_at: float | None = None
        self._monitor = socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH
            | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)

    def look(self) -> None:
        """Note what has happened, and ring again when it is time."""
        while self._monitor.poll(0):
            kind, = struct.unpack('=H', self._monitor.recv_multipart()[0][:2])
            if kind == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self.trouble, self._ring_at = '', None
                self.greeted = True
                continue
            self.trouble = self._why(kind)
            if kind in (zmq.EVENT_HANDSHAKE_FAILED_AUTH, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL):
                self._ring_at = time.monotonic() + _KNOCK_AGAIN_S
        if self._ring_at is not None and time.monotonic() >= self._ring_at:
            self._ring_at = None
            self._socket.disconnect(self._address)
            self._socket.connect(self._address)

    def answered(self) -> None:
        """Note that somebody has answered: all that happened before is over."""
        while self._monitor.poll(0):
            self._monitor.recv_multipart()
        self.trouble, self._ring_at = '', None

    def close(self) -> None:
        """Close, before the socket is closed."""
        self._socket.disable_monitor()
        self._monitor.close(linger=0)

    def _why(self, kind: int) -> str:
        if kind == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            return ("it does not know this actor's key: add the host with `asyncppo keys DIR "
                    '--add NAME`, or copy the .key file into its learner/authorized folder')
        if not self._encrypted:
            return 'it may demand encryption: set transport.keys here too'
        if kind == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
            return 'it does not encrypt: set transport.keys there too'
        return ('it may have other keys or none: copy learner.key from where `asyncppo keys` '
                'made it, and set transport.keys there too')


def _allow_ipv6(socket: zmq.Socket, address: str) -> None:
    if '[' in address:
        socket.setsockopt(zmq.IPV6, 1)


def check_address(address: str, allow_any: bool) -> None:
    """
    Refuse an address that other hosts reach, unless any is allowed.

    Raises
    ------
    AddressError
        See above.

    """
    scheme, _, rest = address.partition('://')
    if scheme != 'tcp' or allow_any:
        return
    host = rest.rpartition(':')[0].strip('[]')
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == 'localhost'
    if not loopback:
        raise AddressError(
            f'transport.address = {address}: other hosts could reach it and chunks would go '
            'unencrypted; use tcp://127.0.0.1:PORT, or make keys with `asyncppo keys DIR` and '
            'set --transport.keys DIR, or allow plain text with --transport.allow_plain_text '
            'true')

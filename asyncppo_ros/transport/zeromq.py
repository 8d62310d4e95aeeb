"""What every ZeroMQ socket of the package has in common."""

import errno
import ipaddress
import uuid

import zmq

from asyncppo_ros.errors import AddressError

_PING_MS = 1000
_PING_TIMEOUT_MS = 5000
_RECONNECT_MS = 100
_RECONNECT_MAX_MS = 1000


def notice_cuts(socket: zmq.Socket) -> None:
    """Let ZeroMQ notice a connection that is cut without a word."""
    socket.setsockopt(zmq.HEARTBEAT_IVL, _PING_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, _PING_TIMEOUT_MS)


def bind(socket: zmq.Socket, address: str, allow_plain_text: bool) -> str:
    """
    Bind a socket.

    Returns
    -------
    address : str
        With the port where ``:*`` was asked for.

    Raises
    ------
    AddressError
        The address is in use, malformed, or reachable by other hosts without encryption.

    """
    check_address(address, allow_plain_text)
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        if error.errno == errno.EADDRINUSE:
            raise AddressError(f'transport.address = {address}: in use by another process; '
                               'choose another with --transport.address') from None
        raise AddressError(f'transport.address = {address}: cannot be bound ({error.strerror}); '
                           'expected something like tcp://127.0.0.1:5577') from None
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)


def open_dealer(address: str) -> tuple[zmq.Context, zmq.Socket]:
    """
    Make the socket of an actor; it connects as soon as somebody is bound at the address.

    Raises
    ------
    AddressError
        The address is malformed.

    """
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    # The learner knows the actor again when the connection was cut.
    socket.setsockopt(zmq.ROUTING_ID, b'A' + uuid.uuid4().bytes)
    # Nothing is queued for a learner that is not there: it would be lost unseen.
    socket.setsockopt(zmq.IMMEDIATE, 1)
    socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_MAX_MS)
    socket.linger = 0
    notice_cuts(socket)
    try:
        socket.connect(address)
    except zmq.ZMQError as error:
        context.destroy(linger=0)
        raise AddressError(f'transport.address = {address}: cannot be used ({error.strerror}); '
                           'expected something like tcp://127.0.0.1:5577') from None
    return context, socket


def check_address(address: str, allow_plain_text: bool) -> None:
    """
    Refuse an address that other hosts reach, unless that was asked for.

    Raises
    ------
    AddressError
        See above.

    """
    scheme, _, rest = address.partition('://')
    if scheme != 'tcp' or allow_plain_text:
        return
    host = rest.rpartition(':')[0].strip('[]')
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == 'localhost'
    if not loopback:
        raise AddressError(
            f'transport.address = {address}: other hosts could reach it and chunks would go '
            'unencrypted; use tcp://127.0.0.1:PORT, or allow it with '
            '--transport.allow_plain_text true')

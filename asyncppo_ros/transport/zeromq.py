"""What every ZeroMQ socket of the package has in common."""

import errno
import ipaddress

import zmq

from asyncppo_ros.errors import AddressError

_PING_MS = 1000
_PING_TIMEOUT_MS = 5000


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


def connect(socket: zmq.Socket, address: str) -> None:
    """
    Connect a socket, now or as soon as somebody is bound there.

    Raises
    ------
    AddressError
        The address is malformed.

    """
    try:
        socket.connect(address)
    except zmq.ZMQError as error:
        raise AddressError(f'transport.address = {address}: cannot be used ({error.strerror}); '
                           'expected something like tcp://127.0.0.1:5577') from None


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

"""How many bytes a process has sent: the kernel counts them for every TCP connection."""

import contextlib
import fcntl
import os
import socket
import struct
import sys
import termios

# Bytes that the other side has acknowledged: u64 in `struct tcp_info` of linux/tcp.h.
BYTES_ACKED = 120
LONGEST = 256


def open_sockets() -> set[int]:
    """Give the descriptors of all sockets of this process; none where there is no /proc."""
    found = set()
    if sys.platform == 'linux':
        for name in os.listdir('/proc/self/fd'):
            # The listing itself had a descriptor, which is closed by now.
            with contextlib.suppress(OSError):
                if os.readlink(f'/proc/self/fd/{name}').startswith('socket:'):
                    found.add(int(name))
    return found


class SocketBytes:
    """
    Counts what goes out through some connections.

    Parameters
    ----------
    descriptors : set of int
        Of sockets, which others own; those that are no TCP connections do not count.

    """

    def __init__(self, descriptors: set[int]) -> None:
        self._sockets = [found for found in (socket.socket(fileno=os.dup(descriptor))
                                             for descriptor in descriptors)
                         if found.type == socket.SOCK_STREAM
                         and found.family in (socket.AF_INET, socket.AF_INET6)
                         # What listens sends nothing.
                         and not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)]

    def __bool__(self) -> bool:
        """Say whether there is anything to count."""
        return bool(self._sockets)

    def sent(self) -> int:
        """Give all bytes so far [bytes]."""
        return sum(map(_sent, self._sockets))

    def close(self) -> None:
        """Count no more."""
        for found in self._sockets:
            found.close()
        self._sockets = []


def _sent(connection: socket.socket) -> int:
    # Acknowledgements come late, so what waits for them counts as well; it is asked for first, so
    # that nothing is missed that is acknowledged in between.
    waiting, = struct.unpack('=i', fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))
    acknowledged, = struct.unpack_from('=Q', connection.getsockopt(
        socket.IPPROTO_TCP, socket.TCP_INFO, LONGEST), BYTES_ACKED)
    return int(waiting + acknowledged)

"""Bytes that a process has sent, as the kernel counts them."""

import socket
import sys

import pytest

from asyncppo_ros.cluster.socket_bytes import open_sockets, SocketBytes

pytestmark = pytest.mark.skipif(sys.platform != 'linux', reason='the kernel of Linux counts')


def test_what_waits_for_its_acknowledgement_counts_and_a_listener_does_not():
    before = open_sockets()
    with socket.create_server(('127.0.0.1', 0)) as listener, \
            socket.create_connection(listener.getsockname()) as near, listener.accept()[0] as far:
        counted = SocketBytes(open_sockets() - before)
        begun = counted.sent()
        for total in (5000, 10_000):
            near.sendall(bytes(5000))
            assert counted.sent() - begun == total
        far.sendall(bytes(7))
        assert counted.sent() - begun == 10_007
        counted.close()
    assert not counted

"""Hosts made of namespaces are what they should be, and nothing is left of them."""

import sys

from harness import wait_for
from network import ip, Network, PREFIX, why_not
import pytest

REASON = why_not()
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)

ADDRESSES = {'here': '192.168.1.1', 'there': '192.168.1.2'}
SERVER = """
import socket
server = socket.create_server(('0.0.0.0', 5577))
print('ready', flush=True)
while True:
    server.accept()[0].close()
"""
CLIENT = """
import socket, sys, time
begun = time.monotonic()
try:
    socket.create_connection(('192.168.1.1', 5577), timeout=float(sys.argv[1])).close()
    print(socket.gethostname(), time.monotonic() - begun)
except OSError:
    print('nobody')
"""


def connect(network, timeout=20.0):
    """Connect from ``there`` to ``here``; give what was printed."""
    result = network['there'].run([sys.executable, '-c', CLIENT, timeout])
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_a_cut_is_silent_a_slow_link_is_slow_and_nothing_is_left(tmp_path):
    hidden = tmp_path / 'disk'
    hidden.mkdir()
    (hidden / 'file').touch()
    with Network(ADDRESSES, {'there': [hidden]}, {'there': {'delay-s': 0.05}}) as network:
        server = network['here'].start([sys.executable, '-c', SERVER], tmp_path / 'server.log')
        wait_for(lambda: (tmp_path / 'server.log').read_text() == 'ready\n', 'server',
                 process=server)
        name, seconds = connect(network)
        # There and back; who has the address must be asked before.
        assert name == 'there' and float(seconds) >= 0.1
        network['there'].cut()
        assert connect(network, 0.3) == ['nobody']
        network['there'].heal()
        assert connect(network)[0] == 'there'
        assert network['there'].run(['ls', hidden]).stdout == ''
        assert network['here'].run(['ls', hidden]).stdout == 'file\n'
    assert server.poll() is not None
    assert f'{PREFIX}-{network.owner}-' not in ip('netns', 'list')


def test_two_networks_of_one_process_do_not_meet_and_one_outlives_the_other(tmp_path):
    with Network(ADDRESSES) as network:
        server = network['here'].start([sys.executable, '-c', SERVER], tmp_path / 'server.log')
        wait_for(lambda: (tmp_path / 'server.log').read_text() == 'ready\n', 'server',
                 process=server)
        with Network(ADDRESSES) as other:
            assert connect(other) == ['nobody']
        assert connect(network)[0] == 'there'

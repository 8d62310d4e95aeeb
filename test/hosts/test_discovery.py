"""Which settings of ROS discovery bring the policy topic to another host, by multicast or not."""

import os
import pathlib
import shutil
import sys

from network import Network, why_not
import pytest

from asyncppo_ros.nodes.process import child_environment

pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
REASON = why_not()
if os.environ.get('ROS_DISTRO') == 'humble':
    REASON = 'ROS_AUTOMATIC_DISCOVERY_RANGE and ROS_STATIC_PEERS came after Humble'
pytestmark = [pytest.mark.nodes, pytest.mark.one_distro,
              pytest.mark.skipif(bool(REASON), reason=REASON)]
slow = pytest.mark.slow

ADDRESSES = {'learner': '192.168.1.10', 'lab1': '192.168.1.11'}
PEERS = {name: {'ROS_STATIC_PEERS': address} for name, address in
         (('learner', ADDRESSES['lab1']), ('lab1', ADDRESSES['learner']))}
POST = [sys.executable, pathlib.Path(__file__).with_name('policy_post.py')]
SERVER = f'{ADDRESSES["learner"]}:11811'
VARIABLES = ('ROS_AUTOMATIC_DISCOVERY_RANGE', 'ROS_STATIC_PEERS', 'ROS_DISCOVERY_SERVER')
# What is expected comes within a second or so; what is not, never.
LONG_S, SHORT_S = 60.0, 5.0


@pytest.fixture
def network():
    with Network(ADDRESSES) as network:
        yield network


def environment(**given):
    """Give that of a process of a run, where the user has set this and no more."""
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    # As the processes of a run have it: without a word of the user they stay on their host.
    with pytest.MonkeyPatch.context() as patch:
        for name in VARIABLES:
            patch.delenv(name, raising=False)
        for name, value in given.items():
            patch.setenv(name, value)
        return {**kept, **child_environment(), 'ROS_DOMAIN_ID': '7'}


def arrives(network, tmp_path, seconds, learner, lab1, others=0):
    """Publish on host ``learner``; say whether it comes to ``lab1`` in time."""
    sender = network['learner'].start([*POST, 'send', others], tmp_path / 'send.log',
                                      environment(**learner))
    result = network['lab1'].run([*POST, 'hear', others, seconds], timeout=seconds + 60.0,
                                 environment=environment(**lab1))
    sender.kill()
    assert result.returncode in (0, 1) and 'within' in result.stdout, result.stderr
    return result.returncode == 0


def test_static_peers_need_no_multicast(network, tmp_path):
    network.without_multicast()
    assert arrives(network, tmp_path, LONG_S, PEERS['learner'], PEERS['lab1'])


@slow
def test_static_peers_find_each_of_many_processes(network, tmp_path):
    """With the range SUBNET, Fast DDS would look for the first four of each host."""
    network.without_multicast()
    assert arrives(network, tmp_path, LONG_S, PEERS['learner'], PEERS['lab1'], others=6)
    subnet = {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET'}
    assert not arrives(network, tmp_path, SHORT_S, {**PEERS['learner'], **subnet},
                       {**PEERS['lab1'], **subnet}, others=6)


@slow
def test_discovery_stays_on_the_host_unless_asked(network, tmp_path):
    assert not arrives(network, tmp_path, SHORT_S, {}, {})


@slow
def test_the_subnet_is_reached_by_multicast_alone(network, tmp_path):
    subnet = {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET'}
    assert arrives(network, tmp_path, LONG_S, subnet, subnet)
    network.without_multicast()
    assert not arrives(network, tmp_path, SHORT_S, subnet, subnet)


@slow
def test_one_side_that_names_the_other_is_enough(network, tmp_path):
    network.without_multicast()
    assert arrives(network, tmp_path, LONG_S, {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET'},
                   PEERS['lab1'])


@slow
def test_a_discovery_server_needs_no_multicast(network, tmp_path):
    server = shutil.which('fastdds', path=f'{pathlib.Path(sys.executable).parent}'
                          f'{os.pathsep}{os.environ["PATH"]}')
    if server is None:
        pytest.skip('the fastdds command is missing')
    network.without_multicast()
    here, _, port = SERVER.partition(':')
    network['learner'].start([server, 'discovery', '-i', 0, '-l', here, '-p', port],
                             tmp_path / 'server.log', environment())
    told = {'ROS_DISCOVERY_SERVER': SERVER}
    assert arrives(network, tmp_path, LONG_S, told, told)

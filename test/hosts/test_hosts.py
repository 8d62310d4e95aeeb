"""A learner on one host, actors on two others, keys between them, and a cable that is pulled."""

import sys
import time

from lab import ADDRESSES, folders_in, Lab
from network import Network, why_not
import pytest

from asyncppo_ros.transport.keys import actor_keys, fingerprint, make_keys

pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
REASON = why_not()
pytestmark = [pytest.mark.nodes, pytest.mark.one_distro, pytest.mark.faults,
              pytest.mark.skipif(bool(REASON), reason=REASON)]
slow = pytest.mark.slow
BIND = """
import sys, zmq
from asyncppo_ros.errors import AddressError
from asyncppo_ros.transport.zeromq import bind
with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
    try:
        print(bind(socket, sys.argv[1], allow_plain_text=len(sys.argv) > 2))
    except AddressError as error:
        print('refused:', error)
"""


@pytest.fixture(scope='module')
def lab(tmp_path_factory):
    """Three hosts that train, and three strangers at the door."""
    folder = tmp_path_factory.mktemp('hosts')
    hidden = folders_in(folder)
    make_keys(folder / 'others')
    with Network(ADDRESSES, hidden) as network, Lab(folder, network) as lab:
        lab.join('lab1')
        lab.join('lab2', ros=True)
        # It knows the learner, which does not know it.
        (folder / 'others' / 'actor' / 'learner.key').write_bytes(
            (folder / 'lab1' / 'keys' / 'learner.key').read_bytes())
        lab.key = lab.join('lab1', '--first-actor-id', 1, keys=folder / 'others' / 'actor',
                           log='key.log')
        lab.plain = lab.join('lab2', '--first-actor-id', 2, keys='', log='plain.log')
        lab.task = lab.join('lab2', '--first-actor-id', 3, '--task', 'reach', log='task.log')
        yield lab


def test_actors_with_and_without_ros_join_from_other_hosts(lab):
    lab.wait_for(lambda: lab.newest('actors') == 3, 'three actors')


def test_a_wrong_key_is_refused_by_name(lab):
    name = fingerprint(actor_keys(lab.folder / 'others').public)
    lab.wait_for(lambda: "does not know this actor's key" in lab.told('lab1', 'key.log'), 'word')
    lab.wait_for(lambda: name in lab.log('learner'), 'its name')
    # It may be told again where it knocks on.
    line = next(line for line in lab.log('learner').splitlines() if name in line)
    assert f'a connection from {ADDRESSES["lab1"]}: refused: curve_key' in line
    # It knocks on: its key may be added.
    assert lab.key.poll() is None
    lab.key.terminate()


def test_no_key_is_refused(lab):
    lab.wait_for(lambda: 'set transport.keys here too' in lab.told('lab2', 'plain.log'), 'word')
    lab.wait_for(lambda: 'it needs transport.keys' in lab.log('learner'), 'word of the learner')
    lab.plain.terminate()


def test_a_wrong_task_is_refused_by_name(lab):
    lab.wait_for(lambda: lab.task.poll() is not None, 'its end')
    assert lab.task.returncode == 2
    why = f'task differs: the learner trains {lab.run.config().task}, this actor simulates reach'
    assert f'actor_node: the learner refused this actor: {why}' in lab.told('lab2', 'task.log')
    assert f'refused: hello: actor 3 on lab2: {why}' in lab.log('learner')


def test_an_address_that_others_reach_is_refused_unless_plain_text_is_asked_for(lab):
    python, address = [sys.executable, '-c', BIND], f'tcp://{ADDRESSES["lab1"]}:5599'
    refused, allowed = (lab.network['lab1'].run([*python, address, *asked]).stdout
                        for asked in ([], ['plain text']))
    assert refused.startswith(f'refused: transport.address = {address}: other hosts could reach')
    assert allowed == f'{address}\n'


@slow
def test_a_cut_of_one_host_costs_nothing_but_its_time(lab):
    lab.wait_for(lambda: lab.newest('actors') == 3, 'three actors')
    cut(lab, 5.0)
    assert_nothing_was_lost(lab, lab.finish())


@slow
def test_a_cut_of_half_a_minute_costs_nothing_but_its_time(tmp_path):
    hidden = folders_in(tmp_path)
    with Network(ADDRESSES, hidden) as network, Lab(tmp_path, network) as lab:
        lab.join('lab1')
        lab.join('lab2', ros=True)
        lab.wait_for(lambda: lab.newest('actors') == 3, 'three actors')
        assert cut(lab, 30.0) < 10.0
        assert_nothing_was_lost(lab, lab.finish())


def cut(lab, seconds, name='lab1'):
    """Pull a cable for a while; say how long its host needs to be back [s]."""
    host, begun = lab.network[name], len(lab.watched.seen)
    host.cut()
    lab.watched.watch(seconds)
    lab.wait_for(lambda: lab.newest('actors') == 2, 'silence')
    silent = len(lab.watched.seen)
    lab.wait_for(lambda: len(lab.watched.seen) > silent + 2, 'updates without it')
    updates, consumed = len(lab.watched.seen) - begun, lab.books_of(name)['consumed']
    host.heal()
    healed_at = time.monotonic()
    lab.wait_for(lambda: lab.newest('actors') == 3, 'return')
    back_s = time.monotonic() - healed_at
    lab.wait_for(lambda: lab.books_of(name)['consumed'] > consumed, 'its chunks')
    print(f'{updates} updates during {seconds:g} s and more of silence, back after {back_s:.1f} s')
    return back_s


def assert_nothing_was_lost(lab, rows):
    """Assert that every transition is accounted for, and what a cut may have made too old."""
    settings = lab.run.config().learner
    under_way = (settings.target_lag + 1) * settings.batch_size
    for name in ADDRESSES:
        row = lab.books_of(name)
        assert row['lost_in_crash'] == 0 and row['refused_by_check'] == 0, row
        # What was under way when the cable was pulled may be too old when it comes.
        assert row['dropped_by_age'] <= (under_way if name == 'lab1' else 0), row
        assert row['consumed'] > 0, row
    # The topic reached the host with ROS, whatever the first seconds were like.
    told = lab.told('lab2')
    assert told.count('are fetched over ZeroMQ') == told.count('the policy topic is back'), told
    assert {row['generation'] for row in rows} == {0}

"""Strangers at the learner's door, and hostile messages over real sockets."""

import contextlib
import os
import pathlib
import socket
import struct
import threading
import time
import zlib

from making import FIRST, LAYOUT, make_chunk, make_intake
import numpy as np
import pytest
import zmq

from asyncppo_ros.chunk import Source
from asyncppo_ros.errors import AddressError
from asyncppo_ros.transport.codec import encode_chunk
from asyncppo_ros.transport.keys import (
    actor_keys,
    add_actor,
    fingerprint,
    learner_keys,
    make_keys,
)
from asyncppo_ros.transport.messages import ChunkNotice, encode, Heartbeat, hello
from asyncppo_ros.transport.receiver import ZmqChunkReceiver
from asyncppo_ros.transport.sender import ZmqChunkSender
from asyncppo_ros.transport.zeromq import connectable

SIZE = 12
ACTOR = Source(1, 1)


class Door:
    """A learner that trains nothing, and what it said to people."""

    def __init__(self, keys=None, address='tcp://127.0.0.1:*', **settings):
        self.warnings = []
        self.intake = make_intake(warnings=self.warnings, **settings)
        self.receiver = ZmqChunkReceiver(self.intake, address, keys=learner_keys(keys or ''))
        self.address = connectable(self.receiver.address)
        self.receiver.start()

    def close(self):
        self.receiver.close(timeout=0.2)


@pytest.fixture
def ended():
    """Close what a test opened, and check that no thread is left."""
    threads = set(threading.enumerate())
    things = []
    yield lambda thing: things.append(thing) or thing
    for thing in reversed(things):
        thing.close()
    assert set(threading.enumerate()) <= threads


@pytest.fixture
def keys(tmp_path):
    make_keys(tmp_path / 'keys')
    return tmp_path / 'keys'


def wait_for(condition, timeout=10.0):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, 'waited in vain'
        time.sleep(0.005)


def make_sender(door, keys=''):
    return ZmqChunkSender(door.address, hello(1, LAYOUT, 3, 4), keys=actor_keys(keys))


def send_next(sender):
    wait_for(lambda: sender.poll(0.01)
             or sender.permit_for(sender.next_sequence) is not None)
    sender.ledger.stepped(SIZE)
    sender.send(make_chunk(sequence=sender.next_sequence, actor_id=1,
                           incarnation=sender.source.incarnation))


# Who gets in


def test_with_keys_chunks_arrive_encrypted(ended, keys):
    door = ended(Door(keys))
    sender = ended(make_sender(door, keys))
    assert sender.connect(5.0) and sender.trouble == ''
    for _ in range(3):
        send_next(sender)
    wait_for(lambda: door.intake.chunks_received == 3)
    assert door.intake.refused_connections() == {} and door.warnings == []


def test_nothing_that_matters_crosses_the_wire_in_the_clear(ended, keys):
    def seen(keys):
        door = Door(keys)
        wire = Tap(door.address)
        sender = ZmqChunkSender(wire.address, hello(1, LAYOUT, 3, 4), keys=actor_keys(keys))
        assert sender.connect(5.0)
        send_next(sender)
        wait_for(lambda: door.intake.chunks_received == 1)
        for thing in (sender, door, wire):
            thing.close()
        return b''.join(wire.seen)

    assert b'"task"' in seen('') and b'joint_position' in seen('')
    hidden = seen(keys)
    assert len(hidden) > 500
    assert b'"task"' not in hidden and b'joint_position' not in hidden and b'APPO' not in hidden


class Tap:
    """One TCP connection through this process, which keeps what it sees."""

    def __init__(self, address):
        self._server = socket.create_server(('127.0.0.1', 0))
        self.address = f'tcp://127.0.0.1:{self._server.getsockname()[1]}'
        self.seen = []
        self._far = socket.create_connection(('127.0.0.1', int(address.rpartition(':')[2])))
        self._near = None
        self._threads = [threading.Thread(target=self._run)]
        self._threads[0].start()

    def _run(self):
        self._near, _ = self._server.accept()
        back = threading.Thread(target=self._pump, args=(self._far, self._near))
        self._threads.append(back)
        back.start()
        self._pump(self._near, self._far)

    def _pump(self, source, sink):
        try:
            while data := source.recv(65536):
                self.seen.append(data)
                sink.sendall(data)
        except OSError:
            pass

    def close(self):
        for end in (self._near, self._far):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in (self._near, self._far, self._server):
            end.close()


def test_a_wrong_key_is_refused_named_counted_and_let_in_once_it_is_added(ended, keys, tmp_path):
    make_keys(tmp_path / 'others')
    stranger = actor_keys(tmp_path / 'others')._replace(learner=learner_keys(keys).public)
    door = ended(Door(keys))
    sender = ended(ZmqChunkSender(door.address, hello(1, LAYOUT, 3, 4), keys=stranger))
    assert not sender.connect(1.5)
    # It knocks again, and is counted again, but is told of once.
    assert door.intake.refused_connections()['curve_key'] >= 2
    warning, = door.warnings
    assert '127.0.0.1' in warning and fingerprint(stranger.public) in warning
    assert "does not know this actor's key" in sender.trouble
    (keys / 'learner' / 'authorized' / 'late.key').write_bytes(
        (tmp_path / 'others' / 'actor' / 'actor.key').read_bytes())
    assert sender.connect(5.0) and sender.trouble == ''
    send_next(sender)
    wait_for(lambda: door.intake.chunks_received == 1)
    assert door.intake.refused() == {}


def test_who_is_answered_forgets_the_refusals_before(ended, keys, tmp_path):
    make_keys(tmp_path / 'others')
    stranger = actor_keys(tmp_path / 'others')._replace(learner=learner_keys(keys).public)
    door = ended(Door(keys))
    sender = ended(ZmqChunkSender(door.address, hello(1, LAYOUT, 3, 4), keys=stranger))
    wait_for(lambda: sender.poll(0.01) or sender.trouble)
    knocks = door.intake.refused_connections()['curve_key']
    # As a welcome does, which may be heard before the events of the connection are seen.
    sender._doorbell.answered()
    assert not sender.connect(2.0) and sender.trouble == ''
    assert door.intake.refused_connections()['curve_key'] == knocks


def test_a_host_that_is_added_while_training_gets_in(ended, keys):
    door = ended(Door(keys))
    assert ended(make_sender(door, keys)).connect(5.0)
    add_actor(keys, 'arm')
    sender = ended(ZmqChunkSender(door.address, hello(2, LAYOUT, 3, 4),
                                  keys=actor_keys(keys / 'arm')))
    assert sender.connect(5.0)
    assert door.intake.refused_connections() == {}


def test_a_host_whose_key_was_removed_does_not_get_in(ended, keys):
    door = ended(Door(keys))
    (keys / 'learner' / 'authorized' / 'actor.key').unlink()
    assert not ended(make_sender(door, keys)).connect(0.5)
    assert door.intake.refused_connections() == {'curve_key': 1}


def test_a_peer_without_keys_is_refused_named_and_counted(ended, keys):
    door = ended(Door(keys))
    sender = ended(make_sender(door))
    assert not sender.connect(0.5)
    assert 'may demand encryption: set transport.keys here too' in sender.trouble
    assert door.intake.refused_connections()['curve_handshake'] >= 1
    # Whichever end notices first ends the connection.
    assert door.warnings and all(
        warning.startswith('a connection from ') and 'transport.keys' in warning
        for warning in door.warnings)
    assert ended(make_sender(door, keys)).connect(5.0)


def test_an_actor_with_the_key_of_another_learner_does_not_connect(ended, keys, tmp_path):
    make_keys(tmp_path / 'others')
    door = ended(Door(keys))
    sender = ended(make_sender(door, tmp_path / 'others'))
    assert not sender.connect(0.5)
    assert 'copy learner.key' in sender.trouble
    assert door.intake.refused_connections()['curve_handshake'] >= 1
    assert any('another key for this learner' in warning for warning in door.warnings)


def test_an_actor_with_keys_does_not_talk_to_a_learner_without(ended, keys):
    door = ended(Door())
    sender = ended(make_sender(door, keys))
    assert not sender.connect(0.5)
    assert 'set transport.keys there too' in sender.trouble
    assert door.intake.sources == []


def test_the_address_of_a_refused_peer_is_told(ended, keys):
    door = ended(Door(keys))
    # Slow enough to be looked at: half a greeting, then nothing.
    connection = socket.create_connection(('127.0.0.1', int(door.address.rpartition(':')[2])))
    connection.sendall(b'\xff\0\0\0\0\0\0\0\1\x7f\3')
    time.sleep(0.2)
    connection.close()
    wait_for(lambda: door.intake.refused_connections() == {'curve_handshake': 1})
    assert door.warnings == ['a connection from 127.0.0.1: refused: curve_handshake: the '
                             'connection ended within the handshake; has the peer the right '
                             'transport.keys?']


def test_many_strangers_do_not_keep_an_actor_out(ended, keys):
    door = ended(Door(keys))
    context = zmq.Context()
    strangers = []
    for number in range(40):
        stranger = context.socket(zmq.DEALER)
        stranger.linger = 0
        if number % 2:
            stranger.curve_publickey, stranger.curve_secretkey = zmq.curve_keypair()
            stranger.curve_serverkey = learner_keys(keys).public
        stranger.connect(door.address)
        strangers.append(stranger)
    assert ended(make_sender(door, keys)).connect(5.0)
    wait_for(lambda: door.intake.refused_connections().get('curve_key', 0) >= 20
             and door.intake.refused_connections().get('curve_handshake', 0) >= 20)
    for stranger in strangers:
        stranger.close()
    context.term()


@pytest.mark.parametrize('address', ['tcp://0.0.0.0:*', 'tcp://*:*'])
def test_with_keys_an_open_address_may_be_bound_and_reached_from_here(ended, keys, address):
    door = ended(Door(keys, address))
    assert door.receiver.address.startswith('tcp://0.0.0.0:')
    assert ended(make_sender(door, keys)).connect(5.0)


def test_an_open_address_without_keys_names_the_remedy():
    with pytest.raises(AddressError, match='asyncppo keys DIR.*--transport.keys DIR'):
        ZmqChunkReceiver(make_intake(), 'tcp://0.0.0.0:5599')


@pytest.mark.parametrize('bound, reached', [
    ('tcp://0.0.0.0:5577', 'tcp://127.0.0.1:5577'), ('tcp://*:5577', 'tcp://127.0.0.1:5577'),
    ('tcp://[::]:5577', 'tcp://[::1]:5577'), ('tcp://10.0.0.7:5577', 'tcp://10.0.0.7:5577'),
    ('ipc:///tmp/x', 'ipc:///tmp/x')])
def test_how_this_host_reaches_what_it_binds(bound, reached):
    assert connectable(bound) == reached


def test_ipv6_is_bound_and_reached(ended, keys):
    try:
        socket.create_server(('::1', 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip('this machine has no IPv6')
    door = ended(Door(keys, 'tcp://[::1]:*'))
    assert ended(make_sender(door, keys)).connect(5.0)


def test_a_receiver_whose_address_is_taken_leaves_nothing_behind(ended, keys):
    door = ended(Door(keys))
    with pytest.raises(AddressError, match='in use by another'):
        ZmqChunkReceiver(make_intake(), door.receiver.address, keys=learner_keys(keys))


# What those do no harm with who got in


class Client:
    """A ZeroMQ client that sends whatever it wants."""

    def __init__(self, door):
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        self.socket.linger = 1000
        self.socket.connect(door.address)

    def join(self, door):
        self.send(encode(hello(1, LAYOUT, 3, 4)))
        wait_for(lambda: ACTOR in door.intake.sources)
        return self

    def send(self, frames):
        self.socket.send_multipart(frames)

    def close(self):
        self.socket.close()
        self._context.term()


def chunk_frames(sequence=0, notice=None, chunk=None, layout=LAYOUT, **integers):
    chunk = make_chunk(sequence=sequence, layout=layout, **integers) if chunk is None else chunk
    notice = notice or ChunkNotice(sequence, SIZE, sequence * SIZE, 0)
    return [*encode(notice), *(bytes(frame) for frame in encode_chunk(chunk, layout))]


def not_finite(sequence):
    chunk = make_chunk(sequence=sequence)
    chunk.reward[1, 1] = np.nan
    return chunk_frames(sequence, chunk=chunk)


def altered(sequence, position, value):
    """Give a chunk with another header, whose CRC is right all the same."""
    kind, notice, header, payload = chunk_frames(sequence)
    header = bytearray(header[:-4])
    header[position:position + len(value)] = value
    crc = struct.pack('<I', zlib.crc32(payload, zlib.crc32(header)))
    return [kind, notice, bytes(header) + crc, payload]


HOSTILE = {
    'crc': lambda n: [*chunk_frames(n)[:3], chunk_frames(n)[3][:-1] + b'\7'],
    'length': lambda n: [*chunk_frames(n)[:3], chunk_frames(n)[3] + bytes(5000)],
    'frames': lambda n: chunk_frames(n)[:3],
    'magic': lambda n: altered(n, 0, b'OPPA'),
    'schema': lambda n: altered(n, 4, b'\x63'),
    'sizes': lambda n: altered(n, 88, struct.pack('<I', 60000)),
    'layout': lambda n: chunk_frames(n, layout=LAYOUT._replace(task='ant')),
    'run': lambda n: chunk_frames(n, run_id=78),
    'source': lambda n: chunk_frames(n, actor_id=9),
    'claim': lambda n: chunk_frames(n, notice=ChunkNotice(n, 11, n * SIZE, 0)),
    'future_policy': lambda n: chunk_frames(n, policy_version=5),
    'not_finite': not_finite,
    'sequence': lambda n: chunk_frames(n + 9999),
    'kind': lambda n: [b'NOISE', b'{}'],
    'malformed': lambda n: [b'HEARTBEAT', b'{"chunks": "many"}'],
    'oversized': lambda n: [b'HEARTBEAT', b' ' * 70_000],
}
# These do not use up the sequence number of a chunk.
NO_CHUNK = {'sequence', 'kind', 'malformed', 'oversized'}


def test_every_hostile_message_is_refused_by_cause_and_the_books_balance(ended, tmp_path):
    door = ended(Door(batch_size=1000, run_dir=tmp_path))
    client = ended(Client(door)).join(door)
    sequence = 0
    for cause, make in HOSTILE.items():
        client.send(make(sequence))
        sequence += cause not in NO_CHUNK
        client.send(chunk_frames(sequence))  # a good one after each
        sequence += 1
    client.send(chunk_frames(sequence - 1))  # repeated
    client.send(chunk_frames(sequence + 1))  # one was lost …
    client.send(chunk_frames(sequence))  # … or only late
    wait_for(lambda: door.intake.refused_of(ACTOR).get('reordered') == 1)
    assert door.intake.refused_of(ACTOR) == {
        **dict.fromkeys(HOSTILE, 1), 'duplicate': 1, 'reordered': 1}
    assert door.intake.refused_of(None) == {}
    assert door.intake.chunks_received == len(HOSTILE) + 1
    assert door.intake.gaps() == {ACTOR: 1}
    for cause in [*HOSTILE, 'duplicate', 'reordered']:
        assert sum(f'actor 1 (incarnation 1): refused: {cause}: ' in warning
                   for warning in door.warnings) == 1, cause
    produced = (sequence + 2) * SIZE
    client.send(encode(Heartbeat(sequence + 2, produced, 0, sent_ns=1)))
    wait_for(lambda: door.intake.books_totals()['produced'] == produced)
    batch = door.intake.next_batch(FIRST, 0, 0.0)
    assert batch is None and door.intake.write_books() == []
    totals = door.intake.books_totals()
    # A chunk that claims 11 transitions is booked as what it claims.
    refused = sum(cause not in NO_CHUNK for cause in HOSTILE) * SIZE - 1
    assert totals['refused_by_check'] == refused
    assert totals['in_flight'] == door.intake.chunks_received * SIZE


def test_a_stranger_cannot_write_lines_of_the_log(ended):
    door = ended(Door())
    client = ended(Client(door))
    forged = 'ant\n[ERROR] the robot burns\x1b[2J' + 'x' * 5000
    client.send(encode(hello(1, LAYOUT._replace(task=forged), 3, 4)))
    wait_for(lambda: door.intake.refused() == {'hello': 1})
    warning, = door.warnings
    assert warning.isprintable() and len(warning) < 600
    assert 'this actor simulates ant?[ERROR] the robot burns?[2J' in warning


def resident_mib():
    pages = int(pathlib.Path('/proc/self/statm').read_text().split()[1])
    return pages * os.sysconf('SC_PAGE_SIZE') / 2 ** 20


def announce(address, size):
    """Speak ZMTP 3.0 by hand: greet, say READY, announce a frame of `size` bytes, and pour."""
    connection = socket.create_connection(('127.0.0.1', int(address.rpartition(':')[2])))
    connection.settimeout(5.0)
    connection.sendall(b'\xff\0\0\0\0\0\0\0\1\x7f\3\0' + b'NULL'.ljust(20, b'\0') + bytes(32))
    ready = b'\5READY\x0bSocket-Type\0\0\0\6DEALER'
    connection.sendall(b'\4' + bytes([len(ready)]) + ready)
    while len(connection.recv(4096)) == 4096:
        pass
    connection.sendall(b'\2' + size.to_bytes(8, 'big'))
    sent = 0
    try:
        while sent < size:
            sent += connection.send(bytes(1 << 20))
    except (ConnectionError, TimeoutError):
        pass
    connection.close()
    return sent


def test_a_gigabyte_cannot_be_pushed(ended):
    door = ended(Door(max_transitions=1000))
    sender = ended(make_sender(door))
    assert sender.connect(5.0)
    before = resident_mib()
    assert announce(door.address, 1 << 30) < 64 << 20
    assert resident_mib() - before < 200
    send_next(sender)
    wait_for(lambda: door.intake.chunks_received == 1)
    assert door.intake.refused() == {}


def test_the_largest_chunk_fits_into_a_frame(ended):
    door = ended(Door(batch_size=1000, max_transitions=1000))
    client = ended(Client(door))
    client.send(encode(hello(1, LAYOUT, 1000, 1)))
    wait_for(lambda: ACTOR in door.intake.sources)
    client.send(chunk_frames(chunk=make_chunk(1, 1000), notice=ChunkNotice(0, 1000, 0, 0)))
    wait_for(lambda: door.intake.chunks_received == 1)
    # What is larger than any chunk, but not absurd, is counted before it is thrown away.
    client.send([*encode(ChunkNotice(1, SIZE, 1000, 0)),
                 bytes(door.intake.largest_frame), b''])
    wait_for(lambda: door.intake.refused_of(ACTOR) == {'length': 1})


def test_an_actor_with_chunks_larger_than_a_batch_is_told(ended):
    from asyncppo_ros.errors import RunError
    door = ended(Door(max_transitions=11))
    with pytest.raises(RunError, match='3 × actor.chunk_length 4 = 12 transitions: more than 11'):
        ended(make_sender(door)).connect(5.0)

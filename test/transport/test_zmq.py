"""Senders and receivers over loopback, with real processes where they may die."""

import contextlib
import os
from pathlib import Path
import signal
import socket
import subprocess
import sys
import threading
import time

from making import FIRST, LAYOUT, make_chunk, make_intake, RUN_ID
import numpy as np
import pytest
import zmq

from asyncppo_ros.chunk import Identity, Source
from asyncppo_ros.errors import AddressError, RunError
from asyncppo_ros.learning.ledger import read_ledger
from asyncppo_ros.transport.codec import encode_chunk
from asyncppo_ros.transport.messages import ChunkNotice, encode, hello
from asyncppo_ros.transport.receiver import ZmqChunkReceiver
from asyncppo_ros.transport.sender import ZmqChunkSender

ACTOR_PROCESS = Path(__file__).with_name('actor_process.py')
FREE_PORT = 'tcp://127.0.0.1:*'
BOTH_KINDS = pytest.mark.parametrize('kind', ['shm', 'zmq'])
SIZE = 12


class LearnerProcess:
    """A learner whose updates do nothing for `update_s`; it runs in this process."""

    def __init__(self, address=FREE_PORT, update_s=0.0, identity=FIRST, **settings):
        self.warnings = []
        self.intake = make_intake(identity=identity, warnings=self.warnings, **settings)
        self.receiver = ZmqChunkReceiver(self.intake, address)
        self.receiver.start()
        self.identity = identity
        self.update_s = update_s
        self.lags = []
        self.sequences = {}
        self.most_under_way = 0
        self._end = threading.Event()
        self._thread = None

    def learn(self):
        """Make updates in a thread."""
        self._thread = threading.Thread(target=self._learn, daemon=True)
        self._thread.start()
        return self

    def _learn(self):
        while not self._end.is_set():
            batch = self.intake.next_batch(self.identity, 0, 0.05)
            self.most_under_way = max(self.most_under_way, self.intake.under_way)
            if batch is None:
                continue
            self.lags.append(batch.lag_versions.maximum)
            for chunk in batch.chunks:
                self.sequences.setdefault(chunk.source, []).append(chunk.sequence)
            self._end.wait(self.update_s)
            version = self.identity.policy_version + 1
            self.identity = self.identity._replace(policy_version=version)
            self.intake.updated(version)
            self.intake.published(self.identity)

    def stop_learning(self):
        self._end.set()
        self._thread.join()

    def kill(self):
        """End as by kill -9: no word to anyone."""
        if self._thread:
            self.stop_learning()
        receiver = self.receiver
        receiver._closing = True
        receiver._wake()
        receiver._thread.join()
        receiver._socket.close(linger=0)
        receiver._context.term()
        os.close(receiver._wake_read)
        os.close(receiver._wake_write)

    def close(self):
        if self._thread:
            self.stop_learning()
        self.receiver.close()


@pytest.fixture
def ended():
    """Collect what is to be closed or killed, and check that no thread is left."""
    threads = set(threading.enumerate())
    things = []
    yield things.append
    for thing in reversed(things):
        if isinstance(thing, subprocess.Popen):
            thing.kill()
            thing.wait()
        else:
            thing.close()
    assert set(threading.enumerate()) <= threads


def start_actor(learner, actor_id, *arguments, address=None):
    # The package need not be installed for its tests.
    environment = os.environ | {'PYTHONPATH': str(ACTOR_PROCESS.parents[2])}
    address = address or learner.receiver.address
    return subprocess.Popen([sys.executable, str(ACTOR_PROCESS), address, str(actor_id),
                             *arguments], env=environment)


class Wire:
    """A TCP connection through this process that can be cut."""

    def __init__(self, address):
        self._target = ('127.0.0.1', int(address.rpartition(':')[2]))
        self._server = socket.create_server(('127.0.0.1', 0))
        self.address = f'tcp://127.0.0.1:{self._server.getsockname()[1]}'
        self._ends = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self):
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            far = socket.create_connection(self._target)
            self._ends += [near, far]
            for pair in ((near, far), (far, near)):
                pump = threading.Thread(target=self._pump, args=pair, daemon=True)
                pump.start()
                self._threads.append(pump)

    def _pump(self, source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass

    def cut(self):
        """Lose whatever is on the way."""
        ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self):
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()
        for thread in self._threads:
            thread.join()


def wait_for(condition, timeout=10.0):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, 'waited in vain'
        time.sleep(0.005)


def wait_until_within_a_chunk(run_dir, source):
    """Wait until an actor has stepped in a chunk that is not complete."""
    def begun():
        reading = read_ledger(run_dir, source)
        return reading is not None and 0 < reading.counters.unfinished < SIZE
    wait_for(begun)


def connected(learner, ended, actor_id=1, kind='auto'):
    sender = ZmqChunkSender(learner.receiver.address, hello(actor_id, LAYOUT, 3, 4), kind=kind)
    ended(sender)
    assert sender.connect(5.0)
    return sender


def poll_until(sender, condition, timeout=10.0):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, 'waited in vain'
        sender.poll(0.01)


def send_next(sender, **integers):
    poll_until(sender, lambda: sender.permit_for(sender.next_sequence) is not None)
    sender.ledger.stepped(SIZE)
    sender.send(make_chunk(sequence=sender.next_sequence, actor_id=sender.source.actor_id,
                           incarnation=sender.source.incarnation, **integers))


@BOTH_KINDS
def test_chunks_arrive_and_everyone_leaves_in_peace(ended, tmp_path, kind):
    # On a busy machine an actor may be overtaken by many of these updates, which take no time.
    learner = LearnerProcess(run_dir=tmp_path, batch_size=48, target_lag=1,
                             max_policy_lag=10 ** 6).learn()
    ended(learner)
    actors = [start_actor(learner, number, '--kind', kind) for number in range(3)]
    for actor in actors:
        ended(actor)
    wait_for(lambda: len(learner.intake.sources) == 3 and len(learner.lags) > 50)
    learner.close()
    assert [actor.wait(5) for actor in actors] == [0, 0, 0]
    totals = learner.intake.books_totals()
    assert learner.intake.write_books() == []
    assert totals['lost_in_crash'] == totals['refused_by_check'] == 0
    assert totals['consumed'] >= 50 * 48
    for sequences in learner.sequences.values():
        assert sequences == list(range(len(sequences)))


def test_a_killed_actor_costs_only_what_was_under_way(ended, tmp_path):
    learner = LearnerProcess(run_dir=tmp_path, batch_size=48, target_lag=1).learn()
    ended(learner)
    first, second = start_actor(learner, 0), start_actor(learner, 1, '--step_s', '0.05')
    ended(first)
    ended(second)
    wait_for(lambda: len(learner.intake.sources) == 2 and len(learner.lags) > 20)
    wait_until_within_a_chunk(tmp_path, Source(1, 1))
    second.send_signal(signal.SIGKILL)
    second.wait()
    wait_for(lambda: len(learner.intake.sources) == 1)
    before = len(learner.lags)
    third = start_actor(learner, 1)
    ended(third)
    wait_for(lambda: Source(1, 2) in learner.intake.sources and len(learner.lags) > before + 20)
    learner.close()
    assert learner.intake.write_books() == []
    rows = {(row['actor_id'], row['incarnation']): row
            for row in learner.intake._books.table()}
    assert 0 < rows[1, 1]['lost_in_crash'] <= 2 * SIZE
    assert rows[0, 1]['lost_in_crash'] == rows[1, 2]['lost_in_crash'] == 0
    assert first.wait(5) == third.wait(5) == 0


@BOTH_KINDS
def test_an_actor_outlives_its_learner(ended, tmp_path, kind):
    learner = LearnerProcess(run_dir=tmp_path, batch_size=24, target_lag=1).learn()
    ended(learner)
    actor = start_actor(learner, 5, '--kind', kind)
    ended(actor)
    wait_for(lambda: len(learner.lags) > 20)
    learner.stop_learning()
    state = learner.intake.books_state()
    address = learner.receiver.address
    learner.kill()
    time.sleep(0.3)
    following = LearnerProcess(address, identity=Identity(2, learner.identity.policy_version),
                               run_dir=tmp_path, batch_size=24, target_lag=1, state=state)
    ended(following.learn())
    wait_for(lambda: len(following.lags) > 20)
    following.close()
    assert actor.wait(5) == 0
    source, = following.sequences
    assert source == Source(5, 1)
    assert following.sequences[source][0] >= learner.sequences[source][-1]
    assert following.sequences[source] == list(range(following.sequences[source][0],
                                                     following.sequences[source][-1] + 1))
    assert following.intake.write_books() == []


def test_a_learner_without_memory_takes_running_actors_in(ended, tmp_path):
    learner = LearnerProcess(run_dir=tmp_path, batch_size=24).learn()
    ended(learner)
    actor = start_actor(learner, 5)
    ended(actor)
    wait_for(lambda: len(learner.lags) > 20)
    address = learner.receiver.address
    learner.kill()
    following = LearnerProcess(address, identity=Identity(2, 0), run_dir=tmp_path,
                               batch_size=24).learn()
    ended(following)
    wait_for(lambda: len(following.lags) > 20)
    following.close()
    assert actor.wait(5) == 0
    assert following.intake.write_books() == []
    assert following.intake.books_totals()['lost_in_crash'] > 0


def test_a_slow_learner_bounds_what_is_under_way(ended):
    learner = LearnerProcess(batch_size=48, target_lag=2, update_s=0.1).learn()
    ended(learner)
    actors = [start_actor(learner, number) for number in range(3)]
    for actor in actors:
        ended(actor)
    wait_for(lambda: len(learner.lags) > 20)
    learner.close()
    assert learner.most_under_way <= 3 * 48 + SIZE
    # On a busy machine a chunk may be overtaken by those of other actors, by one version.
    assert sum(lag > 2 for lag in learner.lags[5:]) <= 2 and max(learner.lags) <= 3
    assert np.mean(learner.lags[5:]) >= 1


def test_a_paused_learner_stops_the_actors(ended):
    learner = LearnerProcess(batch_size=24, target_lag=1)
    ended(learner)
    learner.intake.pause()
    sender = connected(learner, ended)
    for _ in range(20):
        sender.poll(0.01)
    assert sender.permit_for(0) is None
    learner.intake.resume()
    poll_until(sender, lambda: sender.permit_for(0) is not None)
    sent = 0
    while sender.permit_for(sender.next_sequence) is not None:
        send_next(sender)
        sent += 1
        sender.poll(0.05)
    assert sent == 4
    assert learner.intake.waiting == 4 * SIZE


def test_an_actor_that_does_not_fit_is_told_why(ended):
    learner = LearnerProcess()
    ended(learner)
    sender = ZmqChunkSender(learner.receiver.address, hello(1, LAYOUT._replace(task='ant'), 3, 4))
    ended(sender)
    with pytest.raises(RunError, match='the learner trains reach, this actor simulates ant'):
        sender.connect(5.0)


def test_an_actor_that_finds_nobody_says_so_in_time(ended):
    sender = ZmqChunkSender('tcp://127.0.0.1:9', hello(1, LAYOUT, 3, 4))
    ended(sender)
    begun = time.monotonic()
    assert not sender.connect(0.3)
    assert time.monotonic() - begun < 1.0
    sender.close()
    assert time.monotonic() - begun < 2.0


def test_noise_does_no_harm(ended):
    learner = LearnerProcess(batch_size=1000)
    ended(learner)
    sender = connected(learner, ended)
    context = zmq.Context()
    noise = context.socket(zmq.DEALER)
    noise.linger = 1000
    noise.connect(learner.receiver.address)
    random = np.random.default_rng(0)
    chunk = [bytes(frame) for frame in encode_chunk(make_chunk(), LAYOUT)]
    for _ in range(50):
        noise.send_multipart([random.bytes(int(random.integers(0, 99)))
                              for _ in range(random.integers(1, 6))])
        noise.send_multipart([*encode(ChunkNotice(0, SIZE, 0, 0)), *chunk])
    noise.send_multipart([b'CHUNK', b'', bytes(5_000_000)])
    for _ in range(10):
        send_next(sender)
    wait_for(lambda: learner.intake.chunks_received == 10
             and sum(learner.intake.refused_of(None).values()) == 101)
    assert learner.intake.refused_of(None)['unknown'] == 50
    assert learner.intake.refused_of(sender.source) == {}
    noise.close()
    context.term()


def test_what_a_cut_connection_swallowed_is_sent_again(ended):
    learner = LearnerProcess(batch_size=1000, target_lag=0)
    ended(learner)
    sender = connected(learner, ended, kind='zmq')
    send_next(sender)
    poll_until(sender, lambda: learner.intake.chunks_received == 1)
    # The socket takes the next chunk, and the connection loses it.
    transmit, sender._transmit = sender._transmit, lambda frames: True
    send_next(sender)
    sender._transmit = transmit
    poll_until(sender, lambda: learner.intake.chunks_received == 2)
    assert learner.intake.gaps() == {} and learner.intake.refused() == {}


def test_a_connection_that_is_cut_again_and_again_costs_at_most_a_wait(ended, tmp_path):
    learner = LearnerProcess(run_dir=tmp_path, batch_size=24, target_lag=1).learn()
    ended(learner)
    wire = Wire(learner.receiver.address)
    ended(wire)
    actor = start_actor(learner, 1, '--kind', 'zmq', address=wire.address)
    ended(actor)
    for _ in range(6):
        goal = len(learner.lags) + 15
        wait_for(lambda goal=goal: len(learner.lags) > goal)
        wire.cut()
    goal = len(learner.lags) + 15
    wait_for(lambda: len(learner.lags) > goal)
    learner.close()
    assert actor.wait(5) == 0
    assert learner.intake.write_books() == []
    assert 'internal' not in learner.intake.refused()
    sequences = learner.sequences[Source(1, 1)]
    assert sequences == sorted(set(sequences))
    # What a cut swallows is sent again, unless the chunk after it was faster.
    assert learner.intake.books_totals()['lost_in_crash'] <= 6 * 4 * SIZE


def test_the_age_of_a_chunk_is_measured_by_both_ends(ended):
    learner = LearnerProcess(batch_size=SIZE)
    ended(learner)
    sender = connected(learner, ended)
    send_next(sender)
    wait_for(lambda: learner.intake.chunks_received == 1)
    time.sleep(0.05)
    age = learner.intake.next_batch(FIRST, 0, 1.0).sample_age
    assert age.collecting.mean == pytest.approx(5.0)
    assert 0.0 <= age.waiting.mean < 20.0
    assert 0.0 < age.transport.mean < 50.0
    assert 50.0 <= age.learner.mean < 500.0


def test_a_receiver_that_dies_is_not_waited_for(ended, monkeypatch):
    learner = LearnerProcess()
    ended(learner)
    monkeypatch.setattr(learner.intake, 'expire', lambda: 1 / 0)
    learner.receiver._thread.join(5.0)
    with pytest.raises(RuntimeError, match='receives chunks died') as caught:
        learner.intake.next_batch(learner.identity, 0, 0.0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_address_in_use_is_named(ended):
    learner = LearnerProcess()
    ended(learner)
    address = learner.receiver.address
    with pytest.raises(AddressError, match=f'transport.address = {address}: in use by another'):
        ZmqChunkReceiver(make_intake(), address)


@pytest.mark.parametrize('address', ['tcp://*:5599', 'tcp://0.0.0.0:5599', 'tcp://[::]:5599',
                                     'tcp://192.168.0.1:5599', 'tcp://robot:5599'])
def test_an_open_address_is_refused_unless_asked_for(address):
    with pytest.raises(AddressError, match='unencrypted'):
        ZmqChunkReceiver(make_intake(), address)


def test_an_open_address_may_be_asked_for():
    receiver = ZmqChunkReceiver(make_intake(), 'tcp://*:*', allow_plain_text=True)
    assert receiver.address.startswith('tcp://0.0.0.0:')
    receiver.close()


@pytest.mark.parametrize('address', ['', 'nonsense', 'tcp://127.0.0.1', 'tcp://127.0.0.1:x'])
def test_a_malformed_address_is_named(address):
    with pytest.raises(AddressError, match='transport.address'):
        ZmqChunkReceiver(make_intake(), address)
    with pytest.raises(AddressError, match='transport.address'):
        ZmqChunkSender(address, hello(1, LAYOUT, 3, 4))


def test_an_actor_killed_at_the_end_has_lost_its_chunk(ended, tmp_path):
    learner = LearnerProcess(run_dir=tmp_path, batch_size=1000)
    ended(learner)
    actor = start_actor(learner, 2, '--step_s', '0.05')
    ended(actor)
    wait_for(lambda: learner.intake.chunks_received > 1)
    wait_until_within_a_chunk(tmp_path, Source(2, 1))
    actor.kill()
    actor.wait()
    learner.receiver.close(timeout=0.2)
    totals = learner.intake.books_totals()
    assert learner.intake.write_books() == []
    assert 0 < totals['lost_in_crash'] <= 2 * SIZE
    assert totals['in_flight'] == learner.intake.waiting


def test_a_sender_refuses_a_chunk_out_of_order(ended):
    learner = LearnerProcess()
    ended(learner)
    sender = connected(learner, ended)
    with pytest.raises(ValueError, match='chunk 4 where 0 is next'):
        sender.send(make_chunk(sequence=4))
    assert sender.run_id == RUN_ID


def test_a_large_policy_is_fetched_over_the_socket(ended):
    learner = LearnerProcess()
    ended(learner)
    sender = ZmqChunkSender(learner.receiver.address, hello(1, LAYOUT, 3, 4))
    ended(sender)
    sender.connect()
    heard = []
    sender.on_news = lambda: heard.append(sender.newest)
    data = np.random.default_rng(0).bytes(3_000_000)
    learner.intake.published(Identity(1, 1), data)
    # News of the first policy came with the welcome; both may be handled in one go.
    poll_until(sender, lambda: sender.newest == Identity(1, 1))
    assert heard[-1] == Identity(1, 1)
    assert sender.take_policy() is None
    assert sender.fetch(FIRST)
    received = []
    poll_until(sender, lambda: received.append(sender.take_policy()) or received[-1])
    assert received[-1] == data and sender.take_policy() is None

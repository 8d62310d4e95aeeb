"""The shared-memory ring: every chunk arrives once or is refused by cause, whoever dies."""

import dataclasses
import gc
import os
from pathlib import Path
import struct
import subprocess
import sys
import time
import zlib

from making import FULL_LAYOUT, LAYOUT, make_chunk, make_intake, RUN_ID, with_ends
import numpy as np
import pytest
from test_codec import assert_equal
from test_zmq import LearnerProcess, poll_until, send_next, SIZE, wait_for

from asyncppo_ros.chunk import ARRAYS, Chunk, Identity, INTEGERS, Source
from asyncppo_ros.errors import CodecError, RunError
from asyncppo_ros.transport import ring
from asyncppo_ros.transport.messages import Bell, Bye, ChunkNotice, encode, hello, Who
from asyncppo_ros.transport.payload import ChunkBuffer
from asyncppo_ros.transport.ring import open_ring, RingWriter, slots_for
from asyncppo_ros.transport.sender import ZmqChunkSender

PAGE, HEADER, PAYLOAD = 4096, struct.Struct('<2Q4q9q4I2QI'), 192
# Places in the header of a slot.
PLACE, CHECKSUM, RUN, TRUNCATIONS, LENGTH, DIGEST = 0, 1, 6, -5, -3, -2


class Pair:
    """Both ends of a ring in one process."""

    def __init__(self, slots=4, steps=4, num_envs=3, layout=LAYOUT):
        self.writer = RingWriter(layout, steps, num_envs, slots)
        self.hello = dataclasses.replace(
            hello(1, layout, num_envs, steps), ring_fd=self.writer.descriptor,
            ring_token=self.writer.token)
        self.reader = open_ring(self.hello)
        self.stride = ring._stride(ChunkBuffer.capacity(layout, steps, num_envs))

    def publish(self, chunk=None, **integers):
        chunk = chunk or make_chunk(**integers)
        assert self.writer.publish(chunk, ChunkNotice(chunk.sequence, chunk.transitions, 7, 8))
        return chunk

    def slot(self, place):
        """Give the bytes of a slot, writable."""
        start = PAGE + place % self.writer.slots * self.stride
        return memoryview(self.writer._memory)[start:start + self.stride]

    def length(self, place):
        return HEADER.unpack_from(self.slot(place))[LENGTH]

    def alter(self, place, **values):
        """Change fields of a header and make its CRC right again."""
        slot = self.slot(place)
        fields = list(HEADER.unpack_from(slot))
        for name, value in values.items():
            fields[globals()[name]] = value
        header = HEADER.pack(*fields)[:-4]
        slot[:HEADER.size] = header + struct.pack('<I', zlib.crc32(header))

    def taken(self):
        return [item.chunk for item in self.reader.drain()]

    def causes(self):
        return [chunk.cause if isinstance(chunk, CodecError) else 'passed'
                for chunk in self.taken()]


def without_ends():
    chunk = make_chunk(num_envs=1)
    chunk.truncated[...] = False
    return with_ends(chunk, [], [])


@pytest.mark.parametrize('chunk', [
    make_chunk(), make_chunk(steps=1, num_envs=1), make_chunk(steps=3, capacity=4),
    make_chunk(waiting_ns=9, sequence=5), without_ends()])
def test_what_was_published_arrives(chunk):
    pair = Pair()
    pair.publish(chunk)
    item, = pair.reader.drain()
    assert_equal(chunk, item.chunk)
    assert item.notice == ChunkNotice(chunk.sequence, chunk.transitions, 7, 8)
    assert not item.chunk.reward.flags.writeable


@pytest.mark.parametrize('number', [1, 3, 12])
def test_what_is_optional_arrives_alone_and_among_many(number):
    pair = Pair(slots=16, layout=FULL_LAYOUT)
    for _ in range(2):
        originals = [pair.publish(layout=FULL_LAYOUT, seed=seed) for seed in range(number)]
        for original, chunk in zip(originals, pair.taken(), strict=True):
            assert_equal(original, chunk)
    spoilt = make_chunk(layout=FULL_LAYOUT)
    spoilt.final_value[0, 0] = np.nan
    pair.publish(layout=FULL_LAYOUT)
    pair.publish(spoilt)
    assert pair.causes() == ['passed', 'not_finite']


def test_a_chunk_that_was_made_in_its_slot_is_not_copied():
    pair = Pair()
    for sequence in range(9):
        buffer = ChunkBuffer(LAYOUT, 4, 3, pair.writer.buffer())
        original = make_chunk(seed=sequence, sequence=sequence)
        for name in ('observation', 'action', 'behaviour_log_prob', 'behaviour_parameters',
                     'reward', 'terminated', 'truncated'):
            getattr(buffer, name)[...] = getattr(original, name)
        chunk = buffer.finish(vars(original), original.final_observation, original.final_index,
                              original.episodes)
        slot = np.frombuffer(pair.slot(sequence), np.uint8)
        assert np.shares_memory(chunk.reward, slot)
        pair.publish(chunk)
        received, = pair.taken()
        assert_equal(original, received)
        assert not np.shares_memory(received.reward, slot)


def test_a_full_ring_takes_nothing_until_a_slot_is_free():
    pair = Pair(slots=4)
    expected = 0
    for sequence in range(25):
        while not pair.writer.has_room:
            assert pair.writer.buffer() is None
            assert not pair.writer.publish(make_chunk(), ChunkNotice(0, SIZE, 0, 0))
            chunks = pair.taken()
            assert [chunk.sequence for chunk in chunks] == list(range(expected, sequence))
            expected = sequence
        pair.publish(sequence=sequence, seed=sequence)
    assert pair.writer.filled == 25 and pair.writer.taken == expected


def test_slots_hold_what_permits_allow():
    assert slots_for(16384, 2048) == 10
    assert slots_for(16385, 2048) == 11
    assert slots_for(1, 2048) == 4
    assert slots_for(10 ** 9, 1) == 1024


def test_a_chunk_that_is_too_large_is_not_published():
    with pytest.raises(ValueError, match='in a slot of'):
        Pair().publish(make_chunk(steps=40))


def test_a_bell_rings_once_until_it_is_silenced():
    pair = Pair()
    assert pair.writer.bell_is_due() and not pair.writer.bell_is_due()
    pair.reader.silence_bell()
    assert pair.writer.bell_is_due()
    pair.writer.bell_failed()
    assert pair.writer.bell_is_due()


def flip(pair, place, position):
    pair.slot(place)[position] ^= 0x10


@pytest.mark.parametrize('damage, cause', [
    (lambda pair: flip(pair, 1, PAYLOAD + 40), 'crc'),
    (lambda pair: flip(pair, 1, 8), 'crc'),
    (lambda pair: flip(pair, 1, HEADER.size - 1), 'crc'),
    (lambda pair: pair.alter(1, PLACE=5), 'crc'),
    (lambda pair: pair.alter(1, CHECKSUM=3), 'crc'),
    (lambda pair: pair.alter(1, LENGTH=2 ** 63), 'length'),
    (lambda pair: pair.alter(1, LENGTH=8), 'length'),
    (lambda pair: pair.alter(1, TRUNCATIONS=2 ** 32 - 1), 'sizes')])
def test_a_damaged_slot_is_refused_and_the_next_one_read(damage, cause):
    pair = Pair()
    for sequence in range(3):
        pair.publish(sequence=sequence)
    damage(pair)
    assert pair.causes() == ['passed', cause, 'passed']
    assert pair.writer.taken == 3


def ended_chunk(sequence):
    """Give a chunk of 4 × 3 with as many ends as its sequence says, up to 3."""
    if sequence % 3 == 0:
        chunk = with_ends(make_chunk(seed=sequence, sequence=sequence), [], [])
        chunk.truncated[...] = chunk.terminated[...] = False
        return chunk
    chunk = make_chunk(seed=sequence, sequence=sequence)
    if sequence % 3 == 1:
        return chunk
    chunk.truncated[1:3, 2] = True
    return with_ends(chunk, [[2, 2], [0, 0], [1, 2]], [[1, 2, -1]] * 4, seed=sequence)


@pytest.fixture
def batches(monkeypatch):
    """Note how many slots were taken at once."""
    found = []
    take = ring.RingReader._take_several
    monkeypatch.setattr(ring.RingReader, '_take_several', lambda reader, head: (
        found.append(take(reader, head)), found[-1])[1])
    return lambda: [len(items) for items in found if items]


def knowing(slots):
    """Give a ring whose reader has seen the shapes of `ended_chunk`."""
    pair = Pair(slots=slots)
    for sequence in range(3):
        pair.publish(ended_chunk(sequence))
    assert [type(chunk) for chunk in pair.taken()] == [Chunk] * 3
    return pair


def test_slots_that_wait_are_taken_together(batches):
    pair = knowing(slots=40)
    originals = [pair.publish(ended_chunk(sequence)) for sequence in range(3, 36)]
    items = list(pair.reader.drain())
    assert batches() == [16, 16]
    for original, item in zip(originals, items, strict=True):
        assert_equal(original, item.chunk)
        assert item.notice == ChunkNotice(original.sequence, 12, 7, 8)
        for name, *_ in ARRAYS:
            array = getattr(item.chunk, name)
            assert not array.flags.writeable or array.size == 0
            assert not np.shares_memory(array, np.frombuffer(pair.writer._memory, np.uint8))
    assert pair.writer.taken == 36


def test_slots_are_taken_together_up_to_where_the_ring_begins_again(batches):
    pair = knowing(slots=8)
    for sequence in range(3, 53):
        if not pair.writer.has_room:
            assert [chunk.sequence for chunk in pair.taken()] == list(
                range(sequence - 8, sequence))
        pair.publish(ended_chunk(sequence))
    assert batches() == [5, 3] * 6


@pytest.mark.parametrize('damage, cause, together', [
    (lambda pair, slot: flip(pair, slot, PAYLOAD + 40), 'crc', [4]),
    (lambda pair, slot: flip(pair, slot, PAYLOAD + pair.length(slot) - 1), 'crc', [4]),
    (lambda pair, slot: flip(pair, slot, 8), 'crc', [4, 10]),
    (lambda pair, slot: flip(pair, slot, HEADER.size - 1), 'crc', [4, 10]),
    (lambda pair, slot: pair.alter(slot, PLACE=slot + 40), 'crc', [4, 10]),
    (lambda pair, slot: pair.alter(slot, CHECKSUM=3), 'crc', [4]),
    (lambda pair, slot: pair.alter(slot, LENGTH=2 ** 63), 'length', [4, 10]),
    (lambda pair, slot: pair.alter(slot, TRUNCATIONS=2), 'length', [4, 10]),
    (lambda pair, slot: pair.alter(slot, TRUNCATIONS=2 ** 32 - 1), 'sizes', [4, 10]),
    (lambda pair, slot: pair.alter(slot, RUN=-1), 'integers', [10]),
    (lambda pair, slot: pair.alter(slot, DIGEST=1), 'layout', [4, 10]),
    (lambda pair, slot: flip(pair, slot, HEADER.size), 'passed', [4, 10])])
@pytest.mark.parametrize('slot', [3, 7, 17])
def test_only_the_damaged_one_of_those_taken_together_is_refused(batches, damage, cause,
                                                                 together, slot):
    pair = knowing(slots=40)
    originals = [pair.publish(ended_chunk(sequence)) for sequence in range(3, 18)]
    damage(pair, slot)
    items = list(pair.reader.drain())
    wanted = ['passed'] * 15
    wanted[slot - 3] = cause
    assert [getattr(item.chunk, 'cause', 'passed') for item in items] == wanted
    for original, item in zip(originals, items):
        if isinstance(item.chunk, Chunk):
            assert_equal(original, item.chunk)
    assert slot != 7 or batches() == together
    assert pair.writer.taken == 18


@pytest.mark.parametrize('name, value, cause', [
    ('reward', np.nan, 'not_finite'), ('observation', np.inf, 'not_finite'),
    ('final_observation', -np.inf, 'not_finite'), ('episodes', np.nan, 'not_finite'),
    ('final_index', 3, 'final_index'), ('truncated', True, 'final_index'),
    ('episodes', 7.0, 'episodes'), ('reward', 3e38, 'passed')])
def test_numbers_of_one_do_not_hurt_those_taken_with_it(batches, name, value, cause):
    pair = knowing(slots=40)
    originals = [ended_chunk(sequence) for sequence in range(3, 15)]
    getattr(originals[5], name).flat[-2 if name == 'reward' else -1] = value
    if value == 3e38:
        originals[5].reward[...] = value
    for original in originals:
        pair.publish(original)
    wanted = ['passed'] * 12
    wanted[5] = cause
    received = pair.taken()
    assert [getattr(chunk, 'cause', 'passed') for chunk in received] == wanted
    assert batches() == [12]
    for original, chunk in zip(originals, received):
        if isinstance(chunk, Chunk):
            assert_equal(original, chunk)


def test_flags_that_are_no_bools_are_found_among_many(batches):
    pair = knowing(slots=40)
    for sequence in range(3, 15):
        chunk = ended_chunk(sequence)
        chunk.terminated.view(np.uint8)[3, 2] = 2 * (sequence == 6)
        pair.publish(chunk)
    assert pair.causes() == ['passed'] * 3 + ['bools'] + ['passed'] * 8
    assert batches() == [12]


def test_a_slot_that_changes_while_many_are_copied_is_looked_at_alone(batches, monkeypatch):
    pair = knowing(slots=40)
    originals = [pair.publish(ended_chunk(sequence)) for sequence in range(3, 15)]
    copy = np.copyto

    def late(to, source):
        copy(to, source)
        pair.slot(8)[0] ^= 1
        monkeypatch.setattr(ring.np, 'copyto', copy)

    monkeypatch.setattr(ring.np, 'copyto', late)
    monkeypatch.setattr(ring.time, 'sleep', lambda seconds: pair.slot(8).__setitem__(0, 8))
    received = pair.taken()
    assert batches() == [5]
    for original, chunk in zip(originals, received, strict=True):
        assert_equal(original, chunk)


def test_a_cut_chunk_ends_those_taken_together(batches):
    pair = knowing(slots=40)
    for sequence in range(3, 15):
        chunk = (make_chunk(steps=3, sequence=sequence) if sequence == 8
                 else ended_chunk(sequence))
        pair.publish(chunk)
    assert [chunk.sequence for chunk in pair.taken()] == list(range(3, 15))
    assert batches() == [5, 6]


def test_large_slots_are_taken_one_by_one(batches):
    pair = Pair(steps=4, num_envs=2000, slots=4)
    chunk = make_chunk(num_envs=2000)
    for _ in range(4):
        pair.publish(chunk)
    assert [type(chunk) for chunk in pair.taken()] == [Chunk] * 4
    assert batches() == []


@pytest.mark.parametrize('name, value, cause', [
    ('run_id', -1, 'integers'), ('sequence', 2 ** 62, 'integers'),
    ('reward', np.nan, 'not_finite'), ('observation', np.inf, 'not_finite'),
    ('final_observation', -np.inf, 'not_finite'), ('episodes', np.nan, 'not_finite'),
    ('final_index', 3, 'final_index')])
def test_numbers_are_checked_as_those_of_a_message(name, value, cause):
    pair = Pair()
    chunk = make_chunk()
    if name in INTEGERS:
        chunk = dataclasses.replace(chunk, **{name: value})
    else:
        getattr(chunk, name).flat[-1] = value
    pair.writer.publish(chunk, ChunkNotice(0, SIZE, 0, 0))
    assert pair.causes() == [cause]


def test_a_chunk_that_would_reach_into_the_next_slot_is_refused():
    pair = Pair(slots=4)
    wide = with_ends(make_chunk(steps=1, num_envs=12), np.zeros((12, 2)), np.zeros((12, 3)))
    forger = RingWriter(LAYOUT, 1, 12, 4)
    forger._head = 3
    forger.publish(wide, ChunkNotice(0, SIZE, 0, 0))
    for _ in range(4):
        pair.publish()
    start = PAGE + 3 * forger._stride
    pair.slot(3)[:PAYLOAD] = forger._memory[start:start + PAYLOAD]
    assert pair.causes() == ['passed', 'passed', 'passed', 'length']


def test_flags_are_looked_at_where_nothing_ended():
    pair = Pair()
    chunk = without_ends()
    chunk.truncated[2, 0] = True
    pair.publish(chunk)
    assert pair.causes() == ['final_index']


def test_a_slot_that_is_seen_late_is_looked_at_again(monkeypatch):
    pair = Pair()
    pair.publish()
    flip_back = pair.slot(0)
    flip_back[PAYLOAD] ^= 1
    monkeypatch.setattr(ring.time, 'sleep', lambda seconds: flip_back.__setitem__(
        PAYLOAD, flip_back[PAYLOAD] ^ 1))
    assert pair.causes() == ['passed']


def test_random_slots_are_refused_and_never_fatal():
    random = np.random.default_rng(0)
    pair = Pair(slots=64)
    outcomes = set()
    for _ in range(30):
        for _ in range(64):
            chunk = pair.publish(seed=3)
        for place in range(pair.writer.filled - 64, pair.writer.filled):
            slot = pair.slot(place)
            position = int(random.integers(HEADER.size if place % 2 else 600))
            slot[position:position + 8] = random.bytes(8)
            if place % 4 == 3:  # a liar rather than a fault
                header = struct.pack('<Q', place) + bytes(slot[8:HEADER.size - 4])
                slot[:HEADER.size] = header + struct.pack('<I', zlib.crc32(header))
        for received in pair.taken():
            outcomes.add(getattr(received, 'cause', 'passed'))
            if isinstance(received, Chunk):
                assert received.reward.tobytes() == chunk.reward.tobytes()
    assert {'crc', 'sizes', 'layout', 'length'} <= outcomes


def test_an_impossible_count_is_refused():
    pair = Pair()
    for head in (5, 2 ** 64 - 1):
        pair.writer._words[8] = head
        with pytest.raises(CodecError, match='ring: .* filled slots of 4'):
            pair.taken()


def unsealed(pair):
    descriptor = os.memfd_create(ring.NAME, 1)
    os.write(descriptor, pair.writer._memory[:])
    return {'ring_fd': descriptor}


def of_another_size(pair):
    return {'ring_fd': RingWriter(LAYOUT, 4, 3, 4).descriptor, 'chunk_length': 5}


def a_file(pair):
    return {'ring_fd': os.open(__file__, os.O_RDONLY)}


@pytest.mark.parametrize('change', [
    {'ring_fd': -1}, {'ring_fd': 9999}, {'pid': 2 ** 30}, {'pid': 1}, {'host': 'elsewhere'},
    {'ring_token': '0' * 32}, {'ring_token': ''}, {'ring_token': 'ä' * 99}, {'num_envs': 4},
    {'chunk_length': 65536, 'num_envs': 65536}, unsealed, of_another_size, a_file])
def test_only_the_ring_that_was_offered_is_opened(change):
    pair = Pair()
    values = change(pair) if callable(change) else change
    assert open_ring(dataclasses.replace(pair.hello, **values)) is None
    assert open_ring(pair.hello) is not None
    if callable(change):
        os.close(values['ring_fd'])


def test_memory_has_one_size_for_ever():
    pair = Pair()
    for size in (0, 10 ** 6):
        with pytest.raises(PermissionError):
            os.ftruncate(pair.writer.descriptor, size)


def mappings():
    return Path('/proc/self/maps').read_text().count(ring.NAME)


def test_memory_lives_as_long_as_a_chunk_or_a_reader_needs_it():
    gc.collect()
    before = mappings()
    pair = Pair()
    buffer = ChunkBuffer(LAYOUT, 4, 3, pair.writer.buffer())
    assert mappings() == before + 2
    pair.writer.close()
    pair.reader.close()
    pair.__init__()
    gc.collect()
    assert mappings() == before + 3
    buffer.reward[...] = 1.0
    del buffer
    assert mappings() == before + 2


WRITER = """
import sys, time
from making import LAYOUT, make_chunk
from asyncppo_ros.transport.messages import ChunkNotice
from asyncppo_ros.transport.payload import ChunkBuffer
from asyncppo_ros.transport.ring import RingWriter
writer = RingWriter(LAYOUT, 4, 3, 64)
for sequence in range(40):
    assert writer.publish(make_chunk(sequence=sequence), ChunkNotice(sequence, 12, 0, 0))
half = ChunkBuffer(LAYOUT, 4, 3, writer.buffer())
half.reward[...] = 1.0
print(writer.descriptor, writer.token, flush=True)
time.sleep(60)
"""


def test_what_a_killed_actor_has_published_can_be_taken():
    here = Path(__file__).parent
    before = mappings(), set(os.listdir('/dev/shm'))
    environment = os.environ | {'PYTHONPATH': f'{here}:{here.parents[1]}'}
    with subprocess.Popen([sys.executable, '-c', WRITER], env=environment, text=True,
                          stdout=subprocess.PIPE) as writer:
        descriptor, token = writer.stdout.readline().split()
        reader = open_ring(dataclasses.replace(hello(1, LAYOUT, 3, 4), pid=writer.pid,
                                               ring_fd=int(descriptor), ring_token=token))
        writer.kill()
    assert [item.chunk.sequence for item in reader.drain()] == list(range(40))
    reader.close()
    assert mappings() == before[0]
    # Others may make and remove files there meanwhile.
    assert not [name for name in set(os.listdir('/dev/shm')) - before[1] if 'asyncppo' in name]


class Line:
    """An intake with one actor whose ring it reads."""

    def __init__(self, **settings):
        self.pair = Pair(slots=16)
        self.warnings, self.answers = [], []
        self.intake = make_intake(warnings=self.warnings, **settings)
        self.intake.post_to(lambda peer, message, payload=None: self.answers.append(message))
        self.say(self.pair.hello)
        assert self.answers[0].ring

    def say(self, message):
        self.intake.handle(b'one', encode(message))

    def publish(self, sequence, **integers):
        chunk = make_chunk(sequence=sequence, **integers)
        self.pair.writer.publish(chunk, ChunkNotice(sequence, SIZE, sequence * SIZE, 0))


@pytest.mark.parametrize('look', [
    lambda line: line.say(Bell()), lambda line: line.intake.drain(),
    lambda line: line.say(Bye(3, 3 * SIZE)), lambda line: line.intake.leave(b'one'),
    lambda line: line.intake.leave_all(), lambda line: line.say(line.pair.hello),
    lambda line: line.intake.handle(b'one', [b'noise'])])
def test_a_ring_is_emptied_before_anything_else_happens(look):
    line = Line()
    for sequence in range(3):
        line.publish(sequence)
    look(line)
    assert line.intake.chunks_received == line.intake.chunks_from_rings == 3
    assert line.intake.waiting == 3 * SIZE


def test_the_silent_lose_nothing_that_they_published():
    now = [0]
    line = Line()
    line.intake._reception._clock_ns = lambda: now[0]
    line.say(Bell())
    line.publish(0)
    now[0] = 2_000_000_000
    line.intake.expire()
    assert line.intake.sources == [] and line.intake.chunks_from_rings == 1


def test_a_refused_slot_is_counted_by_cause_and_frees_its_permit():
    line = Line(batch_size=48, target_lag=0)
    line.publish(0, run_id=78)
    line.publish(1)
    flip(line.pair, 1, PAYLOAD + 8)
    line.publish(2)
    line.pair.slot(2)[0] ^= 1  # not even the notice is to be believed
    line.publish(3)
    line.say(Bell())
    assert line.intake.refused_of(Source(1, 1)) == {'run': 1, 'crc': 2}
    assert 'actor 1 (incarnation 1): refused: ' in line.warnings[0]
    assert line.intake.chunks_received == 1 and line.intake.gaps() == {}
    assert line.intake.under_way == 48 and line.intake.permit(Source(1, 1)).limit == 7
    line.say(Bye(4, 4 * SIZE))
    assert line.intake.books_totals() == {
        'produced': 4 * SIZE, 'consumed': 0, 'dropped_by_age': 0,
        'refused_by_check': 3 * SIZE, 'in_flight': SIZE, 'lost_in_crash': 0}


def test_whoever_counts_wrongly_must_say_hello_again():
    line = Line()
    line.pair.writer._words[8] = 999
    line.say(Bell())
    assert line.intake.refused_of(Source(1, 1)) == {'ring': 1}
    assert Who() in line.answers and line.intake.sources == []


@pytest.fixture
def ended():
    """Collect what is to be closed."""
    things = []
    yield things.append
    for thing in reversed(things):
        thing.close()


def connect(learner, ended, **settings):
    sender = ZmqChunkSender(learner.receiver.address, hello(1, LAYOUT, 3, 4), **settings)
    ended(sender)
    assert sender.connect(5.0)
    return sender


@pytest.mark.parametrize('kind, share', [('auto', 1), ('shm', 1), ('zmq', 0)])
def test_chunks_travel_as_was_asked_for(ended, kind, share):
    learner = LearnerProcess(batch_size=1000)
    ended(learner)
    sender = connect(learner, ended, kind=kind)
    for _ in range(10):
        send_next(sender)
    wait_for(lambda: learner.intake.chunks_received == 10)
    assert learner.intake.chunks_from_rings == 10 * share
    assert (sender.buffer() is not None) == bool(share)


def test_a_learner_that_does_not_read_the_ring_is_sent_messages(ended, monkeypatch):
    learner = LearnerProcess(batch_size=1000)
    ended(learner)
    monkeypatch.setattr('asyncppo_ros.transport.reception.open_ring', lambda hello: None)
    sender = connect(learner, ended)
    send_next(sender)
    wait_for(lambda: learner.intake.chunks_received == 1)
    assert learner.intake.chunks_from_rings == 0 and sender.buffer() is None
    insistent = ZmqChunkSender(learner.receiver.address, hello(2, LAYOUT, 3, 4), kind='shm')
    ended(insistent)
    with pytest.raises(RunError, match='transport.kind = shm: the learner on .* does not reach'):
        insistent.connect(5.0)


def test_a_platform_without_such_memory_takes_sockets(ended, monkeypatch):
    def no_memory(size):
        raise OSError('no memfd')
    monkeypatch.setattr(ring, '_make_memory', no_memory)
    learner = LearnerProcess(batch_size=1000)
    ended(learner)
    send_next(connect(learner, ended))
    wait_for(lambda: learner.intake.chunks_received == 1)
    with pytest.raises(RunError, match='transport.kind = shm: no shared memory here'):
        connect(learner, ended, kind='shm')


def test_a_python_that_does_not_name_memfd_asks_the_c_library(monkeypatch):
    monkeypatch.delattr(os, 'memfd_create')
    pair = Pair()
    pair.publish()
    assert pair.causes() == ['passed']


def test_what_a_learner_that_forgot_us_left_in_the_ring_is_sent_again(ended):
    learner = LearnerProcess(batch_size=1000, timeout_s=0.4)
    ended(learner)
    sender = connect(learner, ended, slots=8)
    send_next(sender)
    poll_until(sender, lambda: learner.intake.chunks_received == 1)
    forgotten = sender._ring._ring.token
    # While this actor says nothing, the learner lets go of it, and of its ring.
    wait_for(lambda: learner.intake.sources == [])
    for _ in range(3):
        memory = sender.buffer()
        assert memory is not None
        sender.ledger.stepped(SIZE)
        sender.send(make_chunk(sequence=sender.next_sequence))
    poll_until(sender, lambda: learner.intake.chunks_received == 4)
    assert sender._ring._ring.token != forgotten
    assert learner.intake.refused().keys() <= {'unknown'} and learner.intake.gaps() == {}
    assert learner.intake.waiting == 4 * SIZE
    assert learner.intake.chunks_from_rings == 4


def test_a_late_who_does_not_take_back_the_ring_of_the_next_hello(ended):
    learner = LearnerProcess(batch_size=1000)
    ended(learner)
    sender = connect(learner, ended)
    sender._handle(Who(), [])
    sender._say_hello()
    offered = sender._ring._ring.token
    sender._handle(Who(), [])
    assert sender.connect(5.0)
    assert sender._ring.is_used and sender._ring._ring.token == offered


def test_chunks_that_find_no_slot_wait_their_turn(ended):
    learner = LearnerProcess(batch_size=1000)
    ended(learner)
    sender = connect(learner, ended, slots=4)
    with learner.intake._lock:  # the learner reads nothing
        for sequence in range(6):
            assert (sender.buffer() is None) == (sequence >= 4)
            sender.ledger.stepped(SIZE)
            sender.send(make_chunk(sequence=sequence))
        assert sender._pending.handed == 4
    poll_until(sender, lambda: learner.intake.chunks_received == 6)
    assert learner.intake.refused() == {} and learner.intake.gaps() == {}
    assert sender.run_id == RUN_ID
    poll_until(sender, lambda: len(sender._pending) == 0)


def test_a_bell_that_was_lost_costs_a_moment(ended):
    learner = LearnerProcess(batch_size=1000)
    ended(learner)
    sender = connect(learner, ended)
    send_next(sender)
    wait_for(lambda: learner.intake.chunks_received == 1)
    sender._ring.bell_is_due = lambda: False
    begun = time.monotonic()
    sender.send(make_chunk(sequence=1))
    wait_for(lambda: learner.intake.chunks_received == 2)
    assert time.monotonic() - begun < 1.0


def test_a_learner_that_stands_still_costs_a_fixed_number_of_bytes(ended):
    learner = LearnerProcess(batch_size=24, target_lag=1)
    ended(learner)
    sender = connect(learner, ended, slots=slots_for(48, SIZE))
    for _ in range(4):
        send_next(sender)
    wait_for(lambda: learner.intake.waiting == 48)
    # Whoever is alone and has delivered so many is granted all that may be under way.
    for version in (1, 2):
        learner.intake.next_batch(Identity(1, version - 1), 0, 1.0)
        learner.intake.updated(version)
        learner.intake.published(Identity(1, version))
    poll_until(sender, lambda: sender.permit_for(7) is not None)
    with learner.intake._lock:  # as by SIGSTOP
        while sender.permit_for(sender.next_sequence) is not None:
            sender.ledger.stepped(SIZE)
            sender.send(make_chunk(sequence=sender.next_sequence, policy_version=2))
            sender.poll()
        assert sender.next_sequence == 8
        assert sender._ring._ring.filled - sender._ring._ring.taken == 4
    poll_until(sender, lambda: learner.intake.waiting == 48)



"""What the learner does with messages, without sockets."""

import dataclasses

from making import FIRST, LAYOUT, make_chunk, make_intake, RUN_ID
import numpy as np
import pytest

from asyncppo_ros.chunk import Identity, Source
from asyncppo_ros.errors import RunError
from asyncppo_ros.transport import messages
from asyncppo_ros.transport.admission import LagLimits
from asyncppo_ros.transport.codec import encode_chunk
from asyncppo_ros.transport.in_memory import InMemoryChunkSender
from asyncppo_ros.transport.messages import ChunkNotice, encode, hello
from asyncppo_ros.transport.pending import Pending, PendingChunks

ACTOR = Source(1, 1)
SIZE = 12


def chunk_frames(sequence=0, notice=None, **integers):
    """Make the frames of a chunk of 4 × 3 transitions."""
    chunk = make_chunk(sequence=sequence, **integers)
    notice = notice or ChunkNotice(sequence, SIZE, sequence * SIZE, 0)
    return [*encode(notice), *(bytes(frame) for frame in encode_chunk(chunk, LAYOUT))]


class Line:
    """An intake with one actor that said hello, and what the intake answered."""

    def __init__(self, **settings):
        self.warnings = []
        self.intake = make_intake(warnings=self.warnings, **settings)
        self.answers = []
        self.intake.post_to(lambda peer, message: self.answers.append(message))
        self.say(hello(1, LAYOUT, 3, 4))

    def say(self, message, peer=b'one'):
        self.answers.clear()
        self.intake.handle(peer, encode(message) if not isinstance(message, list) else message)
        return list(self.answers)


def test_an_actor_is_welcomed_with_a_permit():
    line = Line()
    line.intake.leave(b'one')
    welcome, news, permit = line.say(hello(1, LAYOUT, 3, 4))
    assert news == messages.News(*FIRST)
    assert (welcome.run_id, welcome.generation, welcome.incarnation) == (RUN_ID, 1, 2)
    assert permit.limit > 0 and permit.minimum == FIRST
    assert line.intake.sources == [Source(1, 2)]


@pytest.mark.parametrize('change, words', [
    ({'protocol': 9}, 'protocol differs: the learner speaks 5'),
    ({'task': 'ant'}, 'task differs: the learner trains reach, this actor simulates ant'),
    ({'action_size': 3}, 'action_size of reach differs: the learner has 2, this actor 3'),
    ({'terms': 'goal'}, 'terms of reach differs'),
    ({'critic_size': 4}, 'critic_size of reach differs: the learner has 0, this actor 4'),
    ({'value_size': 1}, 'value_size of reach differs: the learner has 0, this actor 1'),
    ({'observation_dtype': 'float16'}, 'observation_dtype of reach differs: the learner has '
                                       'float32, this actor float16'),
    ({'run_id': 5}, 'run differs'),
    ({'num_envs': 0}, 'actor.num_envs = 0'),
    ({'target_lag': 9}, 'actor.max_policy_lag 8 is below actor.target_lag 9'),
    ({'max_policy_lag': 0}, 'actor.max_policy_lag 0 is below actor.target_lag 1'),
    ({'weight': -0.5}, r'actor.weight = -0.5: must be within \[0, 1000\]'),
    ({'weight': 1000.5}, 'actor.weight = 1000.5: must be within'),
    ({'incarnation': 1}, r'actor 1 \(incarnation 1\) is already connected')])
def test_an_actor_that_does_not_fit_is_told_why(change, words):
    line = Line()
    stranger = dataclasses.replace(hello(1, LAYOUT, 3, 4), **change)
    refused, = line.say(stranger, b'two')
    assert isinstance(refused, messages.Refused)
    import re
    assert re.search(words, refused.text)
    assert line.intake.refused() == {'hello': 1}
    with pytest.raises(RunError, match=words):
        InMemoryChunkSender(line.intake, stranger)


@pytest.mark.parametrize('frames, cause', [
    (chunk_frames(run_id=78), 'run'),
    (chunk_frames(actor_id=2), 'source'),
    (chunk_frames(incarnation=2), 'source'),
    (chunk_frames(notice=ChunkNotice(0, 11, 0, 0)), 'claim'),
    (chunk_frames(sequence=1, notice=ChunkNotice(0, 12, 0, 0)), 'sequence'),
    (chunk_frames(policy_version=1), 'future_policy'),
    (chunk_frames(generation=2), 'future_policy'),
    (chunk_frames()[:3], 'frames'),
    ([*chunk_frames()[:3], b'short'], 'length'),
    ([*chunk_frames()[:3], chunk_frames()[3] + bytes(10 ** 6)], 'length')])
def test_a_refused_chunk_is_counted_and_the_next_one_passes(frames, cause):
    line = Line()
    line.say(frames)
    assert line.intake.refused_of(ACTOR) == {cause: 1}
    assert f'actor 1 (incarnation 1): refused: {cause}' in line.warnings[0]
    line.say(chunk_frames(1))
    assert line.intake.chunks_received == 1
    totals = line.intake.books_totals()
    assert totals['refused_by_check'] in (11, 12)
    assert totals['in_flight'] == 12


@pytest.mark.parametrize('frames, cause', [
    ([b''], 'frames'), ([b'HELLO'], 'frames'), ([b'NOISE', b'{}'], 'kind'),
    ([b'HELLO', b'{'], 'malformed'), ([b'HELLO', b'[' * 50_000], 'malformed'),
    ([b'HELLO', b'{}'], 'malformed'), ([b'HELLO', b'[1]'], 'malformed'),
    ([b'HEARTBEAT', b'{' + b' ' * 70_000 + b'}'], 'oversized'),
    ([b'BYE', b'{"chunks": 1, "transitions": 2, "unfinished": 3}', b''], 'frames'),
    (encode(dataclasses.replace(hello(2, LAYOUT, 3, 4), weight=float('nan'))), 'malformed'),
    (encode(dataclasses.replace(hello(2, LAYOUT, 3, 4), weight=float('inf'))), 'malformed'),
    ([b'BYE', b'{"chunks": 1.0, "transitions": 2, "unfinished": 3}'], 'malformed'),
    ([b'BYE', b'{"chunks": true, "transitions": 2, "unfinished": 3}'], 'malformed'),
    ([b'BYE', b'{"chunks": 9223372036854775808, "transitions": 2, "unfinished": 3}'],
     'malformed'),
    (encode(messages.Stop()), 'kind'), ([b'\xff\xfe', b'\xff'], 'kind')])
def test_noise_is_refused_by_cause_and_warned_of_once(frames, cause):
    line = Line()
    for _ in range(3):
        line.say(frames, b'noise')
    assert line.intake.refused_of(None) == {cause: 3}
    assert len(line.warnings) == 1 and 'peer' in line.warnings[0]
    line.say(chunk_frames())
    assert line.intake.chunks_received == 1


def test_damaged_messages_of_every_kind_are_survived():
    random = np.random.default_rng(0)
    line = Line()
    originals = [
        chunk_frames(), encode(hello(1, LAYOUT, 3, 4)), encode(messages.Bye(1, 2, 3)),
        encode(messages.Heartbeat(1, 2, 3, 4, 5)), encode(ChunkNotice(1, 2, 3, 4))]
    for number in range(5000):
        frames = [bytearray(frame) for frame in originals[random.integers(len(originals))]]
        frame = frames[random.integers(len(frames))]
        for _ in range(random.integers(1, 4)):
            frame[random.integers(len(frame))] = random.integers(256)
        if random.integers(4) == 0:
            del frame[random.integers(len(frame)):]
        line.say([bytes(frame) for frame in frames], bytes([number % 3]))
    assert 'internal' not in line.intake.refused()
    assert sum(line.intake.refused().values()) > 2000


def test_an_error_of_our_own_is_counted_and_survived(monkeypatch):
    line = Line()
    monkeypatch.setattr(line.intake._books, 'received', lambda *arguments: 1 / 0)
    line.say(chunk_frames())
    assert line.intake.refused_of(ACTOR) == {'internal': 1}
    assert 'ZeroDivisionError' in line.warnings[0]


def test_duplicates_gaps_and_late_chunks_are_told_apart():
    line = Line()
    line.say(chunk_frames(0))
    line.say(chunk_frames(0))
    line.say(chunk_frames(3))
    line.say(chunk_frames(1))
    line.say(chunk_frames(9999))
    assert line.intake.gaps() == {ACTOR: 2}
    assert line.intake.refused_of(ACTOR) == {'duplicate': 1, 'reordered': 1, 'sequence': 1}
    assert line.intake.chunks_received == 2
    totals = line.intake.books_totals()
    assert totals['lost_in_crash'] == 2 * SIZE and totals['in_flight'] == 2 * SIZE


def test_a_source_is_held_to_limits_of_its_own():
    line = Line(batch_size=12, target_lag=2, max_policy_lag=2)
    line.intake.leave(b'one')
    loose = dataclasses.replace(hello(2, LAYOUT, 3, 4), target_lag=5, max_policy_lag=6)
    line.intake._session = line.intake._reception._session = dataclasses.replace(
        line.intake._session, limits=LagLimits(2, 2, 3))
    strict = dataclasses.replace(loose, target_lag=1)
    assert 'must be at least learner.publish_updates - 1 = 2' in line.say(strict, b'two')[0].text
    line.say(loose, b'two')
    line.say(chunk_frames(actor_id=2), b'two')
    line.intake.published(Identity(1, 6))
    batch = line.intake.next_batch(Identity(1, 6), 0, 0.0)
    assert batch.lag_versions.maximum == 6 and line.intake.chunks_dropped == 0
    assert line.intake._permits.target_lag_of(Source(2, 1)) == 5


def test_chunks_that_were_ended_early_are_counted():
    line = Line()
    line.say(chunk_frames(0))
    assert line.intake.chunks_cut == 0
    cut = make_chunk(2, 3, sequence=1)
    notice = ChunkNotice(1, 6, SIZE, 0)
    line.say([*encode(notice), *(bytes(frame) for frame in encode_chunk(cut, LAYOUT))])
    assert (line.intake.chunks_received, line.intake.chunks_cut) == (2, 1)


def test_a_stranger_is_asked_who_it_is():
    line = Line()
    assert line.say(chunk_frames(), b'two') == [messages.Who()]
    assert line.say(messages.Heartbeat(0, 0, 0, 0, 0), b'two') == [messages.Who()]
    assert line.warnings == []


def test_the_share_of_time_that_an_actor_waits_comes_from_its_own_clock():
    line = Line()
    line.say(hello(1, LAYOUT, 3, 4))
    assert line.intake.actor_wait == 0.0
    line.say(messages.Heartbeat(0, 0, 0, sent_ns=1_000, handed=0, waited_ns=500))
    line.say(messages.Heartbeat(0, 0, 0, sent_ns=2_000, handed=0, waited_ns=750))
    assert line.intake.actor_wait == 0.25


def test_a_heartbeat_is_answered_with_all_that_may_have_been_lost():
    line = Line()
    line.say(chunk_frames())
    pong, permit = line.say(messages.Heartbeat(1, SIZE, 3, sent_ns=5, handed=1))
    assert pong == messages.Pong(5, 1, 1, *FIRST)
    assert isinstance(permit, messages.PermitMessage)
    assert permit.expected == 1


def test_the_silent_lose_their_permits_and_may_come_back():
    now = [0]
    line = Line(batch_size=12, target_lag=0)
    line.intake._reception._clock_ns = lambda: now[0]
    line.say(messages.Heartbeat(0, 0, 0, 0, 0))
    assert line.intake.under_way == 12
    now[0] = 2_000_000_000
    line.intake.expire()
    assert line.intake.sources == [] and line.intake.under_way == 0
    assert 'silent for more than 1 s' in line.warnings[0]
    assert line.say(messages.Heartbeat(0, 0, 0, 0, 0)) == [messages.Who()]
    back = dataclasses.replace(hello(1, LAYOUT, 3, 4), incarnation=1, run_id=RUN_ID)
    assert line.say(back)[0].incarnation == 1


def test_those_who_come_after_the_end_are_told_to_stop():
    line = Line()
    line.intake.stop()
    assert line.answers[-1] == messages.Stop()
    assert line.say(hello(2, LAYOUT, 3, 4), b'two') == [messages.Stop()]
    line.say(chunk_frames())
    assert line.intake.chunks_received == 1


def test_control_messages_survive_the_wire():
    for message in (hello(3, LAYOUT, 4, 5), messages.Welcome(1, 2, 3, 4, 5, 6, 'h', '/r'),
                    messages.Refused('äöü'), messages.PermitMessage(1, 2, 3, 4, 5, 6),
                    messages.Pong(1, 2, 3, -1, -1), messages.Who(), messages.Stop(),
                    messages.Bye(1, 2, 3), messages.Heartbeat(1, 2, 3, 4, 5),
                    ChunkNotice(1, 2, 3, 4)):
        assert messages.decode(encode(message)) == message


def test_pending_chunks_are_kept_until_they_are_acknowledged():
    pending = PendingChunks()
    for sequence in range(3):
        pending.finished(Pending(make_chunk(sequence=sequence), 0, 0))
    assert pending.to_hand_over().chunk.sequence == 0
    pending.handed = 3
    assert pending.to_hand_over() is None
    pending.acknowledged(1)
    pending.rewind()
    assert pending.to_hand_over().chunk.sequence == 1
    pending.acknowledged(9)
    assert len(pending) == 0 and pending.to_hand_over() is None
    with pytest.raises(ValueError, match='chunk 7 where 3 is next'):
        pending.finished(Pending(make_chunk(sequence=7), 0, 0))


def test_the_in_memory_sender_trains_without_sockets():
    intake = make_intake(batch_size=24, target_lag=0)
    sender = InMemoryChunkSender(intake, hello(1, LAYOUT, 3, 4))
    for version in range(3):
        while (minimum := sender.permit_for(sender.next_sequence)) is not None:
            assert minimum == Identity(1, version)
            sender.ledger.stepped(SIZE)
            sender.send(make_chunk(sequence=sender.next_sequence, policy_version=version))
        batch = intake.next_batch(Identity(1, version), 0, 0.0)
        assert batch.transitions == 24 and batch.lag_versions.maximum == 0
        intake.updated(version + 1)
        intake.published(Identity(1, version + 1))
    sender.close()
    assert intake.books_totals() == {
        'produced': 72, 'consumed': 72, 'dropped_by_age': 0, 'refused_by_check': 0,
        'in_flight': 0, 'lost_in_crash': 0}


def test_the_in_memory_sender_refuses_what_is_not_finite():
    intake = make_intake()
    sender = InMemoryChunkSender(intake, hello(1, LAYOUT, 3, 4))
    chunk = make_chunk()
    chunk.reward[0, 0] = np.nan
    sender.send(chunk)
    assert intake.refused() == {'not_finite': 1}
    assert intake.books_totals()['refused_by_check'] == SIZE


def test_dropped_chunks_make_room():
    line = Line(batch_size=12, target_lag=0, max_policy_lag=0)
    line.say(chunk_frames())
    line.intake.restored(Identity(2, 5))
    line.intake.published(Identity(2, 5))
    assert line.intake.next_batch(Identity(2, 5), 0, 0.0) is None
    assert line.intake.books_totals()['dropped_by_age'] == 12
    assert line.answers[-1] == messages.PermitMessage(2, 2, 5, 1, 2, 5)


def test_the_weight_of_an_actor_comes_with_its_chunks():
    intake = make_intake(batch_size=24)
    for actor_id, weight in ((1, 1.0), (2, 2.5)):
        greeting = dataclasses.replace(hello(actor_id, LAYOUT, 3, 4), weight=weight)
        InMemoryChunkSender(intake, greeting).send(make_chunk(actor_id=actor_id))
    batch = intake.next_batch(FIRST, 0, 0.0)
    assert {chunk.actor_id: weight for chunk, weight
            in zip(batch.chunks, batch.weights)} == {1: 1.0, 2: 2.5}


def test_missed_steps_are_counted_and_are_in_no_books():
    line = Line()
    line.say(messages.Heartbeat(1, SIZE, 0, missed_steps=2))
    line.say(hello(2, LAYOUT, 3, 4), b'two')
    line.say(messages.Heartbeat(0, 0, 0, missed_steps=3), b'two')
    line.say(chunk_frames())
    line.say(messages.Heartbeat(1, SIZE, 0, missed_steps=4))
    assert line.intake.missed_steps() == 7
    # Those of an actor that is gone still count, and its next start begins at 0.
    line.intake.leave(b'two')
    line.say(hello(2, LAYOUT, 3, 4), b'two')
    line.say(messages.Heartbeat(0, 0, 0, missed_steps=1), b'two')
    assert line.intake.missed_steps() == 8
    assert line.intake.write_books() == []
    assert line.intake.books_totals()['produced'] == SIZE

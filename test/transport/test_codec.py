"""The codec: what was sent arrives, everything else is refused by cause."""

import copy
import dataclasses
import struct
import zlib

from making import FULL_LAYOUT, LAYOUT, make_chunk
import numpy as np
import pytest

from asyncppo_ros.chunk import ARRAYS, INTEGERS
from asyncppo_ros.errors import CodecError
from asyncppo_ros.transport.codec import decode_chunk, encode_chunk, HEADER_BYTES, with_waiting
from asyncppo_ros.transport.payload import ChunkBuffer, payload_plan, Sizes


def frames_of(chunk, layout=LAYOUT):
    """Encode as it crosses the wire."""
    return [bytes(frame) for frame in encode_chunk(chunk, layout)]


def cause_of(frames, max_transitions=1000, layout=LAYOUT):
    """Give the cause for which a message is refused."""
    with pytest.raises(CodecError) as refusal:
        decode_chunk(frames, layout, max_transitions)
    return refusal.value.cause


def assert_equal(one, other):
    """Check every field of two chunks, bit for bit."""
    for name in INTEGERS:
        assert getattr(one, name) == getattr(other, name), name
    for name, dtype, _ in ARRAYS:
        array = getattr(other, name)
        assert array.dtype == np.dtype(dtype) and array.shape == getattr(one, name).shape
        assert array.tobytes() == getattr(one, name).tobytes(), name


@pytest.mark.parametrize('layout', [LAYOUT, FULL_LAYOUT])
@pytest.mark.parametrize('steps, num_envs', [(1, 1), (4, 3), (7, 1), (32, 5)])
def test_what_was_sent_arrives(steps, num_envs, layout):
    chunk = make_chunk(steps, num_envs, layout=layout, sequence=9, waiting_ns=12)
    assert_equal(chunk, decode_chunk(frames_of(chunk, layout), layout, steps * num_envs))


def test_what_is_optional_has_its_shape_and_costs_no_byte_where_it_is_absent():
    names = ('critic_observation', 'value', 'final_critic_observation', 'final_value')
    full, bare = make_chunk(layout=FULL_LAYOUT), make_chunk()
    assert [getattr(full, name).shape for name in names] == [(5, 3, 3), (5, 3, 1), (1, 3), (1, 1)]
    assert [getattr(bare, name).shape for name in names] == [(5, 3, 0), (5, 3, 0), (1, 0), (1, 0)]
    assert all(getattr(full, name).all() for name in names)
    more = sum(-(-getattr(full, name).nbytes // 8) * 8 for name in names)
    assert len(frames_of(full, FULL_LAYOUT)[1]) == len(frames_of(bare)[1]) + more


@pytest.mark.parametrize('size', ['critic_size', 'value_size'])
def test_both_sides_must_agree_on_what_is_optional(size):
    without = FULL_LAYOUT._replace(**{size: 0})
    assert cause_of(frames_of(make_chunk(layout=FULL_LAYOUT), FULL_LAYOUT),
                    layout=without) == 'layout'
    with pytest.raises(ValueError, match='was expected'):
        encode_chunk(make_chunk(layout=FULL_LAYOUT), without)


def test_a_chunk_of_a_buffer_is_sent_from_where_it_was_written():
    chunk = make_chunk()
    _, payload = encode_chunk(chunk, LAYOUT)
    assert np.shares_memory(np.frombuffer(payload, np.uint8), chunk.reward)


def test_a_waiting_chunk_shares_its_memory():
    _, payload = encode_chunk(with_waiting(make_chunk(waiting_ns=3), 4), LAYOUT)
    assert decode_chunk(encode_chunk(with_waiting(make_chunk(waiting_ns=3), 4), LAYOUT), LAYOUT,
                        1000).waiting_ns == 7


def test_arrays_that_lie_apart_are_joined():
    chunk = make_chunk()
    apart = dataclasses.replace(chunk, **{name: getattr(chunk, name).copy()
                                          for name, _, _ in ARRAYS})
    assert frames_of(apart)[1][:8] == frames_of(chunk)[1][:8]
    assert_equal(chunk, decode_chunk(frames_of(apart), LAYOUT, 1000))


@pytest.mark.parametrize('layout', [LAYOUT, FULL_LAYOUT])
def test_a_chunk_that_is_cut_short_closes_ranks(layout):
    cut = make_chunk(steps=3, capacity=10, layout=layout)
    arrays = {name: getattr(cut, name).copy() for name, _, _ in ARRAYS}
    header, payload = encode_chunk(cut, layout)
    assert len(payload) == payload_plan(Sizes(3, 3, 1, 2), layout)[1]
    assert np.shares_memory(np.frombuffer(payload, np.uint8), cut.reward)
    decoded = decode_chunk([header, payload], layout, 9)
    for name, array in arrays.items():
        assert np.array_equal(getattr(decoded, name), array)


def test_cutting_short_keeps_what_was_written():
    buffer = ChunkBuffer(FULL_LAYOUT, 10, 3)
    wanted = {}
    for name in ('observation', 'critic_observation', 'action', 'behaviour_log_prob',
                 'behaviour_parameters', 'value', 'reward'):
        view = getattr(buffer, name)
        view[...] = np.random.default_rng(1).normal(size=view.shape)
        wanted[name] = view.copy()
    buffer.terminated[...] = np.arange(30).reshape(10, 3) % 2
    buffer.truncated[...] = False
    terminated = buffer.terminated.copy()
    chunk = buffer.finish({name: 1 for name in INTEGERS}, np.zeros((0, 5)), np.zeros((0, 2)),
                          np.zeros((0, 3)), 6)
    for name, array in wanted.items():
        assert np.array_equal(getattr(chunk, name), array[:len(getattr(chunk, name))]), name
    assert np.array_equal(chunk.terminated, terminated[:6])


def test_arrays_of_other_shapes_are_not_encoded():
    with pytest.raises(ValueError, match='reward is float64'):
        chunk = make_chunk()
        encode_chunk(dataclasses.replace(chunk, reward=chunk.reward.astype(float)), LAYOUT)


def altered(position, value):
    """Give a message with another header, its CRC made right again."""
    header, payload = frames_of(make_chunk())
    header = bytearray(header[:-4])
    header[position:position + len(value)] = value
    return [bytes(header) + struct.pack('<I', zlib.crc32(payload, zlib.crc32(header))), payload]


_STEPS_AT = 16 + 8 * len(INTEGERS)


@pytest.mark.parametrize('position, value, cause', [
    (0, b'APPX', 'magic'), (4, b'\x09', 'schema'), (8, b'\x00\x01\x02', 'layout'),
    (16, struct.pack('<q', -3), 'integers'), (16, struct.pack('<q', 2 ** 62), 'integers'),
    (_STEPS_AT, struct.pack('<I', 0), 'sizes'), (_STEPS_AT, struct.pack('<I', 5), 'length'),
    (_STEPS_AT + 4, struct.pack('<I', 2 ** 31), 'sizes'),
    (_STEPS_AT + 8, struct.pack('<I', 999), 'sizes'),
    (_STEPS_AT + 12, struct.pack('<I', 2 ** 32 - 1), 'sizes'),
    (_STEPS_AT + 16, struct.pack('<Q', 8), 'length')])
def test_a_wrong_header_is_refused_by_cause(position, value, cause):
    assert cause_of(altered(position, value)) == cause


def test_wrong_lengths_are_refused():
    header, payload = frames_of(make_chunk())
    assert cause_of([header]) == 'frames'
    assert cause_of([header, payload, b'']) == 'frames'
    assert cause_of([header[:-1], payload]) == 'length'
    assert cause_of([header, payload[:-1]]) == 'length'
    assert cause_of([header, payload + b'\0']) == 'length'
    assert cause_of([b'', b'']) == 'length'
    assert cause_of([header, payload], max_transitions=11) == 'sizes'
    assert cause_of([header, payload], layout=LAYOUT._replace(terms='other')) == 'layout'


def test_changed_bytes_are_refused():
    header, payload = frames_of(make_chunk())
    assert cause_of([header, payload[:40] + b'\xff' + payload[41:]]) == 'crc'


@pytest.mark.parametrize('name', [name for name, dtype, _ in ARRAYS if dtype == '<f4'])
@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_refused(name, value):
    chunk = make_chunk(layout=FULL_LAYOUT)
    getattr(chunk, name).flat[-1] = value
    assert cause_of(frames_of(chunk, FULL_LAYOUT), layout=FULL_LAYOUT) == 'not_finite'


def test_infinities_that_cancel_are_refused_and_large_numbers_are_not():
    chunk = make_chunk()
    chunk.reward.flat[:2] = np.inf, -np.inf
    assert cause_of(frames_of(chunk)) == 'not_finite'
    chunk = make_chunk()
    chunk.reward[...] = np.finfo(np.float32).max
    decode_chunk(frames_of(chunk), LAYOUT, 1000)


@pytest.mark.parametrize('spoil, cause', [
    (lambda chunk: chunk.terminated.view(np.uint8).__setitem__((0, 1), 2), 'bools'),
    (lambda chunk: chunk.truncated.view(np.uint8).__setitem__((0, 1), 255), 'bools'),
    (lambda chunk: chunk.terminated.__setitem__((0, 0), True), 'ends'),
    (lambda chunk: chunk.final_index.__setitem__((0, 0), 1), 'final_index'),
    (lambda chunk: chunk.final_index.__setitem__((0, 0), -1), 'final_index'),
    (lambda chunk: chunk.final_index.__setitem__((0, 1), 3), 'final_index'),
    (lambda chunk: chunk.truncated.__setitem__((2, 2), True), 'final_index'),
    (lambda chunk: chunk.truncated.__setitem__((0, 0), False), 'final_index'),
    (lambda chunk: chunk.terminated.__setitem__((3, 1), False), 'episodes'),
    (lambda chunk: chunk.episodes.__setitem__((0, 1), 0.0), 'episodes'),
    (lambda chunk: chunk.episodes.__setitem__((0, 2), 0.5), 'episodes')])
def test_numbers_that_contradict_each_other_are_refused(spoil, cause):
    chunk = make_chunk()
    spoil(chunk)
    assert cause_of(frames_of(chunk)) == cause


def mutated(frames, random):
    """Damage a message in one of the ways that wires, disks and strangers have."""
    frames = [bytearray(frame) for frame in frames]
    frame = frames[random.integers(2)]
    kind = random.integers(7)
    if kind == 0:  # a flipped bit
        frame[random.integers(len(frame))] ^= 1 << random.integers(8)
    elif kind == 1:  # random bytes
        start = random.integers(len(frame))
        count = int(random.integers(1, 64))
        frame[start:start + count] = random.bytes(len(frame[start:start + count]))
    elif kind == 2:  # cut short
        del frame[random.integers(len(frame)):]
    elif kind == 3:  # longer
        frame += random.bytes(int(random.integers(1, 64)))
    elif kind == 4:  # a piece repeated elsewhere
        start, target = random.integers(len(frame) - 8, size=2)
        frame[target:target + 8] = frame[start:start + 8]
    elif kind == 5:  # an extreme number in the header
        place = int(random.integers(HEADER_BYTES // 4)) * 4
        value = random.choice([0, 1, 2 ** 31, 2 ** 32 - 1])
        frames[0][place:place + 4] = int(value).to_bytes(4, 'little')
    else:  # other frames
        frames = frames[::-1] if random.integers(2) else [*frames, frame]
    return [bytes(frame) for frame in frames]


def test_nothing_is_accepted_that_differs_from_what_was_sent():
    random = np.random.default_rng(0)
    sent = [frames_of(make_chunk(seed=seed, sequence=seed)) for seed in range(8)]
    refused = 0
    for _ in range(20_000):
        original = sent[random.integers(len(sent))]
        frames = mutated(original, random)
        try:
            decode_chunk(frames, LAYOUT, 12)
        except CodecError:
            refused += 1
        else:
            assert frames == original
    assert refused > 19_000


def test_pads_are_zero_and_what_lies_in_them_does_not_matter():
    memory = np.full(ChunkBuffer.capacity(LAYOUT, 1, 1), 255, np.uint8)
    buffer = ChunkBuffer(LAYOUT, 1, 1, memory)
    for name in ('observation', 'action', 'behaviour_log_prob', 'behaviour_parameters',
                 'reward', 'terminated', 'truncated'):
        getattr(buffer, name)[...] = 0
    chunk = buffer.finish({name: 1 for name in INTEGERS}, np.zeros((0, 5)), np.zeros((0, 2)),
                          np.zeros((0, 3)))
    header, payload = frames_of(chunk)
    assert payload == bytes(len(payload))
    plan = payload_plan(Sizes(1, 1, 0, 0), LAYOUT)
    assert plan.pads
    for pad in plan.pads:
        memory[pad] = 255
    assert_equal(chunk, decode_chunk(encode_chunk(chunk, LAYOUT), LAYOUT, 1))


def test_a_chunk_beyond_all_measure_is_refused():
    large = LAYOUT._replace(observation_size=10 ** 6)
    header, payload = encode_chunk(make_chunk(layout=large), large)
    header = bytearray(header[:-4])
    header[_STEPS_AT:_STEPS_AT + 4] = struct.pack('<I', 1000)
    header += struct.pack('<I', zlib.crc32(payload, zlib.crc32(header)))
    assert cause_of([bytes(header), payload], layout=large, max_transitions=10 ** 6) == 'sizes'


def test_a_copy_of_a_chunk_is_encoded_as_it_is():
    chunk = make_chunk()
    copied = copy.deepcopy(chunk)
    copied.reward[...] = 7.0
    assert_equal(copied, decode_chunk(frames_of(copied), LAYOUT, 1000))

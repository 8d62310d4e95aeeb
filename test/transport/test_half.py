"""Observations in half their bytes: what is kept, what is cut, what is refused."""

import dataclasses

from making import FIRST, FULL_LAYOUT, LAYOUT, make_chunk, RUN_ID
import numpy as np
import pytest

from asyncppo_ros.chunk import ARRAYS
from asyncppo_ros.errors import CodecError
from asyncppo_ros.learning.batcher import Batcher
from asyncppo_ros.learning.books import Books
from asyncppo_ros.transport.admission import Session
from asyncppo_ros.transport.codec import decode_chunk, encode_chunk
from asyncppo_ros.transport.half import OBSERVATIONS
from asyncppo_ros.transport.intake import Intake
from asyncppo_ros.transport.messages import ChunkNotice, encode, hello
from asyncppo_ros.transport.permits import PermitBook

DTYPES = ('float16', 'bfloat16')
# Half of the distance of neighbours, relative to the smaller.
PRECISION = {'float16': 2.0 ** -11, 'bfloat16': 2.0 ** -8}


def half(dtype, layout=FULL_LAYOUT):
    return layout._replace(observation_dtype=dtype)


def travelled(chunk, dtype):
    return decode_chunk(encode_chunk(chunk, half(dtype)), half(dtype), 1000)


def with_observation(*values):
    """Give a chunk whose first observation begins with some numbers."""
    chunk = make_chunk(layout=FULL_LAYOUT)
    observation = chunk.observation.copy()
    observation[0, 0, :len(values)] = values
    return dataclasses.replace(chunk, observation=observation)


def first(chunk, count):
    return chunk.observation[0, 0, :count].tolist()


@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize('steps, num_envs', [(4, 3), (1, 1), (3, 3)])
def test_observations_are_rounded_and_all_else_is_exact(dtype, steps, num_envs):
    chunk = make_chunk(steps, num_envs, layout=FULL_LAYOUT)
    received = travelled(chunk, dtype)
    for name, code, _ in ARRAYS:
        sent, found = getattr(chunk, name), getattr(received, name)
        assert found.dtype == sent.dtype == np.dtype(code)
        if name in OBSERVATIONS:
            assert np.all(np.abs(found - sent) <= PRECISION[dtype] * np.abs(sent))
            assert not np.array_equal(found, sent)
        else:
            assert np.array_equal(found, sent)


@pytest.mark.parametrize('dtype', DTYPES)
def test_a_chunk_has_fewer_bytes(dtype):
    chunk = make_chunk(32, 16, layout=FULL_LAYOUT)
    _, full = encode_chunk(chunk, FULL_LAYOUT)
    _, payload = encode_chunk(chunk, half(dtype))
    numbers = sum(getattr(chunk, name).size for name in OBSERVATIONS)
    assert 2 * numbers - 32 <= len(full) - len(payload) <= 2 * numbers


def test_what_a_buffer_holds_is_sent_without_being_joined():
    chunk = make_chunk(layout=FULL_LAYOUT)
    apart = dataclasses.replace(chunk, reward=chunk.reward.copy())
    for dtype in DTYPES:
        assert bytes(encode_chunk(chunk, half(dtype))[1]) \
            == bytes(encode_chunk(apart, half(dtype))[1])


@pytest.mark.parametrize('dtype, largest', [('float16', 65504.0),
                                            ('bfloat16', 255.0 * 2.0 ** 120)])
def test_what_is_too_large_becomes_the_largest_number(dtype, largest):
    most = float(np.finfo(np.float32).max)
    received = travelled(with_observation(most, -most, largest), dtype)
    assert first(received, 3) == [largest, -largest, largest]


@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize('value', [float('inf'), float('-inf'), float('nan')])
def test_what_is_not_finite_is_refused_as_ever(dtype, value):
    with pytest.raises(CodecError) as refused:
        travelled(with_observation(value), dtype)
    assert refused.value.cause == 'not_finite'


def test_a_nan_of_any_bits_stays_one():
    bits = np.array([0x7fffffff, 0xffffffff, 0x7f800001, 0x7fc00000], np.uint32)
    for value in bits.view(np.float32):
        for dtype in DTYPES:
            with pytest.raises(CodecError, match='not_finite|NaN'):
                travelled(with_observation(value), dtype)


def test_bfloat16_rounds_to_the_nearest_and_halves_to_even():
    step = 2.0 ** -7
    sent = (1.0 + step / 2, 1.0 + 1.5 * step, 1.0 + 0.51 * step, 1e-40, -0.0)
    received = first(travelled(with_observation(*sent), 'bfloat16'), 5)
    assert received[:3] == [1.0, 1.0 + 2 * step, 1.0 + step]
    assert received[3] == pytest.approx(1e-40, rel=0.01)
    assert np.signbit(received[4])


def test_float16_equals_that_of_numpy():
    random = np.random.default_rng(0)
    values = random.normal(size=(5, 3, 5)) * 10.0 ** random.integers(-9, 6, size=(5, 3, 5))
    chunk = dataclasses.replace(make_chunk(), observation=values.astype(np.float32))
    layout = half('float16', LAYOUT)
    received = decode_chunk(encode_chunk(chunk, layout), layout, 1000)
    with np.errstate(over='ignore'):
        wanted = values.astype(np.float32).astype(np.float16).astype(np.float32)
    assert np.array_equal(received.observation, np.clip(wanted, -65504.0, 65504.0))


def test_a_payload_of_another_dtype_is_refused_by_its_layout():
    for sent, trained in (('float32', 'float16'), ('float16', 'bfloat16')):
        with pytest.raises(CodecError) as refused:
            decode_chunk(encode_chunk(make_chunk(layout=FULL_LAYOUT), half(sent)), half(trained),
                         1000)
        assert refused.value.cause == 'layout'


def test_the_learner_counts_what_was_cut_and_says_so_once():
    warnings = []
    layout = half('float16')
    intake = Intake(Session(RUN_ID, layout), PermitBook(1000, 1, FIRST), Batcher(1000, 8),
                    Books(), warnings.append)
    intake.published(FIRST)
    intake.handle(b'one', encode(hello(1, layout, 3, 4)))
    for sequence, chunk in enumerate((with_observation(1e5, -1e6), with_observation(7e4),
                                      with_observation(65000.0))):
        chunk = dataclasses.replace(chunk, sequence=sequence)
        intake.handle(b'one', [*map(bytes, encode(ChunkNotice(sequence, 12, 12 * sequence, 0))),
                               *map(bytes, encode_chunk(chunk, layout))])
    assert intake.chunks_received == 3 and intake.saturated() == 3
    warning, = warnings
    assert warning.startswith('actor 1 ') and 'transport.observation_dtype bfloat16' in warning

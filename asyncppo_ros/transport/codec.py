"""
A chunk as bytes: one fixed header and one payload of raw arrays.

::

    header   magic, schema, layout digest, integers of the chunk, T, N, K, E, payload length,
             CRC32 of all that and of the payload; little-endian, without padding
    payload  see `payload.py`

No pickle, and nothing is believed: `decode_chunk` checks everything before it returns anything.
"""

from collections.abc import Sequence
import dataclasses
import struct
import sys
import zlib

import numpy as np

from asyncppo_ros.chunk import ARRAYS, Chunk, INTEGERS, Layout, shapes
from asyncppo_ros.errors import CodecError
from asyncppo_ros.transport.payload import make_chunk, payload_plan, payload_views, Sizes

MAGIC = b'APPO'
SCHEMA = 1
MAX_STEPS = 65536
MAX_ENVS = 65536
# What both ends may leave unread: integers stay far from overflow in the arithmetic below.
MAX_INTEGER = 2 ** 62

_HEADER = struct.Struct(f'<4sIQ{len(INTEGERS)}q4IQ')
_CRC = struct.Struct('<I')
HEADER_BYTES = _HEADER.size + _CRC.size
_FLOATS = tuple(name for name, dtype, _ in ARRAYS if dtype == '<f4')

assert sys.byteorder == 'little', 'the wire is little-endian and arrays are sent as they lie'


def encode_chunk(chunk: Chunk, layout: Layout) -> list[bytes | memoryview]:
    """
    Encode a chunk as header and payload.

    The arrays of a chunk that a `ChunkBuffer` made are not copied; others are, once.

    Raises
    ------
    ValueError
        The arrays do not have the shapes and types of the layout.

    """
    steps, num_envs = chunk.reward.shape
    sizes = Sizes(steps, num_envs, len(chunk.final_index), len(chunk.episodes))
    payload = _payload_of(chunk, sizes, layout)
    integers = (getattr(chunk, name) for name in INTEGERS)
    header = _HEADER.pack(MAGIC, SCHEMA, layout.digest(), *integers, *sizes, payload.nbytes)
    return [header + _CRC.pack(zlib.crc32(payload, zlib.crc32(header))), payload]


def decode_chunk(frames: Sequence[bytes | memoryview], layout: Layout,
                 max_transitions: int) -> Chunk:
    """
    Check a message and give its chunk.

    Parameters
    ----------
    frames : header and payload
    layout : Layout
        What the receiver trains.
    max_transitions : int
        Largest T × N that is believed.

    Returns
    -------
    chunk : Chunk
        Its arrays are read-only views of the payload.

    Raises
    ------
    CodecError
        Cause `frames`, `magic`, `schema`, `layout`, `sizes`, `length`, `crc`, `integers`,
        `not_finite`, `bools`, `ends`, `final_index` or `episodes`.

    """
    if len(frames) != 2:
        raise CodecError('frames', f'{len(frames)} frames where header and payload belong')
    header, payload = (memoryview(frame).cast('B') for frame in frames)
    integers, sizes = _check_header(header, payload, layout, max_transitions)
    memory = np.frombuffer(payload, np.uint8)
    chunk = make_chunk(dict(zip(INTEGERS, integers)), payload_views(memory, sizes, layout))
    return checked_arrays(chunk)


def _payload_of(chunk: Chunk, sizes: Sizes, layout: Layout) -> memoryview:
    offsets, length = payload_plan(sizes, layout)
    shape_of = shapes(*sizes, layout)
    for name, dtype, _ in ARRAYS:
        array = getattr(chunk, name)
        if array.shape != shape_of[name] or array.dtype != np.dtype(dtype):
            raise ValueError(f'{name} is {array.dtype} {array.shape}; '
                             f'{np.dtype(dtype)} {shape_of[name]} was expected')
    memory = chunk.observation.base
    if isinstance(memory, np.ndarray) and memory.dtype == np.uint8:
        start = memory.ctypes.data
        if memory.nbytes >= length and all(
                getattr(chunk, name).ctypes.data == start + offset
                and getattr(chunk, name).flags.c_contiguous
                for name, offset in offsets.items()):
            return memory[:length].data
    memory = np.zeros(length, np.uint8)
    for name, view in payload_views(memory, sizes, layout).items():
        view[...] = getattr(chunk, name)
    return memory.data


def _check_header(header: memoryview, payload: memoryview, layout: Layout,
                  max_transitions: int) -> tuple[Sequence[int], Sizes]:
    if len(header) != HEADER_BYTES:
        raise CodecError('length', f'header of {len(header)} bytes, not {HEADER_BYTES}')
    magic, schema, digest, *numbers, length = _HEADER.unpack_from(header)
    integers, sizes = numbers[:len(INTEGERS)], Sizes(*numbers[len(INTEGERS):])
    if magic != MAGIC:
        raise CodecError('magic', f'message starts with {magic!r}, not {MAGIC!r}')
    if schema != SCHEMA:
        raise CodecError('schema', f'schema {schema}; this learner reads {SCHEMA}')
    if digest != layout.digest():
        raise CodecError('layout', f'chunk is not of {layout.task} as this learner knows it')
    transitions = sizes.steps * sizes.num_envs
    if not (1 <= sizes.steps <= MAX_STEPS and 1 <= sizes.num_envs <= MAX_ENVS
            and transitions <= max_transitions
            and sizes.truncations <= transitions and sizes.episodes <= transitions):
        raise CodecError('sizes', f'{sizes}; at most {max_transitions} transitions are allowed')
    if not length == len(payload) == payload_plan(sizes, layout)[1]:
        raise CodecError('length', f'payload of {len(payload)} bytes, header says {length}')
    crc, = _CRC.unpack_from(header, _HEADER.size)
    if crc != zlib.crc32(payload, zlib.crc32(header[:_HEADER.size])):
        raise CodecError('crc', 'bytes changed on the way')
    if not all(0 <= number < MAX_INTEGER for number in integers):
        raise CodecError('integers', f'{dict(zip(INTEGERS, integers))}')
    return integers, sizes


def checked_arrays(chunk: Chunk) -> Chunk:
    """
    Give a chunk, whose shapes and types are right, if its numbers are right too.

    Raises
    ------
    CodecError
        Cause `not_finite`, `bools`, `ends`, `final_index` or `episodes`.

    """
    for name in _FLOATS:
        array = getattr(chunk, name)
        with np.errstate(all='ignore'):
            # A sum is finite only if all are; the slow look is for sums that overflow.
            if not np.isfinite(array.sum()) and not np.isfinite(array).all():
                raise CodecError('not_finite', f'{name} has a NaN or an infinity')
    for name in ('terminated', 'truncated'):
        if getattr(chunk, name).view(np.uint8).max() > 1:
            raise CodecError('bools', f'{name} has a value other than 0 and 1')
    if (chunk.terminated & chunk.truncated).any():
        raise CodecError('ends', 'a step is both terminated and truncated')
    steps, num_envs = chunk.reward.shape
    step, env = chunk.final_index.T
    if not ((step >= 0) & (step < steps) & (env >= 0) & (env < num_envs)).all():
        raise CodecError('final_index', 'an index lies outside the chunk')
    places = np.sort(step.astype(np.int64) * num_envs + env)
    if not np.array_equal(places, np.flatnonzero(chunk.truncated)):
        raise CodecError('final_index', 'does not name the truncated steps')
    returns_lengths_success = chunk.episodes.T
    ends = int(chunk.terminated.sum()) + len(places)
    if len(chunk.episodes) > ends or not (
            (returns_lengths_success[1] >= 1.0).all()
            and np.isin(returns_lengths_success[2], (-1.0, 0.0, 1.0)).all()):
        raise CodecError('episodes', 'more episodes than ends, or impossible numbers')
    return chunk


def with_waiting(chunk: Chunk, waiting_ns: int) -> Chunk:
    """Give the same chunk (arrays shared) with a longer wait in the actor."""
    return dataclasses.replace(chunk, waiting_ns=chunk.waiting_ns + waiting_ns)

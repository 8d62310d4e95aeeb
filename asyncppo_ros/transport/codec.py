"""
A chunk as bytes: one fixed header and one payload of raw arrays.

::

    header   magic, schema, layout digest, integers of the chunk, T, N, K, E, payload length,
             CRC32 of all that and of the payload; little-endian, without padding
    payload  see `payload.py`; of observations in half their bytes, `half.py`

No pickle, and nothing is believed: `decode_chunk` checks everything before it returns anything.
"""

from collections.abc import Callable, Sequence
import functools
import math
import struct
import sys
import zlib

import numpy as np

from asyncppo_ros.chunk import ARRAYS, Chunk, INTEGERS, Layout
from asyncppo_ros.einsum import einsum
from asyncppo_ros.errors import CodecError
from asyncppo_ros.transport.half import from_wire, to_wire, wire_length
from asyncppo_ros.transport.payload import (
    Memory,
    packed_chunk,
    packed_chunks,
    packing_of,
    payload_plan,
    payload_views,
    PayloadPlan,
    Sizes,
)

MAGIC = b'APPO'
SCHEMA = 3
MAX_STEPS = 65536
MAX_ENVS = 65536
# What both ends may leave unread: integers stay far from overflow in the arithmetic below.
MAX_INTEGER = 2 ** 62

_HEADER = struct.Struct(f'<4sIQ{len(INTEGERS)}q4IQ')
_CRC = struct.Struct('<I')
HEADER_BYTES = _HEADER.size + _CRC.size
_FLOATS = tuple(name for name, dtype, _ in ARRAYS if dtype == '<f4')
_FLOAT = np.dtype('<f4')

assert sys.byteorder == 'little', 'the wire is little-endian and arrays are sent as they lie'


def encode_chunk(chunk: Chunk, layout: Layout) -> list[bytes | memoryview]:
    """
    Encode a chunk as header and payload.

    The arrays of a chunk that a `ChunkBuffer` made are not copied, unless observations travel in
    half their bytes; others are, once.

    Raises
    ------
    ValueError
        The arrays do not have the shapes and types of the layout.

    """
    payload, plan = payload_of(chunk, layout)
    if layout.observation_dtype != 'float32':
        payload = to_wire(payload, payload_plan(plan.sizes, layout))
    header = header_of(chunk, layout, plan, len(payload))
    return [header + _CRC.pack(zlib.crc32(payload, zlib.crc32(header))), payload]


def header_of(chunk: Chunk, layout: Layout, plan: PayloadPlan, length: int) -> bytes:
    """Give the header of a chunk whose payload has so many bytes, without the CRC of both."""
    integers = (getattr(chunk, name) for name in INTEGERS)
    return _HEADER.pack(MAGIC, SCHEMA, layout.digest(), *integers, *plan.sizes, length)


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
        Its arrays are read-only views of the payload, or of a copy with float32 observations.

    Raises
    ------
    CodecError
        Cause `frames`, `magic`, `schema`, `layout`, `sizes`, `length`, `crc`, `integers`,
        `not_finite`, `bools`, `ends`, `final_index` or `episodes`.

    """
    if len(frames) != 2:
        raise CodecError('frames', f'{len(frames)} frames where header and payload belong')
    header, payload = (memoryview(frame).cast('B') for frame in frames)
    integers, plan = _check_header(header, payload, layout, max_transitions)
    return checked_chunk(integers, from_wire(payload, plan), plan)


def payload_of(chunk: Chunk, layout: Layout) -> tuple[memoryview, PayloadPlan]:
    """
    Give the payload of a chunk: where it lies, or joined where the arrays lie apart.

    Raises
    ------
    ValueError
        The arrays do not have the shapes and types of the layout.

    """
    packing = packing_of(chunk)
    if packing is not None and packing[1].layout.in_memory == layout.in_memory:
        memory, plan = packing
        return memoryview(memory)[:plan.length], plan  # type: ignore[arg-type]
    steps, num_envs = chunk.reward.shape
    plan = payload_plan(Sizes(steps, num_envs, len(chunk.final_index), len(chunk.episodes)),
                        layout)
    memory = np.zeros(plan.length, np.uint8)
    for name, view in payload_views(memory, plan).items():
        array = getattr(chunk, name)
        if array.shape != view.shape or array.dtype != view.dtype:
            raise ValueError(f'{name} is {array.dtype} {array.shape}; '
                             f'{view.dtype} {view.shape} was expected')
        view[...] = array
    return memory.data, plan


def _check_header(header: memoryview, payload: memoryview, layout: Layout,
                  max_transitions: int) -> tuple[Sequence[int], PayloadPlan]:
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
    plan = checked_plan(sizes, layout, max_transitions)
    if not length == len(payload) == wire_length(plan):
        raise CodecError('length', f'payload of {len(payload)} bytes, header says {length}')
    crc, = _CRC.unpack_from(header, _HEADER.size)
    if crc != zlib.crc32(payload, zlib.crc32(header[:_HEADER.size])):
        raise CodecError('crc', 'bytes changed on the way')
    check_integers(integers)
    return integers, plan


def checked_plan(sizes: Sizes, layout: Layout, max_transitions: int) -> PayloadPlan:
    """
    Give the plan of a payload whose sizes are believed.

    Raises
    ------
    CodecError
        Cause `sizes`.

    """
    transitions = sizes.steps * sizes.num_envs
    if not (1 <= sizes.steps <= MAX_STEPS and 1 <= sizes.num_envs <= MAX_ENVS
            and transitions <= max_transitions
            and sizes.truncations <= transitions and sizes.episodes <= transitions):
        raise CodecError('sizes', f'{sizes}; at most {max_transitions} transitions are allowed')
    try:
        return payload_plan(sizes, layout)
    except ValueError as error:
        raise CodecError('sizes', str(error)) from None


def check_integers(integers: Sequence[int]) -> None:
    """
    Check the integers of a chunk.

    Raises
    ------
    CodecError
        Cause `integers`.

    """
    if min(integers) < 0 or max(integers) >= MAX_INTEGER:
        raise CodecError('integers', f'{dict(zip(INTEGERS, integers))}')


def checked_chunk(integers: Sequence[int], memory: Memory, plan: PayloadPlan) -> Chunk:
    """
    Give the chunk that lies in `memory`, if its numbers are right; see `checked_arrays`.

    Parameters
    ----------
    integers : sequence of int
        In the order of `chunk.INTEGERS`, checked.
    memory : uint8 array or bytes
    plan : PayloadPlan

    """
    chunk = packed_chunk(integers, memory, plan)
    if not _look_finite(memory, plan):
        return checked_arrays(chunk)
    if not _nothing_ends(memory, plan):
        _check_ends(chunk)
    return chunk


def checked_chunks(integers: Sequence[Sequence[int]], memory: np.ndarray,
                   plans: Sequence[PayloadPlan]) -> list[Chunk | CodecError]:
    """
    Give what `checked_chunk` gives or raises for each of some chunks of equal T and N.

    Parameters
    ----------
    integers : sequence of sequence of int
        For each of `chunk.INTEGERS` its values in all chunks, checked.
    memory : uint64 [chunks, words]
        Each row is a payload, and zero after it.
    plans : sequence of PayloadPlan

    """
    chunks = packed_chunks(integers, memory, plans)
    flags = plans[0].flags
    floats = memory.view(_FLOAT)
    if not (math.isfinite(einsum('ij->', floats[:, :flags.start >> 2]))
            and math.isfinite(einsum('ij->', floats[:, flags.stop >> 2:]))):
        return [_chunk_or_error(checked_arrays, chunk) for chunk in chunks]
    flagged = np.bitwise_or.reduce(memory[:, flags.start >> 3:flags.stop >> 3], axis=1).tolist()
    return [_chunk_or_error(_check_ends, chunk) if flag or plan.ends else chunk
            for chunk, flag, plan in zip(chunks, flagged, plans)]


def _chunk_or_error(check: Callable[[Chunk], object], chunk: Chunk) -> Chunk | CodecError:
    try:
        check(chunk)
    except CodecError as error:
        return error
    return chunk


def checked_arrays(chunk: Chunk) -> Chunk:
    """
    Give a chunk, whose shapes and types are right, if its numbers are right too.

    Raises
    ------
    CodecError
        Cause `not_finite`, `bools`, `ends`, `final_index` or `episodes`.

    """
    for name in _FLOATS:
        if not np.isfinite(getattr(chunk, name)).all():
            raise CodecError('not_finite', f'{name} has a NaN or an infinity')
    _check_ends(chunk)
    return chunk


def _look_finite(memory: Memory, plan: PayloadPlan) -> bool:
    """
    Say whether a quick look finds all floats finite; False = look closely.

    A sum is finite only if all are.  It may not be though all are: it overflows, pads are not
    zero, or the integers in `final_index`, which it takes for floats, are none that are valid.
    """
    flags = plan.flags
    # `einsum` is the fastest sum that stays in this thread (`dot` wakes those of the BLAS).
    if not math.isfinite(einsum('i->', np.ndarray(flags.start >> 2, _FLOAT, memory))):
        return False
    rest = plan.length - flags.stop
    return rest == 0 or math.isfinite(
        einsum('i->', np.ndarray(rest >> 2, _FLOAT, memory, flags.stop)))


def _nothing_ends(memory: Memory, plan: PayloadPlan) -> bool:
    flags = plan.flags
    return plan.length == flags.stop and bytes(memory[flags]) == _zeros(flags.stop - flags.start)


@functools.lru_cache(maxsize=8)
def _zeros(length: int) -> bytes:
    return bytes(length)


def _check_ends(chunk: Chunk) -> None:
    terminated, truncated = chunk.terminated.tobytes(), chunk.truncated.tobytes()
    if (terminated + truncated).translate(None, b'\0\1'):
        raise CodecError('bools', 'terminated or truncated has a value other than 0 and 1')
    # Ends are few: lists of them are several times as fast as arrays.
    places = _places_of_ones(truncated)
    num_envs = chunk.reward.shape[1]
    if sorted(chunk.final_index.tolist()) != [[*divmod(place, num_envs)] for place in places]:
        raise CodecError('final_index', 'does not name the truncated steps')
    for place in places:
        if terminated[place]:
            raise CodecError('ends', 'a step is both terminated and truncated')
    episodes = chunk.episodes.tolist()
    if len(episodes) > terminated.count(1) + len(places):
        raise CodecError('episodes', 'more episodes than ends')
    for _, length, success in episodes:
        if not (length >= 1.0 and success in (-1.0, 0.0, 1.0)):
            raise CodecError('episodes', 'impossible numbers of an episode')


def _places_of_ones(flags: bytes) -> list[int]:
    places = []
    place = flags.find(1)
    while place >= 0:
        places.append(place)
        place = flags.find(1, place + 1)
    return places


def with_waiting(chunk: Chunk, waiting_ns: int) -> Chunk:
    """Give the same chunk (arrays shared) with a longer wait in the actor."""
    other = object.__new__(Chunk)
    object.__setattr__(other, '__dict__', vars(chunk)
                       | {'waiting_ns': chunk.waiting_ns + waiting_ns})
    return other

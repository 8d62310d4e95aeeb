"""
Observations in half their bytes, for the way between hosts.

::

    wire payload   as `payload.py` has it, but with two bytes for each number of `observation`,
                   `critic_observation`, `final_observation` and `final_critic_observation`

``float16`` keeps 11 bits and numbers up to 65504; what is larger travels as the largest number.
``bfloat16`` keeps 8 bits and all that float32 can have.  NaN and infinities stay what they are,
so that the receiver refuses them.
"""

from collections.abc import Callable
import functools
from typing import NamedTuple

import numpy as np

from asyncppo_ros.chunk import Chunk, Layout
from asyncppo_ros.transport.payload import Memory, payload_plan, PayloadPlan, Sizes

OBSERVATIONS = ('observation', 'critic_observation', 'final_observation',
                'final_critic_observation')
LARGEST_FLOAT16 = 65504.0
_WORD, _HALF, _FLOAT = np.dtype('<u4'), np.dtype('<u2'), np.dtype('<f4')
_EXPONENT, _LARGEST_BFLOAT16, _QUIET = 0x7f800000, 0x7f7f, 0x40


class _Piece(NamedTuple):
    """Bytes of a payload in memory and on the wire; so many are numbers to round, 0 = as is."""

    memory: slice
    wire: slice
    numbers: int


def wire_length(plan: PayloadPlan) -> int:
    """Give the bytes of a payload on the wire."""
    if plan.layout.observation_dtype == 'float32':
        return plan.length
    return _pieces(plan.sizes, plan.layout)[-1].wire.stop


def to_wire(payload: memoryview, plan: PayloadPlan) -> memoryview:
    """Give a payload as it travels; it is not copied where nothing changes."""
    if plan.layout.observation_dtype == 'float32':
        return payload
    narrow = _NARROW[plan.layout.observation_dtype]
    memory = np.frombuffer(payload, np.uint8)
    wire = np.empty(wire_length(plan), np.uint8)
    for lies, travels, count in _pieces(plan.sizes, plan.layout):
        if count:
            halves = wire[travels].view(_HALF)
            halves[:count] = narrow(memory[lies].view(_FLOAT)[:count])
            halves[count:] = 0
        else:
            wire[travels] = memory[lies]
    return wire.data


def from_wire(wire: memoryview, plan: PayloadPlan) -> Memory:
    """Give a payload, of which the length on the wire was checked, as it lies in memory."""
    received = np.frombuffer(wire, np.uint8)
    if plan.layout.observation_dtype == 'float32':
        return received
    widen = _WIDEN[plan.layout.observation_dtype]
    memory = np.empty(plan.length, np.uint8)
    for lies, travels, count in _pieces(plan.sizes, plan.layout):
        if count:
            floats = memory[lies].view(_FLOAT)
            floats[:count] = widen(received[travels].view(_HALF)[:count])
            floats[count:] = 0.0
        else:
            memory[lies] = received[travels]
    memory.setflags(write=False)
    return memory


def saturated(chunk: Chunk) -> int:
    """Count the numbers of a chunk, received as float16, that were too large for it."""
    return sum(int(np.count_nonzero(np.abs(getattr(chunk, name)) >= LARGEST_FLOAT16))
               for name in OBSERVATIONS)


@functools.lru_cache(maxsize=64)
def _pieces(sizes: Sizes, layout: Layout) -> tuple[_Piece, ...]:
    plan = payload_plan(sizes, layout)
    places = plan.steps + plan.ends
    stops = [*(place.offset for place in places[1:]), plan.length]
    pieces, wire = [], 0
    for (name, dtype, start), stop in zip(places, stops):
        count = dtype.itemsize // 4 if name in OBSERVATIONS else 0
        size = -(-2 * count // 8) * 8 if count else stop - start
        pieces.append(_Piece(slice(start, stop), slice(wire, wire + size), count))
        wire += size
    return tuple(pieces)


def _to_float16(values: np.ndarray) -> np.ndarray:
    with np.errstate(over='ignore'):
        halves = values.astype(np.float16)
    too_large = np.isinf(halves)
    if too_large.any():
        too_large &= np.isfinite(values)
        halves[too_large] = np.copysign(np.float16(LARGEST_FLOAT16), values[too_large])
    return halves.view(_HALF)


def _from_float16(halves: np.ndarray) -> np.ndarray:
    return halves.view(np.float16)


def _to_bfloat16(values: np.ndarray) -> np.ndarray:
    bits = values.view(_WORD)
    # To the nearest, half-way to the even one.
    halves = ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(_HALF)
    is_special = bits & _EXPONENT == _EXPONENT
    if is_special.any() or (halves & _EXPONENT >> 16 == _EXPONENT >> 16).any():
        sign = (bits >> 16 & 0x8000).astype(_HALF)
        rounded_up = (halves & _EXPONENT >> 16 == _EXPONENT >> 16) & ~is_special
        halves[rounded_up] = sign[rounded_up] | _LARGEST_BFLOAT16
        special = (bits[is_special] >> 16).astype(_HALF)
        special[np.isnan(values[is_special])] |= _QUIET
        halves[is_special] = special
    return halves


def _from_bfloat16(halves: np.ndarray) -> np.ndarray:
    return (halves.astype(_WORD) << 16).view(_FLOAT)


_Change = Callable[[np.ndarray], np.ndarray]
_NARROW: dict[str, _Change] = {'float16': _to_float16, 'bfloat16': _to_bfloat16}
_WIDEN: dict[str, _Change] = {'float16': _from_float16, 'bfloat16': _from_bfloat16}

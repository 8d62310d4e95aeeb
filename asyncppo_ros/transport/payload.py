"""
The payload of a chunk: one piece of memory with every array at its place.

The arrays lie in the order of `chunk.ARRAYS`, each at a multiple of 8 bytes, so that the same
bytes can lie in a message, in a shared-memory slot, or where a rollout writes (`ChunkBuffer`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import functools
import math
from typing import Any, NamedTuple

import numpy as np

from asyncppo_ros.chunk import ARRAYS, Chunk, INTEGERS, Layout, shapes

# An item of an array has fewer bytes than this.
MAX_PAYLOAD = 2 ** 31 - 8
# A payload to write, or one that was received.
Memory = np.ndarray | bytes


class Sizes(NamedTuple):
    """Numbers of steps, environments, truncated steps and ended episodes of a chunk."""

    steps: int
    num_envs: int
    truncations: int
    episodes: int


class Place(NamedTuple):
    """
    Where one array of a payload lies.

    `dtype` has its shape; `offset` is in bytes from the start of the payload, a multiple of 8.
    """

    name: str
    dtype: np.dtype
    offset: int


class PayloadPlan(NamedTuple):
    """
    What lies where in a payload.

    Attributes
    ----------
    offsets : dict from str to int
        Bytes from the start of the payload, multiples of 8.
    length : int
        Bytes of the payload.
    dtype : dtype
        Of all these bytes as one item.
    steps, ends : tuple of Place
        Of the arrays that have items, in the order of `chunk.ARRAYS`: those of every step, and
        those that come with the ends of episodes.
    empty : dict from str to array
        The arrays that have none; chunks share them.
    flags : slice
        The bytes of `terminated` and `truncated`; the floats of every step lie before them,
        `ends` after them.
    pads : tuple of slice
        The bytes between two arrays, which are zero.
    sizes : Sizes
    layout : Layout

    """

    offsets: dict[str, int]
    length: int
    dtype: np.dtype
    steps: tuple[Place, ...]
    ends: tuple[Place, ...]
    empty: dict[str, np.ndarray]
    flags: slice
    pads: tuple[slice, ...]
    sizes: Sizes
    layout: Layout


# Chunks differ in little: how many steps, and how many ends.
@functools.lru_cache(maxsize=64)
def payload_plan(sizes: Sizes, layout: Layout) -> PayloadPlan:
    """
    Say where each array of a payload lies.

    Raises
    ------
    ValueError
        It would have more than `MAX_PAYLOAD` bytes.

    """
    offsets, places, empty, pads = {}, [], {}, []
    length = payload_length(sizes, layout)
    if length > MAX_PAYLOAD:
        raise ValueError(f'a chunk of {length} bytes; at most {MAX_PAYLOAD} can be sent')
    position = 0
    for name, code, shape, size in _arrays(sizes, layout):
        offsets[name] = position
        if size:
            places.append(Place(name, np.dtype((code, shape)), position))
        else:
            empty[name] = np.empty(shape, code)
        end, position = position + size, position + _padded(size)
        if end < position:
            pads.append(slice(end, position))
    flags = slice(offsets['terminated'], offsets['final_observation'])
    steps = tuple(place for place in places if place.offset < flags.stop)
    return PayloadPlan(offsets, length, np.dtype((np.void, length)), steps,
                       tuple(places[len(steps):]), empty, flags, tuple(pads), sizes, layout)


def payload_length(sizes: Sizes, layout: Layout) -> int:
    """Give the bytes of a payload."""
    return sum(_padded(size) for _, _, _, size in _arrays(sizes, layout))


def _arrays(sizes: Sizes, layout: Layout) -> Iterator[tuple[str, str, tuple[int, ...], int]]:
    """Give name, dtype, shape and bytes of every array in order."""
    shape_of = shapes(*sizes, layout)
    for name, code, _ in ARRAYS:
        yield name, code, shape_of[name], np.dtype(code).itemsize * math.prod(shape_of[name])


def _padded(size: int) -> int:
    return -(-size // 8) * 8


def payload_views(memory: Memory, plan: PayloadPlan) -> dict[str, Any]:
    """Give every array of a payload as a view of `memory`."""
    views = plan.empty.copy()
    # Done for every chunk: a field of one array is had in half the time of an array.
    whole = np.ndarray((), plan.dtype, memory)
    for name, dtype, offset in plan.steps + plan.ends:
        views[name] = whole.getfield(dtype, offset)
    return views


def packed_chunk(integers: Iterable[int], memory: Memory, plan: PayloadPlan) -> Chunk:
    """
    Make a chunk of which every array lies in `memory` where the plan has it.

    Parameters
    ----------
    integers : iterable of int
        In the order of `chunk.INTEGERS`.
    memory : uint8 array or bytes
    plan : PayloadPlan

    """
    # The constructor of a frozen dataclass sets 23 fields one by one, in the time of a copy.
    fields = payload_views(memory, plan)
    fields.update(zip(INTEGERS, integers))
    fields['_packing'] = memory, plan
    chunk = object.__new__(Chunk)
    object.__setattr__(chunk, '__dict__', fields)
    return chunk


def packed_chunks(integers: Sequence[Sequence[int]], memory: np.ndarray,
                  plans: Sequence[PayloadPlan]) -> list[Chunk]:
    """
    Make chunks of equal T and N.

    Parameters
    ----------
    integers : sequence of sequence of int
        For each of `chunk.INTEGERS` its values in all chunks.
    memory : uint64 [chunks, words]
        Each row begins with a payload; every chunk keeps all of it.
    plans : sequence of PayloadPlan

    """
    payloads = memory.view((np.void, memory.shape[1] * 8))[:, 0]
    # What all have is taken out of all at once, one array after the other.
    steps = [payloads.getfield(dtype, offset) for _, dtype, offset in plans[0].steps]
    names = (*INTEGERS, *(name for name, _, _ in plans[0].steps))
    make, set_field = object.__new__, object.__setattr__
    chunks = []
    for row, (plan, values) in enumerate(zip(plans, zip(*integers, *steps))):
        fields = plan.empty.copy()
        fields.update(zip(names, values))
        for name, dtype, offset in plan.ends:
            fields[name] = payloads.getfield(dtype, offset)[row]
        chunk = make(Chunk)
        set_field(chunk, '__dict__', fields)
        chunks.append(chunk)
    return chunks


def packing_of(chunk: Chunk) -> tuple[Memory, PayloadPlan] | None:
    """
    Give the memory in which the arrays of a chunk lie packed, and how; None = they lie apart.

    `dataclasses.replace` leaves this note behind, so it never names arrays that were replaced.
    Chunks that were received have none either.
    """
    packing: tuple[Memory, PayloadPlan] | None = vars(chunk).get('_packing')
    # A deep copy has the note and other arrays.
    return packing if packing is not None and chunk.reward.base is packing[0] else None


class ChunkBuffer:
    """
    Memory for one chunk that a rollout fills where it will be sent from.

    A buffer is filled once: the chunk that `finish` returns keeps it.  `observation`,
    `critic_observation`, `action`, `behaviour_log_prob`, `behaviour_parameters`, `value`,
    `reward`, `terminated` and `truncated` are views for the full T; what is of variable length
    comes with `finish`.

    Parameters
    ----------
    layout : Layout
    steps, num_envs : int
        T and N.
    memory : uint8 array, optional
        To fill instead of new memory: at least `ChunkBuffer.capacity` bytes.

    """

    def __init__(self, layout: Layout, steps: int, num_envs: int,
                 memory: np.ndarray | None = None) -> None:
        if memory is None:
            # Pages beyond what is written are never touched, so the worst case costs nothing.
            memory = np.empty(self.capacity(layout, steps, num_envs), np.uint8)
        self._memory = memory
        self._layout = layout
        self._num_envs = num_envs
        self.steps = steps
        self._plan = payload_plan(Sizes(steps, num_envs, 0, 0), layout)
        views = payload_views(self._memory, self._plan)
        self.observation = views['observation']
        self.critic_observation = views['critic_observation']
        self.action = views['action']
        self.behaviour_log_prob = views['behaviour_log_prob']
        self.behaviour_parameters = views['behaviour_parameters']
        self.value = views['value']
        self.reward = views['reward']
        self.terminated = views['terminated']
        self.truncated = views['truncated']

    @staticmethod
    def capacity(layout: Layout, steps: int, num_envs: int) -> int:
        """Give the bytes of the largest chunk: every step ends an episode."""
        most = steps * num_envs
        return payload_length(Sizes(steps, num_envs, most, most), layout)

    def finish(self, integers: Mapping[str, int], final_observation: np.ndarray,
               final_index: np.ndarray, episodes: np.ndarray, steps: int | None = None,
               final_critic_observation: np.ndarray | None = None,
               final_value: np.ndarray | None = None) -> Chunk:
        """
        Complete the chunk.

        Parameters
        ----------
        integers : mapping from str to int
            All of `chunk.INTEGERS`.
        final_observation : float32 [K, O]
        final_index : int32 [K, 2]
        episodes : float32 [E, 3]
        steps : int, optional
            T' ≤ T where the chunk is cut short; row T' of `observation` follows its last action.
        final_critic_observation : float32 [K, C], optional
            Needed where the layout has C > 0.
        final_value : float32 [K, V], optional
            Needed where the layout has V > 0.

        """
        steps = self.steps if steps is None else steps
        sizes = Sizes(steps, self._num_envs, len(final_index), len(episodes))
        plan = payload_plan(sizes, self._layout)
        chunk = packed_chunk([int(integers[name]) for name in INTEGERS], self._memory, plan)
        if steps < self.steps:
            self._close_ranks(chunk)
        if sizes.truncations:
            chunk.final_observation[...] = final_observation
            chunk.final_index[...] = final_index
            if self._layout.critic_size:
                chunk.final_critic_observation[...] = final_critic_observation
            if self._layout.value_size:
                chunk.final_value[...] = final_value
        if sizes.episodes:
            chunk.episodes[...] = episodes
        for pad in plan.pads:
            self._memory[pad] = 0
        return chunk

    def _close_ranks(self, chunk: Chunk) -> None:
        # Each array moves towards the start, in order, so none is overwritten before it moves.
        for name, _, axes in ARRAYS:
            if axes[0] in ('T', 'T+1'):
                array = getattr(chunk, name)
                array[...] = getattr(self, name)[:len(array)].copy()

"""
The payload of a chunk: one piece of memory with every array at its place.

The arrays lie in the order of `chunk.ARRAYS`, each at a multiple of 8 bytes, so that the same
bytes can lie in a message, in a shared-memory slot, or where a rollout writes (`ChunkBuffer`).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from asyncppo_ros.chunk import ARRAYS, Chunk, INTEGERS, Layout, shapes


class Sizes(NamedTuple):
    """Numbers of steps, environments, truncated steps and ended episodes of a chunk."""

    steps: int
    num_envs: int
    truncations: int
    episodes: int


def payload_plan(sizes: Sizes, layout: Layout) -> tuple[dict[str, int], int]:
    """
    Say where each array of a payload lies.

    Returns
    -------
    offsets : dict from str to int
        Bytes from the start of the payload, multiples of 8.
    length : int
        Bytes of the payload.

    """
    offsets, position = {}, 0
    shape_of = shapes(*sizes, layout)
    for name, dtype, _ in ARRAYS:
        offsets[name] = position
        size = np.dtype(dtype).itemsize
        for count in shape_of[name]:
            size *= count
        position += -(-size // 8) * 8
    return offsets, position


def payload_views(memory: np.ndarray, sizes: Sizes, layout: Layout) -> dict[str, np.ndarray]:
    """Give every array of a payload as a view of uint8 `memory`."""
    offsets, _ = payload_plan(sizes, layout)
    shape_of = shapes(*sizes, layout)
    return {name: np.ndarray(shape_of[name], dtype, buffer=memory, offset=offsets[name])
            for name, dtype, _ in ARRAYS}


def make_chunk(integers: Mapping[str, int], arrays: Mapping[str, np.ndarray]) -> Chunk:
    """Join the integers and the arrays of a chunk."""
    fields: dict[str, Any] = {name: int(integers[name]) for name in INTEGERS}
    return Chunk(**fields | dict(arrays))


class ChunkBuffer:
    """
    Memory for one chunk that a rollout fills where it will be sent from.

    A buffer is filled once: the chunk that `finish` returns keeps it.  `observation`, `action`,
    `behaviour_log_prob`, `behaviour_parameters`, `reward`, `terminated` and `truncated` are
    views for the full T; what is of variable length comes with `finish`.

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
        length = self.capacity(layout, steps, num_envs)
        # Pages beyond what is written are never touched, so the worst case costs nothing.
        self._memory = np.empty(length, np.uint8) if memory is None else memory
        self._layout = layout
        self._num_envs = num_envs
        self.steps = steps
        views = payload_views(self._memory, Sizes(steps, num_envs, 0, 0), layout)
        self.observation = views['observation']
        self.action = views['action']
        self.behaviour_log_prob = views['behaviour_log_prob']
        self.behaviour_parameters = views['behaviour_parameters']
        self.reward = views['reward']
        self.terminated = views['terminated']
        self.truncated = views['truncated']

    @staticmethod
    def capacity(layout: Layout, steps: int, num_envs: int) -> int:
        """Give the bytes of the largest chunk: every step ends an episode."""
        most = steps * num_envs
        return payload_plan(Sizes(steps, num_envs, most, most), layout)[1]

    def finish(self, integers: Mapping[str, int], final_observation: np.ndarray,
               final_index: np.ndarray, episodes: np.ndarray,
               steps: int | None = None) -> Chunk:
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

        """
        steps = self.steps if steps is None else steps
        sizes = Sizes(steps, self._num_envs, len(final_index), len(episodes))
        views = payload_views(self._memory, sizes, self._layout)
        if steps < self.steps:
            self._close_ranks(views)
        views['final_observation'][...] = final_observation
        views['final_index'][...] = final_index
        views['episodes'][...] = episodes
        return make_chunk(integers, views)

    def _close_ranks(self, views: dict[str, np.ndarray]) -> None:
        # Each array moves towards the start, in order, so none is overwritten before it moves.
        for name, _, axes in ARRAYS:
            if axes[0] in ('T', 'T+1'):
                views[name][...] = getattr(self, name)[:len(views[name])].copy()

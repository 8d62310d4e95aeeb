"""Chunks that nobody collected, for measurements of what takes them in."""

from typing import Any

import numpy as np

from asyncppo_ros.chunk import Chunk, INTEGERS, Layout, shapes


def made_up_chunk(layout: Layout, steps: int, num_envs: int, rng: np.random.Generator,
                  choices: int = 0) -> Chunk:
    """
    Give a chunk in which nothing ends.

    Parameters
    ----------
    layout : Layout
        Sizes of its arrays.
    steps, num_envs : int
        T and N.
    rng : Generator
    choices : int
        Of a discrete action, all equally probable; 0 = the actions are standard normal.

    """
    made: dict[str, Any] = {
        name: rng.standard_normal(shape, dtype=np.float32)
        for name, shape in shapes(steps, num_envs, 0, 0, layout).items()}
    shape = (steps, num_envs)
    made['behaviour_parameters'][...] = 0.0
    if choices:
        made['action'] = rng.integers(choices, size=(*shape, 1)).astype(np.float32)
        made['behaviour_log_prob'][...] = -np.log(choices)
    else:
        density = -0.5 * made['action'] ** 2 - 0.5 * np.log(2.0 * np.pi)
        made['behaviour_log_prob'] = density.sum(-1).astype(np.float32)
    made['terminated'] = made['truncated'] = np.zeros(shape, bool)
    made['final_index'] = np.empty((0, 2), np.int32)
    made.update(dict.fromkeys(INTEGERS, 0))
    return Chunk(**made)

"""
A task whose batched control step sleeps: it costs time, and next to no processor.

So what grows with the number of actors, and what comes back after a fault, is not a question of
how many cores there are.
"""

import time

import numpy as np

from asyncppo_ros.simulation.cartpole_swingup import CartpoleSwingup
from asyncppo_ros.simulation.state import SimulationState

SLEEP_S = 0.01


class Sleeping(CartpoleSwingup):
    """The swing-up, each step of all N environments together at least 10 ms long."""

    time_limit = 2.0

    def reward(self, state: SimulationState, action: np.ndarray) -> np.ndarray:
        """Sleep, then give the reward of the swing-up: asked once for each batched step."""
        time.sleep(SLEEP_S)
        return super().reward(state, action)

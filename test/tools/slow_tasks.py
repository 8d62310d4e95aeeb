"""A task whose steps take long, for `asyncppo doctor`."""

import time

from asyncppo_ros.simulation.cartpole_swingup import CartpoleSwingup

STEP_S = 0.02


class SlowPhysics(CartpoleSwingup):
    """The swing-up; each batched step takes 20 ms more."""

    def reward(self, state, action):
        time.sleep(STEP_S)
        return super().reward(state, action)

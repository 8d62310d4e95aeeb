"""A task whose steps take long, for `asyncppo doctor`."""

import time

import numpy as np

from asyncppo_ros.robot.terms import factory, Term
from asyncppo_ros.simulation.cartpole_swingup import CartpoleSwingup

STEP_S = 0.02
PICTURE = 16384


class SlowPhysics(CartpoleSwingup):
    """The swing-up; each batched step takes 20 ms more."""

    def reward(self, state, action):
        time.sleep(STEP_S)
        return super().reward(state, action)


@factory
def picture(size: int) -> Term:
    """Give as many numbers as a small picture has."""
    return Term(lambda state: np.broadcast_to(state.joint_velocity[:, :1],
                                              (len(state.joint_velocity), size)), size, 'm/s')


class WideObservation(CartpoleSwingup):
    """The swing-up; the critic also sees 16,384 numbers, which the policy does not."""

    def critic_observation(self):
        return [picture(PICTURE)]

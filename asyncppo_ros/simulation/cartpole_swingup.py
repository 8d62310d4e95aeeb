"""
Swing a hanging pole up by pushing its cart, and hold it there.

================ ==== ==========================================
observation      size unit
================ ==== ==========================================
joint_position   1    cart on its rail [m]
joint_direction  2    cosine, sine of the pole's angle; 0 hangs
joint_velocity   2    cart [m/s], pole [rad/s]
================ ==== ==========================================

Termination: never.  Truncation: after 10 s.  Success: upright during the whole last second.
"""

import numpy as np

from asyncppo_ros.robot.actions import ActionMap
from asyncppo_ros.robot.terms import joint_direction, joint_position, joint_velocity, Term
from asyncppo_ros.simulation.state import SimulationState
from asyncppo_ros.simulation.task import Task

# Force on the cart for an action of 1 [N].
_FORCE = 10.0
# Cosine of the pole's angle from the top below which it is not upright.
_UPRIGHT = 0.9
# How long the pole must have been upright at the end [s].
_HOLD = 1.0
# Deviation of the start pose [m] and [rad], and of its velocities.
_RESET_NOISE = 0.05
# The reward falls to a tenth at this distance from the middle [m] ...
_RAIL_MARGIN = 2.0
# ... and at this speed of the pole [rad/s].
_SPEED_MARGIN = 5.0
_CART, _POLE = 0, 1


class CartpoleSwingup(Task):
    """One motor on the cart; the pole starts hanging down."""

    model = 'package://asyncppo_ros/models/cartpole.xml'
    control_dt = 0.02
    time_limit = 10.0
    memory = {'upright_steps': 1}

    def observation(self) -> list[Term]:
        """Give what an encoder on each axis measures."""
        return [joint_position(['slider']), joint_direction(['hinge']),
                joint_velocity(['slider', 'hinge'])]

    def action(self) -> ActionMap:
        """Push the cart."""
        return ActionMap(['slider'], self.control_dt, interface='effort', scale=_FORCE,
                         low=-_FORCE, high=_FORCE)

    def reset(self, state: SimulationState, index: int, rng: np.random.Generator) -> None:
        """Start near the middle, hanging, almost at rest."""
        state.qpos[index] += _RESET_NOISE * rng.standard_normal(2)
        state.qvel[index] += _RESET_NOISE * rng.standard_normal(2)

    def reward(self, state: SimulationState, action: np.ndarray) -> np.ndarray:
        """Give upright · centred · slow · gentle, each in [0, 1], as dm_control's swing-up."""
        height = -np.cos(state.joint_position[:, _POLE])
        memory = state.memory['upright_steps'][:, 0]
        memory += 1.0
        memory *= height > _UPRIGHT
        upright = (1.0 + height) / 2.0
        centred = (1.0 + _near_zero(state.joint_position[:, _CART] / _RAIL_MARGIN)) / 2.0
        slow = (1.0 + _near_zero(state.joint_velocity[:, _POLE] / _SPEED_MARGIN)) / 2.0
        gentle = (4.0 + np.maximum(0.0, 1.0 - np.square(action[:, 0]))) / 5.0
        return upright * centred * slow * gentle

    def success(self, state: SimulationState) -> np.ndarray:
        """Say whether the pole was upright for the last second."""
        return state.memory['upright_steps'][:, 0] >= round(_HOLD / self.control_dt)


def _near_zero(x: np.ndarray) -> np.ndarray:
    """Give 1 at 0, 0.1 at ±1, along a Gaussian: exp(ln(0.1) x²)."""
    return np.exp(np.log(0.1) * np.square(x))

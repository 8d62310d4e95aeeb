"""
`HalfCheetah-v5` of Gymnasium in a batch: the same numbers, step by step.

=========== ==== ==================================================
observation size unit
=========== ==== ==================================================
qpos        8    height [m], pitch [rad], six joints [rad]
qvel        9    x, z [m/s], pitch and six joints [rad/s]
=========== ==== ==================================================

Termination: never.  Truncation: after 1,000 control steps.
"""

import numpy as np

from asyncppo_ros.einsum import squared_length
from asyncppo_ros.robot.actions import ActionMap
from asyncppo_ros.robot.terms import Term
from asyncppo_ros.simulation.state import SimulationState
from asyncppo_ros.simulation.task import Task
from asyncppo_ros.simulation.terms import qpos, qvel

JOINTS = ('bthigh', 'bshin', 'bfoot', 'fthigh', 'fshin', 'ffoot')
# Gymnasium's v5 defaults; the weight of the speed is 1.
_CONTROL_WEIGHT = 0.1
_RESET_NOISE = 0.1
_POSITIONS, _VELOCITIES = 9, 9


class HalfCheetah(Task):
    """A planar two-legged robot is to run forwards."""

    model = 'package://gymnasium/envs/mujoco/assets/half_cheetah.xml'
    control_dt = 0.05
    time_limit = 50.0

    def observation(self) -> list[Term]:
        """Give all but the x position."""
        return [qpos(size=_POSITIONS - 1, first=1), qvel(size=_VELOCITIES)]

    def action(self) -> ActionMap:
        """Give the six motors; their gears make efforts of actions in (-1, 1)."""
        return ActionMap(JOINTS, self.control_dt, interface='effort')

    def reset(self, state: SimulationState, index: int, rng: np.random.Generator) -> None:
        """Add noise to the reference pose."""
        state.qpos[index] += rng.uniform(-_RESET_NOISE, _RESET_NOISE, _POSITIONS)
        state.qvel[index] = _RESET_NOISE * rng.standard_normal(_VELOCITIES)

    def reward(self, state: SimulationState, action: np.ndarray) -> np.ndarray:
        """Give the forward speed [m/s] minus the cost of control."""
        speed = (state.qpos[:, 0] - state.previous_qpos[:, 0]) / self.control_dt
        cost = squared_length(action)
        cost *= _CONTROL_WEIGHT
        return np.subtract(speed, cost, out=speed)

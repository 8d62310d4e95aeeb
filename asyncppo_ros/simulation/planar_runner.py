"""
`Hopper-v5` and `Walker2d-v5` of Gymnasium in a batch: the same numbers, step by step.

=========== ============= ===================================================
observation size          unit
=========== ============= ===================================================
qpos        5 (walker 8)  height [m], pitch [rad], joints [rad]
qvel        6 (walker 9)  x, z [m/s], pitch and joints [rad/s], within ±10
=========== ============= ===================================================

Termination: the torso is too low, too high or too tilted.  Truncation: after 1,000 control steps.
"""

import mujoco
import numpy as np

from asyncppo_ros.einsum import squared_length
from asyncppo_ros.robot.actions import ActionMap
from asyncppo_ros.robot.terms import Term
from asyncppo_ros.simulation.state import SimulationState
from asyncppo_ros.simulation.task import Task
from asyncppo_ros.simulation.terms import qpos, qvel

# Gymnasium's v5 defaults; the weights of the speed and of being healthy are 1.
_CONTROL_WEIGHT = 1e-3
_RESET_NOISE = 5e-3
_VELOCITY_CLIP = 10.0


class PlanarRunner(Task):
    """
    A legged robot in a plane is to move forwards and not to fall.

    Attributes
    ----------
    joints : tuple of str
        In the order of the actuators.
    size : int
        Generalised positions, and velocities as well.
    healthy_height, healthy_pitch : (float, float)
        Open intervals outside which an episode terminates [m], [rad].

    """

    control_dt = 0.008
    time_limit = 8.0
    joints: tuple[str, ...]
    size: int
    healthy_height: tuple[float, float]
    healthy_pitch: tuple[float, float]

    def observation(self) -> list[Term]:
        """Give all but the x position."""
        return [qpos(size=self.size - 1, first=1),
                qvel(size=self.size).processed(clip=_VELOCITY_CLIP)]

    def action(self) -> ActionMap:
        """Give the motors; their gears make efforts of actions in (-1, 1)."""
        return ActionMap(self.joints, self.control_dt, interface='effort')

    def setup(self, model: mujoco.MjModel) -> None:
        """Lay the intervals side by side: numpy looks at height and pitch at once."""
        self._low, self._high = np.transpose([self.healthy_height, self.healthy_pitch])

    def reset(self, state: SimulationState, index: int, rng: np.random.Generator) -> None:
        """Add noise to the reference pose."""
        noise = rng.uniform(-_RESET_NOISE, _RESET_NOISE, (2, self.size))
        state.qpos[index] += noise[0]
        state.qvel[index] = noise[1]

    def reward(self, state: SimulationState, action: np.ndarray) -> np.ndarray:
        """Give the forward speed [m/s], one more while healthy, less the cost of control."""
        speed = (state.qpos[:, 0] - state.previous_qpos[:, 0]) / self.control_dt
        cost = squared_length(action)
        cost *= _CONTROL_WEIGHT
        speed += self._healthy(state)
        return np.subtract(speed, cost, out=speed)

    def terminated(self, state: SimulationState) -> np.ndarray:
        """Say who has fallen."""
        return ~self._healthy(state)

    def _healthy(self, state: SimulationState) -> np.ndarray:
        # Reward and termination both ask.
        healthy = state.derived.get('healthy')
        if healthy is None:
            pose = state.qpos[:, 1:3]
            within = (self._low < pose) & (pose < self._high)
            healthy = within[:, 0] & within[:, 1]
            self._refuse_unbounded(state, healthy)
            state.derived['healthy'] = healthy
        return healthy

    def _refuse_unbounded(self, state: SimulationState, healthy: np.ndarray) -> None:
        """Clear `healthy`, bool [N], where further numbers are beyond their limits."""


class Hopper(PlanarRunner):
    """A one-legged robot is to hop forwards."""

    model = 'package://gymnasium/envs/mujoco/assets/hopper.xml'
    joints = ('thigh_joint', 'leg_joint', 'foot_joint')
    size = 6
    healthy_height = (0.7, float('inf'))
    healthy_pitch = (-0.2, 0.2)
    #: Of every position and velocity but x and height.
    healthy_number = 100.0

    def _refuse_unbounded(self, state: SimulationState, healthy: np.ndarray) -> None:
        limit = self.healthy_number
        for numbers in (state.qpos[:, 2:], state.qvel):
            # Hardly ever is one of them so large that it matters which.
            if not np.abs(numbers).max() < limit:
                healthy &= (np.abs(numbers) < limit).all(1)


class Walker2d(PlanarRunner):
    """A two-legged robot is to walk forwards."""

    model = 'package://gymnasium/envs/mujoco/assets/walker2d_v5.xml'
    joints = ('thigh_joint', 'leg_joint', 'foot_joint', 'thigh_left_joint', 'leg_left_joint',
              'foot_left_joint')
    size = 9
    healthy_height = (0.8, 2.0)
    healthy_pitch = (-1.0, 1.0)

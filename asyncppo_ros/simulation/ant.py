"""
`Ant-v5` of Gymnasium in a batch: the same numbers, step by step.

=========== ==== ====================================================================
observation size unit
=========== ==== ====================================================================
qpos        13   height [m], orientation (w, x, y, z), eight joints [rad]
qvel        14   linear [m/s] and angular velocity of the torso, joints [rad/s]
cfrc_ext    78   torque [N m] and force [N] of the contacts on 13 bodies, within ±1
=========== ==== ====================================================================

Termination: the torso is lower than 0.2 m or higher than 1 m.  Truncation: after 1,000 steps.
"""

import numpy as np

from asyncppo_ros.einsum import einsum, squared_length
from asyncppo_ros.robot.actions import ActionMap
from asyncppo_ros.robot.terms import Term
from asyncppo_ros.simulation.state import SimulationState
from asyncppo_ros.simulation.task import Task
from asyncppo_ros.simulation.terms import body_field, qpos, qvel

JOINTS = ('hip_4', 'ankle_4', 'hip_1', 'ankle_1', 'hip_2', 'ankle_2', 'hip_3', 'ankle_3')
# Gymnasium's v5 defaults.
_FORWARD_WEIGHT = 1.0
_CONTROL_WEIGHT = 0.5
_CONTACT_WEIGHT = 5e-4
_CONTACT_CLIP = 1.0
_HEALTHY_REWARD = 1.0
_HEALTHY_HEIGHT = (0.2, 1.0)
_RESET_NOISE = 0.1
_POSITIONS, _VELOCITIES, _BODIES = 15, 14, 13
_TORSO = 1


class Ant(Task):
    """A four-legged robot is to run forwards."""

    model = 'package://gymnasium/envs/mujoco/assets/ant.xml'
    control_dt = 0.05
    time_limit = 50.0
    memory = {'torso_x': 1}
    data_fields = ('cfrc_ext', 'xpos')

    def observation(self) -> list[Term]:
        """Give all but the x and y position."""
        return [qpos(size=_POSITIONS - 2, first=2), qvel(size=_VELOCITIES),
                body_field(field='cfrc_ext', size=6 * _BODIES, unit='N m|N').processed(
                    clip=_CONTACT_CLIP)]

    def action(self) -> ActionMap:
        """Give the eight motors; their gears make efforts of actions in (-1, 1)."""
        return ActionMap(JOINTS, self.control_dt, interface='effort')

    def reset(self, state: SimulationState, index: int, rng: np.random.Generator) -> None:
        """Add noise to the reference pose."""
        state.qpos[index] += rng.uniform(-_RESET_NOISE, _RESET_NOISE, _POSITIONS)
        state.qvel[index] = _RESET_NOISE * rng.standard_normal(_VELOCITIES)

    def before_step(self, state: SimulationState) -> None:
        """Keep where the torso was."""
        state.memory['torso_x'][:, 0] = state.fields['xpos'][:, _TORSO, 0]

    def reward(self, state: SimulationState, action: np.ndarray) -> np.ndarray:
        """Give the speed [m/s], one more while healthy, less the costs of control and contact."""
        travelled = state.fields['xpos'][:, _TORSO, 0] - state.memory['torso_x'][:, 0]
        control = squared_length(action)
        force = np.clip(state.fields['cfrc_ext'], -_CONTACT_CLIP, _CONTACT_CLIP)
        contact = einsum('nbk,nbk->n', force, force)
        return (_FORWARD_WEIGHT * travelled / self.control_dt
                + _HEALTHY_REWARD * self._healthy(state)
                - _CONTROL_WEIGHT * control - _CONTACT_WEIGHT * contact)

    def terminated(self, state: SimulationState) -> np.ndarray:
        """Say who has fallen or flies."""
        return ~self._healthy(state)

    def _healthy(self, state: SimulationState) -> np.ndarray:
        low, high = _HEALTHY_HEIGHT
        return (low <= state.qpos[:, 2]) & (state.qpos[:, 2] <= high)

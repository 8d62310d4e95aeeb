"""
`Humanoid-v5` of Gymnasium in a batch: the same numbers, step by step.

=============== ==== ======================================================================
observation     size unit
=============== ==== ======================================================================
qpos            22   height [m], orientation (w, x, y, z), 17 joints [rad]
qvel            23   linear [m/s] and angular velocity of the torso, joints [rad/s]
cinert          130  inertia of 13 bodies about the centre of mass of the whole
cvel            78   their angular [rad/s] and linear [m/s] velocity about it
actuator_force  17   of the joints [N m]
cfrc_ext        78   torque [N m] and force [N] of the contacts on 13 bodies
=============== ==== ======================================================================

Termination: the torso is lower than 1 m or higher than 2 m.  Truncation: after 1,000 steps.
"""

import mujoco
import numpy as np

from asyncppo_ros.einsum import einsum, squared_length
from asyncppo_ros.robot.actions import ActionMap
from asyncppo_ros.robot.terms import Term
from asyncppo_ros.simulation.state import SimulationState
from asyncppo_ros.simulation.task import Task
from asyncppo_ros.simulation.terms import actuator_force, body_field, qpos, qvel

JOINTS = ('abdomen_y', 'abdomen_z', 'abdomen_x', 'right_hip_x', 'right_hip_z', 'right_hip_y',
          'right_knee', 'left_hip_x', 'left_hip_z', 'left_hip_y', 'left_knee',
          'right_shoulder1', 'right_shoulder2', 'right_elbow', 'left_shoulder1',
          'left_shoulder2', 'left_elbow')
# Gymnasium's v5 defaults.
_CONTROL_RANGE = 0.4
_FORWARD_WEIGHT = 1.25
_CONTROL_WEIGHT = 0.1
_CONTACT_WEIGHT = 5e-7
_MOST_CONTACT_COST = 10.0
_HEALTHY_REWARD = 5.0
_HEALTHY_HEIGHT = (1.0, 2.0)
_RESET_NOISE = 1e-2
_POSITIONS, _VELOCITIES, _BODIES = 24, 23, 13
_BASE_VELOCITIES = 6


class Humanoid(Task):
    """A two-legged robot with arms is to walk forwards."""

    model = 'package://gymnasium/envs/mujoco/assets/humanoid.xml'
    control_dt = 0.015
    time_limit = 15.0
    memory = {'centre_x': 1}
    data_fields = ('cinert', 'cvel', 'cfrc_ext', 'xipos')

    def observation(self) -> list[Term]:
        """Give all but the x and y position."""
        return [qpos(size=_POSITIONS - 2, first=2), qvel(size=_VELOCITIES),
                body_field(field='cinert', size=10 * _BODIES, unit='kg m²|kg m|kg'),
                body_field(field='cvel', size=6 * _BODIES, unit='rad/s|m/s'),
                actuator_force(size=len(JOINTS), first=_BASE_VELOCITIES),
                body_field(field='cfrc_ext', size=6 * _BODIES, unit='N m|N')]

    def action(self) -> ActionMap:
        """Give the 17 motors; their gears make efforts of commands within ±0.4."""
        return ActionMap(JOINTS, self.control_dt, interface='effort', scale=_CONTROL_RANGE)

    def setup(self, model: mujoco.MjModel) -> None:
        """Note the share of each body in the mass."""
        self._share = model.body_mass / model.body_mass.sum()

    def reset(self, state: SimulationState, index: int, rng: np.random.Generator) -> None:
        """Add noise to the reference pose."""
        state.qpos[index] += rng.uniform(-_RESET_NOISE, _RESET_NOISE, _POSITIONS)
        state.qvel[index] = rng.uniform(-_RESET_NOISE, _RESET_NOISE, _VELOCITIES)

    def before_step(self, state: SimulationState) -> None:
        """Keep where the centre of mass was."""
        state.memory['centre_x'][:, 0] = self._centre_x(state)

    def reward(self, state: SimulationState, action: np.ndarray) -> np.ndarray:
        """Give the speed [m/s], five more while healthy, less the costs of control and contact."""
        travelled = self._centre_x(state) - state.memory['centre_x'][:, 0]
        command = _CONTROL_RANGE * action
        control = squared_length(command)
        force = state.fields['cfrc_ext']
        contact = _CONTACT_WEIGHT * einsum('nbk,nbk->n', force, force)
        return (_FORWARD_WEIGHT * travelled / self.control_dt
                + _HEALTHY_REWARD * self._healthy(state)
                - _CONTROL_WEIGHT * control - np.minimum(contact, _MOST_CONTACT_COST))

    def terminated(self, state: SimulationState) -> np.ndarray:
        """Say who has fallen."""
        return ~self._healthy(state)

    def _healthy(self, state: SimulationState) -> np.ndarray:
        low, high = _HEALTHY_HEIGHT
        return (low < state.qpos[:, 2]) & (state.qpos[:, 2] < high)

    def _centre_x(self, state: SimulationState) -> np.ndarray:
        return state.fields['xipos'][:, :, 0] @ self._share

"""
Walk with four legs as fast, in the direction and with the turn that is asked for.

====================== ==== =========================================================
observation            size unit
====================== ==== =========================================================
base_angular_velocity  3    in the frame of the trunk [rad/s]
projected_gravity      3    unit vector
command                3    forward, to the left [m/s], to the left [rad/s]
joint_position         12   relative to the stance [rad]
joint_velocity         12   [rad/s]
last_action            12   of the policy, in (-1, 1)
====================== ==== =========================================================

All of it a real quadruped measures.  What it does not is in the reward, and for the critic:

====================== ==== =========================================================
only for the critic    size unit
====================== ==== =========================================================
base_velocity          3    in the frame of the trunk [m/s]
base_height            1    [m]
foot_height            4    of the lowest points of the feet [m]
mass_factor            1    of all bodies, by randomization
friction_factor        1    of all surfaces, by randomization
====================== ==== =========================================================

Termination: a fall, that is, the trunk is tilted by more than 55° or lower than 0.14 m.
Truncation: after 20 s.  Success: the episode ended without a fall.
"""

import mujoco
import numpy as np

from asyncppo_ros.einsum import squared_length
from asyncppo_ros.robot.actions import ActionMap
from asyncppo_ros.robot.state import RobotState
from asyncppo_ros.robot.terms import (
    base_angular_velocity,
    command,
    joint_position,
    joint_velocity,
    last_action,
    projected_gravity,
    Term,
    term,
)
from asyncppo_ros.simulation.state import SimulationState
from asyncppo_ros.simulation.task import Task
from asyncppo_ros.simulation.terms import friction_factor, mass_factor

LEGS = ('front_left', 'front_right', 'rear_left', 'rear_right')
JOINTS = tuple(f'{leg}_{joint}' for leg in LEGS for joint in ('hip', 'thigh', 'knee'))
STANCE = (0.0, 0.8, -1.5) * len(LEGS)
# Commands are uniform within ± these: forward, to the left [m/s], turn [rad/s].
COMMAND_RANGE = np.array([1.0, 0.5, 1.0])
# One command in so many is to stand still.
_STAND_EVERY = 10
# Distance of a position target from the stance for an action of 1 [rad].
_ACTION_SCALE = (0.3, 0.6, 0.6) * len(LEGS)
_LOWEST = 0.14
_MOST_TILT = np.cos(np.deg2rad(55.0))
_RESET_JOINT_NOISE = 0.1
_RESET_VELOCITY_NOISE = 0.2
# Errors at which the rewards of tracking fall to 1/e [m/s], [rad/s].
_VELOCITY_WIDTH, _TURN_WIDTH = 0.35, 0.35
_FOOT_RADIUS = 0.022
# A foot that swings is to be lifted so far [m] ...
_CLEARANCE = 0.06
# ... and is on the ground when its lowest point is below this [m].
_GROUND = 0.006
_WEIGHTS = {'velocity': 1.0, 'turn': 0.5, 'vertical': -1.0, 'tilt_rate': -0.03, 'tilt': -1.0,
            'height': -10.0, 'effort': -1e-4, 'action_change': -0.02, 'stance': -0.04,
            'slip': -0.1, 'clearance': -0.5}
_STANCE_HEIGHT = 0.29


class QuadrupedWalk(Task):
    """Twelve joint-position targets around a stance, a new velocity command in each episode."""

    model = 'package://asyncppo_ros/models/quadruped.xml'
    keyframe = 'stance'
    control_dt = 0.02
    time_limit = 20.0
    commands = {'velocity': 3}
    command_limits = {'velocity': ((-COMMAND_RANGE).tolist(), COMMAND_RANGE.tolist())}
    memory = {'previous_action': len(JOINTS), 'feet': 2 * len(LEGS)}
    data_fields = ('site_xpos',)
    measures = {'velocity_error': 'm/s', 'turn_error': 'rad/s'}

    def setup(self, model: mujoco.MjModel) -> None:
        """Find the feet and the ranges of the joints."""
        self._feet = [model.site(f'{leg}_foot').id for leg in LEGS]
        self._range = model.jnt_range[[model.joint(name).id for name in JOINTS]]

    def observation(self) -> list[Term]:
        """Give what an IMU, joint encoders and whoever commands tell."""
        return [base_angular_velocity(), projected_gravity(),
                command(name='velocity', size=3, unit='m/s|rad/s'),
                joint_position(JOINTS, offset=STANCE), joint_velocity(JOINTS),
                last_action(size=len(JOINTS))]

    def critic_observation(self) -> list[Term]:
        """Give what decides how the walk goes on and no sensor tells."""
        return [base_velocity(), base_height(), foot_height(feet=self._feet), mass_factor(),
                friction_factor()]

    def action(self) -> ActionMap:
        """Give position targets around the stance, inside the joint ranges."""
        return ActionMap(JOINTS, self.control_dt, interface='position', offset=STANCE,
                         scale=_ACTION_SCALE, low=self._range[:, 0], high=self._range[:, 1])

    def reset(self, state: SimulationState, index: int, rng: np.random.Generator) -> None:
        """Start near the stance, pushed a little."""
        noise = _RESET_JOINT_NOISE
        state.qpos[index, 7:] += rng.uniform(-noise, noise, len(JOINTS))
        state.qvel[index, :6] = rng.uniform(-1.0, 1.0, 6) * _RESET_VELOCITY_NOISE

    def ask(self, state: RobotState, index: int, rng: np.random.Generator) -> None:
        """Ask for a velocity, now and then for none."""
        asked = rng.uniform(-COMMAND_RANGE, COMMAND_RANGE)
        stand = rng.integers(_STAND_EVERY) == 0
        state.command['velocity'][index] = 0.0 if stand else asked

    def before_step(self, state: SimulationState) -> None:
        """Keep where the feet were."""
        feet = state.fields['site_xpos'][:, self._feet, :2]
        state.memory['feet'][...] = feet.reshape(state.num_envs, -1)

    def reward(self, state: SimulationState, action: np.ndarray) -> np.ndarray:
        """Give the tracking of the command, less what makes a gait rough or costly."""
        asked = state.command['velocity']
        velocity = trunk_velocity(state)
        turn = state.base_angular_velocity
        change = action - state.memory['previous_action']
        state.memory['previous_action'][...] = action
        parts = {
            'velocity': np.exp(-squared_length(velocity[:, :2] - asked[:, :2])
                               / _VELOCITY_WIDTH ** 2),
            'turn': np.exp(-((turn[:, 2] - asked[:, 2]) / _TURN_WIDTH) ** 2),
            'vertical': velocity[:, 2] ** 2,
            'tilt_rate': squared_length(turn[:, :2]),
            'tilt': squared_length(state.projected_gravity[:, :2]),
            'height': (state.qpos[:, 2] - _STANCE_HEIGHT) ** 2,
            'effort': squared_length(state.joint_effort),
            'action_change': squared_length(change),
            'stance': squared_length(state.joint_position - STANCE),
            **self._gait(state)}
        return sum(weight * parts[name] for name, weight in _WEIGHTS.items())

    def terminated(self, state: SimulationState) -> np.ndarray:
        """Say who has fallen."""
        return (state.projected_gravity[:, 2] > -_MOST_TILT) | (state.qpos[:, 2] < _LOWEST)

    def success(self, state: SimulationState) -> np.ndarray:
        """Say who has not fallen."""
        return ~self.terminated(state)

    def measure(self, state: SimulationState) -> dict[str, np.ndarray]:
        """Give by how much the horizontal velocity and the turn miss the command."""
        miss = trunk_velocity(state)[:, :2] - state.command['velocity'][:, :2]
        turn = state.base_angular_velocity[:, 2] - state.command['velocity'][:, 2]
        return {'velocity_error': np.linalg.norm(miss, axis=1), 'turn_error': np.abs(turn)}

    def _gait(self, state: SimulationState) -> dict[str, np.ndarray]:
        """Give how feet slip on the ground and drag above it, each [N]."""
        feet = state.fields['site_xpos'][:, self._feet]
        before = state.memory['feet'].reshape(state.num_envs, len(LEGS), 2)
        speed = np.linalg.norm(feet[..., :2] - before, axis=2) / self.control_dt
        height = feet[..., 2] - _FOOT_RADIUS
        slip = (speed ** 2 * (height < _GROUND)).sum(1)
        return {'slip': slip, 'clearance': ((height - _CLEARANCE) ** 2 * speed).sum(1) * 10.0}


def trunk_velocity(state: SimulationState) -> np.ndarray:
    """Give the velocity of the trunk in its own frame [m/s], float64 [N, 3]."""
    w, axis = state.base_orientation[:, :1], -state.base_orientation[:, 1:]
    velocity = state.qvel[:, :3]
    twice = 2.0 * np.cross(axis, velocity)
    return velocity + w * twice + np.cross(axis, twice)


@term(size=3, unit='m/s', simulation_only=True)
def base_velocity(state: SimulationState) -> np.ndarray:
    """Give the velocity of the trunk in its own frame."""
    return trunk_velocity(state)


@term(size=1, unit='m', simulation_only=True)
def base_height(state: SimulationState) -> np.ndarray:
    """Give the height of the trunk above the ground."""
    return state.qpos[:, 2:3]


@term(size=len(LEGS), unit='m', simulation_only=True)
def foot_height(state: SimulationState, feet: list[int]) -> np.ndarray:
    """Give the heights of the lowest points of the feet, which are sites of the model."""
    return state.fields['site_xpos'][:, feet, 2] - _FOOT_RADIUS

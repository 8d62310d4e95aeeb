"""
Bring the fingertip of a six-joint arm to a goal and hold it there.

=============== ==== ===========================================
observation     size unit
=============== ==== ===========================================
joint_position  6    [rad]
joint_velocity  6    [rad/s]
tip_to_goal     3    from the fingertip to the goal, as seen from
                     the arm: turned with its first joint [m]
=============== ==== ===========================================

The goal itself is left out on purpose: what remains is feedback, which looks the same wherever
the arm points, and is learned faster than one way for each place.

Termination: never.  Truncation: after 3 s.  Success: the fingertip ends within 2 cm of the goal.
"""

import mujoco
import numpy as np

from asyncppo_ros.einsum import squared_length
from asyncppo_ros.robot.actions import ActionMap
from asyncppo_ros.robot.state import RobotState
from asyncppo_ros.robot.terms import joint_position, joint_velocity, Term, tip_to_goal
from asyncppo_ros.simulation.model import chain
from asyncppo_ros.simulation.state import SimulationState
from asyncppo_ros.simulation.task import Task

JOINTS = ('shoulder_pan', 'shoulder_lift', 'elbow', 'wrist_1', 'wrist_2', 'wrist_3')
# Goals are uniform by volume between these distances from the shoulder [m] ...
SHOULDER = (0.0, 0.0, 0.24)
NEAREST, FARTHEST = 0.35, 0.8
# ... and above this height [m].
LOWEST = 0.05
# Distance of the fingertip from the goal that counts as success [m].
SUCCESS = 0.02
# Change of the position target for an action of 1 [rad].
_STEP = 0.25
# Most deviation of each joint from the start pose [rad].
_RESET_NOISE = 0.1
# Distance over which the bonus for being near falls to 1/e [m].
_NEAR = 0.03
_ACTION_WEIGHT = 0.002
_VELOCITY_WEIGHT = 0.001


class Reach(Task):
    """Position targets relative to the measured joints, a new goal in each episode."""

    model = 'package://asyncppo_ros/models/reach_arm.xml'
    keyframe = 'home'
    control_dt = 0.04
    time_limit = 3.0
    commands = {'goal': 3}
    command_limits = {'goal': ((-FARTHEST, -FARTHEST, LOWEST),
                               (FARTHEST, FARTHEST, SHOULDER[2] + FARTHEST))}

    def setup(self, model: mujoco.MjModel) -> None:
        """Read the arm's geometry and joint ranges."""
        self._chain = chain(model, 'fingertip', JOINTS)
        self._range = model.jnt_range[[model.joint(name).id for name in JOINTS]]
        self._to_goal = tip_to_goal(self._chain, turned_with=JOINTS[0])

    def observation(self) -> list[Term]:
        """Give the joints and the way to the goal."""
        return [joint_position(JOINTS), joint_velocity(JOINTS), self._to_goal]

    def action(self) -> ActionMap:
        """Move the position targets, inside the joint ranges."""
        return ActionMap(JOINTS, self.control_dt, interface='position', mode='delta',
                         scale=_STEP, low=self._range[:, 0], high=self._range[:, 1])

    def reset(self, state: SimulationState, index: int, rng: np.random.Generator) -> None:
        """Start near the start pose."""
        state.qpos[index] += rng.uniform(-_RESET_NOISE, _RESET_NOISE, len(JOINTS))

    def ask(self, state: RobotState, index: int, rng: np.random.Generator) -> None:
        """Ask for a point of the shell."""
        state.command['goal'][index] = draw_goal(rng)

    def reward(self, state: SimulationState, action: np.ndarray) -> np.ndarray:
        """Give -d + exp(-d / 3 cm) minus small costs of action and of speed."""
        distance = self._distance(state)
        return (np.exp(-distance / _NEAR) - distance
                - _ACTION_WEIGHT * squared_length(action)
                - _VELOCITY_WEIGHT * squared_length(state.joint_velocity))

    def success(self, state: SimulationState) -> np.ndarray:
        """Say where the fingertip is within 2 cm of the goal."""
        return self._distance(state) <= SUCCESS

    def _distance(self, state: SimulationState) -> np.ndarray:
        return np.sqrt(squared_length(self._to_goal.function(state)))


def draw_goal(rng: np.random.Generator) -> np.ndarray:
    """Draw a point [m] of the shell, uniform by volume, float64 [3]."""
    while True:
        direction = rng.standard_normal(3)
        radius = np.cbrt(rng.uniform(NEAREST ** 3, FARTHEST ** 3))
        goal = SHOULDER + radius * direction / np.linalg.norm(direction)
        if goal[2] >= LOWEST:
            return goal

"""What is known of N robots at one moment: the input of every observation term."""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import TypeVar

import numpy as np

from asyncppo_ros.errors import TaskError

StateT = TypeVar('StateT', bound='RobotState')


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class RobotState:
    """
    N robots: rows of simulations, or the one real robot (N = 1).

    The arrays are filled in place, before each control step; all are float64.

    Attributes
    ----------
    joint_names : tuple of str
        The columns of the joint arrays.
    joint_position : [N, J]
        [rad] or [m].
    joint_velocity : [N, J]
        [rad/s] or [m/s].
    joint_effort : [N, J]
        [N m] or [N].
    base_orientation : [N, 4]
        Unit quaternion w, x, y, z of the base in the world.
    base_angular_velocity : [N, 3]
        In the frame of the base [rad/s].
    projected_gravity : [N, 3]
        Unit vector of gravity in the frame of the base; (0, 0, -1) when upright.
    command : dict from str to [N, k]
        What people or the task ask for: a goal [m], a velocity [m/s].
    last_action : [N, A]
        The policy's own last action in (-1, 1), before any safety change.

    """

    joint_names: tuple[str, ...]
    joint_position: np.ndarray
    joint_velocity: np.ndarray
    joint_effort: np.ndarray
    base_orientation: np.ndarray
    base_angular_velocity: np.ndarray
    projected_gravity: np.ndarray
    command: dict[str, np.ndarray]
    last_action: np.ndarray
    _columns: dict[tuple[str, ...], slice | np.ndarray] = dataclasses.field(
        default_factory=dict, init=False, repr=False)

    @property
    def num_envs(self) -> int:
        """Number of robots, N."""
        return self.last_action.shape[0]

    def columns(self, joints: tuple[str, ...]) -> slice | np.ndarray:
        """
        Find the columns of joints; a slice where they lie side by side, so nothing is copied.

        Raises
        ------
        TaskError
            A joint does not exist.

        """
        found = self._columns.get(joints)
        if found is None:
            found = self._columns[joints] = _columns(joints, self.joint_names)
        return found

    def commanded(self, name: str) -> np.ndarray:
        """
        Give one command [N, k].

        Raises
        ------
        TaskError
            The robot has no such command.

        """
        try:
            return self.command[name]
        except KeyError:
            raise TaskError(f'command {name!r} does not exist; commands: '
                            f'{", ".join(self.command) or "none"}') from None


def standing(joint_names: Sequence[str], action_size: int, num_envs: int = 1,
             commands: Mapping[str, int] | None = None) -> RobotState:
    """
    Make a state of zeros with every base upright and at rest.

    Parameters
    ----------
    joint_names : sequence of str
        The columns of the joint arrays.
    action_size, num_envs : int
        A and N.
    commands : mapping from str to int, optional
        The size of each command.

    """
    return RobotState(**rows(joint_names, action_size, num_envs, commands or {}))


def rows(joint_names: Sequence[str], action_size: int, num_envs: int,
         commands: Mapping[str, int]) -> dict:
    """Allocate every field of a `RobotState` for `num_envs` robots, upright and at rest."""
    joints = (num_envs, len(joint_names))
    return {
        'joint_names': tuple(joint_names),
        'joint_position': np.zeros(joints),
        'joint_velocity': np.zeros(joints),
        'joint_effort': np.zeros(joints),
        'base_orientation': np.tile((1.0, 0.0, 0.0, 0.0), (num_envs, 1)),
        'base_angular_velocity': np.zeros((num_envs, 3)),
        'projected_gravity': np.tile((0.0, 0.0, -1.0), (num_envs, 1)),
        'command': {name: np.zeros((num_envs, size)) for name, size in commands.items()},
        'last_action': np.zeros((num_envs, action_size)),
    }


def project_gravity(orientation: np.ndarray, out: np.ndarray) -> None:
    """
    Turn gravity into the frame of the base: Rᵀ (0, 0, -1).

    Parameters
    ----------
    orientation : float64 [N, 4]
        Unit quaternions w, x, y, z.
    out : float64 [N, 3]
        Receives the unit vectors.

    """
    w, x, y, z = orientation.T
    out[:, 0] = 2.0 * (w * y - x * z)
    out[:, 1] = -2.0 * (w * x + y * z)
    out[:, 2] = 2.0 * (x * x + y * y) - 1.0


def contiguous(indices: Sequence[int]) -> slice | np.ndarray:
    """Give indices as a slice where they follow each other, else as an array."""
    first = indices[0] if len(indices) else 0
    if list(indices) == list(range(first, first + len(indices))):
        return slice(first, first + len(indices))
    return np.array(indices)


def _columns(joints: tuple[str, ...], names: tuple[str, ...]) -> slice | np.ndarray:
    for joint in joints:
        if joint not in names:
            raise TaskError(f'joint {joint!r} does not exist; joints: '
                            f'{", ".join(names) or "none"}')
    return contiguous([names.index(joint) for joint in joints])

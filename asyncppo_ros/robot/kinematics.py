"""Forward kinematics of a serial chain in numpy, the same in simulation and on the robot."""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any

import numpy as np

from asyncppo_ros.errors import TaskError

Vector = tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Link:
    """
    A fixed offset from the previous joint, and the joint that follows it.

    Attributes
    ----------
    joint : str
        Name of the joint.
    position : 3 floats
        Of the joint's anchor, in the frame after the previous joint [m].
    quaternion : 4 floats
        w, x, y, z of the joint's frame in the frame after the previous joint.
    axis : 3 floats
        Unit vector in the joint's own frame.
    slides : bool
        The joint moves along its axis instead of turning about it.
    zero : float
        Joint position at which the joint adds no motion [rad] or [m].

    """

    joint: str
    position: Vector
    quaternion: Vector
    axis: Vector
    slides: bool = False
    zero: float = 0.0


class Chain:
    """
    A fixed base, links with one joint each, and a tip.

    Parameters
    ----------
    links : sequence of `Link`
        From the base outwards.
    tip : 3 floats
        The tip in the frame after the last joint [m].

    Raises
    ------
    TaskError
        The chain has no joint.

    """

    def __init__(self, links: Sequence[Link], tip: Sequence[float]) -> None:
        if not links:
            raise TaskError('kinematic chain: at least one joint is needed')
        self.links = tuple(links)
        self.joints = tuple(link.joint for link in links)
        self._tip = np.array(tip, dtype=np.float64)
        self._zero = np.array([link.zero for link in links])
        self._matrices = [_matrix(link) for link in links]
        self._slides = [rotation(link.quaternion) @ _unit(link.axis)[:, None] for link in links]

    def tip(self, joint_position: np.ndarray) -> np.ndarray:
        """
        Find the tip in the frame of the base.

            p_j = o_j + A_j (exp(K_j q_j) p_{j+1} + d_j q_j)

        with offset o_j, rotation A_j and either the turning axis K_j or the sliding axis d_j.

        Parameters
        ----------
        joint_position : float64 [N, J]
            In the order of `joints` [rad] or [m].

        Returns
        -------
        float64 [N, 3]
            [m].

        """
        moved = (joint_position - self._zero).T  # [J, N]
        sine, cosine = np.sin(moved), np.cos(moved)
        both = np.stack((sine, cosine), axis=1)[:, :, None]  # [J, 2, 1, N]
        # One product with a [3, 10] matrix per joint instead of one rotation per robot.
        before, after = np.ones((2, 10, moved.shape[1]))
        before[6:9] = self._tip[:, None]
        for j in range(len(self.links) - 1, -1, -1):
            np.multiply(before[6:9], both[j], out=before[:6].reshape(2, 3, -1))
            np.dot(self._matrices[j], before, out=after[6:9])
            if self.links[j].slides:
                after[6:9] += self._slides[j] * moved[j]
            before, after = after, before
        return before[6:9].T

    def turned_with(self, joint: str, joint_position: np.ndarray,
                    vectors: np.ndarray) -> np.ndarray:
        """
        Give vectors of the base frame in the frame that turns with a joint.

        Parameters
        ----------
        joint : str
            One of `joints`.
        joint_position : float64 [N, J]
            In the order of `joints` [rad] or [m].
        vectors : float64 [N, 3]

        Returns
        -------
        float64 [N, 3]

        """
        moved = joint_position - self._zero
        turned = vectors
        for j in range(self.joints.index(joint) + 1):
            link = self.links[j]
            turned = turned @ rotation(link.quaternion)
            if link.slides:
                continue
            # By Rodrigues, backwards: exp(-K q) v = v cos q - (k × v) sin q + k (k · v)(1 - cos q)
            axis = _unit(link.axis)
            sine, cosine = np.sin(moved[:, j, None]), np.cos(moved[:, j, None])
            along = (turned @ axis)[:, None] * axis
            turned = turned * cosine - np.cross(axis, turned) * sine + along * (1.0 - cosine)
        return turned

    def card(self) -> dict[str, Any]:
        """Give the chain in JSON types."""
        return {'links': [{**dataclasses.asdict(link), 'position': list(link.position),
                           'quaternion': list(link.quaternion), 'axis': list(link.axis)}
                          for link in self.links],
                'tip': self._tip.tolist()}

    @classmethod
    def from_card(cls, card: Mapping[str, Any]) -> 'Chain':
        """
        Make a chain from what `card` gave.

        Raises
        ------
        TaskError
            An entry is missing or unknown.

        """
        try:
            return cls([_link_from_card(link) for link in card['links']], card['tip'])
        except (KeyError, TypeError) as error:
            raise TaskError(f'kinematic chain: the entry {error} is missing or unknown') from error


def _link_from_card(entry: Mapping[str, Any]) -> Link:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value
                              for name, value in entry.items()}
    return Link(**values)


def rotation(quaternion: Sequence[float] | np.ndarray) -> np.ndarray:
    """Give the rotation matrix [3, 3] of a quaternion w, x, y, z of any length but 0."""
    w, x, y, z = np.asarray(quaternion, dtype=np.float64) / np.linalg.norm(quaternion)
    return np.array([
        [1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - w * z), 2.0 * (x * z + w * y)],
        [2.0 * (x * y + w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - w * x)],
        [2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)]])


def _matrix(link: Link) -> np.ndarray:
    """
    Write p ↦ o + A exp(K q) p as a matrix [3, 10] times (p sin q, p cos q, p, 1).

    By Rodrigues exp(K q) = I + K² + K sin q - K² cos q; a sliding joint does not turn.
    """
    turned = rotation(link.quaternion)
    x, y, z = (0.0, 0.0, 0.0) if link.slides else _unit(link.axis)
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    square = cross @ cross
    return np.hstack((turned @ cross, -turned @ square, turned @ (np.eye(3) + square),
                      np.array(link.position)[:, None]))


def _unit(vector: Sequence[float]) -> np.ndarray:
    return np.array(vector) / np.linalg.norm(vector)

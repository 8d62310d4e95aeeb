"""Goals from other frames than the robot's base, through tf2 where it is installed."""

from collections.abc import Sequence
import contextlib
from typing import Any

import numpy as np
from rclpy.node import Node
from rclpy.time import Time


class GoalFrames:
    """
    Turns points into the frame of the base.

    Parameters
    ----------
    node : Node
    base_frame : str
        An empty frame means this one, too.

    """

    def __init__(self, node: Node, base_frame: str) -> None:
        self._node = node
        self._base = base_frame.lstrip('/')
        self._buffer: Any = None
        self._listener: Any = None

    def to_base(self, point: Sequence[float], frame: str) -> tuple[Sequence[float], str]:
        """
        Turn a point into the frame of the base, as the two lie now.

        Returns
        -------
        point : sequence of float
            x, y, z [m].
        refusal : str
            Why that is not possible; '' where it is.

        """
        frame = frame.lstrip('/')
        if frame in ('', self._base):
            return point, ''
        if self._buffer is None:
            # Not before a first goal needs it: it listens to every transform of the robot.
            with contextlib.suppress(ImportError):
                import tf2_ros
                self._buffer = tf2_ros.Buffer()
                self._listener = tf2_ros.TransformListener(self._buffer, self._node)
        if self._buffer is None:
            return point, (f'is in frame {frame!r}, not robot.base_frame = {self._base!r}, and '
                           'tf2_ros is not installed: apt install ros-DISTRO-tf2-ros-py')
        try:
            found = self._buffer.lookup_transform(self._base, frame, Time()).transform
        except Exception as error:  # noqa: BLE001 - tf2 has six kinds, all of which say why
            return point, f'is in frame {frame!r}: {" ".join(str(error).split())}'
        move, turn = found.translation, found.rotation
        return transformed(point, (move.x, move.y, move.z), (turn.w, turn.x, turn.y, turn.z)), ''

    def close(self) -> None:
        """Listen no more."""
        if self._listener is not None:
            self._listener.unregister()
            self._listener = self._buffer = None


def transformed(point: Sequence[float], translation: Sequence[float],
                rotation: Sequence[float]) -> tuple[float, ...]:
    """
    Turn a point by a unit quaternion, then move it.

    Parameters
    ----------
    point, translation : sequence of float
        x, y, z [m].
    rotation : sequence of float
        w, x, y, z.

    """
    axis = np.array(rotation[1:], np.float64)
    twice = 2.0 * np.cross(axis, point)
    turned = np.asarray(point) + rotation[0] * twice + np.cross(axis, twice)
    return tuple((turned + translation).tolist())

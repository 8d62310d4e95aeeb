"""Commands as the messages that controllers understand, and messages as what people command."""

import array
from collections.abc import Callable, Sequence
import math
from typing import Any

from builtin_interfaces.msg import Duration, Time
from geometry_msgs.msg import PoseStamped, Twist, TwistStamped
import numpy as np
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

TYPES: dict[str, type] = {'Twist': Twist, 'TwistStamped': TwistStamped,
                          'PoseStamped': PoseStamped, 'Float64MultiArray': Float64MultiArray}
OUTPUT_TYPES: dict[str, type] = {'joint_trajectory': JointTrajectory,
                                 'forward_command': Float64MultiArray,
                                 'joint_state': JointState}
_TRAJECTORY_FIELDS = {'position': 'positions', 'velocity': 'velocities', 'effort': 'effort'}
Message = Callable[[np.ndarray, Time], Any]


def command_message(output: str, names: Sequence[str], interface: str,
                    trajectory_time_s: float) -> Message:
    """
    Give the function that turns a command into a message for a controller.

    Parameters
    ----------
    output : str
        ``joint_trajectory``, ``forward_command`` or ``joint_state``.
    names : sequence of str
        The A joints, as the robot calls them.
    interface : str
        ``position``, ``velocity`` or ``effort``.
    trajectory_time_s : float
        ``time_from_start`` of a trajectory [s].

    Returns
    -------
    callable
        Of a command, float64 [A], and the time; gives one and the same message object each
        time, changed.

    """
    if output == 'joint_trajectory':
        return _trajectory(names, _TRAJECTORY_FIELDS[interface], trajectory_time_s)
    if output == 'forward_command':
        return _forward()
    return _joint_state(names, interface)


def _trajectory(names: Sequence[str], field: str, seconds: float) -> Message:
    whole = math.floor(seconds)
    point = JointTrajectoryPoint(
        time_from_start=Duration(sec=whole, nanosec=round((seconds - whole) * 1e9)))
    # A stamp of 0 means: begin at once.
    message = JointTrajectory(joint_names=list(names), points=[point])

    def fill(command: np.ndarray, _now: Time) -> JointTrajectory:
        setattr(point, field, array.array('d', command))
        return message
    return fill


def _forward() -> Message:
    message = Float64MultiArray()

    def fill(command: np.ndarray, _now: Time) -> Float64MultiArray:
        message.data = array.array('d', command)
        return message
    return fill


def _joint_state(names: Sequence[str], field: str) -> Message:
    message = JointState(name=list(names))

    def fill(command: np.ndarray, now: Time) -> JointState:
        message.header.stamp = now
        setattr(message, field, array.array('d', command))
        return message
    return fill


def command_values(message: Any) -> Sequence[float]:
    """
    Give the numbers of a command that people or a planner sent.

    Parameters
    ----------
    message : Twist, TwistStamped, PoseStamped or Float64MultiArray

    Returns
    -------
    sequence of float
        Forward, left [m/s] and turn [rad/s]; a position [m]; or the numbers themselves.

    """
    if isinstance(message, TwistStamped):
        message = message.twist
    if isinstance(message, Twist):
        return message.linear.x, message.linear.y, message.angular.z
    if isinstance(message, PoseStamped):
        position = message.pose.position
        return position.x, position.y, position.z
    return message.data


def stamp_of(message: Any) -> float:
    """Give the stamp of a message's header [s]; 0 = it was not set."""
    stamp = message.header.stamp
    return stamp.sec + stamp.nanosec * 1e-9


def orientation_of(quaternion: Any) -> tuple[float, float, float, float]:
    """Give a quaternion as x, y, z, w."""
    return quaternion.x, quaternion.y, quaternion.z, quaternion.w


def vector_of(vector: Any) -> tuple[float, float, float]:
    """Give a vector as x, y, z."""
    return vector.x, vector.y, vector.z

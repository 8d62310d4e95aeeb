"""What a simulated robot's sensors say as the messages of a real one, and its commands back."""

import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from builtin_interfaces.msg import Time
from geometry_msgs.msg import PoseStamped, Quaternion, Twist, TwistStamped, Vector3
from nav_msgs.msg import Odometry
import numpy as np
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import Float64MultiArray, Header

from asyncppo_ros.simulation.sensors import ImuSample, OdometrySample, Sample

IMU_FRAME, ODOMETRY_FRAME = 'imu', 'odom'
# The fields of a trajectory's points and of JointState, by interface.
_TRAJECTORY_FIELDS = {'position': 'positions', 'velocity': 'velocities', 'effort': 'effort'}
_JOINT_STATE_FIELDS = {'position': 'position', 'velocity': 'velocity', 'effort': 'effort'}


class JointGoal(NamedTuple):
    """What a message commands: one row of `values` for each of `times` [s]."""

    interface: str
    joints: list[str]
    values: np.ndarray
    times: list[float]


def joint_state(sample: Sample, names: Sequence[str], order: Sequence[int],
                stamp: Time) -> JointState:
    """
    Tell some joints.

    Parameters
    ----------
    sample : Sample
    names : sequence of str
        Of all joints, as the robot calls them.
    order : sequence of int
        Which of them, in the order of the message.
    stamp : Time

    """
    return JointState(header=Header(stamp=stamp), name=[names[j] for j in order],
                      position=array.array('d', sample.position[order]),
                      velocity=array.array('d', sample.velocity[order]),
                      effort=array.array('d', sample.effort[order]))


def imu(sample: ImuSample, stamp: Time) -> Imu:
    """Tell how the base is turned, turns and is accelerated; covariances 0 = not known."""
    return Imu(header=Header(stamp=stamp, frame_id=IMU_FRAME),
               orientation=_quaternion(sample.orientation),
               angular_velocity=_vector(sample.angular_velocity),
               linear_acceleration=_vector(sample.acceleration))


def odometry(sample: OdometrySample, base_frame: str, stamp: Time) -> Odometry:
    """Tell where the base is and how it moves, the velocities in its own frame."""
    message = Odometry(header=Header(stamp=stamp, frame_id=ODOMETRY_FRAME),
                       child_frame_id=base_frame)
    position = message.pose.pose.position
    position.x, position.y, position.z = sample.position.tolist()
    message.pose.pose.orientation = _quaternion(sample.orientation)
    message.twist.twist.linear = _vector(sample.velocity)
    message.twist.twist.angular = _vector(sample.angular_velocity)
    return message


def asked(kind: str, values: np.ndarray, frame: str, stamp: Time) -> Any:
    """
    Ask for something as people do.

    Parameters
    ----------
    kind : str
        A key of `topics.COMMAND_TYPES`.
    values : float64 [k]
        Forward, left [m/s] and turn [rad/s]; a position [m]; or any numbers.
    frame : str
        Of a position.
    stamp : Time

    """
    if kind == 'Float64MultiArray':
        return Float64MultiArray(data=array.array('d', values))
    first, second, third = values.tolist()
    if kind == 'PoseStamped':
        message = PoseStamped(header=Header(stamp=stamp, frame_id=frame))
        position = message.pose.position
        position.x, position.y, position.z = first, second, third
        return message
    twist = Twist(linear=Vector3(x=first, y=second), angular=Vector3(z=third))
    if kind == 'Twist':
        return twist
    return TwistStamped(header=Header(stamp=stamp, frame_id=frame), twist=twist)


def goal_of_trajectory(message: Any, interface: str) -> JointGoal:
    """
    Read a JointTrajectory; its stamp is not looked at: it begins when it takes effect.

    Where points say several things, what the `interface` of the robot understands counts.
    """
    points = message.points
    interface = _said(points[0] if points else None, _TRAJECTORY_FIELDS, interface)
    rows = [getattr(point, _TRAJECTORY_FIELDS[interface]) for point in points]
    values = np.array(rows) if len({len(row) for row in rows}) == 1 else np.empty((0, 0))
    return JointGoal(interface, list(message.joint_names), values, [
        point.time_from_start.sec + point.time_from_start.nanosec * 1e-9 for point in points])


def goal_of_joint_state(message: Any, interface: str) -> JointGoal:
    """Read a JointState as a command; where it says several things, as in a trajectory."""
    interface = _said(message, _JOINT_STATE_FIELDS, interface)
    values = np.array(getattr(message, _JOINT_STATE_FIELDS[interface]), np.float64, ndmin=2)
    return JointGoal(interface, list(message.name), values, [0.0])


def goal_of_numbers(message: Any, interface: str, order: Sequence[str]) -> JointGoal:
    """Read a Float64MultiArray: one number for each joint of the controller, in its order."""
    return JointGoal(interface, list(order), np.array(message.data, np.float64, ndmin=2), [0.0])


def _said(message: Any, fields: dict[str, str], interface: str) -> str:
    for name in (interface, *fields):
        if message is not None and len(getattr(message, fields[name])):
            return name
    return interface


def _quaternion(wxyz: np.ndarray) -> Quaternion:
    w, x, y, z = wxyz.tolist()
    return Quaternion(x=x, y=y, z=z, w=w)


def _vector(xyz: np.ndarray) -> Vector3:
    x, y, z = xyz.tolist()
    return Vector3(x=x, y=y, z=z)

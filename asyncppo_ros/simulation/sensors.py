"""What the sensors of one simulated robot tell: late, with noise, an IMU as it is mounted."""

from collections import deque
from collections.abc import Sequence
import dataclasses
from typing import NamedTuple

import mujoco
import numpy as np

from asyncppo_ros.robot.kinematics import rotation
from asyncppo_ros.robot.terms import (
    base_angular_velocity,
    joint_effort,
    joint_position,
    joint_velocity,
    projected_gravity,
)
from asyncppo_ros.simulation.state import SimulationState

IMU_SITE = 'imu'
# Standard deviations for a noise of 1: those of the observation terms, and of what none has.
_POSITION_NOISE = joint_position(()).noise
_VELOCITY_NOISE = joint_velocity(()).noise
_EFFORT_NOISE = joint_effort(()).noise
_TURN_NOISE = base_angular_velocity().noise
_TILT_NOISE = projected_gravity().noise
_ACCELERATION_NOISE = 0.2
_PLACE_NOISE, _SPEED_NOISE = 0.01, 0.05
# A sample that is older than the latency by less than this is the newest that is old enough [s].
_ALMOST = 1e-9
_IDENTITY = (1.0, 0.0, 0.0, 0.0)


class ImuSample(NamedTuple):
    """Orientation w, x, y, z; angular velocity [rad/s] and proper acceleration [m/s²], [3]."""

    orientation: np.ndarray
    angular_velocity: np.ndarray
    acceleration: np.ndarray


class OdometrySample(NamedTuple):
    """Place [m] and orientation w, x, y, z in the world; velocities in the base's frame."""

    position: np.ndarray
    orientation: np.ndarray
    velocity: np.ndarray
    angular_velocity: np.ndarray


@dataclasses.dataclass(frozen=True)
class Sample:
    """
    What all sensors say of one moment.

    Attributes
    ----------
    time : float
        The moment, in simulated time [s].
    position, velocity, effort : float64 [J]
        Of all joints, in the order of the model.
    imu, odometry : ImuSample, OdometrySample or None
        None = the base is fixed.

    """

    time: float
    position: np.ndarray
    velocity: np.ndarray
    effort: np.ndarray
    imu: ImuSample | None
    odometry: OdometrySample | None


class Sensors:
    """
    The sensors of one robot.

    The IMU sits at the site ``imu`` of the base where the model has one, else at its origin.

    Parameters
    ----------
    model : mujoco.MjModel
    state : SimulationState
        Of one environment, with ``qacc`` among its fields.
    noise : float
        Multiple of the usual noise.
    latency : float
        Age of what is told [s].
    mounting : 4 floats, optional
        Quaternion w, x, y, z that turns vectors of the IMU's frame into the frame of the base;
        by default that of the site.

    """

    def __init__(self, model: mujoco.MjModel, state: SimulationState, noise: float,
                 latency: float, mounting: Sequence[float] = _IDENTITY) -> None:
        self._state = state
        self._noise = noise
        self._latency = latency
        self._gravity = model.opt.gravity.copy()
        self._velocity_at = state.base_velocity
        self._place, turned = _site_of_base(model)
        given = np.array(mounting, dtype=np.float64)
        turned = given / np.linalg.norm(given) if tuple(mounting) != _IDENTITY else turned
        self._mounting = None if tuple(turned) == _IDENTITY else turned
        self._past: deque[Sample] = deque()
        self._rng = np.random.default_rng()
        self._resting = True

    def begin(self, now: float, rng: np.random.Generator) -> None:
        """Start an episode: nothing was measured before, and the robot is held."""
        self._rng = rng
        self._past.clear()
        self._resting = True
        self.record(now)
        self._resting = False

    @property
    def are_late(self) -> bool:
        """Say whether every physics step must be recorded, not only those that are read."""
        return self._latency > 0.0

    def record(self, now: float) -> None:
        """Measure this moment, which is the end of a physics step."""
        self._past.append(self._measure(now))
        while len(self._past) > 1 and self._past[1].time <= now - self._latency + _ALMOST:
            self._past.popleft()

    def read(self) -> Sample:
        """Give what is told now, with noise of its own each time."""
        sample, level = self._past[0], self._noise
        if not level:
            return sample

        def noisy(values: np.ndarray, width: float) -> np.ndarray:
            return values + level * width * self._rng.standard_normal(values.shape)

        def tilted(quaternion: np.ndarray) -> np.ndarray:
            half = 0.5 * level * _TILT_NOISE * self._rng.standard_normal(3)
            turned = product(quaternion, np.array([1.0, *half]))
            return turned / np.linalg.norm(turned)
        imu, odometry = sample.imu, sample.odometry
        return Sample(
            sample.time, noisy(sample.position, _POSITION_NOISE),
            noisy(sample.velocity, _VELOCITY_NOISE), noisy(sample.effort, _EFFORT_NOISE),
            imu and ImuSample(tilted(imu.orientation), noisy(imu.angular_velocity, _TURN_NOISE),
                              noisy(imu.acceleration, _ACCELERATION_NOISE)),
            odometry and OdometrySample(
                noisy(odometry.position, _PLACE_NOISE), tilted(odometry.orientation),
                noisy(odometry.velocity, _SPEED_NOISE),
                noisy(odometry.angular_velocity, _TURN_NOISE)))

    def _measure(self, now: float) -> Sample:
        state, first = self._state, self._velocity_at
        imu = odometry = None
        if first is not None:
            orientation = state.base_orientation[0].copy()
            turn = state.base_angular_velocity[0].copy()
            velocity = rotation(orientation).T @ state.qvel[0, first:first + 3]
            place = self._place_of_base()
            odometry = OdometrySample(place, orientation, velocity, turn)
            imu = self._imu(orientation, turn)
        return Sample(now, state.joint_position[0].copy(), state.joint_velocity[0].copy(),
                      state.joint_effort[0].copy(), imu, odometry)

    def _place_of_base(self) -> np.ndarray:
        at = self._state.base_position
        return np.zeros(3) if at is None else self._state.qpos[0, at:at + 3].copy()

    def _imu(self, orientation: np.ndarray, turn: np.ndarray) -> ImuSample:
        acceleration = self._acceleration(orientation, turn)
        if self._mounting is None:
            return ImuSample(orientation, turn, acceleration)
        to_imu = rotation(self._mounting).T
        return ImuSample(product(orientation, self._mounting), to_imu @ turn,
                         to_imu @ acceleration)

    def _acceleration(self, orientation: np.ndarray, turn: np.ndarray) -> np.ndarray:
        """Give the proper acceleration at the IMU in the frame of the base [m/s²]."""
        first = self._velocity_at
        assert first is not None
        to_base = rotation(orientation).T
        if self._resting:
            return -to_base @ self._gravity
        change = self._state.fields['qacc'][0, first:first + 6]
        lever = np.cross(change[3:], self._place) + np.cross(turn, np.cross(turn, self._place))
        return to_base @ (change[:3] - self._gravity) + lever


def product(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Multiply two quaternions w, x, y, z: turn by `second`, then by `first`, float64 [4]."""
    result = np.empty(4)
    mujoco.mju_mulQuat(result, first, second)
    return result


def _site_of_base(model: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray]:
    """Give place and quaternion of the IMU's site in the frame of the free base."""
    free = np.flatnonzero(model.jnt_type == int(mujoco.mjtJoint.mjJNT_FREE))
    site = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, IMU_SITE)
    if not len(free) or site < 0 or model.site_bodyid[site] != model.jnt_bodyid[free[0]]:
        return np.zeros(3), np.array(_IDENTITY)
    return model.site_pos[site].copy(), model.site_quat[site].copy()

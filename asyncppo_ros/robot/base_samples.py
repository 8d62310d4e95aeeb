"""The newest sample of the base of one robot: what an IMU or odometry told."""

from collections.abc import Sequence

import numpy as np

from asyncppo_ros.errors import RobotError
from asyncppo_ros.robot.needs import Needs
from asyncppo_ros.robot.samples import heard, NEVER, Refusal, Times, Watch

BASE = ('orientation', 'angular velocity')
_ORIENTATION, _TURN = 0, 1
# A quaternion whose norm is further from 1 is none.
_NORM_TOLERANCE = 0.1
# One that is nearer is left as it is: what a simulation says comes out bit for bit.
_NORM_ROUNDING = 1e-9


class BaseSamples:
    """
    What was last heard of the base, by an IMU or odometry.

    Parameters
    ----------
    needs : Needs
    imu_rotation : sequence of float
        Quaternion w, x, y, z that turns vectors of the frame of the IMU into that of the base.

    Attributes
    ----------
    orientation : float64 [4]
        w, x, y, z of the base in the world.
    angular_velocity : float64 [3]
        In the frame of the base [rad/s].
    came, stamps : list of float
        Of orientation and angular velocity, as in `JointSamples`.
    needed : tuple of bool
        Of the same.

    """

    def __init__(self, needs: Needs, imu_rotation: Sequence[float]) -> None:
        self.orientation = np.array((1.0, 0.0, 0.0, 0.0))
        self.angular_velocity = np.zeros(3)
        self.came = [NEVER, NEVER]
        self.stamps = [NEVER, NEVER]
        self.needed = (needs.orientation, needs.angular_velocity)
        self._mounting = _mounting(imu_rotation)
        self._watches: dict[str, Watch] = {}

    def store(self, source: str, orientation: Sequence[float] | None,
              angular_velocity: Sequence[float] | None, times: Times) -> None:
        """
        Keep a sample; orientation is x, y, z, w, as ROS has it; None = the sensor has none.

        Raises
        ------
        Refusal
            Something is wrong with it; then none of it is kept.

        """
        turned = self._orientation_of(source, orientation)
        turning = self._turning_of(source, angular_velocity)
        times.check(source)
        told = [(part, values) for part, values in ((_ORIENTATION, turned), (_TURN, turning))
                if values is not None]
        stamps = np.array([self.stamps[part] for part, _ in told])
        if told and not times.is_newest(stamps).all():
            raise Refusal('reordered', f'{source} of {times.stamp:.3f} s came after a newer one')
        for part, values in told:
            (self.orientation if part == _ORIENTATION else self.angular_velocity)[...] = values
            self.came[part], self.stamps[part] = times.now, times.stamp
        watched = b''.join(values.tobytes() for part, values in told if self.needed[part])
        if watched:
            self._watches.setdefault(source, Watch(source)).see(watched, times)

    def missing(self) -> list[str]:
        """Name what is needed and was never heard."""
        return [f'{what} of the base' for what, needed, came in
                zip(BASE, self.needed, self.came) if needed and came == NEVER]

    def needed_stamps(self) -> list[float]:
        """Give the stamps of all that is needed."""
        return [stamp for stamp, needed in zip(self.stamps, self.needed) if needed]

    def faults(self, now: float, timeout: float, frozen_s: float) -> list[str]:
        """Say what is too old or frozen."""
        stale = [f'{what} of the base: {heard(now - came)} (deploy.state_timeout_s = {timeout:g})'
                 for what, needed, came in zip(BASE, self.needed, self.came)
                 if needed and came < now - timeout]
        return stale + [f'{watch.title}: the same numbers for {frozen_s:g} s (deploy.frozen_s)'
                        for watch in self._watches.values()
                        if watch.is_frozen(now, timeout, frozen_s)]

    def _orientation_of(self, source: str, xyzw: Sequence[float] | None) -> np.ndarray | None:
        """Give the orientation of the base; None = there is none, and none is needed."""
        if xyzw is None:
            return None
        quaternion = np.array([xyzw[3], *xyzw[:3]], dtype=np.float64)
        norm = float(np.linalg.norm(quaternion))
        if not abs(norm - 1.0) <= _NORM_TOLERANCE:
            # A sensor without orientation leaves zeros.
            if not self.needed[_ORIENTATION]:
                return None
            raise Refusal('quaternion', f'{source}: the orientation has norm {norm:g}, expected 1')
        if abs(norm - 1.0) > _NORM_ROUNDING:
            quaternion /= norm
        if source == 'imu' and self._mounting is not None:
            quaternion = _product(quaternion, _conjugate(self._mounting))
        return quaternion

    def _turning_of(self, source: str, velocity: Sequence[float] | None) -> np.ndarray | None:
        if velocity is None:
            return None
        vector = np.array(velocity, dtype=np.float64)
        if not np.isfinite(vector).all():
            if not self.needed[_TURN]:
                return None
            raise Refusal('not finite', f'{source}: the angular velocity is {vector.tolist()}')
        if source == 'imu' and self._mounting is not None:
            pure = np.array((0.0, *vector))
            vector = _product(_product(self._mounting, pure), _conjugate(self._mounting))[1:]
        return vector


def _mounting(rotation: Sequence[float]) -> np.ndarray | None:
    """Give the unit quaternion of a mounting; None = as the base."""
    quaternion = np.array(rotation, dtype=np.float64)
    norm = float(np.linalg.norm(quaternion))
    if quaternion.shape != (4,) or not abs(norm - 1.0) <= _NORM_TOLERANCE:
        raise RobotError(f'robot.imu_rotation = {list(rotation)}: must be a quaternion w, x, y, z '
                         'of norm 1')
    quaternion /= norm
    return None if (quaternion == (1.0, 0.0, 0.0, 0.0)).all() else quaternion


def _conjugate(q: np.ndarray) -> np.ndarray:
    return q * (1.0, -1.0, -1.0, -1.0)


def _product(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Give the Hamilton product of two quaternions w, x, y, z."""
    scalar = p[0] * q[0] - p[1:] @ q[1:]
    return np.array((scalar, *(p[0] * q[1:] + q[0] * p[1:] + np.cross(p[1:], q[1:]))))

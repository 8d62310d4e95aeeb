"""What was last heard of one robot, checked: from messages to a `RobotState`."""

import collections
from collections.abc import Callable, Collection, Mapping, Sequence
import dataclasses
import math
import threading

import numpy as np

from asyncppo_ros.robot.base_samples import BASE, BaseSamples
from asyncppo_ros.robot.joint_samples import JointSamples
from asyncppo_ros.robot.needs import CommandNeed, Needs, QUANTITIES
from asyncppo_ros.robot.samples import heard, NEVER, Refusal, Times
from asyncppo_ros.robot.state import project_gravity, RobotState, standing

_POSITION, _VELOCITY = QUANTITIES.index('position'), QUANTITIES.index('velocity')


@dataclasses.dataclass(frozen=True)
class SensorSettings:
    """
    What makes a sample wrong; see `deploy` and `robot` in the settings tree.

    Attributes
    ----------
    state_timeout_s : float
        A state that is older is a fault.
    clock_tolerance_s : float
        A sample whose stamp is further from the clock is refused.
    frozen_s : float
        The same numbers for so long are a fault; 0 = never.
    command_timeout_s : float
        A velocity command that is older reads as 0; 0 = never.
    goal_timeout_s : float
        Another command that is older is a fault; 0 = never.
    imu_rotation : tuple of float
        Quaternion w, x, y, z that turns vectors of the frame of the IMU into that of the base.

    """

    state_timeout_s: float = 0.1
    clock_tolerance_s: float = 0.5
    frozen_s: float = 1.0
    command_timeout_s: float = 0.5
    goal_timeout_s: float = 0.0
    imu_rotation: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0)


class MeasuredState:
    """
    Keeps the newest of everything that a robot tells, and says what is missing or wrong.

    Callbacks of any thread store samples; one thread reads.  A sample is refused whole if one
    number that is needed is wrong; one without a stamp (0) is compared with no clock, and one
    with a stamp from before the newest is ignored.  `now` is steady time, `stamp` and `clock`
    are the times of the message and of the ROS clock, all in seconds.

    Parameters
    ----------
    needs : Needs
        What must be heard.
    joints : sequence of str
        All of the card: the columns of the state.
    action_size : int
        A.
    joint_names : mapping from str to str
        The name on the robot of each joint that has another one in the policy.
    settings : SensorSettings
    velocity_commands : collection of str
        Commands that are velocities: 0 where nobody gives them.  All others are goals, which
        must be heard.

    Attributes
    ----------
    refused : Counter
        Refused samples by cause.
    held : Counter
        Commands that were held within their limits, by name.

    Raises
    ------
    RobotError
        `joint_names` does not fit, or `imu_rotation` is no rotation.

    """

    def __init__(self, needs: Needs, joints: Sequence[str], action_size: int,
                 joint_names: Mapping[str, str], settings: SensorSettings,
                 velocity_commands: Collection[str] = ()) -> None:
        self.refused: collections.Counter[str] = collections.Counter()
        self.held: collections.Counter[str] = collections.Counter()
        self._settings = settings
        self._names = tuple(joints)
        self._joints = JointSamples(needs, self._names, joint_names)
        self._base = BaseSamples(needs, settings.imu_rotation)
        self._commands = {name: _Command(need, name in velocity_commands)
                          for name, need in needs.commands.items()}
        self._moved = np.array([self._names.index(joint) for joint in needs.moved], dtype=int)
        self._state = standing(self._names, action_size, commands={
            name: need.size for name, need in needs.commands.items()})
        self._lock = threading.Lock()

    @property
    def extra(self) -> list[str]:
        """Joints that the robot tells and the policy does not know, by their names there."""
        return list(self._joints.extra)

    def joint_states(self, names: Sequence[str], position: Sequence[float],
                     velocity: Sequence[float], effort: Sequence[float], stamp: float,
                     clock: float, now: float) -> str | None:
        """
        Store a sample of some joints, by their names on the robot; empty = not told.

        Returns
        -------
        str or None
            Why the sample was refused.

        """
        return self._stored(lambda: self._joints.store(
            tuple(names), (position, velocity, effort), self._times(stamp, clock, now)))

    def imu(self, orientation: Sequence[float] | None, angular_velocity: Sequence[float] | None,
            stamp: float, clock: float, now: float) -> str | None:
        """
        Store a sample of an IMU, turned into the frame of the base.

        Parameters
        ----------
        orientation : four floats or None
            Quaternion x, y, z, w of the IMU in the world; None = the IMU has none.
        angular_velocity : three floats or None
            In the frame of the IMU [rad/s]; None = the IMU has none.

        Returns
        -------
        str or None
            Why the sample was refused.

        """
        return self._stored(lambda: self._base.store(
            'imu', orientation, angular_velocity, self._times(stamp, clock, now)))

    def odometry(self, orientation: Sequence[float], angular_velocity: Sequence[float],
                 stamp: float, clock: float, now: float) -> str | None:
        """Store orientation (x, y, z, w) and angular velocity of the base; returns as `imu`."""
        return self._stored(lambda: self._base.store(
            'odometry', orientation, angular_velocity, self._times(stamp, clock, now)))

    def command(self, name: str, values: Sequence[float], now: float) -> str | None:
        """
        Store what people ask for, held within the limits of the card.

        Returns
        -------
        str or None
            Why it was refused.

        """
        def store() -> None:
            if name not in self._commands:
                raise Refusal('command', f'command {name!r} is none of the policy; commands: '
                                         f'{", ".join(self._commands) or "none"}')
            if self._commands[name].store(name, values, now):
                self.held[name] += 1
        return self._stored(store)

    def missing(self) -> list[str]:
        """Name what is needed and was never heard."""
        with self._lock:
            return self._joints.missing() + self._base.missing() + [
                f'command {name!r}' for name, command in self._commands.items()
                if not command.is_velocity and command.came == NEVER]

    def faults(self, now: float) -> list[str]:
        """Say what is wrong with what is needed: too old, or frozen; empty = nothing."""
        settings = self._settings
        timeout, oldest_goal = settings.state_timeout_s, settings.goal_timeout_s or math.inf
        with self._lock:
            return (self._joints.faults(now, timeout, settings.frozen_s)
                    + self._base.faults(now, timeout, settings.frozen_s)
                    + [f'command {name!r}: {heard(now - command.came)} (deploy.goal_timeout_s)'
                       for name, command in self._commands.items()
                       if not command.is_velocity and command.came < now - oldest_goal])

    def read(self, now: float) -> RobotState:
        """
        Give the newest of everything; `last_action` is left alone.

        It is the same state every time, written anew; what was never heard is 0, and the base
        upright.
        """
        state = self._state
        with self._lock:
            values = self._joints.values
            state.joint_position[0], state.joint_velocity[0], state.joint_effort[0] = values
            state.base_orientation[0] = self._base.orientation
            state.base_angular_velocity[0] = self._base.angular_velocity
            for name, command in self._commands.items():
                state.command[name][0] = command.read(now, self._settings.command_timeout_s)
        project_gravity(state.base_orientation, state.projected_gravity)
        return state

    def moved(self, now: float) -> tuple[np.ndarray, np.ndarray]:
        """
        Give position and velocity of the moved joints, each float64 [A], in their order.

        What was never heard, is older than `state_timeout_s` or frozen is NaN: where the joint is
        by now is not known.
        """
        settings = self._settings
        with self._lock:
            values = np.where(
                self._joints.known(now, settings.state_timeout_s, settings.frozen_s),
                self._joints.values, math.nan)
        return values[_POSITION, self._moved], values[_VELOCITY, self._moved]

    def tilt(self, now: float) -> float | None:
        """Give the angle of the base from upright [rad]; None = not known, or too old."""
        with self._lock:
            if self._base.came[0] < now - self._settings.state_timeout_s:
                return None
            _, x, y, _ = self._base.orientation.tolist()
        return math.acos(min(max(1.0 - 2.0 * (x * x + y * y), -1.0), 1.0))

    def ages(self, now: float) -> dict[str, float]:
        """Give how long ago each needed thing was last heard, by name [s]; inf = never."""
        with self._lock:
            ages = {f'joint {name}': now - came for name, came in self._joints.oldest_of_each()}
            ages.update((what, now - came) for what, needed, came in
                        zip(BASE, self._base.needed, self._base.came) if needed)
            ages.update((f'command {name}', now - command.came)
                        for name, command in self._commands.items())
        return ages

    def age(self, now: float) -> float:
        """Give how long ago that of the state was heard which is needed and oldest [s]."""
        with self._lock:
            return now - min([self._joints.oldest(), *(
                came for needed, came in zip(self._base.needed, self._base.came) if needed)])

    def newest_stamp(self) -> float | None:
        """
        Give the time that all needed samples have reached: the oldest of their stamps [s].

        None = something was never heard, or nothing is stamped.  What is not stamped does not
        count.
        """
        with self._lock:
            stamps = self._joints.needed_stamps() + self._base.needed_stamps()
        if NEVER in stamps:
            return None
        return min((stamp for stamp in stamps if stamp != 0.0), default=None)

    def _times(self, stamp: float, clock: float, now: float) -> Times:
        return Times(stamp, clock, now, self._settings.clock_tolerance_s)

    def _stored(self, store: Callable[[], None]) -> str | None:
        """Store a sample; give the reason where it was refused, and count it."""
        with self._lock:
            try:
                store()
            except Refusal as refusal:
                self.refused[refusal.cause] += 1
                return str(refusal)
        return None


class _Command:
    """What people last asked for."""

    def __init__(self, need: CommandNeed, is_velocity: bool) -> None:
        self.is_velocity = is_velocity
        self.came = NEVER
        self._low = -math.inf if need.low is None else need.low
        self._high = math.inf if need.high is None else need.high
        # A robot that must not stand still is told the slowest that it may do.
        self._zero = self._within(np.zeros(need.size))
        self._values = self._zero.copy()

    def store(self, name: str, values: Sequence[float], now: float) -> bool:
        """Keep a command; say whether it had to be held within its limits."""
        numbers = np.array(values, dtype=np.float64)
        if numbers.shape != self._values.shape:
            raise Refusal('command', f'command {name!r} has {numbers.size} numbers, the policy '
                                     f'needs {self._values.size}')
        if not np.isfinite(numbers).all():
            raise Refusal('not finite', f'command {name!r} is {numbers.tolist()}')
        self._values, self.came = self._within(numbers), now
        return bool((self._values != numbers).any())

    def read(self, now: float, timeout: float) -> np.ndarray:
        """Give the command; 0 where it is a velocity that is too old."""
        if self.is_velocity and timeout and self.came < now - timeout:
            return self._zero
        return self._values

    def _within(self, numbers: np.ndarray) -> np.ndarray:
        return np.minimum(np.maximum(numbers, self._low), self._high)

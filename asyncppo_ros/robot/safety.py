"""The safety supervisor: between what a policy wants and what a robot is told, nothing else."""

from collections.abc import Sequence
import dataclasses
import enum
import math
import threading

import numpy as np

from asyncppo_ros.errors import RobotError
from asyncppo_ros.robot.actions import INTERFACES
from asyncppo_ros.robot.limits import Limits

# Further reasons after the cause of a trip: so many are kept.
_MOST_REASONS = 20


class Mode(enum.Enum):
    """What the supervisor does with targets."""

    INACTIVE = 'inactive'
    GOING_TO_START = 'going to start'
    RAMPING = 'ramping'
    RUNNING = 'running'
    TRIPPED = 'tripped'


@dataclasses.dataclass(frozen=True)
class SafetySettings:
    """
    Settings of the supervisor; see `deploy` in the settings tree.

    Attributes
    ----------
    ramp_s : float
        After activation commands move from the measured pose to the targets over this time.
    start_speed : float
        Speed of a joint on the way to the start pose [rad/s] or [m/s].
    max_deadline_misses : int
        So many in a row trip.
    max_tilt : float
        [rad]; 0 = any.
    damping : float
        A tripped effort command is minus this times the velocity.

    """

    ramp_s: float = 2.0
    start_speed: float = 0.5
    max_deadline_misses: int = 5
    max_tilt: float = 1.2
    damping: float = 1.0


class Supervisor:
    """
    Turns targets into commands that are safe to give, and stops the robot when anything is wrong.

    Whatever it is told, it never gives a command beyond the limits, one that changes faster than
    the rate limit (stopping a velocity or an effort apart), any while inactive, or another than
    the trip action while tripped:

        position: move to the pose measured at the trip, and hold it; a joint whose position is
                  not known then stays where it was last told to be
        velocity: 0
        effort:   -damping · velocity

    A trip is latched until `reset_trip`.  One that comes while nothing is commanded makes no
    command either: the robot may be in other hands.  All methods may be called from any thread.

    Parameters
    ----------
    limits : Limits
    interface : str
        What commands are: position, velocity or effort.
    control_dt : float
        Time between two calls of `tick` [s].
    settings : SafetySettings

    Attributes
    ----------
    mode : Mode
    reasons : list of str
        Why it tripped; the first is the cause.
    clamped, rate_limited : int
        Control steps in which a target was held by a limit.
    deadline_misses : int
        In a row, up to now.

    """

    def __init__(self, limits: Limits, interface: str, control_dt: float,
                 settings: SafetySettings) -> None:
        if interface not in INTERFACES:
            raise RobotError(f'interface = {interface}: must be one of {", ".join(INTERFACES)}')
        self.mode = Mode.INACTIVE
        self.reasons: list[str] = []
        self.clamped = self.rate_limited = self.deadline_misses = 0
        self._limits = limits
        self._interface = interface
        self._control_dt = control_dt
        self._settings = settings
        self._step = limits.rate * control_dt
        self._start_step = np.minimum(self._step, settings.start_speed * control_dt)
        size = len(limits.joints)
        # The last command; before the first one, where commands begin.
        self._command = np.zeros(size)
        # Where the ramp began, and where the way to the start pose ends.
        self._ramp_pose = np.zeros(size)
        self._start_pose = np.zeros(size)
        self._ramp_step = 0
        # The pose that is held after a trip.
        self._held: np.ndarray | None = None
        self._speaks = False
        self._lock = threading.RLock()

    @property
    def speaks(self) -> bool:
        """Whether `tick` gives commands: not while inactive, nor after a trip that came then."""
        return self._speaks

    @property
    def at_start(self) -> bool:
        """Whether the way to the start pose was commanded to its end."""
        return (self.mode is Mode.GOING_TO_START
                and bool((self._command == self._start_pose).all()))

    def activate(self, position: np.ndarray) -> None:
        """
        Begin to obey targets, ramped in.

        Parameters
        ----------
        position : float64 [A]
            The measured pose, where the ramp begins (on the way to the start pose: where the
            last command was).

        Raises
        ------
        RobotError
            Tripped, or the pose is not finite.

        """
        with self._lock:
            if self.mode in (Mode.RAMPING, Mode.RUNNING):
                return
            self._begin(position, Mode.RAMPING)
            self._ramp_pose[...] = self._command
            self._ramp_step = 0

    def go_to_start(self, position: np.ndarray, start_pose: np.ndarray) -> None:
        """
        Move every joint from where it is to a pose, at `start_speed`, and hold it there.

        Parameters
        ----------
        position, start_pose : float64 [A]
            The measured and the wanted pose.

        Raises
        ------
        RobotError
            Tripped, already obeying a policy, a pose is not finite, or commands are not
            positions.

        """
        with self._lock:
            if self._interface != 'position':
                raise RobotError(f'go to start: the policy commands {self._interface}, and only '
                                 'positions lead to a pose; bring the robot there by hand')
            if self.mode in (Mode.RAMPING, Mode.RUNNING):
                raise RobotError('go to start: a policy is in command; deactivate it first')
            _check_pose(start_pose, self._limits.joints, 'start pose')
            self._begin(position, Mode.GOING_TO_START)
            self._start_pose[...] = self._within(start_pose)

    def deactivate(self) -> None:
        """Say nothing from now on; a trip remains latched."""
        with self._lock:
            self._speaks = False
            if self.mode is not Mode.TRIPPED:
                self.mode = Mode.INACTIVE

    def trip(self, reason: str) -> None:
        """Stop the robot: e-stop, exception in the loop, shutdown."""
        with self._lock:
            if self.mode is not Mode.TRIPPED:
                self.mode, self.reasons, self._held = Mode.TRIPPED, [reason], None
            elif reason not in self.reasons and len(self.reasons) < _MOST_REASONS:
                self.reasons.append(reason)

    def reset_trip(self) -> None:
        """Let a tripped supervisor be activated again; it is inactive then."""
        with self._lock:
            if self.mode is Mode.TRIPPED:
                self.mode, self.reasons, self._speaks = Mode.INACTIVE, [], False

    def missed_deadline(self) -> None:
        """Count a control step that came too late or not at all."""
        with self._lock:
            if self.mode in (Mode.INACTIVE, Mode.TRIPPED):
                return
            self.deadline_misses += 1
            if self.deadline_misses >= self._settings.max_deadline_misses:
                self.trip(f'{self.deadline_misses} control steps in a row were missed '
                          '(deploy.max_deadline_misses)')

    def met_deadline(self) -> None:
        """Count a control step that came in time."""
        with self._lock:
            self.deadline_misses = 0

    def tick(self, target: np.ndarray | None, position: np.ndarray,
             velocity: np.ndarray | None = None, tilt: float | None = None,
             faults: Sequence[str] = ()) -> np.ndarray | None:
        """
        Make one control step.

        Parameters
        ----------
        target : float [A] or None
            What the policy wants; not looked at on the way to the start pose and when tripped.
        position : float64 [A]
            As measured; NaN where it is not known, and any that is not finite trips.
        velocity : float64 [A] or None
            As measured; NaN where it is not known.
        tilt : float or None
            Angle of the base from upright [rad]; None = not known.
        faults : sequence of str
            What is wrong with the inputs; any of them trips.

        Returns
        -------
        float64 [A] or None
            The command to give, in the unit of the interface; None = say nothing.

        """
        with self._lock:
            if not self._speaks:
                return None
            if self.mode is not Mode.TRIPPED:
                for reason in self._reasons_to_trip(target, position, velocity, tilt, faults):
                    self.trip(reason)
            if self.mode is Mode.TRIPPED:
                self._stop(position, velocity)
            elif self.mode is Mode.GOING_TO_START:
                self._move_to(self._start_pose, self._start_step)
            else:
                self._obey(target)
            return self._command.copy()

    def _begin(self, position: np.ndarray, mode: Mode) -> None:
        if self.mode is Mode.TRIPPED:
            raise RobotError(f'tripped: {self.reasons[0]}; reset the trip first')
        _check_pose(position, self._limits.joints, 'measured pose')
        if not self._speaks:
            self._command[...] = self._within(
                position if self._interface == 'position' else np.zeros_like(position))
        self.mode, self._speaks, self._held = mode, True, None
        self.deadline_misses = 0

    def _reasons_to_trip(self, target: np.ndarray | None, position: np.ndarray,
                         velocity: np.ndarray | None, tilt: float | None,
                         faults: Sequence[str]) -> list[str]:
        reasons = [str(fault) for fault in faults]
        reasons += self._not_finite(position, 'measured position')
        if tilt is not None and self._settings.max_tilt and not tilt <= self._settings.max_tilt:
            reasons.append(f'the base is tilted by {tilt:.2f} rad (deploy.max_tilt = '
                           f'{self._settings.max_tilt:g})')
        if velocity is not None:
            reasons += self._too_fast(velocity)
        # Where something else is wrong, nobody asked the policy for a target.
        if self.mode is not Mode.GOING_TO_START and not (reasons and target is None):
            reasons += self._wrong_target(target)
        return reasons

    def _too_fast(self, velocity: np.ndarray) -> list[str]:
        speed = np.abs(velocity)
        # An infinite one is not above an infinite limit, and is no velocity either.
        wrong = (speed > self._limits.speed) | (speed == math.inf)
        if not wrong.any():
            return []
        worst = int(np.argmax(wrong))
        return [f'joint {self._limits.joints[worst]!r} moves at {speed[worst]:.3g} (limit '
                f'{self._limits.speed[worst]:.3g}; deploy.max_speed)']

    def _wrong_target(self, target: np.ndarray | None) -> list[str]:
        if target is None:
            return ['the policy gave no target']
        if np.shape(target) != self._command.shape:
            return [f'the policy gave {np.size(target)} targets for {len(self._command)} joints']
        return self._not_finite(target, 'target')

    def _not_finite(self, values: np.ndarray, what: str) -> list[str]:
        finite = np.isfinite(values)
        if finite.all():
            return []
        return [f'{what} of joint {self._limits.joints[joint]!r} is {values[joint]}'
                for joint in np.flatnonzero(~finite)[:1]]

    def _obey(self, target: np.ndarray | None) -> None:
        """Ramp a target in, and move the command to it."""
        target = np.asarray(target, dtype=np.float64)
        ramp_s = self._settings.ramp_s
        share = min(self._ramp_step * self._control_dt / ramp_s, 1.0) if ramp_s > 0.0 else 1.0
        self._ramp_step += 1
        if share < 1.0:
            target = share * target
            if self._interface == 'position':
                target += (1.0 - share) * self._ramp_pose
        else:
            self.mode = Mode.RUNNING
        within = self._within(target)
        if (within != target).any():
            self.clamped += 1
        self._move_to(within, self._step)
        if (self._command != within).any():
            self.rate_limited += 1

    def _stop(self, position: np.ndarray, velocity: np.ndarray | None) -> None:
        """Do the trip action."""
        if self._interface == 'position':
            if self._held is None:
                # One that is not measured went on: to where it was last seen is a way back.
                self._held = self._within(np.where(np.isfinite(position), position,
                                                   self._command))
            self._move_to(self._held, self._step)
        elif self._interface == 'velocity' or velocity is None:
            self._command[...] = 0.0
        else:
            known = np.where(np.isfinite(velocity), velocity, 0.0)
            self._command[...] = self._within(-self._settings.damping * known)

    def _within(self, command: np.ndarray) -> np.ndarray:
        """Give a command between the limits."""
        return np.minimum(np.maximum(command, self._limits.low), self._limits.high)

    def _move_to(self, goal: np.ndarray, step: np.ndarray) -> None:
        """Move the command to a goal within the limits, by at most `step`."""
        low, high = self._command - step, self._command + step
        np.minimum(np.maximum(goal, low), high, out=self._command)


def _check_pose(pose: np.ndarray, joints: Sequence[str], what: str) -> None:
    if np.shape(pose) != (len(joints),):
        raise RobotError(f'{what}: {np.size(pose)} numbers for {len(joints)} joints')
    for joint, value in zip(joints, pose):
        if not math.isfinite(value):
            raise RobotError(f'{what} of joint {joint!r} is {value}')

"""What a robot's controllers do with commands: late, along a trajectory, and not for ever."""

from collections import deque
from collections.abc import Sequence
import math
from typing import NamedTuple

import numpy as np

from asyncppo_ros.robot.actions import INTERFACES

# A command that is due within this of a physics step acts in it [s].
_ALMOST = 1e-9


class _Goal(NamedTuple):
    """Joint targets `values` [P, A] to be reached at `times` [P] after `due`; NaN = as it is."""

    due: float
    times: np.ndarray
    values: np.ndarray


class JointCommand:
    """
    The targets of the moved joints of one robot, as its controllers follow them.

    Commands take effect `latency` after they came, in the order in which they came.  Each is a
    trajectory of one or more points: until its first point and between points targets move in
    straight lines, from where they are; a point at time 0 is taken at once.

    Parameters
    ----------
    interface : str
        position, velocity or effort.
    joints : sequence of str
        In the order of the targets.
    latency : float
        [s].
    timeout : float
        So long after the last command position targets become the measured positions, and
        velocities and efforts 0; 0 = never [s].

    """

    def __init__(self, interface: str, joints: Sequence[str], latency: float = 0.0,
                 timeout: float = 0.0) -> None:
        self._interface = interface
        self._joints = tuple(joints)
        self._latency = latency
        self._timeout = timeout
        self._pending: deque[_Goal] = deque()
        self._first: np.ndarray = np.zeros(len(self._joints))
        self._goal = _Goal(0.0, np.zeros(1), np.zeros((1, len(self._joints))))
        #: How often the timeout has struck.
        self.timeouts = 0
        self._expired = False

    def begin(self, now: float, measured: np.ndarray) -> None:
        """Forget what was commanded; hold float64 [A] measured positions, or say 0."""
        self._pending.clear()
        self._hold(now, measured)
        self._expired = True

    def refusal(self, interface: str, joints: Sequence[str], values: np.ndarray,
                times: np.ndarray) -> str | None:
        """
        Say why a command is none; None = it is one.

        See `give`.
        """
        if interface != self._interface:
            return (f'it commands {interface}; this robot obeys {self._interface} alone '
                    f'(one of {", ".join(INTERFACES)})')
        if len(set(joints)) != len(joints):
            return 'a joint is named twice'
        unknown = [joint for joint in joints if joint not in self._joints]
        if unknown or not len(joints):
            return (f'joint {unknown[0]!r} is not commanded here' if unknown else 'no joint is '
                    'named') + f'; joints: {", ".join(self._joints)}'
        if values.shape != (len(times), len(joints)) or not len(times):
            return f'{values.size} numbers for {len(joints)} joints and {len(times)} points'
        if not (np.isfinite(values).all() and np.isfinite(times).all()):
            return 'a number is not finite'
        if times[0] < 0.0 or (np.diff(times) <= 0.0).any():
            return 'the times of its points do not increase'
        return None

    def give(self, now: float, joints: Sequence[str], values: np.ndarray,
             times: np.ndarray) -> None:
        """
        Take a command that `refusal` has nothing against.

        Parameters
        ----------
        now : float
            When it came [s].
        joints : sequence of str
            Those that it commands; the others go on to where their targets are.
        values : float64 [P, n]
            In the unit of the interface.
        times : float64 [P]
            When each point is to be reached, counted from when the command takes effect [s].

        """
        whole = np.full((len(times), len(self._joints)), math.nan)
        whole[:, [self._joints.index(joint) for joint in joints]] = values
        self._pending.append(_Goal(now + self._latency, times, whole))

    def at(self, now: float, measured: np.ndarray) -> np.ndarray:
        """
        Give the targets float64 [A] of the physics step that begins now.

        Parameters
        ----------
        now : float
            Never less than before [s].
        measured : float64 [A]
            Positions of the joints.

        """
        while self._pending and self._pending[0].due <= now + _ALMOST:
            self._take(self._pending.popleft())
        if self._timeout and not self._expired and now > self._goal.due + self._timeout + _ALMOST:
            self._hold(now, measured)
            self._expired = True
            self.timeouts += 1
        return self._target(now)

    @property
    def final(self) -> np.ndarray:
        """Where the targets are going, float64 [A]."""
        return self._goal.values[-1]

    def _take(self, goal: _Goal) -> None:
        self._first = self._target(goal.due)
        kept = np.isnan(goal.values)
        goal.values[kept] = np.broadcast_to(self._first, goal.values.shape)[kept]
        self._goal = goal
        self._expired = False

    def _target(self, now: float) -> np.ndarray:
        due, times, values = self._goal
        elapsed = now - due
        if elapsed >= times[-1] - _ALMOST:
            return values[-1]
        ends = np.concatenate(([0.0], times)) if times[0] else times
        points = np.vstack((self._first, values)) if times[0] else values
        after = int(np.searchsorted(ends, elapsed, side='right'))
        share = (elapsed - ends[after - 1]) / (ends[after] - ends[after - 1])
        return points[after - 1] + max(0.0, share) * (points[after] - points[after - 1])

    def _hold(self, now: float, measured: np.ndarray) -> None:
        target = measured.copy() if self._interface == 'position' else np.zeros_like(measured)
        self._first = target
        self._goal = _Goal(now, np.zeros(1), target[None])

"""When a control step is due: by the steady clock, or by that of a simulation."""

from collections.abc import Callable
from typing import Protocol

from asyncppo_ros.robot.measured import MeasuredState


class Pace(Protocol):
    """
    Says when a control step is due; used by the control thread alone.

    Attributes
    ----------
    waits_for_samples : bool
        What is measured, or the clock, makes a step due: each arrival is worth a look.

    """

    waits_for_samples: bool

    def begin(self) -> None:
        """Make the first step due at once."""

    def until_due(self, now: float) -> float:
        """Give the time until the next step, at most [s]; 0 or less: it is due."""

    def step(self, now: float) -> tuple[float, bool]:
        """
        Take note that a step is done now.

        Returns
        -------
        late : float
            By how much [s].
        missed : bool
            So late that at least one step was left out.

        """

    def hurry(self) -> None:
        """Make the next step due at once."""


class SteadyPace:
    """
    One step each `control_dt` of the steady clock.

    A step that is late does not move the ones after it; those that are missed are left out.
    """

    waits_for_samples = False

    def __init__(self, control_dt: float) -> None:
        self._dt = control_dt
        self._due: float | None = None

    def begin(self) -> None:
        """Make the first step due at once."""
        self._due = None

    def until_due(self, now: float) -> float:
        """Give the time until the next step [s]."""
        return 0.0 if self._due is None else self._due - now

    def step(self, now: float) -> tuple[float, bool]:
        """Take note that a step is done now."""
        due = now if self._due is None else self._due
        late = max(0.0, now - due)
        left_out = int(late / self._dt)
        self._due = due + (left_out + 1) * self._dt
        return late, left_out > 0

    def hurry(self) -> None:
        """Make the next step due at once; the later ones keep their times."""
        if self._due is not None:
            self._due -= self._dt


class SimulatedPace:
    """
    One step each `control_dt` of simulated time, once the state of that time has come.

    Parameters
    ----------
    control_dt : float
        [s]
    clock : callable
        Gives simulated time [s].
    measured : MeasuredState
        Its stamps say whether there is news.
    patience : float
        A step whose state does not come is done without it after this time of the steady
        clock [s].

    """

    waits_for_samples = True

    def __init__(self, control_dt: float, clock: Callable[[], float], measured: MeasuredState,
                 patience: float) -> None:
        self._dt, self._clock, self._measured = control_dt, clock, measured
        self._patience = patience
        self.begin()

    def begin(self) -> None:
        """Make the first step due at once."""
        self._time: float | None = None
        self._stamp: float | None = None
        self._waits_since: float | None = None

    def until_due(self, now: float) -> float:
        """Give the time after which to look again, at the latest [s]; 0: a step is due."""
        clock = self._clock()
        if self._time is None or clock < self._time:
            return 0.0
        # Half a microsecond less: stamps are whole nanoseconds, control_dt need not be.
        if clock >= self._time + self._dt - 5e-7:
            stamp = self._measured.newest_stamp()
            if stamp is None or self._stamp is None or stamp >= self._stamp + 0.5 * self._dt:
                return 0.0
            if self._waits_since is None:
                self._waits_since = now
            if now - self._waits_since >= self._patience:
                return 0.0
        # A simulation may stand still; it then still says what it measures, or is gone.
        return 0.0 if self._measured.faults(now) else 0.25 * self._patience

    def step(self, now: float) -> tuple[float, bool]:
        """Take note that a step is done now; in simulated time none comes late."""
        self._time, self._stamp = self._clock(), self._measured.newest_stamp()
        self._waits_since = None
        return 0.0, False

    def hurry(self) -> None:
        """Make the next step due at once."""
        self._time = None

"""When a process that crashed is started again, and when no more."""

# The pause after the first crash; it doubles with every further one in a row ...
FIRST_PAUSE_S = 0.5
# ... up to this.
LONGEST_PAUSE_S = 30.0
# A process that lived longer was healthy: its crashes before are forgotten.
HEALTHY_S = 60.0


class Restarts:
    """
    The crashes in a row of one process, and what follows from them.

    It has no clock: whoever asks says what time it is [s], by any clock that does not go back.

    Parameters
    ----------
    max_crashes : int
        In a row, at least 1; with the last of them it is enough.

    Attributes
    ----------
    crashes : int
        In a row.

    """

    def __init__(self, max_crashes: int) -> None:
        self.crashes = 0
        self._max_crashes = max_crashes
        self._pause = 0.0
        self._started = self._start_at = 0.0

    def due(self, now: float) -> bool:
        """Say whether the pause after the last crash is over."""
        return now >= self._start_at

    def started(self, now: float) -> None:
        """Note that the process starts."""
        self._started = now

    def crashed(self, now: float) -> float | None:
        """Count a crash; give the pause before the next start [s], None = it is enough."""
        if now - self._started > HEALTHY_S:
            self.crashes = 0
        self.crashes += 1
        if self.crashes >= self._max_crashes:
            return None
        # Not a power of the number of crashes: thousands of them are allowed.
        doubled = FIRST_PAUSE_S if self.crashes == 1 else 2.0 * self._pause
        self._pause = min(LONGEST_PAUSE_S, doubled)
        self._start_at = now + self._pause
        return self._pause

    def forget(self) -> None:
        """Begin anew: no crash is known, and a start is due."""
        self.crashes, self._start_at = 0, 0.0

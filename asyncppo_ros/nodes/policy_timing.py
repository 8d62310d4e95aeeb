"""How the control loop keeps its times: the last steps, and counts of all."""

import collections
import time

import numpy as np

# The last so many control steps are looked at.
STEPS = 1000
PERCENTILES = (50, 95, 99)
NAMES = ('tick_to_publish_ms', 'state_age_ms', 'loop_jitter_ms')


class Timing:
    """
    Durations of control steps; one thread adds, another reads.

    Attributes
    ----------
    steps, missed : int
        Control steps since activation, and those that came late by a whole period.

    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget everything."""
        self.steps = self.missed = 0
        self._rows: collections.deque[tuple[float, float, float]] = collections.deque(
            maxlen=STEPS)
        self._begun = time.monotonic()

    def add(self, duration: float, age: float, late: float, missed: bool) -> None:
        """
        Add a control step.

        Parameters
        ----------
        duration : float
            From its beginning until the command was published [s].
        age : float
            Of the oldest sample that it used, at its beginning [s].
        late : float
            How long after its time it began [s].
        missed : bool
            It came late by a whole period.

        """
        self._rows.append((1e3 * duration, 1e3 * age, 1e3 * late))
        self.steps += 1
        self.missed += missed

    def newest(self, count: int) -> dict[str, float]:
        """Give the largest of each of `NAMES` among the last `count` control steps [ms]."""
        rows = self._table()[-count:]
        return dict(zip(NAMES, rows.max(axis=0).tolist())) if len(rows) else {}

    def percentiles(self) -> dict[str, float]:
        """Give p50, p95, p99 and the largest of each of `NAMES` over the last `STEPS` [ms]."""
        rows = self._table()
        if not len(rows):
            return {}
        found = np.percentile(rows, PERCENTILES, axis=0)
        shown = {f'{name}_p{percentile}': float(value)
                 for percentile, values in zip(PERCENTILES, found)
                 for name, value in zip(NAMES, values)}
        return {**shown, **{f'{name}_max': float(value)
                            for name, value in zip(NAMES, rows.max(axis=0))}}

    def _table(self) -> np.ndarray:
        for _ in range(10):
            try:
                return np.array(list(self._rows))
            except RuntimeError:  # the other thread added a step meanwhile
                continue
        return np.empty((0, len(NAMES)))

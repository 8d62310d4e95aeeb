"""How a policy node keeps its times: control steps, and policies that take over."""

import collections
from collections.abc import Sequence
import queue
import time

import numpy as np

# The last so many control steps are looked at.
STEPS = 1000
PERCENTILES = (50, 95, 99)
NAMES = ('tick_to_publish_ms', 'state_age_ms', 'loop_jitter_ms')
# So many policies that came while the robot ran are looked at.
TAKEOVERS = 200
TAKEOVER_NAMES = ('policy_load_ms', 'policy_wait_ms', 'takeover_ms')
Identity = tuple[int, int]


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
        return _percentiles(NAMES, self._table())

    def _table(self) -> np.ndarray:
        for _ in range(10):
            try:
                return np.array(list(self._rows))
            except RuntimeError:  # the other thread added a step meanwhile
                continue
        return np.empty((0, len(NAMES)))


class Takeovers:
    """
    How long it takes until a policy that comes while the robot runs is in command.

    ``policy_load_ms`` is from its arrival in the node (or that of what it waited for, such as its
    evaluation) until it is read, checked and tried out, ``policy_wait_ms`` from then on until the
    beginning of the first control step that asks it, ``takeover_ms`` both together.  The control
    thread calls `used`, the executor's thread the rest.
    """

    def __init__(self) -> None:
        self._handed_over: dict[Identity, tuple[float, float]] = {}
        self._used: queue.SimpleQueue[tuple[Identity, float]] = queue.SimpleQueue()
        self._last: Identity | None = None
        self._rows: collections.deque[tuple[float, float, float]] = collections.deque(
            maxlen=TAKEOVERS)

    def handed_over(self, identity: Identity, came: float, ready: float) -> None:
        """Note when a policy came, and when the control loop had it, in steady time [s]."""
        self._handed_over[identity] = came, ready
        if len(self._handed_over) > TAKEOVERS:
            del self._handed_over[min(self._handed_over)]

    def used(self, identity: Identity, tick: float) -> None:
        """Note which policy a control step asked that began at a steady time [s]."""
        if identity != self._last:
            self._last = identity
            self._used.put((identity, tick))

    def percentiles(self) -> dict[str, float]:
        """Give p50, p95, p99 and the largest of each of `TAKEOVER_NAMES` [ms]."""
        while not self._used.empty():
            identity, tick = self._used.get()
            # The policy of the file, and one that was gone back to, did not come.
            if identity in self._handed_over:
                came, ready = self._handed_over.pop(identity)
                # A step that had begun may still ask it.
                tick = max(tick, ready)
                self._rows.append((1e3 * (ready - came), 1e3 * (tick - ready),
                                   1e3 * (tick - came)))
        return _percentiles(TAKEOVER_NAMES, np.array(self._rows))


def _percentiles(names: Sequence[str], rows: np.ndarray) -> dict[str, float]:
    if not len(rows):
        return {}
    found = np.percentile(rows, PERCENTILES, axis=0)
    shown = {f'{name}_p{percentile}': float(value)
             for percentile, values in zip(PERCENTILES, found)
             for name, value in zip(names, values)}
    return {**shown, **{f'{name}_max': float(value)
                        for name, value in zip(names, rows.max(axis=0))}}

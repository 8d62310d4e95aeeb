"""What sections of a thread, and whole processes, cost, whatever else runs on the machine."""

from collections.abc import Callable, Iterator
import contextlib
import os
import time

from asyncppo_ros.tools.throughput import Cost, NOTHING

# Of Linux: time on a core, time in which the thread could have run and did not [ns], and turns.
SCHEDULER = '/proc/thread-self/schedstat'
PATIENCE = 20.0


class ThreadClock:
    """
    The time of the thread that makes it.

    Time in which the thread could have run and another one had the core does not pass: a stage
    that happens to be interrupted is not a slow one.  Time in which it sleeps or waits passes.
    """

    def __init__(self) -> None:
        try:
            self._file = os.open(SCHEDULER, os.O_RDONLY)
        except OSError:
            self._file = -1

    def now(self) -> Cost:
        """Give the time by this clock and that of the core [s], both since some moment."""
        return Cost(time.perf_counter() - self._displaced_s(), time.thread_time())

    def after(self, seconds: float) -> Callable[[], bool]:
        """
        Give what says whether so much time has passed.

        Where others have nearly all of the core it also ends: at `PATIENCE` times that by a clock
        on the wall.
        """
        end, latest = self.now().wall_s + seconds, time.perf_counter() + PATIENCE * seconds
        return lambda: self.now().wall_s >= end or time.perf_counter() >= latest

    def close(self) -> None:
        """Free what it holds."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _displaced_s(self) -> float:
        if self._file < 0:
            return 0.0
        return int(os.pread(self._file, 64, 0).split()[1]) * 1e-9


class Stopwatch:
    """
    Adds up what sections of one thread cost.

    Attributes
    ----------
    clock : ThreadClock

    """

    def __init__(self) -> None:
        self.clock = ThreadClock()
        self._spent: dict[str, Cost] = {}

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Measure a section."""
        begun = self.clock.now()
        try:
            yield
        finally:
            self._spent[name] = self.of(name) + self.clock.now().since(begun)

    def of(self, name: str) -> Cost:
        """Give what the sections of a name have cost so far."""
        return self._spent.get(name, NOTHING)

    def clear(self) -> None:
        """Forget what was measured."""
        self._spent.clear()


def cpu_seconds(pid: int) -> float:
    """
    Give the time of a core that a process has had, all its threads together [s]; Linux.

    Raises
    ------
    OSError
        There is no such process.

    """
    # The clock of another process, as clock_getcpuclockid(3) numbers it.
    return time.clock_gettime((~pid << 3) | 2)

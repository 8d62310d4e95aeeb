"""How busy this host is: cores nobody uses, processes that wait for one, memory that is left."""

from collections.abc import Sequence
import os
import pathlib
import time
from typing import NamedTuple

from asyncppo_ros.cores import core_limit

PROC = pathlib.Path('/proc')
# Of the memory that is available so much may be given to further actors.
MEMORY_SHARE = 0.5
# Where memory cannot be read it sets no limit.
PLENTY = 1_000_000


class Load(NamedTuple):
    """
    The load between two moments.

    Attributes
    ----------
    free_cores : float
        Cores' worth of time that this process may use and nobody did.
    used_cores : float
        Mean over the processes that were asked about.
    starved : float
        Share of time in which such a process could have run and had no core, likewise.
    room : int
        Further such processes that the memory has room for.

    """

    free_cores: float
    used_cores: float
    starved: float
    room: int


class _Counters(NamedTuple):
    at: float
    idle_s: float
    used_s: float
    starved_s: float


class HostLoad:
    """
    The load of this host since `begin`.

    What a system other than Linux does not tell counts as free: then the rate of the training
    alone says what is of use.  A limit of a control group bounds what is free, though it is not
    known how much of it is used.

    Parameters
    ----------
    proc : Path

    """

    def __init__(self, proc: pathlib.Path = PROC) -> None:
        self._proc = proc
        self._pids: list[int] = []
        self._begun = _Counters(0.0, 0.0, 0.0, 0.0)

    def begin(self, pids: Sequence[int]) -> None:
        """Begin anew, with so many processes to look at."""
        self._pids = list(pids)
        self._begun = self._counters()

    def end(self) -> Load:
        """Give the load since `begin`."""
        now = self._counters()
        passed = max(now.at - self._begun.at, 1e-9)
        each = max(1, len(self._pids)) * passed
        free = max(0.0, (now.idle_s - self._begun.idle_s) / passed)
        return Load(min(core_limit(), free), max(0.0, now.used_s - self._begun.used_s) / each,
                    max(0.0, now.starved_s - self._begun.starved_s) / each, self._room())

    def _counters(self) -> _Counters:
        # Field 1 is the time on a core, field 2 that in which it waited for one [ns].
        times = [self._numbers(f'{pid}/schedstat') for pid in self._pids]
        used, starved = (1e-9 * sum(fields[index] for fields in times if len(fields) > 1)
                         for index in (0, 1))
        at = time.monotonic()
        return _Counters(at, self._idle_s(at), used, starved)

    def _idle_s(self, at: float) -> float:
        """Give the idle time of all cores that this process may use [s]."""
        if not (self._proc / 'stat').is_file():
            return core_limit() * at
        usable = {f'cpu{number}' for number in os.sched_getaffinity(0)}
        lines = (self._proc / 'stat').read_text().splitlines()
        cores = [line.split() for line in lines if line.split(' ', 1)[0] in usable]
        # Behind the name: user, nice, system, idle, waiting for a disk.
        return sum(int(fields[4]) + int(fields[5]) for fields in cores) \
            / os.sysconf('SC_CLK_TCK')

    def _room(self) -> int:
        # Field 1: pages in memory.
        sizes = [fields[1] for pid in self._pids
                 if len(fields := self._numbers(f'{pid}/statm')) > 1]
        available = self._available()
        if not sizes or available is None:
            return PLENTY
        mean = max(1.0, sum(sizes) / len(sizes) * os.sysconf('SC_PAGE_SIZE'))
        return int(MEMORY_SHARE * available / mean)

    def _available(self) -> int | None:
        """Give the memory that is available [bytes]; None = not known."""
        try:
            lines = (self._proc / 'meminfo').read_text().splitlines()
        except OSError:
            return None
        return next((1024 * int(line.split()[1]) for line in lines
                     if line.startswith('MemAvailable:')), None)

    def _numbers(self, name: str) -> list[int]:
        """Read a file of numbers; none where it is not there: the process may have ended."""
        try:
            return [int(text) for text in (self._proc / name).read_text().split()]
        except (OSError, ValueError):
            return []

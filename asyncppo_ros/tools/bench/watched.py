"""A run of ``asyncppo train`` as benches see it: its rows as they come, its processes, its end."""

from collections.abc import Callable, Mapping, Sequence
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time
from typing import Any, NamedTuple

from asyncppo_ros.errors import RunError
from asyncppo_ros.learning.jsonl import read_jsonl, Tail
from asyncppo_ros.nodes.process import child_environment, StopRequest
from asyncppo_ros.run import Run
from asyncppo_ros.settings import as_text
from asyncppo_ros.tools.jobs import free_address

LOOK_S = 0.1
# A run promises to end within 5 s; so long its end is waited for and timed.
END_S = 20.0


class Seen(NamedTuple):
    """
    A row of metrics and when it came.

    Attributes
    ----------
    at : float
        Monotonic time [s].
    steps : int
        Transitions that reached updates since the watch began, also those that a learner which
        died had consumed.
    row : mapping

    """

    at: float
    steps: int
    row: Mapping[str, Any]


def without_place(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is another for each `WatchedRun`: its folder and its address."""
    return {name: value for name, value in settings.items()
            if name not in ('run_dir', 'transport.address')}


class WatchedRun:
    """
    Start a training and watch it.

    Parameters
    ----------
    folder : path
        Of the run; made by the training.
    settings : mapping
        Dotted names to values.
    resume : bool
        Go on with the run in `folder`.
    environment : mapping
        Variables beside those of this process.
    entering : sequence of str
        What stands before the command, such as what runs it on another host.

    """

    def __init__(self, folder: str | pathlib.Path, settings: Mapping[str, Any],
                 resume: bool = False, environment: Mapping[str, str] | None = None,
                 entering: Sequence[str] = ()) -> None:
        self.run = Run(folder)
        self.seen: list[Seen] = []
        self._tail = Tail(self.run.metrics_file)
        if resume:
            self._tail.read()
        given = {'transport.address': free_address(), **settings}
        where = ['--resume'] if resume else ['--run_dir']
        options = [text for name, value in given.items()
                   for text in (f'--{name}', as_text(value))]
        # Each has the graph for itself.
        variables = {'ROS_DOMAIN_ID': str(os.getpid() % 100 + 1), **child_environment(),
                     **(environment or {})}
        self.address = given['transport.address']
        self.output = self.run.folder.with_name(self.run.folder.name + '.out')
        self.output.parent.mkdir(parents=True, exist_ok=True)
        with open(self.output, 'ab') as output:
            self.process = subprocess.Popen(
                [*entering, sys.executable, '-m', 'asyncppo_ros.tools.cli', 'train', *where,
                 str(self.run.folder), *options],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=variables,
                start_new_session=True)

    def look(self) -> list[Seen]:
        """Take the rows that have come since the last look."""
        now = time.monotonic()
        fresh: list[Seen] = []
        for row in self._tail.read():
            before = (self.seen + fresh)[-1:] or [Seen(now, 0, row)]
            gained = row['env_steps'] - before[0].row['env_steps']
            same = row['generation'] == before[0].row['generation']
            # A new generation goes on from a checkpoint: its first update is not counted.
            fresh.append(Seen(now, before[0].steps + (gained if same else 0), row))
        self.seen += fresh
        return fresh

    def watch(self, seconds: float, stop: StopRequest | None = None,
              until: Callable[[], Any] = lambda: False) -> bool:
        """
        Look for a time, or until a condition holds, the run ends, or `stop` is asked for.

        Returns
        -------
        bool
            The condition held.

        """
        deadline = time.monotonic() + seconds
        while True:
            self.look()
            if until():
                return True
            if (time.monotonic() >= deadline or self.process.poll() is not None
                    or (stop is not None and stop())):
                return False
            time.sleep(LOOK_S)

    def need(self, until: Callable[[], Any], what: str, seconds: float = 120.0,
             stop: StopRequest | None = None) -> None:
        """
        Look until a condition holds.

        Raises
        ------
        RunError
            It did not in time, or the training ended before.

        """
        if not self.watch(seconds, stop, until) and not (stop is not None and stop()):
            how = (f'ended with exit code {self.process.returncode}'
                   if self.process.poll() is not None else f'took more than {seconds:g} s')
            raise RunError(f'run {self.run.folder}: {how} before {what}; see {self.output} and '
                           f'{self.run.logs}')

    def need_actors(self, count: int, stop: StopRequest, seconds: float = 300.0) -> None:
        """Look until so many actors collect; see `need`."""
        self.need(lambda: self.seen and self.seen[-1].row['actors'] == count, f'{count} actors',
                  seconds, stop)

    def require_success(self) -> None:
        """
        Ask how a run that has ended did.

        Raises
        ------
        RunError
            With another exit code than 0.

        """
        if self.process.returncode != 0:
            raise RunError(f'the {self.run.folder.name} run ended with exit code '
                           f'{self.process.returncode}; see {self.output}')

    def pids(self, role: str) -> list[int]:
        """Give the process numbers of a role: learner, evaluator, supervisor or actor."""
        return sorted(pid for pid, command in processes_of(self.run.folder).items()
                      if f'asyncppo_ros.nodes.main {role} ' in command)

    def end(self, number: signal.Signals = signal.SIGINT) -> tuple[int, float]:
        """End the training; give its exit code and how long that took [s]."""
        begun = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            code = self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.look()
        return code, time.monotonic() - begun

    def kill(self) -> None:
        """End everything at once, whatever state it is in."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in processes_of(self.run.folder):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def rows(self) -> list[dict[str, Any]]:
        """Read all rows of the run, also those of before the watch."""
        return read_jsonl(self.run.metrics_file)


def processes_of(folder: str | pathlib.Path) -> dict[int, str]:
    """Give pid → command line of every living process of a run except the one that started it."""
    found = {}
    for entry in pathlib.Path('/proc').iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / 'cmdline').read_bytes().replace(b'\0', b' ').decode()
            state = (entry / 'stat').read_text().rpartition(')')[2].split()[0]
        except (OSError, UnicodeDecodeError):
            continue
        if f'{folder}/' in command + '/' and state != 'Z' and 'asyncppo_ros.nodes' in command:
            found[int(entry.name)] = command
    return found


def steps_at(seen: Sequence[Seen], at: float) -> float:
    """Give the transitions that had reached updates at a time, between two rows in proportion."""
    later = next((index for index, entry in enumerate(seen) if entry.at > at), len(seen))
    if later in (0, len(seen)):
        return seen[min(later, len(seen) - 1)].steps
    before, after = seen[later - 1], seen[later]
    share = (at - before.at) / (after.at - before.at)
    return before.steps + share * (after.steps - before.steps)


def rate(seen: Sequence[Seen], begin: float, end: float) -> float:
    """Give the env steps per second between two times [s]."""
    return (steps_at(seen, end) - steps_at(seen, begin)) / (end - begin)


def median_rate(seen: Sequence[Seen], begin: float, end: float, window_s: float) -> float:
    """Give the median of the rates over sliding windows [env steps/s]."""
    starts = _grid(begin, end - window_s)
    return statistics.median(rate(seen, start, start + window_s) for start in starts)


def recovery_s(seen: Sequence[Seen], over_at: float, needed: float,
               window_s: float) -> float | None:
    """
    Say how long after a fault the rate was back [s].

    Parameters
    ----------
    seen : sequence of Seen
    over_at : float
        When the fault was over, on the clock of `Seen.at`.
    needed : float
        The rate that counts as back [env steps/s].
    window_s : float
        Over which the rate is taken; the window begins after the fault.

    Returns
    -------
    float or None
        The start of the first window that has the rate; None = no window had it.

    """
    for start in _grid(over_at, seen[-1].at - window_s):
        if rate(seen, start, start + window_s) >= needed:
            return start - over_at
    return None


def _grid(begin: float, end: float) -> list[float]:
    count = max(0, int((end - begin) / LOOK_S)) + 1 if end >= begin else 0
    return [begin + index * LOOK_S for index in range(count)]

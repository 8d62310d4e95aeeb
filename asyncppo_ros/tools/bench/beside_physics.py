"""Rates beside those of the bare loop: rounds, rows, checks, and the table for a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.tools.bench.bare_physics import BareLoop, Rate, RecordedSimulation, Timer
from asyncppo_ros.tools.bench.results import check, paired_row
from asyncppo_ros.tools.bench.rounds import interleaved

OURS, BARE, WITH_FORCES = 'ours', 'mj_step', 'mj_step + mj_rnePostConstraint'
PLANAR, SPATIAL = ('HalfCheetah-v5', 'Hopper-v5', 'Walker2d-v5'), ('Ant-v5', 'Humanoid-v5')


class Case(NamedTuple):
    """A task, and how many environments of it."""

    task: str
    num_envs: int

    def __str__(self) -> str:
        return f'{self.task}, {self.num_envs} environments'


#: The rates of one measurement, by what was measured.
Rates = dict[str, Rate]


class Worker(Protocol):
    """
    What is measured.

    Attributes
    ----------
    simulation : RecordedSimulation
        What it works with.

    """

    simulation: RecordedSimulation

    def work(self, watch: Timer) -> None:
        """Make some control steps while `watch` runs, at least one."""


class Pair:
    """
    A worker beside the bare loop of its physics.

    Parameters
    ----------
    worker : Worker
    seconds : float
        CPU time of the worker in one measurement, at least.

    """

    def __init__(self, worker: Worker, seconds: float) -> None:
        self._worker = worker
        self._seconds = seconds
        self._simulation = worker.simulation
        self._bare = BareLoop(worker.simulation)
        self._turns = 0

    def measure(self) -> Rates:
        """
        Measure once.

        The worker makes some control steps and the bare loop the same ones, in turn and again
        and again: a machine that becomes slow meanwhile slows both down.
        """
        names = [OURS, BARE, *([WITH_FORCES] if self._simulation.needs_forces else ())]
        watches = {name: Timer() for name in names}
        steps, ours = 0, watches[OURS]
        while ours.cpu_s < self._seconds:
            self._simulation.begin_record(ours)
            ours.start()
            self._worker.work(ours)
            ours.stop()
            record = self._simulation.end_record()
            steps += len(record.commands)
            # Neither of two ceilings always runs first.
            for name in names[1:] if self._turns % 2 else names[:0:-1]:
                self._bare.replay(record, watches[name], name == WITH_FORCES)
            self._turns += 1
        count = steps * self._simulation.num_envs
        return {name: watch.rate(count) for name, watch in watches.items()}


def rows_of(title: str, rounds: Sequence[Rates]) -> list[dict[str, Any]]:
    """Give, for each ceiling, a row by wall-clock time and a row by CPU time."""
    rows = []
    for ceiling in [name for name in rounds[0] if name != OURS]:
        for clock in Rate._fields:
            ours, bare = ([getattr(rates[name], clock) for rates in rounds]
                          for name in (OURS, ceiling))
            rows.append(paired_row(f'{title} / {ceiling}', ours, bare, 'env steps/s')
                        | {'clock': clock})
    return rows


def checks_of(title: str, rows: Sequence[Mapping[str, Any]],
              needed: float | None) -> list[dict[str, Any]]:
    """Compare the ratio to the last of the ceilings, by wall-clock time, with what is asked."""
    if needed is None:
        return []
    entry = [entry for entry in rows if entry['clock'] == 'wall'][-1]
    return [check(entry['name'], entry['ratio'], f'>= {needed:g}', entry['ratio'] >= needed)]


def summarize(found: Mapping[Case, Sequence[Rates]], needed: Mapping[Case, float]
              ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Give all rows and all checks."""
    rows: list[dict[str, Any]] = []
    checks: list[dict[str, Any]] = []
    for case, rounds in found.items():
        of_case = rows_of(str(case), rounds)
        rows += of_case
        checks += checks_of(str(case), of_case, needed.get(case))
    return rows, checks


def measure(workers: Mapping[Case, Worker], rounds: int, seconds: float,
            stop: StopRequest) -> dict[Case, list[Rates]] | None:
    """
    Measure all workers in turn.

    Parameters
    ----------
    workers : mapping from Case to Worker
    rounds : int
    seconds : float
        CPU time of the worker in one measurement, at least.
    stop : StopRequest

    Returns
    -------
    dict from Case to list of Rates [rounds], or None
        None = stopped before the end of the first round.

    """
    found = interleaved({str(case): Pair(worker, seconds).measure
                         for case, worker in workers.items()}, rounds, stop)
    return {case: found[str(case)] for case in workers} if all(found.values()) else None


def text_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Lay rows out for a terminal: rate, ceiling, ratio and its 95 % interval."""
    width = max(len(entry['name']) for entry in rows) + 2
    head = (f'{"":<{width}}{"clock":<6}{"env steps/s":>12}{"ceiling":>12}{"ratio":>8}'
            '  95 % interval')
    lines = [f'{entry["name"]:<{width}}{entry["clock"]:<6}{entry["median"]:12,.0f}'
             f'{entry["ceiling"]:12,.0f}{entry["ratio"]:8.3f}'
             f'  {entry["ratio_interval"][0]:.3f} to {entry["ratio_interval"][1]:.3f}'
             for entry in rows]
    return '\n'.join([head, *lines])


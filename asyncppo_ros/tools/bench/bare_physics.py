"""
The physical work of environments, done once more by a bare loop of `mj_step`.

How long a physics step takes depends on the state: contacts cost time.  So a simulation that is
measured notes what it did: the states at the start, the commands of every control step, and the
states in which episodes began meanwhile.  The bare loop starts from the same states, is given the
same commands, and is put into the same new states where episodes ended; so it goes through the
same states bit for bit.  Of the bare loop only the calls of MuJoCo are timed, not how it comes by
commands and states; of the simulation everything but the notes.
"""

from collections.abc import Sequence
import dataclasses
import time
from typing import NamedTuple

import mujoco
import numpy as np

from asyncppo_ros.simulation.environment import StepResult
from asyncppo_ros.simulation.model import substeps_of
from asyncppo_ros.simulation.physics import AFTER_CONSTRAINTS, WHOLE_STATE
from asyncppo_ros.simulation.registry import find_task
from asyncppo_ros.simulation.simulation import BatchedSimulation


class Rate(NamedTuple):
    """Env steps per second of wall-clock time, and of this process's CPU time."""

    wall: float
    cpu: float


class Timer:
    """
    Adds up the time between `start` and `stop`.

    Attributes
    ----------
    wall_s, cpu_s : float
        CPU time is that of all threads of this process.

    """

    def __init__(self) -> None:
        self.wall_s = self.cpu_s = 0.0
        self._wall = self._cpu = 0.0

    def start(self) -> None:
        """Go on."""
        self._cpu = time.process_time()
        self._wall = time.perf_counter()

    def stop(self) -> None:
        """Pause."""
        self.wall_s += time.perf_counter() - self._wall
        self.cpu_s += time.process_time() - self._cpu

    def rate(self, steps: int) -> Rate:
        """Give the rate of so many env steps."""
        return Rate(steps / self.wall_s, steps / self.cpu_s)


@dataclasses.dataclass
class Record:
    """
    What N environments did for T control steps.

    Attributes
    ----------
    start, end : float64 [N, S]
        Whole states before and after.
    commands : list of float64 [N, nu], T of them
        Of the actuators.
    begun : list of (int [E], float64 [E, S]), T of them
        Which environments began an episode after the step, and their whole states then.

    """

    start: np.ndarray
    end: np.ndarray
    commands: list[np.ndarray] = dataclasses.field(default_factory=list)
    begun: list[tuple[np.ndarray, np.ndarray]] = dataclasses.field(default_factory=list)


class RecordedSimulation(BatchedSimulation):
    """
    A simulation that notes what it does; the timer is stopped meanwhile.

    Parameters
    ----------
    task : str
        Its name.
    num_envs, seed : int

    Attributes
    ----------
    watch : Timer
        Runs while a step is asked for.

    Raises
    ------
    TaskError, ResourceError
        As `registry.make`.

    """

    def __init__(self, task: str, num_envs: int, seed: int = 0) -> None:
        found = find_task(task)
        super().__init__(found, num_envs, seed, random_episode_start=True, name=task)
        #: Whether what the task sees needs `mj_rnePostConstraint`.
        self.needs_forces = any(name in AFTER_CONSTRAINTS for name in found.data_fields)
        self._everyone = np.arange(num_envs)
        self.begin_record(Timer())

    def begin_record(self, watch: Timer) -> None:
        """Note what follows; start and stop this timer from now on."""
        self.watch = watch
        start = self._physics.whole_states(self._everyone)
        self._record = Record(start, start)

    def end_record(self) -> Record:
        """Give what was noted."""
        self._record.end = self._physics.whole_states(self._everyone)
        return self._record

    def step(self, action: np.ndarray, out: np.ndarray) -> StepResult:
        """Make one control step and note it."""
        result = super().step(action, out)
        self.watch.stop()
        record, ended = self._record, np.flatnonzero(result.terminated | result.truncated)
        record.commands.append(self._physics.control.copy())
        record.begun.append((ended, self._physics.whole_states(ended)))
        self.watch.start()
        return result


class BareLoop:
    """
    A Python loop of ``mj_step(model, data, substeps)`` over as many MjData.

    Parameters
    ----------
    simulation : RecordedSimulation
        Whose work is done again; its environments do not differ from the model.

    """

    def __init__(self, simulation: RecordedSimulation) -> None:
        self._model = simulation.model
        self._substeps = substeps_of(self._model, simulation.control_dt, simulation.task)
        self._data = [mujoco.MjData(self._model) for _ in range(simulation.num_envs)]

    def replay(self, record: Record, watch: Timer, with_forces: bool = False) -> None:
        """
        Go through the same states.

        Parameters
        ----------
        record : Record
        watch : Timer
            Runs while MuJoCo is called.
        with_forces : bool
            Call `mj_rnePostConstraint` after each `mj_step`.

        """
        everyone = np.arange(len(self._data))
        loop = self._loop_with_forces if with_forces else self._loop
        self._put(everyone, record.start)
        for commands, begun in zip(record.commands, record.begun):
            for data, command in zip(self._data, commands):
                data.ctrl[:] = command
            watch.start()
            loop()
            watch.stop()
            self._put(*begun)

    def states(self) -> np.ndarray:
        """Give the whole states, float64 [N, S]."""
        states = np.empty((len(self._data), mujoco.mj_stateSize(self._model, WHOLE_STATE)))
        for data, state in zip(self._data, states):
            mujoco.mj_getState(self._model, data, state, WHOLE_STATE)
        return states

    def _loop(self) -> None:
        step, model, substeps = mujoco.mj_step, self._model, self._substeps
        for data in self._data:
            step(model, data, substeps)

    def _loop_with_forces(self) -> None:
        step, model, substeps = mujoco.mj_step, self._model, self._substeps
        forces = mujoco.mj_rnePostConstraint
        for data in self._data:
            step(model, data, substeps)
            forces(model, data)

    def _put(self, environments: Sequence[int] | np.ndarray, states: np.ndarray) -> None:
        for index, state in zip(environments, states):
            mujoco.mj_setState(self._model, self._data[index], state, WHOLE_STATE)

"""N simulations of one MjModel, stepped in one thread by one Python loop."""

from typing import NamedTuple

import mujoco
import numpy as np

from asyncppo_ros.simulation import mujoco_log
from asyncppo_ros.simulation.state import SimulationState

_FIRST_BAD = int(mujoco.mjtWarning.mjWARN_BADQPOS)
_LAST_BAD = int(mujoco.mjtWarning.mjWARN_BADQACC)
_NONE = np.empty(0, dtype=np.int64)
# `mj_step` leaves these as they were unless the model has a sensor that needs them.
AFTER_CONSTRAINTS = ('cacc', 'cfrc_int', 'cfrc_ext')
#: All that the next step of a simulation follows from; nothing follows from the time.
WHOLE_STATE = int(mujoco.mjtState.mjSTATE_INTEGRATION) & ~int(mujoco.mjtState.mjSTATE_TIME)
# What few models have beside positions and velocities: states of actuators, delays, plugins.
_REST = int(mujoco.mjtState.mjSTATE_FULLPHYSICS) & WHOLE_STATE & ~int(
    mujoco.mjtState.mjSTATE_QPOS | mujoco.mjtState.mjSTATE_QVEL)


class _Numbers(NamedTuple):
    """Bytes of what is copied in and out at each step, of MjData or of one environment."""

    command: memoryview
    qpos: memoryview
    qvel: memoryview
    # Where the solver of contacts starts from.
    warm_start: memoryview
    force: memoryview


class Physics:
    """
    The physics of N environments.

    One MjData makes the steps of all of them: each one's numbers are copied into it, and out of
    it after the step.  So MuJoCo works in memory that stays in the cache, which saves more than
    the copies cost: beside a bare loop over N MjData, 64 HalfCheetahs reach 1.05 instead of the
    0.91 of N MjData with copies out of them; 64 Walker2d 1.05 instead of 0.98.  What a step gives
    follows from what is copied alone, so the numbers are those of N MjData bit for bit.

    A copy between two views of bytes takes 60 ns and numpy's 90, with more code that has to come
    into the cache again after each step: with numpy the 1.05 are 0.99.

    Parameters
    ----------
    models : list of mujoco.MjModel
        Of each environment; they may be one and the same, and differ in numbers alone.
    state : SimulationState
        Holds positions and velocities, from which steps go on; receives those after the step,
        forces and fields.
    substeps : int
        Physics steps of one control step.
    keyframe : int
        Where episodes start; -1 = the reference pose.

    """

    def __init__(self, models: list[mujoco.MjModel], state: SimulationState, substeps: int,
                 keyframe: int = -1) -> None:
        self._models = models
        self._state = state
        self._substeps = substeps
        self._keyframe = keyframe
        self._data = mujoco.MjData(models[0])
        #: Actuator commands, float64 [N, nu]; written by the owner before `step`.
        self.control = np.zeros((state.num_envs, models[0].nu))
        self._warm_start = np.zeros_like(state.qvel)
        rest_size = mujoco.mj_stateSize(models[0], _REST)
        self._rest = np.zeros((state.num_envs, rest_size)) if rest_size else None
        self._complete = any(name in AFTER_CONSTRAINTS for name in state.fields)
        self._bind()
        # From where the last step was made.
        self._inputs = [(_bytes(rows), _bytes(rows.copy())) for rows in (
            state.qpos, state.qvel, self._warm_start,
            *([] if self._rest is None else [self._rest]))]
        self._counters = self._data.warning.number[_FIRST_BAD:_LAST_BAD + 1]
        self._warnings = mujoco_log.warnings_so_far()
        self._unstable: set[int] = set()

    def step(self) -> None:
        """Make one control step in every environment and bring the state up to date."""
        for rows, copy in self._inputs:
            copy[:] = rows
        self._step(0, self._state.num_envs)
        # Rare, so it may take as long as another step.
        if mujoco_log.warnings_so_far() != self._warnings:
            self._look_for_unstable()
        self._state.refresh()

    def unstable(self) -> np.ndarray:
        """
        Find the environments whose numbers ran away since this was asked last.

        MuJoCo has put those back to the reference pose in the middle of the control step, so
        what their rows hold is neither the state before nor the state after.
        """
        if not self._unstable:
            return _NONE
        found = np.array(sorted(self._unstable))
        self._unstable.clear()
        return found

    def push(self, environments: np.ndarray, change: np.ndarray) -> None:
        """Change the horizontal velocity of some free bases by float64 [P, 2] [m/s]."""
        first = self._state.base_velocity
        if first is not None:
            self._state.qvel[environments, first:first + 2] += change

    def whole_states(self, environments: np.ndarray) -> np.ndarray:
        """Copy all that the next step of some environments follows from, float64 [E, S]."""
        states = np.empty((len(environments),
                           mujoco.mj_stateSize(self._models[0], WHOLE_STATE)))
        for index, state in zip(environments.tolist(), states):
            self._load(index)
            mujoco.mj_getState(self._models[index], self._data, state, WHOLE_STATE)
        return states

    def nominal(self, index: int) -> None:
        """Put one environment and its rows to the nominal start pose, at rest."""
        self._reset_data(index)
        row = self._rows[index][1]
        row.qpos[:] = self._numbers.qpos
        row.qvel[:] = self._numbers.qvel

    def begin(self, index: int) -> None:
        """Start one environment from its rows, which were changed after `nominal`."""
        model, row, rest, fields = self._rows[index]
        numbers, data = self._numbers, self._data
        numbers.qpos[:] = row.qpos
        numbers.qvel[:] = row.qvel
        mujoco.mj_forward(model, data)
        row.warm_start[:] = numbers.warm_start
        row.force[:] = numbers.force
        if rest is not None:
            mujoco.mj_getState(model, data, rest, _REST)
        for field_row, field in fields:
            field_row[:] = field

    def _bind(self) -> None:
        """Make the views of MjData and of every row once."""
        data, state = self._data, self._state
        self._numbers = _Numbers(*map(_bytes, (
            data.ctrl, data.qpos, data.qvel, data.qacc_warmstart, data.qfrc_actuator)))
        rows = zip(self.control, state.qpos, state.qvel, self._warm_start, state.actuator_force)
        fields = [(values, _bytes(getattr(data, name))) for name, values in state.fields.items()]
        rest = [None] * state.num_envs if self._rest is None else self._rest
        self._rows = [
            (model, _Numbers(*map(_bytes, row)), extra,
             [(_bytes(values[index]), view) for values, view in fields])
            for index, (model, row, extra) in enumerate(zip(self._models, rows, rest))]

    def _step(self, first: int, end: int) -> None:
        data, step, substeps = self._data, mujoco.mj_step, self._substeps
        complete, add_forces = self._complete, mujoco.mj_rnePostConstraint
        ctrl, qpos, qvel, warm_start, force = self._numbers
        for (model, (command, qpos_row, qvel_row, warm_start_row, force_row), rest,
             fields) in self._rows[first:end]:
            ctrl[:] = command
            qpos[:] = qpos_row
            qvel[:] = qvel_row
            warm_start[:] = warm_start_row
            if rest is not None:
                mujoco.mj_setState(model, data, rest, _REST)
            step(model, data, substeps)
            if complete:
                add_forces(model, data)
            qpos_row[:] = qpos
            qvel_row[:] = qvel
            warm_start_row[:] = warm_start
            force_row[:] = force
            if rest is not None:
                mujoco.mj_getState(model, data, rest, _REST)
            for field_row, field in fields:
                field_row[:] = field

    def _look_for_unstable(self) -> None:
        """Make the step again, one environment after the other, if it was unstable in any."""
        if self._counters.any():
            for rows, copy in self._inputs:
                rows[:] = copy
            for index in range(self._state.num_envs):
                # What MuJoCo has put back for one must not reach the next.
                self._reset_data(index)
                self._step(index, index + 1)
                if self._counters.any():
                    self._unstable.add(index)
            self._reset_data(0)
        self._warnings = mujoco_log.warnings_so_far()

    def _load(self, index: int) -> None:
        """Bring into MjData all that the next step of an environment follows from."""
        model, row, rest, _ = self._rows[index]
        for number, value in zip(self._numbers[:4], row):
            number[:] = value
        if rest is not None:
            mujoco.mj_setState(model, self._data, rest, _REST)

    def _reset_data(self, index: int) -> None:
        if self._keyframe < 0:
            mujoco.mj_resetData(self._models[index], self._data)
        else:
            mujoco.mj_resetDataKeyframe(self._models[index], self._data, self._keyframe)


def _bytes(array: np.ndarray) -> memoryview:
    """Give the bytes of a contiguous array; writing to them writes to the array."""
    return array.reshape(-1).view(np.uint8).data

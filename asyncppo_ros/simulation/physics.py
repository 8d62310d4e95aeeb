"""N simulations of one MjModel, stepped in one thread by one Python loop."""

from typing import NamedTuple

import mujoco
import numpy as np

from asyncppo_ros.simulation import mujoco_log
from asyncppo_ros.simulation.state import SimulationState
from asyncppo_ros.simulation.step_inputs import bytes_in, bytes_of

_FIRST_BAD = int(mujoco.mjtWarning.mjWARN_BADQPOS)
_LAST_BAD = int(mujoco.mjtWarning.mjWARN_BADQACC)
_NONE = np.empty(0, dtype=np.int64)
# `mj_step` leaves these as they were unless the model has a sensor that needs them.
AFTER_CONSTRAINTS = ('cacc', 'cfrc_int', 'cfrc_ext')
_TIME = int(mujoco.mjtState.mjSTATE_TIME)
#: All that the next step of a simulation follows from, but for the time: only delays follow from
#: that, and it is each simulation's own only where a model has them.
WHOLE_STATE = int(mujoco.mjtState.mjSTATE_INTEGRATION) & ~_TIME
# What few models have beside positions and velocities: states of actuators, delays, plugins.
_REST = int(mujoco.mjtState.mjSTATE_FULLPHYSICS) & ~int(
    mujoco.mjtState.mjSTATE_QPOS | mujoco.mjtState.mjSTATE_QVEL | _TIME)


class _Start(NamedTuple):
    """Where episodes of one model begin: what `mj_resetData` leaves."""

    qpos: np.ndarray
    qvel: np.ndarray
    # Bytes of the commands.
    control: memoryview


class Physics:
    """
    The physics of N environments.

    One MjData makes the steps of all of them: each one's numbers are copied into it, and out of
    it after the step.  So MuJoCo works in memory that stays in the cache, which saves more than
    the copies cost: beside a bare loop over N MjData, 64 HalfCheetahs reach 1.05 instead of the
    0.91 of N MjData with copies out of them; 64 Walker2d 1.05 instead of 0.98.  What a step gives
    follows from what is copied alone, so the numbers are those of N MjData bit for bit.

    A copy between two views of bytes takes 60 ns and numpy's 90, with more code that has to come
    into the cache again after each step: with numpy the 1.05 are 0.99.  And there are few copies:
    see `StepInputs`.

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
        self.control = state.inputs.control
        # Where there is more than positions and velocities it may follow from the time: delays do.
        self._rest_kind = _REST | _TIME if mujoco.mj_stateSize(models[0], _REST) else 0
        self._rest = np.zeros((state.num_envs, mujoco.mj_stateSize(models[0], self._rest_kind)))
        self._complete = any(name in AFTER_CONSTRAINTS for name in state.fields)
        self._bind()
        # From where the last step was made.
        self._before = state.inputs.copy()
        self._rest_before = self._rest.copy()
        self._counters = self._data.warning.number[_FIRST_BAD:_LAST_BAD + 1]
        self._warnings = mujoco_log.warnings_so_far()
        self._unstable: set[int] = set()

    def step(self) -> None:
        """Make one control step in every environment and bring the state up to date."""
        self._before.take(self._state.inputs)
        if self._rest.size:
            self._rest_before[...] = self._rest
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
        """Put the rows of one environment to the nominal start pose, at rest."""
        start, inputs = self._starts[index], self._state.inputs
        inputs.qpos[index] = start.qpos
        inputs.qvel[index] = start.qvel
        inputs.warm_start[index] = 0.0

    def begin(self, index: int) -> None:
        """Start one environment from its rows, which were changed after `nominal`."""
        model, numbers, force, rest, fields = self._rows[index]
        data = self._data
        if self._shows_more:
            self._reset_data(index)
            data.qpos[:] = self._state.qpos[index]
            data.qvel[:] = self._state.qvel[index]
            mujoco.mj_forward(model, data)
        else:
            self._numbers[:] = numbers
            self._control[:] = self._starts[index].control
            _forward_to_actuators(model, data)
        force[:] = self._force
        if rest is not None:
            mujoco.mj_getState(model, data, rest, self._rest_kind)
        for field_row, field in fields:
            field_row[:] = field

    def _bind(self) -> None:
        """Make the views of MjData and of every row once."""
        data, state, models = self._data, self._state, self._models
        self._numbers, self._control = bytes_in(data), bytes_of(data.ctrl)
        self._force = bytes_of(data.qfrc_actuator)
        fields = [(values, bytes_of(getattr(data, name)))
                  for name, values in state.fields.items()]
        rest = self._rest if self._rest.size else [None] * state.num_envs
        self._rows = [
            (model, bytes_of(numbers), bytes_of(force), extra,
             [(bytes_of(values[index]), view) for values, view in fields])
            for index, (model, numbers, force, extra) in enumerate(
                zip(models, state.inputs.numbers, state.actuator_force, rest))]
        starts = {id(model): self._start(index) for index, model in enumerate(models)}
        self._starts = [starts[id(model)] for model in models]
        self._reset_data(0)
        # Then the start of an episode shows more of MjData than the forces of actuators, or those
        # follow from contacts, as the pull of adhesion does.
        self._shows_more = bool(fields or self._rest.size) or bool(
            np.isin(models[0].actuator_trntype, int(mujoco.mjtTrn.mjTRN_BODY)).any())

    def _start(self, index: int) -> _Start:
        self._reset_data(index)
        data = self._data
        return _Start(data.qpos.copy(), data.qvel.copy(), bytes_of(data.ctrl.copy()))

    def _step(self, first: int, end: int) -> None:
        data, step, substeps = self._data, mujoco.mj_step, self._substeps
        complete, add_forces = self._complete, mujoco.mj_rnePostConstraint
        numbers, force = self._numbers, self._force
        for model, numbers_row, force_row, rest, fields in self._rows[first:end]:
            numbers[:] = numbers_row
            if rest is not None:
                mujoco.mj_setState(model, data, rest, self._rest_kind)
            step(model, data, substeps)
            if complete:
                add_forces(model, data)
            numbers_row[:] = numbers
            force_row[:] = force
            if rest is not None:
                mujoco.mj_getState(model, data, rest, self._rest_kind)
            for field_row, field in fields:
                field_row[:] = field

    def _look_for_unstable(self) -> None:
        """Make the step again, one environment after the other, if it was unstable in any."""
        if self._counters.any():
            self._state.inputs.take(self._before)
            self._rest[...] = self._rest_before
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
        model, numbers, _, rest, _ = self._rows[index]
        self._numbers[:] = numbers
        if rest is not None:
            mujoco.mj_setState(model, self._data, rest, self._rest_kind)

    def _reset_data(self, index: int) -> None:
        if self._keyframe < 0:
            mujoco.mj_resetData(self._models[index], self._data)
        else:
            mujoco.mj_resetDataKeyframe(self._models[index], self._data, self._keyframe)


def _forward_to_actuators(model: mujoco.MjModel, data: mujoco.MjData) -> None:
    """Do of `mj_forward` what forces of actuators follow from: a tenth of its work."""
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_tendon(model, data)
    mujoco.mj_transmission(model, data)
    mujoco.mj_fwdVelocity(model, data)
    mujoco.mj_fwdActuation(model, data)

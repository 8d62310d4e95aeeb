"""N MjData of one MjModel, stepped in one thread by one Python loop."""

import mujoco
import numpy as np

from asyncppo_ros.simulation import mujoco_log
from asyncppo_ros.simulation.state import SimulationState

_FIRST_BAD = int(mujoco.mjtWarning.mjWARN_BADQPOS)
_LAST_BAD = int(mujoco.mjtWarning.mjWARN_BADQACC)
_NONE = np.empty(0, dtype=np.int64)
# `mj_step` leaves these as they were unless the model has a sensor that needs them.
_AFTER_CONSTRAINTS = ('cacc', 'cfrc_int', 'cfrc_ext')


class Physics:
    """
    The physics of N environments.

    The views of each MjData and of each row are made once, so that around `mj_step` an
    environment costs four small assignments: about 0.4 µs.  They are made right after its step,
    while its memory is in the cache.

    Parameters
    ----------
    model : mujoco.MjModel
        Shared by all.
    state : SimulationState
        Receives positions, velocities, forces and fields.
    substeps : int
        Physics steps of one control step.
    keyframe : int
        Where episodes start; -1 = the reference pose.

    """

    def __init__(self, model: mujoco.MjModel, state: SimulationState, substeps: int,
                 keyframe: int = -1) -> None:
        self._model = model
        self._state = state
        self._substeps = substeps
        self._keyframe = keyframe
        self._data = [mujoco.MjData(model) for _ in range(state.num_envs)]
        #: Actuator commands, float64 [N, nu]; written by the owner before `step`.
        self.control = np.zeros((state.num_envs, model.nu))
        self._bound = [
            (data, data.ctrl, command, data.qpos, qpos, data.qvel, qvel, data.qfrc_actuator, force)
            for data, command, qpos, qvel, force in zip(
                self._data, self.control, state.qpos, state.qvel, state.actuator_force)]
        self._fields = [([getattr(data, name).reshape(-1) for data in self._data],
                         rows.reshape(-1)) for name, rows in state.fields.items()]
        self._complete = any(name in _AFTER_CONSTRAINTS for name in state.fields)
        self._counters = [data.warning.number[_FIRST_BAD:_LAST_BAD + 1] for data in self._data]
        self._warnings = mujoco_log.warnings_so_far()

    def step(self) -> None:
        """Make one control step in every environment and bring the state up to date."""
        step, model, substeps = mujoco.mj_step, self._model, self._substeps
        for (data, control, command, qpos, qpos_row, qvel, qvel_row, force,
             force_row) in self._bound:
            control[...] = command
            step(model, data, substeps)
            qpos_row[...] = qpos
            qvel_row[...] = qvel
            force_row[...] = force
        if self._complete:
            for data in self._data:
                mujoco.mj_rnePostConstraint(model, data)
        for views, flat in self._fields:
            np.concatenate(views, out=flat)
        self._state.refresh()

    def unstable(self) -> np.ndarray:
        """
        Find the environments whose numbers ran away in this episode.

        MuJoCo has put those back to the reference pose in the middle of the control step, so
        what their rows hold is neither the state before nor the state after.
        """
        warnings = mujoco_log.warnings_so_far()
        if warnings == self._warnings:
            return _NONE
        self._warnings = warnings
        return np.flatnonzero([counter.any() for counter in self._counters])

    def nominal(self, index: int) -> None:
        """Put one environment and its rows to the nominal start pose, at rest."""
        data = self._data[index]
        if self._keyframe < 0:
            mujoco.mj_resetData(self._model, data)
        else:
            mujoco.mj_resetDataKeyframe(self._model, data, self._keyframe)
        self._state.qpos[index] = data.qpos
        self._state.qvel[index] = data.qvel

    def begin(self, index: int) -> None:
        """Start one environment from its rows, which were changed after `nominal`."""
        data, state = self._data[index], self._state
        data.qpos[:] = state.qpos[index]
        data.qvel[:] = state.qvel[index]
        mujoco.mj_forward(self._model, data)
        state.actuator_force[index] = data.qfrc_actuator
        for name, rows in state.fields.items():
            rows[index] = getattr(data, name)

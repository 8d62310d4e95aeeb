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
    models : list of mujoco.MjModel
        Of each environment; they may be one and the same.
    state : SimulationState
        Receives positions, velocities, forces and fields.
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
        self._data = [mujoco.MjData(model) for model in models]
        #: Actuator commands, float64 [N, nu]; written by the owner before `step`.
        self.control = np.zeros((state.num_envs, models[0].nu))
        self._bound = [
            (model, data, data.ctrl, command, data.qpos, qpos, data.qvel, qvel,
             data.qfrc_actuator, force)
            for model, data, command, qpos, qvel, force in zip(
                models, self._data, self.control, state.qpos, state.qvel,
                state.actuator_force)]
        self._fields = [([getattr(data, name).reshape(-1) for data in self._data],
                         rows.reshape(-1)) for name, rows in state.fields.items()]
        self._complete = any(name in _AFTER_CONSTRAINTS for name in state.fields)
        self._counters = [data.warning.number[_FIRST_BAD:_LAST_BAD + 1] for data in self._data]
        self._warnings = mujoco_log.warnings_so_far()

    def step(self) -> None:
        """Make one control step in every environment and bring the state up to date."""
        step, substeps = mujoco.mj_step, self._substeps
        for (model, data, control, command, qpos, qpos_row, qvel, qvel_row, force,
             force_row) in self._bound:
            control[...] = command
            step(model, data, substeps)
            qpos_row[...] = qpos
            qvel_row[...] = qvel
            force_row[...] = force
        if self._complete:
            for model, data in zip(self._models, self._data):
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

    def push(self, environments: np.ndarray, change: np.ndarray) -> None:
        """Change the horizontal velocity of some free bases by float64 [P, 2] [m/s]."""
        first = self._state.base_velocity
        if first is None:
            return
        for index, difference in zip(environments.tolist(), change):
            self._data[index].qvel[first:first + 2] += difference

    def nominal(self, index: int) -> None:
        """Put one environment and its rows to the nominal start pose, at rest."""
        model, data = self._models[index], self._data[index]
        if self._keyframe < 0:
            mujoco.mj_resetData(model, data)
        else:
            mujoco.mj_resetDataKeyframe(model, data, self._keyframe)
        self._state.qpos[index] = data.qpos
        self._state.qvel[index] = data.qvel

    def begin(self, index: int) -> None:
        """Start one environment from its rows, which were changed after `nominal`."""
        data, state = self._data[index], self._state
        data.qpos[:] = state.qpos[index]
        data.qvel[:] = state.qvel[index]
        mujoco.mj_forward(self._models[index], data)
        state.actuator_force[index] = data.qfrc_actuator
        for name, rows in state.fields.items():
            rows[index] = getattr(data, name)

"""N MjData of one MjModel, stepped in one thread by one Python loop."""

import mujoco
import numpy as np

from asyncppo_ros.simulation.state import SimulationState

_FIRST_BAD = int(mujoco.mjtWarning.mjWARN_BADQPOS)
_LAST_BAD = int(mujoco.mjtWarning.mjWARN_BADQACC)
_NONE = np.empty(0, dtype=np.int64)


class Physics:
    """
    The physics of N environments.

    The views of each MjData and of each row are made once.  Around `mj_step` an environment then
    costs one small assignment and its share of a few `np.concatenate` calls, which gather a
    whole batch in C: about 0.4 µs.

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
        self._bound = list(zip(self._data, [data.ctrl for data in self._data], self.control))
        self._gathered = [self._views('qpos', state.qpos), self._views('qvel', state.qvel),
                          self._views('qfrc_actuator', state.actuator_force)]
        self._gathered += [self._views(name, rows) for name, rows in state.fields.items()]
        self._warned = np.zeros((state.num_envs, _LAST_BAD + 1 - _FIRST_BAD), dtype=np.int32)
        counters = [data.warning.number[_FIRST_BAD:_LAST_BAD + 1] for data in self._data]
        self._gathered.append((counters, self._warned.reshape(-1)))

    def step(self) -> None:
        """Make one control step in every environment and bring the state up to date."""
        step, model, substeps = mujoco.mj_step, self._model, self._substeps
        for data, control, row in self._bound:
            control[...] = row
            step(model, data, substeps)
        self._gather()

    def unstable(self) -> np.ndarray:
        """
        Find the environments whose numbers ran away in this episode.

        MuJoCo has put those back to the reference pose in the middle of the control step, so
        what their rows hold is neither the state before nor the state after.
        """
        if not np.count_nonzero(self._warned):
            return _NONE
        return np.flatnonzero(self._warned.any(axis=1))

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
        # mj_forward leaves positions as they are, except that quaternions may not be unit.
        state.actuator_force[index] = data.qfrc_actuator
        for name, rows in state.fields.items():
            rows[index] = getattr(data, name)
        self._warned[index] = 0

    def _views(self, name: str, rows: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        return [getattr(data, name).reshape(-1) for data in self._data], rows.reshape(-1)

    def _gather(self) -> None:
        for views, flat in self._gathered:
            np.concatenate(views, out=flat)
        self._state.refresh()

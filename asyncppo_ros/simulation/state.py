"""The state of N simulations: a `RobotState` whose arrays are views of MuJoCo's rows."""

from collections.abc import Mapping
import dataclasses
from typing import Any

import mujoco
import numpy as np

from asyncppo_ros.errors import TaskError
from asyncppo_ros.robot.state import contiguous, project_gravity, RobotState, rows
from asyncppo_ros.simulation.step_inputs import step_inputs, StepInputs

ONE_AXIS = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class SimulationState(RobotState):
    """
    What simulations know beyond a robot.

    Attributes
    ----------
    qpos : float64 [N, nq]
        Generalised positions, as MuJoCo orders them.
    qvel : float64 [N, nv]
        Generalised velocities.
    actuator_force : float64 [N, nv]
        Generalised forces of the actuators (MuJoCo's qfrc_actuator).
    previous_qpos, previous_qvel : float64
        From before the last control step.
    steps : int64 [N]
        Control steps of the episode so far.
    control_dt : float
        Period of a control step [s].
    memory : dict from str to float64 [N, k]
        What the task keeps; zero at the start of an episode.
    fields : dict from str to float64 [N, ...]
        The task's `data_fields`.
    factors : dict from str to float64 [N, 1]
        By what randomization has multiplied the total 'mass' and the 'friction' of the model.
    inputs, previous : StepInputs
        What the next physics step follows from, and what the last control step did: positions
        and velocities are views of these.
    derived : dict from str to array
        What a task has computed from this state and needs again; empty as soon as it changes.

    """

    qpos: np.ndarray
    qvel: np.ndarray
    actuator_force: np.ndarray
    previous_qpos: np.ndarray
    previous_qvel: np.ndarray
    steps: np.ndarray
    control_dt: float
    memory: dict[str, np.ndarray]
    fields: dict[str, np.ndarray]
    factors: dict[str, np.ndarray]
    inputs: StepInputs
    previous: StepInputs
    derived: dict[str, np.ndarray] = dataclasses.field(default_factory=dict, init=False)
    _base: tuple[int, int] | None
    _copied: tuple[tuple[np.ndarray, np.ndarray, Any], ...]

    @property
    def time(self) -> np.ndarray:
        """Time since the start of each episode, float64 [N] [s]."""
        return self.steps * self.control_dt

    @property
    def base_position(self) -> int | None:
        """Where the position of the free base begins in `qpos`; None = the base is fixed."""
        return None if self._base is None else self._base[0]

    @property
    def base_velocity(self) -> int | None:
        """Where the velocity of the free base begins in `qvel`; None = the base is fixed."""
        return None if self._base is None else self._base[1]

    def keep(self) -> None:
        """Let `previous_qpos` and `previous_qvel` be those of now."""
        self.previous.take(self.inputs)

    def refresh(self) -> None:
        """Bring what is not a view up to date with `qpos` and `qvel`."""
        self.derived.clear()
        for target, source, columns in self._copied:
            target[...] = source[:, columns]
        if self._base is not None:
            project_gravity(self.base_orientation, self.projected_gravity)


def allocate(model: mujoco.MjModel, num_envs: int, action_size: int, control_dt: float,
             commands: Mapping[str, int], memory: Mapping[str, int],
             fields: Mapping[str, tuple[int, ...]]) -> SimulationState:
    """
    Make the rows of `num_envs` simulations of one model.

    Parameters
    ----------
    fields : mapping from str to tuple of int
        Shape of each further MjData array.

    """
    joints = [j for j in range(model.njnt) if model.jnt_type[j] in ONE_AXIS]
    names = [model.joint(j).name or f'joint{j}' for j in joints]
    positions = contiguous([int(model.jnt_qposadr[j]) for j in joints])
    velocities = contiguous([int(model.jnt_dofadr[j]) for j in joints])
    inputs = step_inputs(model, num_envs)
    previous = inputs.copy()
    qpos, qvel = inputs.qpos, inputs.qvel
    force = np.zeros((num_envs, model.nv))
    robot = rows(names, action_size, num_envs, commands)
    robot['joint_position'] = qpos[:, positions]
    robot['joint_velocity'] = qvel[:, velocities]
    robot['joint_effort'] = force[:, velocities]
    # Indexing by an array copies, so those must be copied again after every step.
    copied = [(robot[name], source, columns) for name, source, columns in
              (('joint_position', qpos, positions), ('joint_velocity', qvel, velocities),
               ('joint_effort', force, velocities)) if not isinstance(columns, slice)]
    base = _base(model)
    if base is not None:
        robot['base_orientation'] = qpos[:, base[0] + 3:base[0] + 7]
        robot['base_angular_velocity'] = qvel[:, base[1] + 3:base[1] + 6]
    return SimulationState(
        **robot, qpos=qpos, qvel=qvel, actuator_force=force, previous_qpos=previous.qpos,
        previous_qvel=previous.qvel, steps=np.zeros(num_envs, dtype=np.int64),
        control_dt=control_dt,
        memory={name: np.zeros((num_envs, size)) for name, size in memory.items()},
        fields={name: np.zeros((num_envs, *shape)) for name, shape in fields.items()},
        factors={name: np.ones((num_envs, 1)) for name in ('mass', 'friction')},
        inputs=inputs, previous=previous, _base=base, _copied=tuple(copied))


def field_shape(data: mujoco.MjData, name: str) -> tuple[int, ...]:
    """
    Find the shape of one array of MjData.

    Raises
    ------
    TaskError
        MjData has no such array of floats.

    """
    value = getattr(data, name, None)
    if not isinstance(value, np.ndarray) or value.dtype != np.float64:
        raise TaskError(f'data_fields: MjData has no array of floats named {name!r}')
    return value.shape


def _base(model: mujoco.MjModel) -> tuple[int, int] | None:
    """Find the first free joint: its addresses in qpos and qvel."""
    free = np.flatnonzero(model.jnt_type == int(mujoco.mjtJoint.mjJNT_FREE))
    if not len(free):
        return None
    return int(model.jnt_qposadr[free[0]]), int(model.jnt_dofadr[free[0]])

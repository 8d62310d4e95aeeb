"""One simulated robot, as a real one is met: joint commands in, what sensors say out."""

from collections.abc import Sequence
import dataclasses

import mujoco
import numpy as np

from asyncppo_ros.config import SimRobotConfig
from asyncppo_ros.errors import TaskError
from asyncppo_ros.simulation.episodes import Episodes
from asyncppo_ros.simulation.joint_command import JointCommand
from asyncppo_ros.simulation.model import (
    actuators_of,
    find_model,
    load_model,
    require,
    substeps_of,
)
from asyncppo_ros.simulation.physics import Physics
from asyncppo_ros.simulation.randomization import factors, scaled
from asyncppo_ros.simulation.registry import find_task
from asyncppo_ros.simulation.sensors import Sample, Sensors
from asyncppo_ros.simulation.state import allocate, field_shape

# Next to the seed and the episode, so that noise does not use the numbers of the start.
_NOISE_STREAM = 3


@dataclasses.dataclass(frozen=True)
class EpisodeResult:
    """
    How an episode ended.

    Attributes
    ----------
    index : int
        Number of the episode, from 0 on.
    episode_return : float
        Sum of the rewards of the task.
    length : int
        [control steps].
    success : bool or None
        None = the task has none.
    terminated : bool
        The task ended it, not the time limit.
    measures : dict from str to float
        The mean over the episode of what the task measures.

    """

    index: int
    episode_return: float
    length: int
    success: bool | None
    terminated: bool
    measures: dict[str, float]


class SimulatedRobot:
    """
    The robot of a task in MuJoCo, behind its sensors and its controllers.

    Time goes on by physics steps.  At the start and after `reset` the robot is held, that is, no
    time passes for it, until the first command comes.  With ``sim_robot.ask`` the task also asks
    and scores: its episodes end, and the robot is held from then until `reset`.  Episode k starts
    as that of environment k of a `BatchedSimulation` of the same seed.

    Parameters
    ----------
    task_name : str
        A task of the package, or ``my_pkg.my_module:MyTask``.
    settings : SimRobotConfig
    mounting : 4 floats, optional
        Quaternion w, x, y, z of the IMU in the frame of the base; see `Sensors`.

    Raises
    ------
    TaskError, ResourceError
        The task is unknown, or it or its model has an error.

    """

    def __init__(self, task_name: str, settings: SimRobotConfig,
                 mounting: Sequence[float] = (1.0, 0.0, 0.0, 0.0)) -> None:
        task = find_task(task_name)
        self._task, self._settings = task, settings
        title = f'task {type(task).__qualname__}'
        self.task = task_name
        #: The MJCF file; a URDF of the same robot may lie beside it.
        self.model_file = find_model(task.model, type(task))
        nominal = load_model(self.model_file, title)
        self.control_dt = float(task.control_dt)
        self.substeps = substeps_of(nominal, task.control_dt, title)
        self.physics_dt = float(nominal.opt.timestep)
        task.setup(nominal)
        self._actions = task.action()
        self._actuators = actuators_of(nominal, self._actions.joints, title)
        model = _as_built(nominal, settings)
        self._make_state(model, nominal, title)
        #: What its controllers are told: position, velocity or effort.
        self.interface = self._actions.interface
        #: Joints that are told, and all that it has.
        self.moved = self._actions.joints
        self.joints = self.state.joint_names
        #: Sizes of the commands that a policy of the task needs.
        self.command_sizes = dict(task.commands)
        self._columns = self.state.columns(self.moved)
        self._command = JointCommand(self.interface, self.moved, settings.command_latency_s,
                                     settings.command_timeout_s)
        self._sensors = Sensors(model, self.state, settings.sensor_noise,
                                settings.state_latency_s, mounting)
        #: Physics steps so far, of all episodes.
        self.steps = 0
        #: Number of the episode.
        self.episode = -1
        #: How the episode ended; None while it goes on.
        self.result: EpisodeResult | None = None
        #: How often the physics became unstable.
        self.instabilities = 0
        self.reset()

    @property
    def time(self) -> float:
        """Simulated time [s]; it never goes back."""
        return self.steps * self.physics_dt

    @property
    def held(self) -> bool:
        """No time passes: no command has come yet, or the episode has ended."""
        return not self._released or self.ended

    @property
    def ended(self) -> bool:
        """Only `reset` goes on from here."""
        return self.result is not None or self._broken

    @property
    def timeouts(self) -> int:
        """How often commands stayed away for longer than the timeout."""
        return self._command.timeouts

    def reset(self) -> int:
        """Begin the next episode, and give its number."""
        state, task = self.state, self._task
        self.episode += 1
        rng = np.random.default_rng((self._settings.seed, self.episode))
        for rows in (*state.memory.values(), *state.command.values()):
            rows[0] = 0.0
        state.last_action[0] = 0.0
        self._physics.nominal(0)
        task.reset(state, 0, rng)
        if self._settings.ask:
            task.ask(state, 0, rng)
        self._physics.control[0] = 0.0
        self._physics.begin(0)
        state.previous_qpos[0], state.previous_qvel[0] = state.qpos[0], state.qvel[0]
        state.refresh()
        self._episodes.begin_all()
        self._sums = dict.fromkeys(task.measures, 0.0)
        self._phase, self._released, self._broken, self.result = 0, False, False, None
        self._command.begin(self.time, state.joint_position[0, self._columns])
        self._sensors.begin(self.time, np.random.default_rng(
            (self._settings.seed, self.episode, _NOISE_STREAM)))
        return self.episode

    def command(self, interface: str, joints: Sequence[str], values: np.ndarray,
                times: Sequence[float] = (0.0,)) -> str | None:
        """
        Take a command to joints; the first one lets time pass.

        Parameters
        ----------
        interface : str
            What the numbers are: position [rad|m], velocity [rad/s|m/s] or effort [N m|N].
        joints : sequence of str
            Some of `moved`; the others keep their targets.
        values : float64 [n] or [P, n]
            One number for each of them, or one row for each point of a trajectory.
        times : sequence of float
            When each point is to be reached, after the command took effect [s]; 0 = at once.

        Returns
        -------
        str or None
            Why it was refused, in one line; None = it was not.

        """
        points, when = np.array(values, np.float64, ndmin=2), np.array(times, np.float64)
        refusal = self._command.refusal(interface, joints, points, when)
        if refusal is None and not self.ended:
            self._command.give(self.time, joints, points, when)
            self._released = True
        return refusal

    def advance(self, steps: int) -> None:
        """Make physics steps, fewer where the episode ends; none while the robot is held."""
        for _ in range(steps):
            if self.held:
                break
            self._step()
            if self._sensors.are_late:
                self._sensors.record(self.time)

    def read(self) -> Sample:
        """Give what all sensors say now."""
        if not self._sensors.are_late and not self.held:
            self._sensors.record(self.time)
        return self._sensors.read()

    def asked(self) -> dict[str, np.ndarray]:
        """Give what the task asks for in this episode, float64 [k] by name."""
        return {name: rows[0].copy() for name, rows in self.state.command.items()}

    def _make_state(self, model: mujoco.MjModel, nominal: mujoco.MjModel, title: str) -> None:
        task, data = self._task, mujoco.MjData(model)
        keyframe = require(model, 'key', task.keyframe, title) if task.keyframe else -1
        self.state = allocate(model, 1, self._actions.size, task.control_dt, task.commands,
                              task.memory, {name: field_shape(data, name)
                                            for name in (*task.data_fields, 'qacc')})
        self.state.factors.update(factors([model], nominal))
        self._physics = Physics([model], self.state, 1, keyframe)
        limit = round(task.time_limit / task.control_dt)
        self._episodes = Episodes(self.state.steps, limit, [], False)

    def _step(self) -> None:
        measured = self.state.joint_position[0, self._columns]
        self._physics.control[0, self._actuators] = self._command.at(self.time, measured)
        if self._phase == 0:
            self._before_control_step()
        self._physics.step()
        self.steps += 1
        self._phase = (self._phase + 1) % self.substeps
        if self._phase == 0:
            self._after_control_step()

    def _before_control_step(self) -> None:
        state = self.state
        state.previous_qpos[...], state.previous_qvel[...] = state.qpos, state.qvel
        if self._settings.ask:
            self._actions.action(self._command.final[None], state, state.last_action)
            self._task.before_step(state)

    def _after_control_step(self) -> None:
        unstable = bool(len(self._physics.unstable()))
        if unstable:
            self._take_back()
        if self._settings.ask:
            self._score(unstable)

    def _take_back(self) -> None:
        """Put the numbers back to before the control step, and let no further time pass."""
        state = self.state
        state.qpos[...], state.qvel[...] = state.previous_qpos, state.previous_qvel
        state.actuator_force[0] = 0.0
        for rows in state.fields.values():
            rows[0] = 0.0
        state.refresh()
        self.instabilities += 1
        self._broken = True
        self._sensors.record(self.time)

    def _score(self, unstable: bool) -> None:
        state, task, title = self.state, self._task, f'task {type(self._task).__qualname__}'
        state.steps[0] += 1
        reward = np.asarray(task.reward(state, state.last_action), np.float32)
        if reward.shape != (1,) or not np.isfinite(reward[0]):
            raise TaskError(f'{title}: reward() gave {reward}, expected one finite number')
        self._episodes.count(reward)
        for name, values in (task.measure(state) if self._sums else {}).items():
            self._sums[name] += float(values[0])
        terminated = bool(task.terminated(state)[0]) or unstable
        if not (terminated or state.steps[0] >= self._episodes.limit[0]):
            return
        success = None if (found := task.success(state)) is None else bool(found[0])
        if unstable and success is not None:
            success = False
        total, length, _ = self._episodes.finish(np.zeros(1, np.int64), None)[0].tolist()
        self.result = EpisodeResult(
            self.episode, total, int(length), success, terminated,
            {name: value / length for name, value in self._sums.items()})
        if not self._sensors.are_late:
            self._sensors.record(self.time)


def _as_built(model: mujoco.MjModel, settings: SimRobotConfig) -> mujoco.MjModel:
    """Give the model as this robot differs from it; itself where it does not."""
    values = {'mass': (settings.mass, model.nbody), 'friction': (settings.friction, 1),
              'gains': (settings.gains, model.nu), 'strength': (settings.motor_strength, model.nu),
              'damping': (settings.joint_damping, model.nv)}
    if all(factor == 1.0 for factor, _ in values.values()):
        return model
    return scaled(model, **{name: np.full(count, factor)
                            for name, (factor, count) in values.items()})

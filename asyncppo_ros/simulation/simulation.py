"""A batch of MuJoCo simulations of one task, as an `Environment`."""

import math
from typing import Any

import mujoco
import numpy as np

from asyncppo_ros.config import RandomizationConfig
from asyncppo_ros.errors import TaskError
from asyncppo_ros.robot.actions import ActionMap
from asyncppo_ros.robot.observation import Observation
from asyncppo_ros.simulation import randomization
from asyncppo_ros.simulation.environment import StepResult
from asyncppo_ros.simulation.episodes import Episodes, generators
from asyncppo_ros.simulation.model import (
    actuators_of,
    controller_of,
    find_model,
    load_model,
    require,
    substeps_of,
)
from asyncppo_ros.simulation.physics import Physics
from asyncppo_ros.simulation.state import allocate, field_shape, ONE_AXIS
from asyncppo_ros.simulation.task import Task


class BatchedSimulation:
    """
    N simulations of one task, stepped together in one thread.

    Environment i draws its random numbers from a generator of its own, made from (seed, i).  The
    same seed and N give the same numbers bit for bit; episodes begin the same whatever N is.

    Parameters
    ----------
    task : Task
        What is simulated.
    num_envs : int
        N.
    seed : int
        Of all random numbers.
    random_episode_start : bool
        Cut the first episode of each environment at a random length; it counts as truncated and
        is left out of the `episodes` of the results.
    name : str
        The name under which the task was found; by default 'module:Class'.
    settings : RandomizationConfig, optional
        How the environments differ from the model; by default they do not.
    privileged : bool
        Fill `critic_observation`; else it has no columns.

    Raises
    ------
    TaskError, ResourceError
        The task or its model has an error.

    """

    def __init__(self, task: Task, num_envs: int, seed: int, random_episode_start: bool = False,
                 name: str = '', settings: RandomizationConfig | None = None,
                 privileged: bool = False) -> None:
        kind = type(task)
        self.task = name or f'{kind.__module__}:{kind.__qualname__}'
        self._title = f'task {kind.__qualname__}'
        self._task = task
        self.num_envs = num_envs
        self.control_dt = task.control_dt
        model = load_model(find_model(task.model, kind), self._title)
        substeps = substeps_of(model, task.control_dt, self._title)
        #: The MjModel that all environments share; to be read only.
        self.model = model
        task.setup(model)
        self._observation = Observation(task.observation())
        terms = tuple(task.critic_observation()) if privileged else ()
        self._privileged = Observation(terms) if terms else None
        #: What only the critic sees of each environment, float32 [N, C].
        self.critic_observation = np.zeros(
            (num_envs, self._privileged.size if self._privileged else 0), dtype=np.float32)
        self._actions = self._checked_actions(task.action())
        self.observation_size = self._observation.size
        self.action_size = self._actions.size
        self._actuators = actuators_of(model, self._actions.joints, self._title)
        self._controller = controller_of(model, self._actuators)
        self._commands = self._checked_commands()
        keyframe = require(model, 'key', task.keyframe, self._title) if task.keyframe else -1
        self._settings = settings or RandomizationConfig()
        self._make_state(model, substeps, keyframe, seed)
        self._generators = generators(seed, num_envs)
        self._episodes = Episodes(self.state.steps, round(task.time_limit / task.control_dt),
                                  self._generators, random_episode_start)
        # Given whenever no episode ends.
        self._nothing = (np.empty(0, dtype=np.intp),
                         np.empty((0, self.observation_size), dtype=np.float32),
                         np.empty((0, 3), dtype=np.float32), self.critic_observation[:0].copy())
        self._terminates = kind.terminated is not Task.terminated
        # Then what is seen depends on no earlier control step.
        self._sees_the_present = self._disturbances is None and not any(
            term.delay or term.history > 1 for term in (*self._observation.terms, *terms))
        #: How many episodes ended because the physics became unstable.
        self.instabilities = 0
        #: Units of what the task measures beside the reward, by name.
        self.measures = dict(task.measures)
        #: What was measured in the last step, float [N] by name; None = nobody asks.
        self.measured: dict[str, np.ndarray] | None = None

    def reset(self, out: np.ndarray) -> None:
        """Begin an episode in every environment; write float32 [N, O] to `out`."""
        self._episodes.begin_all()
        self._begin(np.arange(self.num_envs), out)

    def step(self, action: np.ndarray, out: np.ndarray) -> StepResult:
        """
        Make one control step, reset what ended, write the observation that follows.

        See `Environment.step`.

        Raises
        ------
        TaskError
            A term, the reward or the termination has a wrong shape or is not finite.

        """
        state, task = self.state, self._task
        state.last_action[...] = action
        disturbances = self._disturbances
        effective = disturbances.action(state.last_action) if disturbances else state.last_action
        self._actions.command(effective, state, self._command)
        if self._command is not self._physics.control:
            self._physics.control[:, self._actuators] = self._command
        state.keep()
        task.before_step(state)
        if disturbances:
            self._physics.push(*disturbances.pushes())
        self._physics.step()
        unstable = self._physics.unstable()
        if len(unstable):
            self._take_back(unstable)
        np.add(state.steps, 1, out=state.steps)
        reward = self._checked_reward(task.reward(state, state.last_action))
        terminated = self._checked_terminated(task.terminated(state)) if self._terminates \
            else np.zeros(self.num_envs, dtype=bool)
        if len(unstable):
            terminated[unstable] = True
        if self.measured is not None:
            self.measured = {name: self._checked('measure', values)
                             for name, values in task.measure(state).items()}
        self._episodes.count(reward)
        return self._end(reward, terminated, unstable, out)

    def describe(self) -> dict[str, Any]:
        """
        Give what the card of an artefact says of the task (JSON types only).

        Keys: task, control_dt, observation (entries of `Observation.card`), action
        (`ActionMap.card`), joints (all that a state has, in order), controller (see
        `model.controller_of`), commands (size, low and high of each, None = no limits),
        start_pose (joint to position [rad] or [m]), deployable, simulation_only (names of the
        terms that no robot can measure), randomization (the settings; empty = none), and
        critic_observation (entries of what only the critic sees).
        """
        return {'task': self.task, 'control_dt': self.control_dt,
                'observation': self._observation.card(), 'action': self._actions.card(),
                'critic_observation': self._privileged.card() if self._privileged else [],
                'joints': list(self.state.joint_names), 'controller': self._controller,
                'commands': self._commands, 'start_pose': dict(self._start_pose),
                'deployable': not self._observation.simulation_only,
                'simulation_only': list(self._observation.simulation_only),
                'randomization': randomization.card(self._settings)}

    def close(self) -> None:
        """Free what the environment holds; MuJoCo's memory goes with the last reference."""

    def _make_state(self, model: mujoco.MjModel, substeps: int, keyframe: int,
                    seed: int) -> None:
        task, data = self._task, mujoco.MjData(model)
        self.model = model
        self.state = allocate(model, self.num_envs, self.action_size, task.control_dt,
                              task.commands, task.memory,
                              {name: field_shape(data, name) for name in task.data_fields})
        models = randomization.randomized_models(model, self.num_envs, seed, self._settings)
        self.state.factors.update(randomization.factors(models, model))
        self._physics = Physics(models, self.state, substeps, keyframe)
        self._joints = model.jnt_qposadr[np.isin(model.jnt_type, ONE_AXIS)]
        self._disturbances = randomization.Disturbances(
            self._settings, self._observation.terms, self.state, seed) \
            if randomization.is_on(self._settings) else None
        self._physics.nominal(0)
        columns = self.state.columns(self._actions.joints)
        self.state.refresh()
        self._start_pose = tuple(zip(self._actions.joints,
                                     self.state.joint_position[0, columns].tolist()))
        # Commands go straight to the actuators where the order is the same.
        same_order = self._actuators == list(range(model.nu))
        self._command = (self._physics.control if same_order
                         else np.zeros((self.num_envs, self.action_size)))

    def _begin(self, environments: np.ndarray, out: np.ndarray) -> None:
        """Begin episodes, and write what is seen then."""
        self._start(environments)
        state = self.state
        self._observation.reset(state, environments, out)
        if self._privileged:
            self._privileged.reset(state, environments, self.critic_observation)
        if self._disturbances:
            self._disturbances.begin(environments)
            self._disturbances.first_observation(environments, out)

    def _start(self, environments: np.ndarray) -> None:
        """Put environments where an episode starts."""
        state = self.state
        for rows in state.memory.values():
            rows[environments] = 0.0
        state.last_action[environments] = 0.0
        for index in environments.tolist():
            self._physics.nominal(index)
            self._task.reset(state, index, self._generators[index])
            self._task.ask(state, index, self._generators[index])
            if self._disturbances:
                self._disturbances.shift_start(index, self._generators[index], self._joints)
            self._physics.begin(index)
        state.previous.numbers[environments] = state.inputs.numbers[environments]
        state.refresh()
        self._actions.reset(state, environments)

    def _observe(self, out: np.ndarray) -> None:
        """Write what is seen after a control step."""
        self._observation.observe(self.state, out)
        if self._disturbances:
            self._disturbances.observation(out)
        if self._privileged:
            self._privileged.observe(self.state, self.critic_observation)

    def _end(self, reward: np.ndarray, terminated: np.ndarray, unstable: np.ndarray,
             out: np.ndarray) -> StepResult:
        """Look at what followed; begin anew where an episode terminated or is over."""
        over = self._episodes.over()
        # Counted in a tenth of the time in which the places of none are found.
        if over is None and not np.count_nonzero(terminated):
            self._observe(out)
            return StepResult(reward, terminated, np.zeros(self.num_envs, dtype=bool),
                              *self._nothing)
        truncated = np.zeros(self.num_envs, dtype=bool) if over is None else over & ~terminated
        ended = np.flatnonzero(terminated | truncated)
        success = self._task.success(self.state)
        if success is not None:
            success = self._checked('success', success).copy()
            success[unstable] = False
        if over is None and self._sees_the_present:
            # Nobody asks what was seen at the end, so all look once, after the beginnings.
            episodes = self._episodes.finish(ended, success)
            self._start(ended)
            self._observe(out)
            return StepResult(reward, terminated, truncated, *self._nothing[:2], episodes,
                              self._nothing[3])
        self._observe(out)
        episodes = self._episodes.finish(ended, success)
        final_index = np.flatnonzero(truncated)
        final_observation, final_critic = out[final_index], self.critic_observation[final_index]
        self._begin(ended, out)
        return StepResult(reward, terminated, truncated, final_index, final_observation,
                          episodes, final_critic)

    def _take_back(self, unstable: np.ndarray) -> None:
        """Put unstable environments back to before the step: finite numbers to end with."""
        self.instabilities += len(unstable)
        state = self.state
        state.qpos[unstable] = state.previous_qpos[unstable]
        state.qvel[unstable] = state.previous_qvel[unstable]
        state.actuator_force[unstable] = 0.0
        for rows in state.fields.values():
            rows[unstable] = 0.0
        state.refresh()

    def _checked_actions(self, actions: ActionMap) -> ActionMap:
        if not isinstance(actions, ActionMap):
            raise TaskError(f'{self._title}: action() gave {actions!r}, expected an ActionMap')
        if actions.control_dt != self.control_dt:
            raise TaskError(f'{self._title}: the action map has control_dt = '
                            f'{actions.control_dt} s, the task {self.control_dt} s')
        return actions

    def _checked_commands(self) -> dict[str, dict[str, Any]]:
        """Give what the card says of each command."""
        task = self._task
        for name, limits in task.command_limits.items():
            sizes = [np.size(limit) for limit in limits]
            if sizes != [task.commands.get(name)] * 2:
                raise TaskError(f'{self._title}: command_limits of {name!r} have {sizes} numbers; '
                                f'the command has {task.commands.get(name, "no such name")}')
        unlimited: tuple[Any, Any] = (None, None)
        return {name: {'size': size, **{
            side: limit if limit is None else [float(number) for number in limit]
            for side, limit in zip(('low', 'high'), task.command_limits.get(name, unlimited))}}
            for name, size in task.commands.items()}

    def _checked(self, what: str, value: Any) -> np.ndarray:
        values = np.asarray(value)
        if values.shape != (self.num_envs,):
            raise TaskError(f'{self._title}: {what}() gave shape {values.shape}, expected '
                            f'{(self.num_envs,)}: one value per environment')
        return values

    def _checked_reward(self, value: Any) -> np.ndarray:
        reward = self._checked('reward', value).astype(np.float32)
        if not math.isfinite(np.dot(reward, reward)):
            for environment in np.flatnonzero(~np.isfinite(reward)):
                raise TaskError(f'{self._title}: reward() gave {reward[environment]} in '
                                f'environment {environment}')
        return reward

    def _checked_terminated(self, value: Any) -> np.ndarray:
        terminated = self._checked('terminated', value)
        if terminated.dtype != np.bool_:
            raise TaskError(f'{self._title}: terminated() gave {terminated.dtype}, expected '
                            'bool')
        return terminated.copy()

"""A task that a robot does: its `Task` asks and rewards, and nothing is simulated."""

from collections.abc import Callable
import dataclasses
from typing import Any

import numpy as np

from asyncppo_ros.errors import ArtefactError, TaskError
from asyncppo_ros.robot.actions import ActionMap
from asyncppo_ros.robot.needs import needs_of
from asyncppo_ros.robot.observation import Observation
from asyncppo_ros.robot.state import RobotState, rows
from asyncppo_ros.simulation.environment import StepResult
from asyncppo_ros.simulation.episodes import Episodes
from asyncppo_ros.simulation.registry import find_task
from asyncppo_ros.simulation.simulation import BatchedSimulation
from asyncppo_ros.simulation.task import Task

_FIRST = np.zeros(1, dtype=np.int64)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class EpisodeState(RobotState):
    """
    What is known of a robot and of its episode: of a `SimulationState` what needs no simulation.

    Attributes
    ----------
    steps : int64 [N]
        Control steps of the episode so far.
    control_dt : float
        Period of a control step [s].
    memory : dict from str to float64 [N, k]
        What the task keeps; zero at the start of an episode.

    """

    steps: np.ndarray
    control_dt: float
    memory: dict[str, np.ndarray]

    @property
    def time(self) -> np.ndarray:
        """Time since the start of each episode, float64 [N] [s]."""
        return self.steps * self.control_dt

    def take(self, measured: RobotState) -> None:
        """Copy what was measured; command and last action are the episode's own."""
        for name in ('joint_position', 'joint_velocity', 'joint_effort', 'base_orientation',
                     'base_angular_velocity', 'projected_gravity'):
            getattr(self, name)[...] = getattr(measured, name)


class RobotTask:
    """
    The episodes of one robot.

    It does with measured states what `BatchedSimulation` does with simulated ones.

    Parameters
    ----------
    task_name : str
        A task of the package, or ``my_pkg.my_module:MyTask``.
    seed : int
        Of what is asked in the episodes.
    privileged : bool
        The critic sees terms of its own.

    Attributes
    ----------
    card : dict
        What `BatchedSimulation.describe` gives of the task.
    needs : Needs
        What the robot must tell: for the observation, the actions and the reward.  It is asked
        for nothing: what it is to do is drawn here.
    action_map : ActionMap
    observation_size, action_size : int
    control_dt : float
        Period of a control step [s].
    start_pose : float64 [A]
        Where episodes begin.
    state : EpisodeState
    critic_observation : float32 [1, C]
        What only the critic sees.

    Raises
    ------
    TaskError, ResourceError
        The task is unknown or has an error.
    TaskError, ArtefactError
        Its observation, reward, termination or success reads what no robot measures.

    """

    def __init__(self, task_name: str, seed: int, privileged: bool = False) -> None:
        task = self._task = find_task(task_name)
        self._title = f'task {task_name}'
        # It reads the model, tries the task, and is not needed any more.
        card = self.card = BatchedSimulation(task, 1, seed, name=task_name,
                                             privileged=privileged).describe()
        self._rng = np.random.default_rng((seed, 0))
        self.action_map = ActionMap.from_card(card['action'])
        self._observation = Observation.from_card(card['observation'])
        self.observation_size = self._observation.size
        self.action_size = self.action_map.size
        self.control_dt = self.action_map.control_dt
        self.start_pose = np.array([card['start_pose'][joint] for joint
                                    in self.action_map.joints])
        self.needs = self._checked_needs(task)
        self._privileged = self._checked_privileged()
        self.state = EpisodeState(
            **rows(card['joints'], self.action_size, 1, task.commands),
            steps=np.zeros(1, dtype=np.int64), control_dt=self.control_dt,
            memory={name: np.zeros((1, size)) for name, size in task.memory.items()})
        self.critic_observation = np.zeros(
            (1, self._privileged.size if self._privileged else 0), np.float32)
        self._episodes = Episodes(self.state.steps, round(task.time_limit / task.control_dt),
                                  [self._rng], random_start=False)

    def begin(self, measured: RobotState, out: np.ndarray) -> None:
        """
        Begin an episode where the robot is, and draw what is asked in it.

        Parameters
        ----------
        measured : RobotState
        out : float32 [1, O]
            Receives the first observation.

        """
        state = self.state
        self._episodes.begin_all()
        for values in (state.last_action, *state.memory.values()):
            values[...] = 0.0
        state.take(measured)
        self._task.ask(state, 0, self._rng)
        self.action_map.reset(state, _FIRST)
        self._observation.reset(state, _FIRST, out)
        if self._privileged:
            self._privileged.reset(state, _FIRST, self.critic_observation)

    def command(self, action: np.ndarray, out: np.ndarray) -> None:
        """
        Begin a control step: compute the command of every joint.

        Parameters
        ----------
        action : float32 [1, A]
            In (-1, 1).
        out : float64 [1, A]
            In the unit of the interface.

        """
        self.state.last_action[...] = action
        self.action_map.command(self.state.last_action, self.state, out)
        self._task.before_step(self.state)  # type: ignore[arg-type]

    def judge(self, measured: RobotState, out: np.ndarray) -> StepResult:
        """
        End a control step: say what it was worth, and whether the episode ended with it.

        Parameters
        ----------
        measured : RobotState
            After the step.
        out : float32 [1, O]
            Receives the observation that followed, also of an episode that has ended.

        Raises
        ------
        TaskError
            A term, the reward or the termination has a wrong shape or is not finite.

        """
        state, task = self.state, self._task
        state.take(measured)
        np.add(state.steps, 1, out=state.steps)
        reward = self._checked('reward', task.reward(
            state, state.last_action), np.floating).astype(np.float32)  # type: ignore[arg-type]
        terminated = self._checked('terminated', task.terminated(
            state), np.bool_).copy()  # type: ignore[arg-type]
        self._observation.observe(state, out)
        if self._privileged:
            self._privileged.observe(state, self.critic_observation)
        self._episodes.count(reward)
        truncated = (state.steps >= self._episodes.limit) & ~terminated
        index = np.flatnonzero(truncated)
        episodes = self._finished() if terminated[0] or truncated[0] \
            else np.empty((0, 3), np.float32)
        return StepResult(reward, terminated, truncated, index, out[index].copy(), episodes,
                          self.critic_observation[index].copy())

    def _finished(self) -> np.ndarray:
        success = self._task.success(self.state)  # type: ignore[arg-type]
        if success is not None:
            success = self._checked('success', success, np.bool_)
        return self._episodes.finish(_FIRST, success)

    def _checked(self, what: str, value: Any, kind: type[np.generic]) -> np.ndarray:
        array = np.asarray(value)
        if array.shape != (1,) or not np.issubdtype(array.dtype, kind):
            raise TaskError(f'{self._title}: {what}() gave {array.dtype} of shape {array.shape}, '
                            f'expected {kind.__name__} of shape (1,): one value per environment')
        if not np.isfinite(array).all():
            raise TaskError(f'{self._title}: {what}() gave {array[0]}')
        return array

    def _checked_privileged(self) -> Observation | None:
        entries = self.card['critic_observation']
        for entry in entries:
            if entry['simulation_only']:
                raise TaskError(f'{self._title}: its critic sees {entry["name"]!r}, which no '
                                'robot measures; train with policy.privileged_critic = false')
        return Observation.from_card(entries) if entries else None

    def _checked_needs(self, task: Task) -> Any:
        """Try every method of the task with a state that takes notes of what is read."""
        def tried(method: Callable[..., Any], *arguments: Any) -> Callable[[RobotState], Any]:
            return lambda notes: method(_Trial(notes, task), *arguments)

        methods = {
            'ask': tried(task.ask, 0, np.random.default_rng(0)),
            'before_step': tried(task.before_step),
            'reward': tried(task.reward, np.zeros((1, self.action_size))),
            'terminated': tried(task.terminated), 'success': tried(task.success)}
        try:
            needs = needs_of(self.card, {f'{name}()': method for name, method in methods.items()})
        except ArtefactError as error:
            raise TaskError(f'actor.source = robot: {error}') from None
        return dataclasses.replace(needs, commands={})


class _Trial:
    """A noting state of one robot, and what of its episode is known without a simulation."""

    def __init__(self, notes: RobotState, task: Task) -> None:
        self._notes = notes
        self.steps = np.ones(1, dtype=np.int64)
        self.control_dt = task.control_dt
        self.time = self.steps * task.control_dt
        self.memory = {name: np.zeros((1, size)) for name, size in task.memory.items()}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._notes, name)

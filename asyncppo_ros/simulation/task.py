"""What a task is: the robot, what it sees, what it may do, and what is asked of it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from asyncppo_ros.errors import TaskError
from asyncppo_ros.robot.actions import ActionMap
from asyncppo_ros.robot.state import RobotState
from asyncppo_ros.robot.terms import Term

if TYPE_CHECKING:
    import mujoco

    from asyncppo_ros.simulation.state import SimulationState


class Task:
    """
    Subclass this in a package of your own and train it as ``my_pkg.my_module:MyTask``.

    Every method works on all N environments at once, except `reset`.

    Attributes
    ----------
    model : str
        MJCF file: absolute, relative to the file of the class, or ``package://PACKAGE/PATH``.
    keyframe : str
        Of the model, where episodes start; empty = the model's reference pose.
    control_dt : float
        Period of a control step, a whole multiple of the model's timestep [s].
    time_limit : float
        Length after which an episode is truncated [s]; 0 = none.
    commands : mapping from str to int
        Names and sizes of what is asked, kept in ``state.command``; `ask` chooses the values.
    command_limits : mapping from str to (low, high)
        Between which numbers each number of a command lies in training; on a robot, what people
        ask is held within them.
    memory : mapping from str to int
        Names and sizes of what the task keeps for each environment in ``state.memory``; zero at
        the start of an episode.
    data_fields : tuple of str
        Further arrays of MjData for ``state.fields``: 'actuator_force', 'site_xpos',
        'cfrc_ext'.  They are as MuJoCo left them in the last physics step, that is, what depends
        on positions belongs to the positions before that physics step.
    measures : mapping from str to str
        Names and units of what `measure` gives: what an engineer asks beside the return.

    """

    model: str = ''
    keyframe: str = ''
    control_dt: float = 0.02
    time_limit: float = 0.0
    commands: Mapping[str, int] = {}
    command_limits: Mapping[str, tuple[Sequence[float], Sequence[float]]] = {}
    memory: Mapping[str, int] = {}
    data_fields: tuple[str, ...] = ()
    measures: Mapping[str, str] = {}

    def setup(self, model: 'mujoco.MjModel') -> None:
        """Look at or change the model once, before anything else is called."""

    def observation(self) -> Iterable[Term]:
        """Give the observation terms in order."""
        raise _missing(self, 'observation')

    def critic_observation(self) -> Iterable[Term]:
        """
        Give the terms that only the critic sees, beside `observation`; by default none.

        They need not be measurable: the critic judges in training and never acts.
        """
        return ()

    def action(self) -> ActionMap:
        """Give the joints that are moved, and how."""
        raise _missing(self, 'action')

    def reset(self, state: 'SimulationState', index: int, rng: np.random.Generator) -> None:
        """
        Choose the start of an episode of one environment.

        Parameters
        ----------
        state : SimulationState
            ``state.qpos[index]`` and ``state.qvel[index]`` hold the nominal start pose at rest;
            change them in place.
        index : int
            The environment.
        rng : numpy Generator
            Of this environment; the only source of random numbers.

        """

    def ask(self, state: 'RobotState', index: int, rng: np.random.Generator) -> None:
        """
        Choose what is asked in an episode: write ``state.command[name][index]``.

        A real robot is asked like this as well, where it collects for a training.

        Parameters
        ----------
        state : RobotState
        index : int
            The environment.
        rng : numpy Generator
            As of `reset`, which was called before.

        """

    def before_step(self, state: 'SimulationState') -> None:
        """Look at the state before a control step, to keep in ``state.memory`` what is needed."""

    def reward(self, state: 'SimulationState', action: np.ndarray) -> np.ndarray:
        """
        Give the reward of the control step that was made.

        Parameters
        ----------
        state : SimulationState
            After the step; ``state.previous_qpos`` and ``previous_qvel`` are from before it.
        action : float64 [N, A]
            Of the policy, in (-1, 1).

        Returns
        -------
        float [N]

        """
        raise _missing(self, 'reward')

    def terminated(self, state: 'SimulationState') -> np.ndarray:
        """Say which environments reached a terminal state, bool [N]; by default none."""
        return np.zeros(state.num_envs, dtype=bool)

    def success(self, state: 'SimulationState') -> np.ndarray | None:
        """
        Say which environments have succeeded, bool [N]; by default the task has no success.

        It is asked at the end of episodes, before anything is reset.
        """
        return None

    def measure(self, state: 'SimulationState') -> dict[str, np.ndarray]:
        """
        Give `measures` of the control step that was made, each float [N].

        Only evaluations ask, and give the mean over all steps of all episodes.
        """
        return {}


def _missing(task: Task, method: str) -> TaskError:
    return TaskError(f'task {type(task).__qualname__}: its method {method}() is missing')

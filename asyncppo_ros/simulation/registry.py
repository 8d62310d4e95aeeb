"""Find a task by its name, and try it before anything is started with it."""

import importlib

import numpy as np

from asyncppo_ros.config import RandomizationConfig
from asyncppo_ros.errors import TaskError
from asyncppo_ros.robot.actions import choices_of
from asyncppo_ros.simulation.environment import Environment
from asyncppo_ros.simulation.randomization import is_on
from asyncppo_ros.simulation.simulation import BatchedSimulation
from asyncppo_ros.simulation.task import Task

_HERE = 'asyncppo_ros.simulation'
TASKS = {
    'reach': f'{_HERE}.reach:Reach',
    'cartpole_swingup': f'{_HERE}.cartpole_swingup:CartpoleSwingup',
    'quadruped_walk': f'{_HERE}.quadruped_walk:QuadrupedWalk',
    'HalfCheetah-v5': f'{_HERE}.half_cheetah:HalfCheetah',
    'Hopper-v5': f'{_HERE}.planar_runner:Hopper',
    'Walker2d-v5': f'{_HERE}.planar_runner:Walker2d',
    'Ant-v5': f'{_HERE}.ant:Ant',
    'Humanoid-v5': f'{_HERE}.humanoid:Humanoid',
}
_GYMNASIUM = 'gymnasium:'
# Enough to meet every term and a first reward; a second of the user's time at most.
_CHECK_STEPS = 3


def task_names() -> list[str]:
    """List the tasks of the package and the forms of the others."""
    return [*TASKS, 'gymnasium:ID', 'my_pkg.my_module:MyTask']


def make(task_name: str, num_envs: int, seed: int, random_episode_start: bool = False,
         randomization: RandomizationConfig | None = None,
         privileged: bool = False, drawn: bool = False) -> Environment:
    """
    Make the environments of a task.

    Parameters
    ----------
    task_name : str
        One of `task_names`: a task of the package, ``gymnasium:ID`` (also
        ``gymnasium:module:Id-v0``), or ``my_pkg.my_module:MyTask``.
    num_envs : int
        N.
    seed : int
        Of all random numbers; environment i uses (seed, i).
    random_episode_start : bool
        Cut the first episode of each environment at a random length.
    randomization : RandomizationConfig, optional
        How the environments differ from the model; by default they do not.
    privileged : bool
        Fill what only the critic sees, where the task has such terms.
    drawn : bool
        Pictures are wanted: Gymnasium has to know before.

    Raises
    ------
    TaskError, ResourceError
        The task is unknown or has an error, or is none that can be randomized or drawn.

    """
    if task_name.startswith(_GYMNASIUM):
        from asyncppo_ros.simulation.gymnasium_adapter import GymnasiumBatch

        if randomization is not None and is_on(randomization):
            raise TaskError(f'task {task_name}: environments of Gymnasium cannot be randomized; '
                            'leave the settings of randomization. at their defaults')
        return GymnasiumBatch(task_name[len(_GYMNASIUM):], num_envs, seed, random_episode_start,
                              drawn)
    return BatchedSimulation(find_task(task_name), num_envs, seed, random_episode_start,
                             task_name, randomization, privileged)


def find_task(task_name: str) -> Task:
    """
    Make a task of the package, or the user's ``my_pkg.my_module:MyTask``.

    Raises
    ------
    TaskError
        There is none of that name.

    """
    if task_name.startswith(_GYMNASIUM):
        raise TaskError(f'task {task_name}: environments of Gymnasium have neither joints nor '
                        'topics')
    module_name, _, class_name = TASKS.get(task_name, task_name).partition(':')
    if not module_name or not class_name:
        raise TaskError(f'task {task_name!r} is unknown; there are: {", ".join(task_names())}')
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise TaskError(f'task {task_name}: cannot import {module_name}: {error}') from error
    except SyntaxError as error:
        raise TaskError(f'task {task_name}: cannot import {module_name}: {error.msg} '
                        f'({error.filename}, line {error.lineno})') from error
    kind = getattr(module, class_name, None)
    if not isinstance(kind, type) or not issubclass(kind, Task):
        tasks = [name for name, value in vars(module).items()
                 if isinstance(value, type) and issubclass(value, Task) and value is not Task]
        raise TaskError(f'task {task_name}: {module_name} has no task {class_name!r}; tasks '
                        f'there: {", ".join(tasks) or "none"}')
    return kind()


def check(environment: Environment) -> None:
    """
    Reset and make a few random steps, so that a faulty task is refused before a run begins.

    Raises
    ------
    TaskError
        A term, the reward or the termination has a wrong shape or is not finite.

    """
    rng = np.random.default_rng(0)
    out = np.full((environment.num_envs, environment.observation_size), np.nan, np.float32)
    environment.reset(out)
    _require_finite(environment, 'observation', out)
    for _ in range(_CHECK_STEPS):
        result = environment.step(_random_action(environment, rng), out)
        _require_finite(environment, 'observation', out)
        _require_finite(environment, 'reward', result.reward)


def _random_action(environment: Environment, rng: np.random.Generator) -> np.ndarray:
    shape = (environment.num_envs, environment.action_size)
    choices = choices_of(environment.describe()['action'])
    drawn = rng.integers(choices, size=shape) if choices else rng.uniform(-1.0, 1.0, shape)
    return drawn.astype(np.float32)


def _require_finite(environment: Environment, what: str, values: np.ndarray) -> None:
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        raise TaskError(f'task {environment.task}: the {what} of environment {bad[0][0]} is '
                        f'{values[tuple(bad[0])]}')

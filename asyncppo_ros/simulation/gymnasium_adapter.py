"""Gymnasium environments with box or discrete actions as `Environment`: ``gymnasium:<id>``."""

import difflib
from typing import Any, Protocol

import gymnasium
import numpy as np

from asyncppo_ros.chunk import NO_SUCCESS
from asyncppo_ros.errors import TaskError
from asyncppo_ros.robot.actions import DISCRETE
from asyncppo_ros.robot.observation import Observation
from asyncppo_ros.simulation.environment import StepResult
from asyncppo_ros.simulation.episodes import Episodes, generators
from asyncppo_ros.simulation.terms import gymnasium_observation

_PICTURES = 'rgb_array'
_SUPPORTED = 'box action spaces with finite bounds and Discrete ones are supported'


class GymnasiumBatch:
    """
    N environments of one Gymnasium id, stepped one after the other in one thread.

    Observations are flattened; actions in (-1, 1) are scaled to the bounds of a box, and an index
    counts from the start of a discrete space.
    Environment i is seeded from (seed, i), whatever N is.  An environment that is both
    terminated and truncated counts as terminated.  Success is `is_success` or `success` of the
    last info, where the environment has it.

    Parameters
    ----------
    environment_id : str
        'Pendulum-v1', or 'module:Id-v0' of a third party.
    num_envs, seed, random_episode_start
        As for `BatchedSimulation`.
    drawn : bool
        `picture` will be asked for.

    Raises
    ------
    TaskError
        The id is unknown, its spaces are not supported, or it gives no pictures.

    """

    def __init__(self, environment_id: str, num_envs: int, seed: int,
                 random_episode_start: bool = False, drawn: bool = False) -> None:
        self.task = f'gymnasium:{environment_id}'
        self.num_envs = num_envs
        self._environments = [_make(environment_id, drawn)]
        first = self._environments[0]
        self._actions = _actions_of(self.task, first.action_space)
        self.action_size = self._actions.size
        self._observation_space = _observation_space(self.task, first.observation_space)
        self.observation_size = int(
            gymnasium.spaces.utils.flatdim(self._observation_space))
        self._flat_already = (isinstance(self._observation_space, gymnasium.spaces.Box)
                              and self._observation_space.shape == (self.observation_size,))
        self.control_dt = _control_dt(first)
        self._environments += [_make(environment_id, drawn) for _ in range(num_envs - 1)]
        self._generators = generators(seed, num_envs)
        self._seeds: list[int | None] = [int(rng.integers(2 ** 31)) for rng in self._generators]
        limit = first.spec.max_episode_steps if first.spec else None
        self._episodes = Episodes(np.zeros(num_envs, dtype=np.int64), limit or 0,
                                  self._generators, random_episode_start)
        self._success = np.full(num_envs, NO_SUCCESS)
        self._last = np.zeros((num_envs, self.observation_size), dtype=np.float32)
        #: How many episodes ended because an environment gave a number that is not finite.
        self.instabilities = 0

    def reset(self, out: np.ndarray) -> None:
        """Begin an episode in every environment; write float32 [N, O] to `out`."""
        self._episodes.begin_all()
        for index in range(self.num_envs):
            self._begin(index, out)
        self._last[...] = out

    def step(self, action: np.ndarray, out: np.ndarray) -> StepResult:
        """
        Make one control step, reset what ended, write the observation that follows.

        See `Environment.step`.
        """
        actions = self._actions.theirs(action)
        reward = np.zeros(self.num_envs, dtype=np.float32)
        terminated = np.zeros(self.num_envs, dtype=bool)
        truncated = np.zeros(self.num_envs, dtype=bool)
        self._episodes.steps += 1
        for index, environment in enumerate(self._environments):
            observation, gain, terminal, cut, info = environment.step(actions[index])
            self._write(index, observation, out)
            reward[index], terminated[index], truncated[index] = gain, terminal, cut
            if terminal or cut or self._episodes.steps[index] >= self._episodes.limit[index]:
                self._success[index] = _success(info)
        self._end_unstable(reward, terminated, out)
        self._episodes.count(reward)
        truncated |= self._episodes.steps >= self._episodes.limit
        truncated &= ~terminated
        ended = np.flatnonzero(terminated | truncated)
        episodes = self._episodes.finish(ended, self._success)
        final_index = np.flatnonzero(truncated)
        final_observation = out[final_index]
        for index in ended.tolist():
            self._begin(index, out)
        self._last[...] = out
        return StepResult(reward, terminated, truncated, final_index, final_observation, episodes)

    def describe(self) -> dict[str, Any]:
        """Give what the card says of the task; its observation exists only in simulation."""
        term = gymnasium_observation(self.task, self.observation_size)
        observation = Observation([term])
        return {'task': self.task, 'control_dt': self.control_dt,
                'observation': observation.card(),
                'action': {'joints': [f'action{i}' for i in range(self.action_size)],
                           **self._actions.card()},
                'start_pose': {}, 'deployable': False,
                'simulation_only': list(observation.simulation_only)}

    def picture(self) -> np.ndarray:
        """Draw the first environment as it is, uint8 [H, W, 3] of its own size."""
        return np.asarray(self._environments[0].render(), np.uint8)

    def close(self) -> None:
        """Close every environment."""
        for environment in self._environments:
            environment.close()

    def _begin(self, index: int, out: np.ndarray) -> None:
        # A seed belongs to the first reset alone: later ones go on with the same generator.
        observation, _ = self._environments[index].reset(seed=self._seeds[index])
        self._seeds[index] = None
        self._success[index] = NO_SUCCESS
        self._write(index, observation, out)
        if not np.isfinite(out[index]).all():
            raise TaskError(f'{self.task}: reset() of environment {index} gave an observation '
                            f'that is not finite: {out[index].tolist()}')

    def _write(self, index: int, observation: Any, out: np.ndarray) -> None:
        if not self._flat_already:
            observation = gymnasium.spaces.utils.flatten(self._observation_space, observation)
        if np.shape(observation) != (self.observation_size,):
            raise TaskError(f'{self.task}: environment {index} gave an observation of shape '
                            f'{np.shape(observation)}, expected {(self.observation_size,)}')
        out[index] = observation

    def _end_unstable(self, reward: np.ndarray, terminated: np.ndarray, out: np.ndarray) -> None:
        """End what gave numbers that are not finite, with the last good observation."""
        bad = ~np.isfinite(out).all(axis=1) | ~np.isfinite(reward)
        if bad.any():
            self.instabilities += int(bad.sum())
            out[bad] = self._last[bad]
            reward[bad] = 0.0
            terminated[bad] = True
            self._success[bad] = np.where(self._success[bad] == NO_SUCCESS, NO_SUCCESS, 0.0)


def _make(environment_id: str, drawn: bool = False) -> gymnasium.Env:
    title = f'task gymnasium:{environment_id}'
    try:
        environment = gymnasium.make(environment_id, disable_env_checker=True)
        if not drawn:
            return environment
        modes = environment.metadata.get('render_modes', ())
        environment.close()
        if _PICTURES not in modes:
            raise TaskError(f'{title}: cannot be drawn: it has no render_mode {_PICTURES}, but '
                            f'{", ".join(modes) or "none at all"}')
        return gymnasium.make(environment_id, disable_env_checker=True, render_mode=_PICTURES)
    except gymnasium.error.DependencyNotInstalled as error:
        raise TaskError(f'{title}: {_one_line(error)}') from error
    except gymnasium.error.Error as error:
        close = difflib.get_close_matches(environment_id, list(gymnasium.registry), n=3)
        hint = (f'did you mean {" or ".join(close)}?' if close
                else 'gymnasium.pprint_registry() lists what exists')
        raise TaskError(f'{title}: unknown; {hint}') from error
    except ImportError as error:
        raise TaskError(f'{title}: cannot import it: {_one_line(error)}') from error


def _one_line(error: Exception) -> str:
    return ' '.join(str(error).split())


class _Actions(Protocol):
    """How A numbers of a policy become an action of the environment."""

    size: int

    def theirs(self, action: np.ndarray) -> np.ndarray:
        """Give the actions of N environments, float32 [N, A] → [N, ...]."""

    def card(self) -> dict[str, Any]:
        """Give what the card says of them."""


class _BoxActions:
    """Numbers in (-1, 1), scaled to the bounds."""

    def __init__(self, space: gymnasium.spaces.Box) -> None:
        self._space = space
        self._low = space.low.astype(np.float64).reshape(-1)
        self._half_range = (space.high.astype(np.float64).reshape(-1) - self._low) / 2.0
        self.size = len(self._low)

    def theirs(self, action: np.ndarray) -> np.ndarray:
        scaled = self._low + (np.asarray(action, dtype=np.float64) + 1.0) * self._half_range
        return scaled.astype(self._space.dtype).reshape(len(action), *self._space.shape)

    def card(self) -> dict[str, Any]:
        return {'interface': 'gymnasium', 'offset': (self._low + self._half_range).tolist(),
                'scale': self._half_range.tolist()}


class _DiscreteActions:
    """The index of one of several choices."""

    size = 1

    def __init__(self, space: gymnasium.spaces.Discrete) -> None:
        self._first, self._choices = int(space.start), int(space.n)

    def theirs(self, action: np.ndarray) -> np.ndarray:
        return self._first + action[:, 0].astype(np.int64)

    def card(self) -> dict[str, Any]:
        return {'interface': DISCRETE, 'choices': self._choices, 'first': self._first}


def _actions_of(task: str, space: gymnasium.Space) -> _Actions:
    if isinstance(space, gymnasium.spaces.Discrete):
        return _DiscreteActions(space)
    if not isinstance(space, gymnasium.spaces.Box):
        raise TaskError(f'{task} has a {type(space).__name__} action space; {_SUPPORTED}')
    if not space.is_bounded():
        raise TaskError(f'{task} has an action space without bounds; {_SUPPORTED}')
    return _BoxActions(space)


def _observation_space(task: str, space: gymnasium.Space) -> gymnasium.Space:
    if not space.is_np_flattenable:
        raise TaskError(f'{task} has a {type(space).__name__} observation space, which cannot be '
                        'flattened')
    return space


def _control_dt(environment: gymnasium.Env) -> float:
    """Find the control period: of MuJoCo environments, else from the rate of rendering."""
    period = getattr(environment.unwrapped, 'dt', None)
    if isinstance(period, int | float) and period > 0.0:
        return float(period)
    rate = environment.metadata.get('render_fps') or 0.0
    return 1.0 / rate if rate else 0.0


def _success(info: dict[str, Any]) -> float:
    value = info.get('is_success', info.get('success'))
    return NO_SUCCESS if value is None else float(bool(value))

"""
Randomization: what makes N simulations differ from their model and from each other.

Models differ from environment to environment for as long as they live; delays and biases are
drawn anew for each episode; noise and pushes in each step.  A policy that does well in all of
them does not rely on numbers that a real robot does not have.
"""

from collections.abc import Callable, Sequence
import copy
import dataclasses
from typing import Any

import mujoco
import numpy as np

from asyncppo_ros.config import RandomizationConfig
from asyncppo_ros.errors import TaskError
from asyncppo_ros.robot.terms import Term
from asyncppo_ros.simulation.state import SimulationState

# Next to the seed, so that an environment's model does not use the numbers of its episodes.
_MODEL_STREAM, _STEP_STREAM = 1, 2
_AFFINE = int(mujoco.mjtBias.mjBIAS_AFFINE)
# Time between pushes, as multiples of the mean.
_EARLIEST_PUSH, _LATEST_PUSH = 0.5, 1.5


def randomized_models(model: mujoco.MjModel, num_envs: int, seed: int,
                      settings: RandomizationConfig) -> list[mujoco.MjModel]:
    """
    Give the model of each environment: copies that differ, or the one where nothing is to.

    Environment i draws from (seed, i), so it is the same robot whatever N is.
    """
    if not any((settings.mass, settings.friction, settings.gains, settings.motor_strength,
                settings.joint_damping)):
        return [model] * num_envs
    return [_randomized(model, np.random.default_rng((seed, index, _MODEL_STREAM)), settings)
            for index in range(num_envs)]


def _randomized(model: mujoco.MjModel, rng: np.random.Generator,
                settings: RandomizationConfig) -> mujoco.MjModel:
    def factors(count: int, width: float) -> np.ndarray:
        return rng.uniform(1.0 - width, 1.0 + width, count)
    return scaled(model, mass=factors(model.nbody, settings.mass),
                  friction=factors(1, settings.friction), gains=factors(model.nu, settings.gains),
                  strength=factors(model.nu, settings.motor_strength),
                  damping=factors(model.nv, settings.joint_damping))


def scaled(model: mujoco.MjModel, mass: np.ndarray, friction: np.ndarray, gains: np.ndarray,
           strength: np.ndarray, damping: np.ndarray) -> mujoco.MjModel:
    """
    Give a copy of a model whose numbers are multiplied.

    Parameters
    ----------
    mass : float [nbody]
        Of mass and inertia of each body.
    friction : float [1]
        Of the sliding friction of all surfaces.
    gains : float [nu]
        Of stiffness and damping of each position or velocity actuator.
    strength : float [nu]
        Of the largest force of each actuator (gear of a motor).
    damping : float [nv]
        Of damping and friction loss of each joint.

    """
    changed = copy.copy(model)
    changed.body_mass *= mass
    changed.body_inertia *= mass[:, None]
    changed.geom_friction[:, 0] *= friction
    feedback = model.actuator_biastype == _AFFINE
    changed.actuator_gainprm[feedback, 0] *= gains[feedback]
    changed.actuator_biasprm[feedback, 1:3] *= gains[feedback, None]
    changed.actuator_forcerange *= strength[:, None]
    changed.actuator_gear[~feedback, 0] *= strength[~feedback]
    changed.dof_damping *= damping
    changed.dof_frictionloss *= damping
    # What MuJoCo derives from masses is computed when a model is compiled, and here again.
    mujoco.mj_setConst(changed, mujoco.MjData(changed))
    return changed


def factors(models: Sequence[mujoco.MjModel],
            nominal: mujoco.MjModel) -> dict[str, np.ndarray]:
    """Give by what the total mass and the friction of each model differ, float64 [N, 1]."""
    def ratio(of: Callable[[mujoco.MjModel], float]) -> np.ndarray:
        whole = of(nominal)
        return np.array([[of(model) / whole if whole else 1.0] for model in models])
    return {'mass': ratio(lambda model: float(model.body_mass.sum())),
            'friction': ratio(lambda model: float(model.geom_friction[:, 0].sum()))}


class Disturbances:
    """
    What changes from episode to episode and from step to step.

    Parameters
    ----------
    settings : RandomizationConfig
    terms : sequence of Term
        Of the observation, in order.
    state : SimulationState
    seed : int

    Raises
    ------
    TaskError
        Pushes are asked for, and the base is fixed.

    """

    def __init__(self, settings: RandomizationConfig, terms: tuple[Term, ...],
                 state: SimulationState, seed: int) -> None:
        if settings.push_interval and state.base_velocity is None:
            raise TaskError(f'randomization.push_interval = {settings.push_interval}: this robot '
                            'has no free base that could be pushed; set it to 0')
        self._settings = settings
        self._state = state
        self._rng = np.random.default_rng((seed, state.num_envs, _STEP_STREAM))
        widths = [term.size * term.history for term in terms]
        self._noise = np.repeat([term.noise * abs(term.scale) * term.measured for term in terms],
                                widths).astype(np.float32)
        self._measured = np.flatnonzero(np.repeat([term.measured for term in terms], widths))
        num_envs, size = state.num_envs, len(self._noise)
        self._bias = np.zeros((num_envs, size), np.float32)
        self._lateness = np.zeros(num_envs, np.int64)
        self._past = np.zeros((settings.observation_delay + 1, num_envs, len(self._measured)),
                              np.float32)
        self._action_lateness = np.zeros(num_envs, np.int64)
        self._past_actions = np.zeros((settings.action_delay + 1, *state.last_action.shape))
        self._push_at = np.zeros(num_envs)
        self._rows = np.arange(num_envs)

    def begin(self, environments: np.ndarray) -> None:
        """Draw what is to last for an episode of these environments."""
        settings, rng, count = self._settings, self._rng, len(environments)
        self._bias[environments] = settings.sensor_bias * self._noise * rng.uniform(
            -1.0, 1.0, (count, len(self._noise)))
        self._lateness[environments] = rng.integers(0, settings.observation_delay + 1, count)
        self._action_lateness[environments] = rng.integers(0, settings.action_delay + 1, count)
        self._past_actions[:, environments] = 0.0
        self._push_at[environments] = self._until_push(count)

    def shift_start(self, index: int, rng: np.random.Generator, joints: Any) -> None:
        """Move the joints of one environment, whose episode begins; `joints` are qpos indices."""
        width = self._settings.initial_state
        if width:
            self._state.qpos[index, joints] += rng.uniform(-width, width, len(joints))

    def first_observation(self, environments: np.ndarray, out: np.ndarray) -> None:
        """Disturb the rows of these environments; nothing was seen before them."""
        self._add_noise(environments, out)
        self._past[:, environments] = out[environments[:, None], self._measured]

    def observation(self, out: np.ndarray) -> None:
        """Disturb the observation of a control step, float32 [N, O], in place."""
        self._add_noise(self._rows, out)
        if self._settings.observation_delay:
            self._past[1:] = self._past[:-1].copy()
            self._past[0] = out[:, self._measured]
            out[:, self._measured] = self._past[self._lateness, self._rows]

    def action(self, action: np.ndarray) -> np.ndarray:
        """Give the action that takes effect now, float64 [N, A]."""
        if not self._settings.action_delay:
            return action
        self._past_actions[1:] = self._past_actions[:-1].copy()
        self._past_actions[0] = action
        return self._past_actions[self._action_lateness, self._rows]

    def pushes(self) -> tuple[np.ndarray, np.ndarray]:
        """
        Say who is pushed before this control step.

        Returns
        -------
        environments : int [P]
        change : float64 [P, 2]
            Of the horizontal velocity [m/s].

        """
        if not self._settings.push_interval:
            return self._rows[:0], np.empty((0, 2))
        pushed = np.flatnonzero(self._state.time >= self._push_at)
        self._push_at[pushed] = self._state.time[pushed] + self._until_push(len(pushed))
        limit = self._settings.push_velocity
        return pushed, self._rng.uniform(-limit, limit, (len(pushed), 2))

    def _until_push(self, count: int) -> np.ndarray:
        interval = self._settings.push_interval
        return self._rng.uniform(_EARLIEST_PUSH * interval, _LATEST_PUSH * interval, count)

    def _add_noise(self, environments: np.ndarray, out: np.ndarray) -> None:
        level = self._settings.sensor_noise
        if level:
            noise = self._rng.standard_normal((len(environments), len(self._noise)), np.float32)
            out[environments] += level * self._noise * noise
        if self._settings.sensor_bias:
            out[environments] += self._bias[environments]


def card(settings: RandomizationConfig) -> dict[str, Any]:
    """Give what an artefact says of the randomization, JSON types; empty = there was none."""
    values = dataclasses.asdict(settings)
    return values if is_on(settings) else {}


def is_on(settings: RandomizationConfig) -> bool:
    """Say whether anything is randomized."""
    return any(value for name, value in dataclasses.asdict(settings).items()
               if name != 'push_velocity')

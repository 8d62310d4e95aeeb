"""The interface between acting and any world: a batch of N environments stepped together."""

from typing import Any, NamedTuple, Protocol

import numpy as np

# Of environments without anything that only the critic sees.
_NO_CRITIC = np.empty((0, 0), np.float32)


class StepMissed(Exception):  # noqa: N818 - it happens to a robot, and is no mistake
    """
    A control step, or a reset, did not come about; the text says why.

    What was measured before it is true, and nothing is known of what followed.
    """


class StepResult(NamedTuple):
    """
    What one control step of N environments gave.

    Attributes
    ----------
    reward : float32 [N]
        Unscaled.
    terminated, truncated : bool [N]
        A terminal state of the task; an episode cut from outside (time limit).  Never both.
    final_index : int [K]
        The environments that were truncated in this step.
    final_observation : float32 [K, O]
        Their true last observations (the new rows already begin the next episodes).
    episodes : float32 [E, 3]
        Return, length [control steps] and success (1, 0, -1 = the task has none) of each
        episode that ended in this step, in the order of the environments.
    final_critic_observation : float32 [K, C]
        What only the critic sees of the true last states.

    """

    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    final_index: np.ndarray
    final_observation: np.ndarray
    episodes: np.ndarray
    final_critic_observation: np.ndarray = _NO_CRITIC


class Environment(Protocol):
    """
    A batch of N environments that reset themselves.

    Attributes
    ----------
    task : str
        The name under which the task was found.
    num_envs, observation_size, action_size : int
        N, O, A.  A discrete action is one number, A = 1: `describe` then says
        ``{'interface': 'discrete', 'choices': n}`` of it.
    control_dt : float
        Period of a control step [s].
    critic_observation : float32 [N, C], optional
        What only the critic sees of each environment; written anew, in place, by `reset` and
        `step`.  An environment without it has C = 0 (see `critic_rows`).
    needs_reset : bool, optional
        The episode has ended, and the next one begins only with `reset`, which may take as long
        as people take; until then the observation is the last of the episode.  An environment
        without it resets itself (see `needs_reset`).
    idle : callable, optional
        Of an environment that waits in `reset` and `step`: called meanwhile; True = give up.

    """

    task: str
    num_envs: int
    observation_size: int
    action_size: int
    control_dt: float

    def reset(self, out: np.ndarray) -> None:
        """
        Begin an episode in every environment; write float32 [N, O] to `out`.

        Raises
        ------
        StepMissed
            It did not come about.

        """

    def step(self, action: np.ndarray, out: np.ndarray) -> StepResult:
        """
        Make one control step, reset what ended, write the observation that follows.

        Parameters
        ----------
        action : float32 [N, A]
            In (-1, 1), after the tanh; of a discrete action the index of the choice.
        out : float32 [N, O]
            Receives the observation of each environment after the step; of a new episode
            where the old one ended.

        Raises
        ------
        StepMissed
            A real world was late or silent.  Only `reset` goes on from there.

        """

    def describe(self) -> dict[str, Any]:
        """Give what the card of an artefact says of the task (JSON types only)."""

    def close(self) -> None:
        """Free what the environment holds."""


def critic_rows(environment: Environment) -> np.ndarray:
    """Give what only the critic sees of each environment, float32 [N, C]: always one array."""
    rows: np.ndarray | None = getattr(environment, 'critic_observation', None)
    return np.empty((environment.num_envs, 0), np.float32) if rows is None else rows


def needs_reset(environment: Environment) -> bool:
    """Say whether no step can be made before the next `reset`."""
    return bool(getattr(environment, 'needs_reset', False))

"""The books of N episodes: how long, how much reward, where the time limit lies."""

import numpy as np

from asyncppo_ros.chunk import NO_SUCCESS

# Where there is no limit; no episode gets there.
NEVER = np.iinfo(np.int64).max


class Episodes:
    """
    Count steps and returns, and say which episodes are over their limit.

    Parameters
    ----------
    steps : int64 [N]
        Control steps of each episode so far; kept up to date here.
    limit : int
        Control steps of an episode; 0 = none.
    generators : list of numpy Generator
        One per environment; used only with `random_start`.
    random_start : bool
        Cut the first episode of each environment at a random length between 1 and `limit`.
        First episodes are then left out of `finish`, since that sample of lengths is not fair.

    """

    def __init__(self, steps: np.ndarray, limit: int, generators: list[np.random.Generator],
                 random_start: bool) -> None:
        self._usual = limit or NEVER
        self._random_start = random_start and limit > 0
        self._generators = generators
        num_envs = len(steps)
        self.steps = steps
        self.limit = np.full(num_envs, self._usual)
        self._return = np.zeros(num_envs)
        self._first = np.full(num_envs, self._random_start)
        # No limit is reached in fewer control steps.
        self._steps_left = self._usual

    def begin_all(self) -> None:
        """Begin the first episode of every environment."""
        self.steps[:] = 0
        self._return[:] = 0.0
        self._first[:] = self._random_start
        self.limit[:] = self._usual
        if self._random_start:
            self.limit[:] = [rng.integers(1, self._usual, endpoint=True)
                             for rng in self._generators]
        self._steps_left = int(self.limit.min())

    def count(self, reward: np.ndarray) -> None:
        """Add the reward of one control step, float [N], whose number is in `steps` already."""
        self._return += reward

    def over(self) -> np.ndarray | None:
        """
        Say after a control step whose episode has reached its limit, bool [N]; None = nobody's.

        It is asked once after every control step, and looks at the limits when it is time.
        """
        self._steps_left -= 1
        if self._steps_left > 0:
            return None
        left = self.limit - self.steps
        # An episode that begins meanwhile has the usual limit, which is never sooner.
        self._steps_left = int(left.min())
        return left <= 0 if self._steps_left <= 0 else None

    def finish(self, ended: np.ndarray, success: np.ndarray | None) -> np.ndarray:
        """
        Close episodes and begin the next ones.

        Parameters
        ----------
        ended : int [E]
            The environments, in order.
        success : bool or float [N], optional
            1, 0, or -1 where it is not known; None where the task has no success.

        Returns
        -------
        float32 [E, 3]
            Return, length [control steps], success.

        """
        rows = np.empty((len(ended), 3), dtype=np.float32)
        rows[:, 0] = self._return[ended]
        rows[:, 1] = self.steps[ended]
        rows[:, 2] = NO_SUCCESS if success is None else success[ended]
        rows = rows[~self._first[ended]]
        self._return[ended] = 0.0
        self.steps[ended] = 0
        self._first[ended] = False
        self.limit[ended] = self._usual
        return rows


def generators(seed: int, num_envs: int) -> list[np.random.Generator]:
    """Make one Generator per environment; environment i is the same whatever N is."""
    return [np.random.default_rng((seed, index)) for index in range(num_envs)]

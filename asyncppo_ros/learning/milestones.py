"""Milestones: the first policy after each of some numbers of transitions, kept for ever."""

from collections.abc import Sequence
import pathlib

from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.run import replace_file, Run


def milestone_file(run: Run, steps: int) -> pathlib.Path:
    """Give where the first policy after so many transitions lies."""
    return run.policies / f'milestone-{steps}.safetensors'


class Milestones:
    """
    Keeps policies of one run.

    What is there already stays: a run that is resumed keeps no second policy of a milestone.

    Parameters
    ----------
    run : Run
    milestones : sequence of int
        Numbers of transitions, as the setting ``learner.milestones``; 0 = none.

    """

    def __init__(self, run: Run, milestones: Sequence[int]) -> None:
        self._run = run
        self._ahead = sorted(steps for steps in set(milestones)
                             if steps and not milestone_file(run, steps).exists())

    def due(self, env_steps: int) -> bool:
        """Say whether a policy of so many transitions is to be kept."""
        return bool(self._ahead) and self._ahead[0] <= env_steps

    def keep(self, snapshot: PolicySnapshot) -> None:
        """
        Keep a published policy, if it is the first one after a milestone.

        Raises
        ------
        OSError
            The disk is full; the next policy is kept instead.

        """
        while self.due(snapshot.env_steps):
            replace_file(milestone_file(self._run, self._ahead[0]), snapshot.data)
            self._ahead.pop(0)

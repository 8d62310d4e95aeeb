"""What a lag study compares: arms, each with one thing changed, at lags of three kinds."""

from collections.abc import Iterator, Mapping, Sequence
import pathlib
from typing import Any, NamedTuple

from asyncppo_ros.run import task_file

# The first that an arm changes: PPO as it was published.
PLAIN: dict[str, Any] = {
    'learner.ppo.objective': 'clipped', 'learner.ppo.dual_clip': 0.0, 'learner.advantage': 'gae'}
#: The arm that the others are measured by.
REFERENCE = 'clipped'
#: Drops what is older than the middle of the spread.
DROPS = 'max_lag_drop'
# No chunk is older.
UNBOUNDED = 100_000


class Arm(NamedTuple):
    """What is changed of `PLAIN`, as settings and in words."""

    settings: dict[str, Any]
    what: str


ARMS: dict[str, Arm] = {
    REFERENCE: Arm({}, 'PPO as published: min(ρA, clip(ρ)A), ρ = π/μ of the policy μ that acted'),
    'dual_clip': Arm({'learner.ppo.dual_clip': 3.0},
                     'clipped, and where A < 0 never below cA, c = 3: what the package does '
                     'by default'),
    'decoupled': Arm({'learner.ppo.objective': 'decoupled'},
                     'clip around the newest policy π₀: min(π₀/μ, 2) · min(ρA, clip(ρ)A), '
                     'ρ = π/π₀'),
    'decoupled_dual_clip': Arm({'learner.ppo.objective': 'decoupled',
                                'learner.ppo.dual_clip': 3.0},
                               'decoupled with the dual clip'),
    'vtrace': Arm({'learner.advantage': 'vtrace'},
                  'clipped, with V-trace advantages and value targets instead of GAE'),
    DROPS: Arm({}, 'clipped, and chunks older than half of the spread are dropped'),
    'misread_dual_clip': Arm({'learner.ppo.objective': 'misread_dual_clip'},
                             'min(ρA, clip(ρ)A, cA), c = 0.6: found in articles, and wrong'),
}

# Smaller batches than a training would have: lag counts in updates, and 32 updates must be a
# small part of a run that several seeds of many cells can afford.  Otherwise what is measured is
# how long the first samples of a learned policy take to arrive.
STUDY: dict[str, Any] = {
    'actor.num_envs': 16, 'actor.chunk_length': 32, 'learner.batch_size': 1024,
    'learner.ppo.epochs': 10, 'learner.ppo.minibatch_size': 256, 'evaluation.final_episodes': 50}
# As short as the arm without lag can do with.
ENV_STEPS = {'cartpole_swingup': 200_000, 'Hopper-v5': 300_000}
OTHER_ENV_STEPS = 500_000
# What a cell itself sets.
FIXED = ('task', 'seed', 'run_dir', 'learner.max_policy_lag', 'learner.target_lag', *PLAIN)

KINDS = {'versions': 'versions', 'gradient_steps': 'gradient steps',
         'spread': 'versions at most, uniform from 0'}


class Lag(NamedTuple):
    """
    How old chunks are.

    Attributes
    ----------
    kind : str
        A key of `KINDS`, the name of a setting of `injected_lag`.
    amount : int

    """

    kind: str
    amount: int

    def __str__(self) -> str:
        if self.kind == 'gradient_steps':
            return f'{self.amount} gradient steps'
        return f'spread {self.amount}' if self.kind == 'spread' else f'lag {self.amount}'


class Cell(NamedTuple):
    """An arm at a lag on a task; its runs differ in the seed."""

    task: str
    arm: str
    lag: Lag

    @property
    def reference(self) -> 'Cell':
        """The same arm without lag."""
        return self._replace(lag=Lag('versions', 0))

    @property
    def trained_as(self) -> 'Cell':
        """The cell whose runs these are: without lag nothing is there to drop."""
        if self.arm == DROPS and self.lag.amount == 0:
            return self._replace(arm=REFERENCE)
        return self

    def run_name(self, seed: int) -> str:
        """Give the name of the folder of a run."""
        task = pathlib.Path(task_file(self.task)).stem
        cell = self.trained_as
        return f'{task}-{cell.arm}-{cell.lag.kind}{cell.lag.amount}-seed{seed}'

    def settings(self, seed: int, given: Mapping[str, Any]) -> dict[str, Any]:
        """
        Give all settings of a run that are not those of its task.

        Parameters
        ----------
        seed : int
        given : mapping from str to value
            By the user; none of `FIXED`.

        """
        cell = self.trained_as
        bound = cell.lag.amount // 2 if cell.arm == DROPS else UNBOUNDED
        return {
            **STUDY, 'env_steps': ENV_STEPS.get(self.task, OTHER_ENV_STEPS), **given,
            **PLAIN, **ARMS[cell.arm].settings, 'task': self.task, 'seed': seed,
            f'injected_lag.{cell.lag.kind}': cell.lag.amount,
            'learner.max_policy_lag': bound, 'learner.target_lag': 0}


def cells_of(tasks: Sequence[str], arms: Sequence[str], lags: Sequence[Lag]) -> Iterator[Cell]:
    """
    Give the cells of a grid, task by task within arm within lag.

    A neighbour is another task, so that the first cells tell how long all will take.  Lags that
    are exact leave the arm `max_lag_drop` nothing to drop, or everything: it has spreads only,
    and the cell without lag.
    """
    for lag in lags:
        for arm in arms:
            if arm == DROPS and lag.amount and lag.kind != 'spread':
                continue
            for task in tasks:
                yield Cell(task, arm, lag)


def arms_help() -> str:
    """Give a line for each arm."""
    lines = ['arms, each `clipped` with one thing changed:']
    return '\n'.join(lines + [f'  {name:<20} {arm.what}' for name, arm in ARMS.items()])

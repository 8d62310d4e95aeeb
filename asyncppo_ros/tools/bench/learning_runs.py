"""The trainings of ``asyncppo bench learning``: what each is, and what it reached."""

from collections.abc import Mapping, Sequence
import json
import pathlib
from typing import Any, NamedTuple

from asyncppo_ros.config import Config
from asyncppo_ros.learning.checkpoint import read_state
from asyncppo_ros.learning.jsonl import read_jsonl
from asyncppo_ros.learning.milestones import milestone_file
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.robot.artefact import read_artefact
from asyncppo_ros.run import resolve, Run, task_file
from asyncppo_ros.tools.curves import current, generation_starts
from asyncppo_ros.tools.evaluate import score_artefact
from asyncppo_ros.tools.jobs import final_score, Job

VERBS = {'async': 'train', 'sync': 'train-local'}
# Policies that are looked at, evenly spread over a run, to tell when it reached a return.
LOOKS = 100


class Cell(NamedTuple):
    """
    One training.

    Attributes
    ----------
    folder : Path
        Takes the runs of all cells.
    task, mode : str
        A mode is one of `VERBS`.
    num_envs : int
        Environments in all; 0 = as the task's settings have it.
    seed : int
    settings : mapping
        Of all cells, dotted names to values.
    milestones : tuple of int
        Transitions before the end after which the policy is scored.
    until : float
        The return that is waited for; NaN = none.

    """

    folder: pathlib.Path
    task: str
    mode: str
    num_envs: int
    seed: int
    settings: dict[str, Any]
    milestones: tuple[int, ...]
    until: float

    @property
    def run(self) -> Run:
        """Where it is trained."""
        envs = f'-{self.num_envs}envs' if self.num_envs else ''
        stem = pathlib.Path(task_file(self.task)).stem
        return Run(self.folder / f'{stem}-{self.mode}{envs}-{self.seed}')

    @property
    def arm(self) -> str:
        """All cells of one arm differ in the seed alone."""
        return f'{self.task} {self.mode}{envs_text(self.num_envs)}'

    def config(self) -> Config:
        """Give the settings of the training."""
        return resolve(self._settings())

    def looks(self) -> list[int]:
        """Give after which transitions it is looked for the return that is waited for."""
        steps = self.config().env_steps
        if self.until != self.until:
            return []
        return sorted({max(1, steps * look // LOOKS) for look in range(1, LOOKS)})

    def job(self) -> Job:
        """Give the process that begins or continues the training."""
        settings = self._settings()
        kept = sorted({*self.milestones, *self.looks()})
        settings['learner.milestones'] = tuple(kept) or (0,)
        return Job(self.run, VERBS[self.mode], settings)

    def _settings(self) -> dict[str, Any]:
        settings = {'task': self.task, 'seed': self.seed, **self.settings}
        if self.num_envs:
            settings['actor.num_envs'] = self.num_envs
            # More actors would be more environments.
            settings['num_actors'] = 1
        return settings


def envs_text(num_envs: int) -> str:
    """Name a number of environments, with a space before; 0 = as the settings have it."""
    return f' {num_envs} env{"s" * (num_envs > 1)}' if num_envs else ''


def is_trained(cell: Cell) -> bool:
    """Say whether there is nothing left to train, though perhaps to score."""
    run = cell.run
    if final_score(run) is not None:
        return True
    return (run.checkpoint / 'checkpoint.safetensors').is_file() \
        and run.policy_file.is_file() \
        and read_state(run.checkpoint)['env_steps'] >= cell.config().env_steps


def score(cell: Cell, stop: StopRequest) -> None:
    """
    Score the policies of a trained run that are not scored yet, in ``evaluations.jsonl``.

    Each as at the end of a training: the same episodes, without exploration.

    Raises
    ------
    Interrupted
        `stop` said so; what was scored by then is kept.

    """
    run, settings = cell.run, cell.config().evaluation
    if final_score(run) is None:
        _append(run, {**score_artefact(read_artefact(run.policy_file), settings.final_episodes,
                                       settings.seed, stop), 'final': True})
    for milestone in cell.milestones:
        _score_milestone(run, milestone, settings.final_episodes, settings.seed, stop)
    for milestone in cell.looks():
        found = _score_milestone(run, milestone, settings.episodes, settings.seed, stop)
        if found is not None and found['return_mean'] >= cell.until:
            break


def outcome(cell: Cell) -> dict[str, Any]:
    """
    Read what a scored run reached.

    Returns
    -------
    dict
        ``returns`` maps transitions to the score of the first policy after so many, the end
        included; ``until`` (None without) tells when the return that was waited for was reached.

    """
    run, config = cell.run, cell.config()
    final = final_score(run)
    assert final is not None, f'{run.folder} is not scored'
    written = read_jsonl(run.metrics_file)
    rows = current(written, generation_starts(written))
    scores = [(milestone, _score(run, milestone=milestone,
                                 episodes=config.evaluation.final_episodes))
              for milestone in cell.milestones]
    seconds, lag = rows[-1]['time_s'], [row['policy_lag_mean'] for row in rows]
    result = {
        'task': cell.task, 'mode': cell.mode, 'seed': cell.seed,
        'num_envs': cell.num_envs or config.actor.num_envs,
        **{name: final[name] for name in ('return_mean', 'return_std', 'episodes', 'success',
                                          'length_mean', 'env_steps')},
        'returns': {str(steps): {name: entry[name] for name in (
            'return_mean', 'return_std', 'episodes', 'env_steps')}
            for steps, entry in (*scores, (config.env_steps, final)) if entry is not None},
        'wall_clock_s': seconds, 'env_steps_per_s': final['env_steps'] / seconds,
        'gradient_steps': rows[-1]['gradient_steps'],
        'policy_lag_mean': sum(lag) / len(lag),
        'policy_lag_max': max(row['policy_lag_max'] for row in rows)}
    if cell.until == cell.until:
        result['until'] = _reached(cell, rows, config.evaluation.episodes)
    return result


def _reached(cell: Cell, rows: Sequence[Mapping[str, Any]],
             episodes: int) -> dict[str, Any] | None:
    """Give after how many transitions and seconds the return was reached; None = it was not."""
    for milestone in cell.looks():
        found = _score(cell.run, milestone=milestone, episodes=episodes)
        if found is not None and found['return_mean'] >= cell.until:
            return {'return': cell.until, 'return_mean': found['return_mean'],
                    'episodes': found['episodes'], 'env_steps': found['env_steps'],
                    'wall_clock_s': next(row['time_s'] for row in rows
                                         if row['env_steps'] >= found['env_steps'])}
    return None


def _score_milestone(run: Run, milestone: int, episodes: int, seed: int,
                     stop: StopRequest) -> dict[str, Any] | None:
    """Score a kept policy, unless that was done; None where none was kept."""
    known = _score(run, milestone=milestone, episodes=episodes)
    if known is not None or not milestone_file(run, milestone).is_file():
        return known
    entry = {**score_artefact(read_artefact(milestone_file(run, milestone)), episodes, seed,
                              stop), 'milestone': milestone}
    _append(run, entry)
    return entry


def _score(run: Run, **wanted: Any) -> dict[str, Any] | None:
    """Give the last evaluation of a run that has these entries."""
    found = [entry for entry in read_jsonl(run.evaluations_file)
             if all(entry.get(name) == value for name, value in wanted.items())]
    return found[-1] if found else None


def _append(run: Run, entry: dict[str, Any]) -> None:
    with open(run.evaluations_file, 'a') as file:
        file.write(json.dumps(entry) + '\n')

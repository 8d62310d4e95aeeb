"""Wall-clock to the return that Stable-Baselines3 has when it is done: ours and peers."""

from collections.abc import Iterator, Mapping, Sequence
import math
import pathlib
import statistics
import sys
from typing import Any, NamedTuple

from asyncppo_ros.errors import RunError
from asyncppo_ros.learning.jsonl import read_jsonl
from asyncppo_ros.learning.milestones import milestone_file
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.run import Run
from asyncppo_ros.tools.bench.learning_runs import Cell, is_trained, score
from asyncppo_ros.tools.bench.peer_jobs import (
    EVALUATION_SEED,
    OURS,
    Peer,
    PeerJob,
    returns_of,
)
from asyncppo_ros.tools.bench.results import check, row
from asyncppo_ros.tools.bench.uncertainty import paired_ratio
from asyncppo_ros.tools.curves import current, generation_starts
from asyncppo_ros.tools.jobs import Job, run_jobs, tail_of

# Whose return is waited for.
TARGET = 'sb3'
# Of its time.
SHARE = 1.0 / 6.0
# Evaluations of a peer on the way, evenly spread.
LOOKS = 50


class Training(NamedTuple):
    """
    One training by ours (`cell`) or by a peer (`job`).

    Attributes
    ----------
    task, who : str
    seed : int
    cell : Cell or None
    job : Job
        Begins or continues it.

    """

    task: str
    who: str
    seed: int
    cell: Cell | None
    job: Job

    def is_done(self) -> bool:
        """Say whether there is nothing left to train."""
        if self.cell is not None:
            return is_trained(self.cell)
        assert isinstance(self.job, PeerJob)
        return self.job.result.is_file()


def trainings(tasks: Sequence[str], seeds: Sequence[int], peers: Sequence[Peer],
              given: Mapping[str, Any], folder: pathlib.Path, steps: int,
              episodes: int) -> list[Training]:
    """
    Give all trainings, seed by seed and every other seed the other way around.

    Parameters
    ----------
    tasks, seeds, peers
    given : mapping
        Settings of ours.
    folder : Path
    steps : int
        Of the peers.
    episodes : int
        Of the score at the end of a peer.

    """
    found = []
    for number, seed in enumerate(seeds):
        for task in tasks:
            # Every policy that a look finds is kept: the return is known only later.
            cell = Cell(folder, task, 'async', 0, seed, dict(given), (), math.inf)
            turn = [Training(task, OURS, seed, cell, cell.job())]
            for peer in peers:
                for variant in peer.chosen(peer.script.RETURN):
                    turn.append(Training(task, f'{peer.name} {variant}', seed, None, PeerJob(
                        Run(folder / f'{task}-{peer.name}-{variant}-{seed}'), peer.python,
                        {'peer': peer.name, 'task': task, 'variant': variant, 'seed': seed,
                         'steps': steps, 'evaluate_every': max(1, steps // LOOKS),
                         'episodes': episodes, 'evaluation_seed': EVALUATION_SEED})))
            found += turn[::-1 if number % 2 else 1]
    return found


def train(all_of_them: Sequence[Training], stop: StopRequest) -> None:
    """
    Train what is not trained yet, one at a time; score what ours kept on the way.

    Raises
    ------
    RunError
        A training failed.
    Interrupted
        `stop` said so while ours were scored.

    """
    missing = [training for training in all_of_them if not training.is_done()]

    def jobs() -> Iterator[Job]:
        for training in missing:
            training.job.run.folder.parent.mkdir(parents=True, exist_ok=True)
            if training.cell is None:
                training.job.run.folder.mkdir(exist_ok=True)
            yield training.job

    for number, ended in enumerate(run_jobs(jobs(), 1, stop), start=1):
        if ended.code != 0 and not stop():
            raise RunError(f'{ended.job.run.folder}: the training failed: {tail_of(ended.job, 1)}')
        if not stop():
            print(f'{number} of {len(missing)} trainings: {ended.job.run.folder.name}',
                  file=sys.stderr)
    for training in all_of_them:
        if training.cell is not None and not stop():
            score(training.cell, stop)


def outcome(training: Training, episodes: int) -> dict[str, Any]:
    """
    Read what a training reached.

    Returns
    -------
    dict
        ``task, who, seed, env_steps, gradient_steps, wall_clock_s``, ``return_mean`` at the end
        and ``curve``: ``env_steps, seconds, return_mean`` of each deterministic evaluation.

    """
    found: dict[str, Any] = {'task': training.task, 'who': training.who, 'seed': training.seed}
    if training.cell is None:
        assert isinstance(training.job, PeerJob)
        result = training.job.found()
        found |= {name: result[name] for name in ('env_steps', 'gradient_steps', 'wall_clock_s',
                                                  'versions')}
        returns, curve = result['returns'], list(result.get('curve', []))
    else:
        last = _rows(training.cell)[-1]
        found |= {'env_steps': last['env_steps'], 'gradient_steps': last['gradient_steps'],
                  'wall_clock_s': last['time_s']}
        returns = _played(training.cell.run, None, training.task, episodes)
        curve = _curve(training.cell)
    found['return_mean'] = statistics.fmean(returns)
    if not curve or curve[-1]['env_steps'] < found['env_steps']:
        curve.append({'env_steps': found['env_steps'], 'seconds': found['wall_clock_s'],
                      'return_mean': found['return_mean']})
    return found | {'curve': curve}


def seconds_to(training: Training, result: Mapping[str, Any], target: float,
               episodes: int) -> float | None:
    """
    Say when a training reached a return [s]; None = it did not.

    Of a peer the first evaluation counts that is not below.  A policy of ours, which was
    evaluated in its own simulation, must also have the return over `episodes` episodes of the
    environment that the peers are scored in, with the same seeds; else the next one is looked at.
    """
    for point in result['curve']:
        if point['return_mean'] >= target:
            if training.cell is None:
                return point['seconds']
            returns = _played(training.cell.run, point.get('milestone'), training.task, episodes)
            if statistics.fmean(returns) >= target:
                return point['seconds']
    return None


def comparisons_of(all_of_them: Sequence[Training], results: Sequence[Mapping[str, Any]],
                   episodes: int) -> list[dict[str, Any]]:
    """
    Compare the times to each return that is waited for.

    Returns
    -------
    list of dict
        For each task, variant of the peer whose return is waited for, and whom ours are compared
        with: ``target`` (its mean over the seeds), ``ours`` and ``theirs`` (seconds of each
        seed; None = not reached), ``ratio`` with its 95 % interval, paired by seed; None where a
        seed of ours did not get there.  Of the peer whose return it is the time is that of its
        whole training, and of another one that did not get there, too.

    """
    found = []
    for task in dict.fromkeys(result['task'] for result in results):
        pairs = [pair for pair in zip(all_of_them, results) if pair[1]['task'] == task]
        names = list(dict.fromkeys(result['who'] for _, result in pairs))
        for goal in (name for name in names if name.partition(' ')[0] == TARGET):
            target = statistics.fmean(result['return_mean'] for _, result in pairs
                                      if result['who'] == goal)
            seconds = {name: {result['seed']: seconds_to(training, result, target, episodes)
                              for training, result in pairs if result['who'] == name}
                       for name in names if name == OURS or name.partition(' ')[0] != TARGET}
            whole = {name: {result['seed']: result['wall_clock_s'] for _, result in pairs
                            if result['who'] == name} for name in names}
            for name in names:
                if name == goal or (name != OURS and name.partition(' ')[0] != TARGET):
                    found.append(_comparison(task, goal, target, name, seconds, whole))
    return found


def _comparison(task: str, goal: str, target: float, peer: str,
                seconds: Mapping[str, Mapping[int, float | None]],
                whole: Mapping[str, Mapping[int, float]]) -> dict[str, Any]:
    seeds = list(whole[OURS])
    ours = [seconds[OURS][seed] for seed in seeds]
    theirs = [whole[peer][seed] if peer == goal else seconds[peer][seed] for seed in seeds]
    reached = [time for time in ours if time is not None]
    counted = [whole[peer][seed] if time is None else time for seed, time in zip(seeds, theirs)]
    return {'task': task, 'goal': goal, 'target': target, 'peer': peer, 'ours': ours,
            'theirs': theirs, 'ratio': list(paired_ratio(reached, counted))
            if len(reached) == len(ours) else None}


def checks_of(comparisons: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Compare with what was asked for."""
    checks = []
    for entry in comparisons:
        reached = sum(time is not None for time in entry['ours'])
        if entry['peer'] == entry['goal']:
            checks.append(check(f'{entry["task"]}: seeds that reach {entry["target"]:,.0f}, the '
                                f'return of {entry["goal"]}', reached, f'{len(entry["ours"])}',
                                reached == len(entry['ours'])))
        if entry['ratio'] is not None:
            most, sign = (SHARE, '<=') if entry['peer'] == entry['goal'] else (1.0, '<')
            value = entry['ratio'][0]
            checks.append(check(
                f'{entry["task"]}: time to {entry["target"]:,.0f} over that of {entry["peer"]}',
                value, f'{sign} {most:.4g}', value <= most if sign == '<=' else value < most))
    return checks


def rows_of(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Summarize over the seeds."""
    rows = []
    for task, who in dict.fromkeys((result['task'], result['who']) for result in results):
        entries = [result for result in results if (result['task'], result['who']) == (task, who)]
        rows += [row(f'{task} {who} return_mean', [entry['return_mean'] for entry in entries],
                     'return'),
                 row(f'{task} {who} wall_clock_s', [entry['wall_clock_s'] for entry in entries],
                     's'),
                 row(f'{task} {who} gradient_steps', [
                     1000.0 * entry['gradient_steps'] / entry['env_steps'] for entry in entries],
                     'per 1000 env steps')]
    return rows


def text_of(results: Sequence[Mapping[str, Any]],
            comparisons: Sequence[Mapping[str, Any]]) -> str:
    """Give Markdown tables of what each reached, and of the times."""
    lines = ['| task | who | env steps | wall-clock [s] | return at the end, every seed | '
             'gradient steps per 1000 env steps |', '|' + '---|' * 6]
    for task, who in dict.fromkeys((result['task'], result['who']) for result in results):
        entries = [result for result in results if (result['task'], result['who']) == (task, who)]
        lines.append(
            f'| {task} | {who} | {entries[0]["env_steps"]:,} | '
            f'{statistics.median(entry["wall_clock_s"] for entry in entries):,.0f} | '
            + ', '.join(f'{entry["return_mean"]:,.0f}' for entry in entries) + ' | '
            f'{1000.0 * entries[0]["gradient_steps"] / entries[0]["env_steps"]:.1f} |')
    lines += ['', '| task | return | of | ours [s], every seed | peer | its time [s], every seed '
              '| ours / it [95 %] |', '|' + '---|' * 7]
    for entry in comparisons:
        ratio = '–' if entry['ratio'] is None else '{:.4f} [{:.4f}, {:.4f}]'.format(
            *entry['ratio'])
        lines.append(f'| {entry["task"]} | {entry["target"]:,.0f} | {entry["goal"]} | '
                     f'{_times(entry["ours"])} | {entry["peer"]} | {_times(entry["theirs"])} | '
                     f'{ratio} |')
    return '\n'.join(lines)


def _times(seconds: Sequence[float | None]) -> str:
    return ', '.join('never' if time is None else f'{time:,.1f}' for time in seconds)


def _rows(cell: Cell) -> list[Mapping[str, Any]]:
    written = read_jsonl(cell.run.metrics_file)
    return current(written, generation_starts(written))


def _curve(cell: Cell) -> list[dict[str, Any]]:
    """Give the evaluations of the policies that were kept, each policy once."""
    rows, episodes = _rows(cell), cell.config().evaluation.episodes
    scores = {entry['env_steps']: entry for entry in read_jsonl(cell.run.evaluations_file)
              if entry.get('milestone') and entry['episodes'] == episodes}
    return [{'env_steps': steps, 'return_mean': entry['return_mean'],
             'milestone': entry['milestone'],
             'seconds': next(row['time_s'] for row in rows if row['env_steps'] >= steps)}
            for steps, entry in sorted(scores.items())]


def _played(run: Run, milestone: int | None, task: str, episodes: int) -> list[float]:
    """Play the last policy, or one that was kept, where the peers are scored."""
    policy = run.policy_file if milestone is None else milestone_file(run, milestone)
    name = 'gymnasium_returns' if milestone is None else f'gymnasium_returns-{milestone}'
    return returns_of(policy, run.folder / f'{name}.json', task, episodes)

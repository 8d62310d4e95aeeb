"""
``asyncppo bench sb3``: this learner, synchronous, against the PPO of Stable-Baselines3.

Both train the same tasks with the same seeds for the same number of steps, turn and turn about,
and are scored alike: whole episodes of Gymnasium's own environment with the same seeds, without
exploration.  Stable-Baselines3 has the hyper-parameters that rl-baselines3-zoo publishes as tuned
for the task (``zoo``), or its own defaults with normalized observations and rewards
(``default``).  It runs in another interpreter, which is given, so it need not be installed beside
this package.  Runs that are finished in the folder are not repeated.
"""

from collections.abc import Iterator, Mapping, Sequence
import json
import pathlib
import statistics
import sys
from typing import Any

from asyncppo_ros.errors import ConfigError
from asyncppo_ros.learning.jsonl import read_jsonl
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.run import resolve, Run
from asyncppo_ros.settings import to_dict
from asyncppo_ros.tools.arguments import Parser, split_settings
from asyncppo_ros.tools.bench.peer_jobs import (
    EVALUATION_SEED,
    OURS,
    Peer,
    PeerJob,
    require_interpreter,
    returns_of,
)
from asyncppo_ros.tools.bench.peers import sb3_ppo
from asyncppo_ros.tools.bench.results import check, report, row, table, verdict
from asyncppo_ros.tools.bench.uncertainty import mean_difference
from asyncppo_ros.tools.jobs import final_score, Job, run_jobs, tail_of


def main(arguments: list[str], stop: StopRequest) -> int:
    """Train what is missing, compare, print the table or the JSON object."""
    parser = Parser(prog='asyncppo bench sb3', description=__doc__, allow_abbrev=False)
    parser.add_argument('--python', required=True, metavar='FILE',
                        help='interpreter that has stable-baselines3 and gymnasium[mujoco]')
    parser.add_argument('--tasks', nargs='+', default=['Hopper-v5', 'HalfCheetah-v5'],
                        help=f'of {", ".join(sb3_ppo.TUNED)}')
    parser.add_argument('--sets', nargs='+', default=['zoo'], choices=sb3_ppo.SETS)
    parser.add_argument('--seeds', nargs='+', type=int, default=[0, 1, 2])
    parser.add_argument('--episodes', type=int, default=100, help='of each score, default 100')
    parser.add_argument('--workers', type=int, default=1, help='trainings at a time')
    parser.add_argument('--folder', default='runs/bench-sb3', help='takes the runs')
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    own, given = split_settings(parser, arguments)
    check_arguments(own, given)
    # The peer's interpreter keeps its path: a link into a virtual environment is what names it.
    own.python = str(pathlib.Path(own.python).absolute())
    for ended in run_jobs(_missing(own, given), own.workers, stop):
        if ended.code != 0:
            raise ConfigError(f'{ended.job.run.folder}: the training failed:\n'
                              + tail_of(ended.job))
        print(f'trained {ended.job.run.folder.name}', file=sys.stderr)
    if stop():
        return 0
    results = [outcome(job, own.episodes) for job in jobs(own, given)]
    rows, checks = rows_of(results), checks_of(results)
    settings = {task: to_dict(resolve({**given, 'task': task})) for task in own.tasks}
    # Where runs and interpreters lay says nothing to others.
    private = ('--folder', own.folder, '--python')
    told = [word for word in arguments if word not in private
            and str(pathlib.Path(word).absolute()) != own.python]
    result = report(settings, rows, checks=checks, comparisons=comparisons(results), runs=results,
                    command=['asyncppo', 'bench', 'sb3', *told])
    print(json.dumps(result, indent=1) if own.json else
          f'{table(rows)}\n\n{comparison_text(results)}\n\n{verdict(checks)}')
    return 0 if all(entry['passed'] for entry in checks) else 1


def check_arguments(own: Any, given: Mapping[str, Any]) -> None:
    """Refuse what cannot be run, before anything is."""
    unknown = [task for task in own.tasks if task not in sb3_ppo.TUNED]
    if unknown:
        raise ConfigError(f'--tasks {" ".join(unknown)}: must be of {", ".join(sb3_ppo.TUNED)}, '
                          'for which hyper-parameters are published')
    if {'task', 'seed', 'run_dir'} & given.keys():
        raise ConfigError('--task, --seed and --run_dir are given as --tasks, --seeds, --folder')
    if min(own.episodes, own.workers) < 1:
        raise ConfigError(f'--episodes {own.episodes} --workers {own.workers}: must be at least 1')
    require_interpreter(Peer('sb3', own.python), f'--python {own.python}')


def jobs(own: Any, given: Mapping[str, Any]) -> Iterator[Job]:
    """Give every training in turn: each seed of a task by ours and by each set of the peer."""
    folder = pathlib.Path(own.folder)
    for task in own.tasks:
        for seed in own.seeds:
            yield Job(Run(folder / f'{task}-{OURS}-{seed}'), 'train-local',
                      {**given, 'task': task, 'seed': seed})
            for which in own.sets:
                yield PeerJob(Run(folder / f'{task}-sb3-{which}-{seed}'), own.python, {
                    'peer': 'sb3', 'task': task, 'variant': which, 'seed': seed,
                    'steps': steps_of({**given, 'task': task}), 'episodes': own.episodes,
                    'evaluation_seed': EVALUATION_SEED})


def steps_of(given: Mapping[str, Any]) -> int:
    """Give the steps that ours makes: whole updates; the peer never makes fewer."""
    config = resolve(given)
    chunk = config.actor.num_envs * config.actor.chunk_length
    update = -(-config.learner.batch_size // chunk) * chunk
    return -(-config.env_steps // update) * update


def _missing(own: Any, given: Mapping[str, Any]) -> Iterator[Job]:
    for job in jobs(own, given):
        if not is_finished(job):
            job.run.folder.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(job, PeerJob):
                job.run.folder.mkdir(exist_ok=True)
            yield job


def is_finished(job: Job) -> bool:
    """Say whether a training is done."""
    if isinstance(job, PeerJob):
        return job.result.is_file()
    return final_score(job.run) is not None


def outcome(job: Job, episodes: int) -> dict[str, Any]:
    """Say what a finished training reached, ours scored as the peer's script scores its own."""
    task, seed = str(job.settings['task']), job.settings['seed']
    if isinstance(job, PeerJob):
        found = {name: value for name, value in job.found().items()
                 if name not in ('steady', 'curve', 'num_envs')}
        who = f'sb3 {job.settings["variant"]}'
    else:
        last = read_jsonl(job.run.metrics_file)[-1]
        found = {'env_steps': last['env_steps'], 'gradient_steps': last['gradient_steps'],
                 'wall_clock_s': last['time_s'],
                 'returns': returns_of(job.run.policy_file,
                                       job.run.folder / 'gymnasium_returns.json', task, episodes)}
        who = OURS
    returns = found.pop('returns')
    return {'task': task, 'who': who, 'seed': seed, 'return_mean': statistics.fmean(returns),
            'return_std': statistics.pstdev(returns), 'episodes': len(returns), **found}


def rows_of(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Summarize over the seeds."""
    rows = []
    for task, who in dict.fromkeys((entry['task'], entry['who']) for entry in results):
        entries = [entry for entry in results if (entry['task'], entry['who']) == (task, who)]
        rows += [row(f'{task} {who} return_mean', [entry['return_mean'] for entry in entries],
                     'return'),
                 row(f'{task} {who} wall_clock_s', [entry['wall_clock_s'] for entry in entries],
                     's'),
                 row(f'{task} {who} gradient_steps', [1000.0 * entry['gradient_steps']
                                                      / entry['env_steps'] for entry in entries],
                     'per 1000 env steps')]
    return rows


def comparisons(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Give ours minus each peer with its 95 % bootstrap interval over the seeds."""
    def scores(task: str, who: str) -> list[float]:
        return [entry['return_mean'] for entry in results
                if (entry['task'], entry['who']) == (task, who)]

    found = []
    for task, who in dict.fromkeys((entry['task'], entry['who']) for entry in results):
        if who != OURS:
            difference = mean_difference(scores(task, OURS), scores(task, who))
            found.append({'task': task, 'peer': who, **difference._asdict(),
                          'ours': scores(task, OURS), 'theirs': scores(task, who)})
    return found


def comparison_text(results: Sequence[Mapping[str, Any]]) -> str:
    """Say each comparison in a line, every seed shown."""
    def listed(values: Sequence[float]) -> str:
        return ' '.join(f'{value:.0f}' for value in values)

    return '\n'.join(
        f'{entry["task"]}: {OURS} {listed(entry["ours"])}, {entry["peer"]} '
        f'{listed(entry["theirs"])}: difference of the means {entry["value"]:+.0f} '
        f'[{entry["low"]:+.0f}, {entry["high"]:+.0f}]' for entry in comparisons(results))


def checks_of(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Compare with what was asked for: at least the return of the peer."""
    return [check(f'{entry["task"]}: mean return minus that of {entry["peer"]}', entry['value'],
                  'at least 0', entry['value'] >= 0.0) for entry in comparisons(results)]

"""
``asyncppo tune``: search the settings with which a task is learned best in so many steps.

Every trial is a training of its own.  Settings are proposed by Optuna (TPE); a trial that is
worse half way than half of those before it is ended there.  The score is the deterministic
evaluation at the end.  When all trials are made, the best settings are trained again with further
seeds, since one seed may be luck, and the best mean is printed as YAML.

The log has one line per training and is continued when the command is given again.
"""

from collections.abc import Iterator, Mapping, Sequence
import json
import pathlib
import statistics
import sys
from typing import Any, NamedTuple

from asyncppo_ros.errors import ConfigError
from asyncppo_ros.learning.jsonl import read_jsonl, Tail
from asyncppo_ros.learning.line_file import LineFile
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.run import resolve, Run, task_file
from asyncppo_ros.settings import as_text, to_dict
from asyncppo_ros.tools.arguments import Parser, split_settings
from asyncppo_ros.tools.jobs import Ended, final_score, Job, run_jobs, tail_of

VERBS = {'async': 'train', 'sync': 'train-local'}
# Parts of the training at which a trial is compared with the others.
LOOKS = (0.3, 0.6)
# So many trials run to their end before any is ended early.
FIRST_TRIALS = 6


class Choice(NamedTuple):
    """
    Where to look for a setting: between two ends, or among values.

    `log` = the scale is logarithmic.
    """

    low: float = 0.0
    high: float = 0.0
    log: bool = False
    values: tuple[Any, ...] = ()


SPACE: dict[str, Choice] = {
    'learner.ppo.learning_rate': Choice(2e-4, 3e-3, log=True),
    'learner.ppo.epochs': Choice(values=(5, 10, 15)),
    'learner.ppo.minibatch_size': Choice(values=(128, 256, 512)),
    'learner.ppo.clip_ratio': Choice(values=(0.1, 0.2, 0.3)),
    'learner.batch_size': Choice(values=(2048, 4096, 8192)),
    'learner.gae_lambda': Choice(values=(0.9, 0.95, 0.97)),
    'learner.discount': Choice(values=(0.98, 0.99, 0.995)),
    'actor.num_envs': Choice(values=(16, 32, 64)),
    'policy.initial_log_std': Choice(values=(-1.0, -0.5, 0.0)),
    # Of the critic as well.
    'policy.hidden_sizes': Choice(values=('64,64', '128,128', '256,256')),
}
# Chunks of a batch: with two, two actors share it.
CHUNKS = 2


def main(arguments: list[str], stop: StopRequest) -> int:
    """Search and print the best settings."""
    parser = Parser(prog='asyncppo tune', description=__doc__, allow_abbrev=False)
    parser.add_argument('--task', required=True)
    parser.add_argument('--mode', default='sync', choices=list(VERBS))
    parser.add_argument('--trials', type=int, default=24)
    parser.add_argument('--confirm', type=int, default=3,
                        help='so many of the best settings are trained again …')
    parser.add_argument('--seeds', type=int, default=3, help='… until each has so many seeds')
    parser.add_argument('--workers', type=int, default=1, help='trainings at a time')
    parser.add_argument('--search', nargs='+', default=list(SPACE), metavar='SETTING',
                        help=f'what is searched; default {" ".join(SPACE)}')
    parser.add_argument('--folder', default='runs/tune', help='takes the runs')
    parser.add_argument('--log', default='', help='default FOLDER/TASK-MODE.jsonl')
    own, given = split_settings(parser, arguments)
    unknown = set(own.search) - set(SPACE)
    if unknown:
        raise ConfigError(f'--search {" ".join(sorted(unknown))}: must be of {", ".join(SPACE)}')
    if {'task', 'seed', 'run_dir'} & given.keys():
        raise ConfigError('--seed and --run_dir are chosen by the search')
    name = f'{pathlib.Path(task_file(own.task)).stem}-{own.mode}'
    log = pathlib.Path(own.log or f'{own.folder}/{name}.jsonl')
    log.parent.mkdir(parents=True, exist_ok=True)
    search = Search(own.task, own.search, given, read_jsonl(log))
    file = LineFile(log)
    trainings = _trainings(search, own, pathlib.Path(own.folder) / name)
    for ended in run_jobs(trainings, own.workers, stop, search.is_hopeless):
        entry = search.tell(ended)
        file.append((json.dumps(entry) + '\n').encode())
        print(_line(entry), file=sys.stderr)
    file.close()
    print(search.yaml())
    return 0


class Search:
    """
    What was tried, what to try next, and what is best.

    Parameters
    ----------
    task : str
    names : sequence of str
        The settings of `SPACE` that are searched.
    given : mapping
        Settings that every training has.
    entries : sequence of mapping
        The lines of the log so far.

    """

    def __init__(self, task: str, names: Sequence[str], given: Mapping[str, Any],
                 entries: Sequence[dict[str, Any]] = ()) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna = optuna
        self.given = {'task': task, **given}
        self.entries = list(entries)
        self._steps = resolve(self.given).env_steps
        self._space = {name: _distribution(optuna, SPACE[name]) for name in names}
        self._study = optuna.create_study(
            direction='maximize', sampler=optuna.samplers.TPESampler(
                seed=len(entries), multivariate=True, constant_liar=True,
                n_startup_trials=FIRST_TRIALS))
        self._open: dict[pathlib.Path, tuple[Any, dict[str, Any], int]] = {}
        self._seen: dict[pathlib.Path, tuple[Tail, list[dict[str, Any]]]] = {}
        # What the package has now, where it lies in the space.
        now = to_dict(resolve(self.given))
        start = {name: _nearest(SPACE[name], now[name]) for name in names}
        for entry in self.entries:
            # What an older log did not search was as it is now.
            params = {name: entry['params'].get(name, start[name]) for name in names}
            self._study.add_trial(optuna.trial.create_trial(
                params=params, distributions=self._space, value=entry['score']))
        if not entries:
            self._study.enqueue_trial(start)

    def ask(self, run: Run, verb: str, seed: int) -> Job:
        """Begin a trial with new settings."""
        trial = self._study.ask(self._space)
        return self._job(run, verb, trial, dict(trial.params), seed)

    def again(self, run: Run, verb: str, params: dict[str, Any], seed: int) -> Job:
        """Train known settings with another seed."""
        return self._job(run, verb, None, params, seed)

    def tell(self, ended: Ended) -> dict[str, Any]:
        """
        Take in the end of a training and give its line of the log.

        Raises
        ------
        ConfigError
            The training failed.

        """
        trial, params, seed = self._open.pop(ended.job.run.folder)
        self._seen.pop(ended.job.run.folder, None)
        rows = read_jsonl(ended.job.run.metrics_file)
        final = final_score(ended.job.run)
        if ended.code != 0 or not (final or ended.stopped):
            raise ConfigError(f'{ended.job.run.folder}: the training failed:\n'
                              + tail_of(ended.job))
        score = final['return_mean'] if final else _return_at(rows, self._steps)
        if trial is not None:
            self._study.tell(trial, score)
        entry = {'params': params, 'seed': seed, 'score': score,
                 'finished': bool(final), 'env_steps': rows[-1]['env_steps'],
                 'time_s': round(rows[-1]['time_s'], 1),
                 'returns': [_return_at(rows, part * self._steps) for part in LOOKS]}
        self.entries.append(entry)
        return entry

    def is_hopeless(self, job: Job) -> bool:
        """Say whether a trial is behind half of the finished ones at a look."""
        trial, _, _ = self._open[job.run.folder]
        done = [entry for entry in self.entries if entry['finished']]
        if trial is None or len(done) < FIRST_TRIALS:
            return False
        rows = self._rows_of(job.run)
        for look, part in enumerate(LOOKS):
            if rows and rows[-1]['env_steps'] >= part * self._steps:
                median = statistics.median(entry['returns'][look] for entry in done)
                if _return_at(rows, part * self._steps) < median:
                    return True
        return False

    def _rows_of(self, run: Run) -> list[dict[str, Any]]:
        """Give the rows of a running training; each is read once."""
        tail, rows = self._seen.setdefault(run.folder, (Tail(run.metrics_file), []))
        rows += tail.read()
        return rows

    def ranking(self) -> list[tuple[dict[str, Any], list[float], list[int]]]:
        """Give (settings, scores, seeds) of what was trained to the end, best mean first."""
        groups: dict[str, tuple[dict[str, Any], list[float], list[int]]] = {}
        for entry in self.entries:
            if entry['finished']:
                key = json.dumps(entry['params'], sort_keys=True)
                _, scores, seeds = groups.setdefault(key, (entry['params'], [], []))
                scores.append(entry['score'])
                seeds.append(entry['seed'])
        return sorted(groups.values(), key=lambda group: -statistics.fmean(group[1]))

    def yaml(self) -> str:
        """Give the best settings as a settings file, with what they reached."""
        import yaml
        ranking = self.ranking()
        if not ranking:
            return '# nothing was trained to its end'
        # A mean of more seeds says more than a single good one.
        most = max(len(scores) for _, scores, _ in ranking)
        params, scores, _ = next(group for group in ranking if len(group[1]) == most)
        tree: dict[str, Any] = {}
        for name, value in _settings_of(params).items():
            value = list(value) if isinstance(value, tuple) else value
            *parents, leaf = name.split('.')
            branch = tree
            for parent in parents:
                branch = branch.setdefault(parent, {})
            branch[leaf] = value
        head = (f'# Mean return {statistics.fmean(scores):.1f} of {len(scores)} seeds, found in '
                f'{len(self.entries)} trainings of {self._steps:,} steps.\n')
        return head + yaml.safe_dump({'/**': {'ros__parameters': tree}}, sort_keys=False)

    def _job(self, run: Run, verb: str, trial: Any, params: dict[str, Any], seed: int) -> Job:
        self._open[run.folder] = (trial, params, seed)
        settings = {**self.given, **_settings_of(params), 'seed': seed}
        return Job(run, verb, settings)


def _trainings(search: Search, own: Any, folder: pathlib.Path) -> Iterator[Job]:
    """Give the trials and then the confirmations, each when it is asked for."""
    verb = VERBS[own.mode]
    count = len(search.entries)
    while count < own.trials:
        # Each trial has another seed, so that no seed is what is found.
        yield search.ask(_unused(folder, count), verb, seed=count)
        count += 1
    begun: list[tuple[str, int]] = []
    while True:
        wanted = [(params, seed) for params, _, seeds in search.ranking()[:own.confirm]
                  for seed in range(1000, 1000 + own.seeds - 1)
                  if seed not in seeds and (json.dumps(params, sort_keys=True), seed) not in begun]
        if not wanted:
            return
        params, seed = wanted[0]
        begun.append((json.dumps(params, sort_keys=True), seed))
        yield search.again(_unused(folder, count), verb, params, seed)
        count += 1


def _unused(folder: pathlib.Path, number: int) -> Run:
    """Give a run that does not exist: one that was interrupted had other settings."""
    run, again = Run(folder / f'{number:03d}'), 1
    while run.folder.exists():
        again += 1
        run = Run(folder / f'{number:03d}-{again}')
    return run


def _settings_of(params: Mapping[str, Any]) -> dict[str, Any]:
    """Complete what was chosen: a batch consists of `CHUNKS` chunks, both networks are alike."""
    settings = dict(params)
    if 'policy.hidden_sizes' in params:
        sizes = tuple(map(int, params['policy.hidden_sizes'].split(',')))
        settings |= {'policy.hidden_sizes': sizes, 'policy.critic_hidden_sizes': sizes}
    if {'learner.batch_size', 'actor.num_envs'} <= set(params):
        settings['actor.chunk_length'] = (params['learner.batch_size']
                                          // (CHUNKS * params['actor.num_envs']))
    return settings


def _distribution(optuna: Any, choice: Choice) -> Any:
    if choice.values:
        return optuna.distributions.CategoricalDistribution(choice.values)
    return optuna.distributions.FloatDistribution(choice.low, choice.high, log=choice.log)


def _nearest(choice: Choice, value: Any) -> Any:
    if isinstance(value, tuple):
        text = as_text(value)
        return text if text in choice.values else choice.values[0]
    if choice.values:
        return min(choice.values, key=lambda other: abs(other - value))
    return min(max(value, choice.low), choice.high)


def _return_at(rows: Sequence[Mapping[str, Any]], env_steps: float) -> float:
    """Give the mean return of the episodes that ended before a number of steps."""
    known = [row['return_mean'] for row in rows
             if 'return_mean' in row and row['env_steps'] <= env_steps]
    return known[-1] if known else 0.0


def _line(entry: Mapping[str, Any]) -> str:
    params = ' '.join(
        f'{name.rsplit(".", 1)[-1]}=' + (value if isinstance(value, str) else f'{value:.4g}')
        for name, value in entry['params'].items())
    end = '' if entry['finished'] else f' (ended at {entry["env_steps"]:,} steps)'
    return f'{entry["score"]:9.1f}{end}  seed {entry["seed"]}  {params}'

"""
``asyncppo lag-study``: train at lags made on purpose, and see which objective holds to which.

Every cell of the grid task × arm × lag is trained with every seed by `asyncppo train-local`
with the settings `injected_lag`, seed by seed, so that an interrupted study is balanced.  Runs
that are finished in the folder are not repeated; a larger grid goes on from a smaller one.
"""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import json
import math
import pathlib
import shutil
import sys
import time
from typing import Any, NamedTuple

from asyncppo_ros.errors import ConfigError
from asyncppo_ros.injected_lag import check
from asyncppo_ros.learning.jsonl import read_jsonl
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.run import replace_file, resolve, Run
from asyncppo_ros.settings import to_dict
from asyncppo_ros.tools.arguments import Parser, split_settings
from asyncppo_ros.tools.bench.results import report
from asyncppo_ros.tools.jobs import Ended, final_score, Job, run_jobs, tail_of
from asyncppo_ros.tools.lag_grid import ARMS, arms_help, Cell, cells_of, FIXED, Lag
from asyncppo_ros.tools.lag_plots import draw_curves, draw_returns
from asyncppo_ros.tools.lag_results import as_rows, markdown, outcome_of, reading, Study
from asyncppo_ros.tools.progress import duration

LARGEST_LAG = 10_000


def main(arguments: list[str], stop: StopRequest) -> int:
    """Train what is missing of the grid, and write tables, plots and a reading."""
    own, given = split_settings(_parser(), arguments)
    lags = _lags(own)
    refused = set(given) & set(FIXED) | {name for name in given if name.startswith('injected_lag')}
    if refused:
        raise ConfigError(f'--{sorted(refused)[0]}: is chosen by the study; see --tasks, --arms, '
                          '--lags, --gradient_lags, --spreads, --seeds, --folder')
    folder = pathlib.Path(own.folder)
    cells = list(cells_of(own.tasks, own.arms, lags))
    trials = trials_of(cells, own.seeds, given, folder)
    folder.mkdir(parents=True, exist_ok=True)
    failed = train(trials, own.workers, stop)
    finished = [trial for trial in trials if final_score(trial.run) is not None]
    if not finished:
        print(f'no run is finished in {folder}', file=sys.stderr)
        return 1 if failed else 0
    by_name = {trial.run.folder.name for trial in finished}
    study = Study(outcome_of(cell, seed, Run(folder / cell.run_name(seed)))
                  for seed in own.seeds for cell in cells if cell.run_name(seed) in by_name)
    write(study, pathlib.Path(own.out or own.folder), own, arguments, trials,
          [trial.run.folder.name for trial in trials if trial not in finished])
    for job in failed:
        print(f'{job.run.folder.name} failed: {tail_of(job, 1)}; see {job.log}', file=sys.stderr)
    return 1 if failed else 0


def _parser() -> Parser:
    import argparse
    parser = Parser(prog='asyncppo lag-study', description=__doc__, allow_abbrev=False,
                    epilog=f'{arms_help()}\n\nMore about each in docs/lag-study.md.  Every '
                    'setting may be given, too, for all runs.',
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--tasks', nargs='+', default=['Hopper-v5', 'cartpole_swingup'])
    parser.add_argument('--arms', nargs='+', default=list(ARMS), choices=list(ARMS), metavar='ARM')
    parser.add_argument('--lags', nargs='*', type=int, default=[0, 2, 8, 32],
                        help='exact lags [versions]; the whole grid is 0 1 2 4 8 16 32')
    parser.add_argument('--gradient_lags', nargs='+', type=int, default=[],
                        help='exact lags [gradient steps], such as 10 50 100')
    parser.add_argument('--spreads', nargs='+', type=int, default=[],
                        help='lags drawn for each chunk from 0 to this [versions]')
    parser.add_argument('--seeds', nargs='+', type=int, default=[0, 1, 2])
    parser.add_argument('--workers', type=int, default=1, help='trainings at a time')
    parser.add_argument('--folder', default='runs/lag-study', help='takes the runs')
    parser.add_argument('--out', default='', help='takes the results; default as --folder')
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    return parser


def _lags(own: Any) -> list[Lag]:
    """
    Give every lag of the grid once.

    Raises
    ------
    ConfigError
        One is negative or beyond reason.

    """
    for option in ('lags', 'gradient_lags', 'spreads', 'seeds', 'workers'):
        values = getattr(own, option)
        low = 1 if option in ('gradient_lags', 'spreads', 'workers') else 0
        high = 2 ** 31 - 1 if option == 'seeds' else LARGEST_LAG
        for value in values if isinstance(values, list) else [values]:
            if not low <= value <= high:
                raise ConfigError(f'--{option} {value}: must be in [{low}, {high}]')
    lags = list(dict.fromkeys([Lag('versions', amount) for amount in own.lags]
                              + [Lag('gradient_steps', amount) for amount in own.gradient_lags]
                              + [Lag('spread', amount) for amount in own.spreads]))
    if not lags:
        raise ConfigError('--lags, --gradient_lags and --spreads are empty: there is no lag to '
                          'study; give at least one')
    return lags


class Trial(NamedTuple):
    """
    One training of the study, as it is or has to be.

    Attributes
    ----------
    cell : Cell
    seed : int
    run : Run
    settings : dict
        All there are, so that a file of settings that changes meanwhile does not matter.

    """

    cell: Cell
    seed: int
    run: Run
    settings: dict[str, Any]

    @property
    def job(self) -> Job:
        """What trains it."""
        return Job(self.run, 'train-local', self.settings)


def trials_of(cells: Sequence[Cell], seeds: Sequence[int], given: Mapping[str, Any],
              folder: pathlib.Path) -> list[Trial]:
    """
    Give every training once, seed by seed.

    Raises
    ------
    ConfigError
        A setting is wrong, or a finished run was made with other settings.

    """
    trials: dict[str, Trial] = {}
    for seed in seeds:
        for cell in cells:
            name = cell.run_name(seed)
            if name not in trials:
                config = resolve(cell.settings(seed, given))
                check(config)
                settings = to_dict(config)
                del settings['run_dir']
                trials[name] = Trial(cell, seed, Run(folder / name), settings)
    for trial in trials.values():
        if final_score(trial.run) is not None:
            _check_settings(trial)
    return list(trials.values())


def _check_settings(trial: Trial) -> None:
    was = to_dict(trial.run.config())
    for name, value in trial.settings.items():
        if was[name] != value:
            raise ConfigError(f'{trial.run.folder}: was trained with {name} = {was[name]}, now '
                              f'it is {value}; choose another --folder, or remove that one')


def train(trials: Sequence[Trial], workers: int, stop: StopRequest) -> list[Job]:
    """
    Train what is not finished, and give what failed.

    What was begun is begun again: a run that is continued has lost its old policies.
    """
    missing = [trial for trial in trials if final_score(trial.run) is None]
    print(f'{len(trials) - len(missing)} of {len(trials)} runs are finished', file=sys.stderr)
    begun, failed = time.monotonic(), []
    for number, ended in enumerate(run_jobs(_fresh(missing), workers, stop), start=1):
        if ended.code != 0 or final_score(ended.job.run) is None:
            failed.append(ended.job)
        left = (time.monotonic() - begun) / number * (len(missing) - number)
        print(f'{len(trials) - len(missing) + number} of {len(trials)} runs, {duration(left)} '
              f'left | {_line(ended)}', file=sys.stderr)
    return failed


def _fresh(trials: Sequence[Trial]) -> Iterator[Job]:
    for trial in trials:
        if trial.run.folder.exists():
            # Not while another process trains in it.
            trial.run.lock()
            trial.run.unlock()
            shutil.rmtree(trial.run.folder)
        with contextlib.suppress(FileNotFoundError):
            trial.job.log.unlink()
        yield trial.job


def _line(ended: Ended) -> str:
    run = ended.job.run
    score = final_score(run)
    if ended.code != 0 or score is None:
        return f'{run.folder.name}: failed, see {ended.job.log}'
    seconds = read_jsonl(run.metrics_file)[-1]['time_s']
    return (f'{run.folder.name}: return {score["return_mean"]:,.1f} ± '
            f'{score["return_std"]:,.1f}, {duration(seconds)}')


def write(study: Study, out: pathlib.Path, own: Any, arguments: Sequence[str],
          trials: Sequence[Trial], unfinished: Sequence[str]) -> None:
    """Write ``lag-study.json``, ``.md``, ``.png``, ``lag-study-curves.png``; print one of them."""
    out.mkdir(parents=True, exist_ok=True)
    # Of the first run of each task; what other arms, lags and seeds change, they say themselves.
    settings = {trial.cell.task: trial.settings for trial in reversed(trials)}
    told = [word for word in arguments if word not in ('--folder', own.folder, '--out', own.out)]
    result = report(
        settings, as_rows(study), reading=reading(study), unfinished=list(unfinished),
        arms={name: arm.settings for name, arm in ARMS.items()},
        runs=[run for runs in study.outcomes.values() for run in runs],
        command=['asyncppo', 'lag-study', *told])
    text = json.dumps(_finite(result), indent=1, allow_nan=False)
    replace_file(out / 'lag-study.json', (text + '\n').encode())
    page = f'{reading(study)}\n\n{markdown(study)}\n'
    if unfinished:
        page = f'{len(unfinished)} runs are not finished.\n\n{page}'
    replace_file(out / 'lag-study.md', page.encode())
    print(text if own.json else page)
    replace_file(out / 'lag-study.png', draw_returns(study))
    replace_file(out / 'lag-study-curves.png', draw_curves(study))
    print(f'written: {out}/lag-study.json, .md, .png, lag-study-curves.png', file=sys.stderr)


def _finite(value: Any) -> Any:
    """Turn NaN and infinity into None, which every JSON reader understands."""
    if isinstance(value, Mapping):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

"""
``asyncppo bench learning``: train each task with each seed, and score it deterministically.

Runs that are finished in the folder are not repeated, so an interrupted bench goes on where it
was.  The settings are those of the package (``config/TASK.yaml``) and what is given here.
"""

from collections.abc import Sequence
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

from asyncppo_ros.errors import ConfigError
from asyncppo_ros.learning.jsonl import read_jsonl
from asyncppo_ros.nodes.process import child_environment, StopRequest
from asyncppo_ros.run import resolve, Run, task_file
from asyncppo_ros.settings import to_dict
from asyncppo_ros.tools.arguments import Parser, split_settings
from asyncppo_ros.tools.bench.results import report, row, table

VERBS = {'async': 'train', 'sync': 'train-local'}
POLL_S = 0.5


def main(arguments: list[str], stop: StopRequest) -> int:
    """Run the bench and print the table or the JSON object."""
    parser = Parser(prog='asyncppo bench learning', description=__doc__, allow_abbrev=False)
    parser.add_argument('--tasks', nargs='+', default=['HalfCheetah-v5', 'gymnasium:Hopper-v5'])
    parser.add_argument('--seeds', nargs='+', type=int, default=[0, 1, 2])
    parser.add_argument('--modes', nargs='+', default=['async'], choices=list(VERBS))
    parser.add_argument('--folder', default='runs/bench-learning', help='takes the runs')
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    own, given = split_settings(parser, arguments)
    if {'task', 'seed', 'run_dir'} & given.keys():
        raise ConfigError('--task, --seed and --run_dir are given as --tasks, --seeds, --folder')
    results: list[dict[str, Any]] = []
    for task in own.tasks:
        for mode in own.modes:
            for seed in own.seeds:
                run = Run(pathlib.Path(own.folder)
                          / f'{pathlib.Path(task_file(task)).stem}-{mode}-{seed}')
                if not is_finished(run):
                    train(run, task, mode, seed, given, stop)
                if stop():
                    return 0
                results.append(outcome(run, task, mode, seed))
                print(summary(results[-1]), file=sys.stderr)
    rows = rows_of(results)
    settings = {task: to_dict(resolve({**given, 'task': task})) for task in own.tasks}
    # Where the runs lay says nothing to others.
    told = [word for word in arguments if word not in ('--folder', own.folder)]
    result = report(settings, rows, runs=results,
                    command=['asyncppo', 'bench', 'learning', *told])
    print(json.dumps(result, indent=1) if own.json else table(rows))
    return 0


def is_finished(run: Run) -> bool:
    """Say whether a run has its final evaluation."""
    return run.evaluations_file.exists() and any(
        entry.get('final') for entry in read_jsonl(run.evaluations_file))


def train(run: Run, task: str, mode: str, seed: int, given: dict[str, Any],
          stop: StopRequest) -> None:
    """
    Train one run to its end, or go on with it.

    Raises
    ------
    ConfigError
        The training failed; its own message is above.

    """
    options = ['--task', task, '--seed', str(seed), '--run_dir', str(run.folder)]
    if (run.checkpoint / 'checkpoint.safetensors').is_file():
        options = ['--resume', str(run.folder)]
    for name, value in given.items():
        text = ','.join(map(str, value)) if isinstance(value, tuple) else str(value)
        options += [f'--{name}', text.lower() if isinstance(value, bool) else text]
    environment = child_environment()
    # Each bench run has the graph for itself.
    environment.setdefault('ROS_DOMAIN_ID', str(os.getpid() % 100 + 1))
    child = subprocess.Popen(
        [sys.executable, '-m', 'asyncppo_ros.tools.cli', VERBS[mode], *options],
        stdout=sys.stderr, env=environment, start_new_session=True)
    while child.poll() is None:
        if stop.wait(POLL_S):
            child.terminate()
            child.wait()
            return
    if child.returncode != 0:
        raise ConfigError(f'training of {task}, seed {seed}, mode {mode} failed with exit code '
                          f'{child.returncode}')


def outcome(run: Run, task: str, mode: str, seed: int) -> dict[str, Any]:
    """Read what a finished run reached."""
    score = [entry for entry in read_jsonl(run.evaluations_file) if entry.get('final')][-1]
    metrics = read_jsonl(run.metrics_file)
    seconds = metrics[-1]['time_s']
    lag = [entry['policy_lag_mean'] for entry in metrics]
    return {'task': task, 'mode': mode, 'seed': seed, 'return_mean': score['return_mean'],
            'return_std': score['return_std'], 'episodes': score['episodes'],
            'success': score['success'], 'length_mean': score['length_mean'],
            'env_steps': score['env_steps'], 'wall_clock_s': seconds,
            'env_steps_per_s': score['env_steps'] / seconds,
            'gradient_steps': metrics[-1]['gradient_steps'],
            'policy_lag_mean': sum(lag) / len(lag),
            'policy_lag_max': max(entry['policy_lag_max'] for entry in metrics)}


def rows_of(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Summarize over the seeds."""
    rows = []
    for task, mode in dict.fromkeys((entry['task'], entry['mode']) for entry in results):
        entries = [entry for entry in results if (entry['task'], entry['mode']) == (task, mode)]
        for key, unit in (('return_mean', 'return'), ('wall_clock_s', 's'),
                          ('env_steps_per_s', 'env steps/s'), ('policy_lag_mean', 'versions')):
            rows.append(row(f'{task} {mode} {key}', [entry[key] for entry in entries], unit))
    return rows


def summary(entry: dict[str, Any]) -> str:
    """Say the outcome of one run in one line."""
    return (f'{entry["task"]} {entry["mode"]} seed {entry["seed"]}: return '
            f'{entry["return_mean"]:.1f} ± {entry["return_std"]:.1f} after '
            f'{entry["env_steps"]:,} env steps, {entry["wall_clock_s"]:.0f} s, '
            f'{entry["env_steps_per_s"]:,.0f} steps/s')

"""
``asyncppo bench learning``: train each task with each seed and mode, and score it on the way.

The first policy after each milestone and the last one play the same deterministic episodes.
Runs that are finished in the folder are not repeated and policies that were scored are not
scored again, so an interrupted bench goes on where it was.  The settings are those of the
package (``config/TASK.yaml``) and what is given here.

With several numbers of environments and a return that is waited for, it says how much sooner
more environments reach it, for example:

    asyncppo bench learning --tasks gymnasium:CartPole-v1 --num_envs 1 8 --until 475
"""

import argparse
from collections.abc import Sequence
import json
import math
import pathlib
import statistics
import sys
from typing import Any

from asyncppo_ros.acting.evaluation import Interrupted
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.run import resolve
from asyncppo_ros.settings import to_dict
from asyncppo_ros.tools.arguments import Parser, split_settings
from asyncppo_ros.tools.bench.learning_runs import (
    Cell,
    envs_text,
    is_trained,
    outcome,
    score,
    VERBS,
)
from asyncppo_ros.tools.bench.results import check, report, row, verdict
from asyncppo_ros.tools.bench.uncertainty import (
    iqm_estimate,
    median_ratio,
    relative_difference,
)
from asyncppo_ros.tools.figures import check_picture
from asyncppo_ros.tools.jobs import run_jobs, tail_of

# The asynchronous mode may cost so much of the return of the synchronous one.
MARGIN = 0.1
# What the bench chooses itself, and by what it is given instead.
CHOSEN = {'task': '--tasks', 'seed': '--seeds', 'run_dir': '--folder',
          'learner.milestones': '--milestones'}
Result = dict[str, Any]


def main(arguments: list[str], stop: StopRequest) -> int:
    """Run the bench and print the table or the JSON object."""
    own, given = split_settings(_parser(), arguments)
    cells = _cells(own, given)
    if own.picture:
        check_picture('--picture', own.picture)
    try:
        for mode in own.modes:
            # Asynchronous runs use all cores: two at once would measure each other.
            workers = own.workers if mode == 'sync' else 1
            train([cell for cell in cells if cell.mode == mode], workers, stop)
        for cell in cells:
            if stop():
                return 0
            score(cell, stop)
    except Interrupted:
        return 0
    if stop():
        return 0
    results = [outcome(cell) for cell in cells]
    arms = {arm: [result for cell, result in zip(cells, results) if cell.arm == arm]
            for arm in dict.fromkeys(cell.arm for cell in cells)}
    if own.picture:
        from asyncppo_ros.tools.bench.learning_curves import draw
        pathlib.Path(own.picture).write_bytes(draw(cells, results))
        print(f'curves: {pathlib.Path(own.picture).absolute()}', file=sys.stderr)
    comparisons, speedups = comparisons_of(results), speedups_of(results)
    if own.json:
        settings = {task: to_dict(resolve({**given, 'task': task})) for task in own.tasks}
        # Where files lay says nothing to others.
        told = [word for word in arguments
                if word not in ('--folder', own.folder, '--picture', own.picture)]
        print(json.dumps(report(
            settings, rows_of(arms), runs=results, comparisons=comparisons, speedups=speedups,
            command=['asyncppo', 'bench', 'learning', *told]), indent=1))
    else:
        print(text_of(arms, comparisons, speedups))
    return 0


def _parser() -> Parser:
    parser = Parser(prog='asyncppo bench learning', description=__doc__, allow_abbrev=False,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--tasks', nargs='+', default=['HalfCheetah-v5', 'Hopper-v5'])
    parser.add_argument('--seeds', nargs='+', type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument('--modes', nargs='+', default=['async'], choices=list(VERBS))
    parser.add_argument('--milestones', nargs='*', type=int, default=[100_000, 300_000],
                        metavar='STEPS', help='score also after so many control steps, default '
                        '100000 300000; those beyond the end of a run are left out')
    parser.add_argument('--num_envs', nargs='+', type=int, default=[0], metavar='N',
                        help='environments in all, of one actor; default as the settings say')
    parser.add_argument('--until', type=float, default=math.nan, metavar='RETURN',
                        help='find out when this deterministic return was first reached')
    parser.add_argument('--workers', type=int, default=1,
                        help='synchronous trainings at a time; asynchronous ones run alone')
    parser.add_argument('--folder', default='runs/bench-learning', help='takes the runs')
    parser.add_argument('--picture', default='', metavar='FILE',
                        help='draw the learning curves into this PNG file')
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    return parser


def _cells(own: argparse.Namespace, given: dict[str, Any]) -> list[Cell]:
    """Give all trainings, seed by seed: what is interrupted has as many seeds of each arm."""
    if clash := CHOSEN.keys() & given.keys():
        name = min(clash)
        raise ConfigError(f'--{name}: is given to this bench as {CHOSEN[name]}')
    if any(own.num_envs) and {'actor.num_envs', 'num_actors'} & given.keys():
        raise ConfigError('--actor.num_envs, --num_actors: exclude --num_envs')
    for name, low, values in (('workers', 1, [own.workers]), ('milestones', 1, own.milestones),
                              ('num_envs', 0, own.num_envs)):
        if min(values, default=low) < low:
            raise ConfigError(f'--{name} {min(values)}: must be at least {low}')
    cells = []
    for seed in own.seeds:
        for task in own.tasks:
            end = resolve({**given, 'task': task}).env_steps
            milestones = tuple(steps for steps in sorted(set(own.milestones)) if steps < end)
            cells += [Cell(pathlib.Path(own.folder), task, mode, num_envs, seed, given,
                           milestones, own.until)
                      for mode in own.modes for num_envs in own.num_envs]
    return cells


def train(cells: Sequence[Cell], workers: int, stop: StopRequest) -> None:
    """
    Train what is not trained yet, or go on with it.

    Raises
    ------
    ConfigError
        A training failed.

    """
    missing = [cell for cell in cells if not is_trained(cell)]
    for number, ended in enumerate(
            run_jobs((cell.job() for cell in missing), workers, stop), start=1):
        if ended.code != 0:
            raise ConfigError(f'{ended.job.run.folder}: the training failed with exit code '
                              f'{ended.code}: {tail_of(ended.job, 1)}')
        if not stop():
            print(f'{number} of {len(missing)} {cells[0].mode} trainings: '
                  f'{ended.job.run.folder.name}', file=sys.stderr)


def rows_of(arms: dict[str, list[Result]]) -> list[dict[str, Any]]:
    """Summarize over the seeds of each arm."""
    rows = []
    for arm, results in arms.items():
        for steps in steps_of(results):
            values = returns_at(results, steps)
            rows.append({**row(f'{arm} return at {steps}', values, 'return'),
                         'std': _std(values), 'iqm': list(iqm_estimate([values])),
                         'values': values})
        for key, unit in (('wall_clock_s', 's'), ('env_steps_per_s', 'env steps/s'),
                          ('policy_lag_mean', 'versions')):
            rows.append(row(f'{arm} {key}', [result[key] for result in results], unit))
        if seconds := seconds_until(results):
            rows.append({**row(f'{arm} until', seconds, 's'), 'reached': len(seconds),
                         'seeds': len(results), 'values': seconds})
    return rows


def comparisons_of(results: Sequence[Result]) -> list[dict[str, Any]]:
    """
    Compare the modes, where there are both.

    Returns
    -------
    list of dict
        Per task, number of environments and milestone ``difference``: mean(async) / mean(sync) - 1
        with its 95 % interval, and ``check``: whether that excludes a loss above `MARGIN`.  Not
        where the synchronous mean is below 0, which no share can be told of.  The last entries
        are the means of these differences over the tasks, which are surer than each.

    """
    comparisons = []
    pairs: dict[int, list[tuple[list[float], list[float]]]] = {}
    settings = dict.fromkeys((entry['task'], entry['num_envs']) for entry in results)
    for task, num_envs in settings:
        alone = [known for known, _ in settings].count(task) == 1
        name = task if alone else task + envs_text(num_envs)
        modes = {mode: [entry for entry in results if (entry['task'], entry['num_envs'],
                                                       entry['mode']) == (task, num_envs, mode)]
                 for mode in VERBS}
        for steps in steps_of(modes['async']):
            ours, theirs = returns_at(modes['async'], steps), returns_at(modes['sync'], steps)
            if not theirs or statistics.fmean(theirs) <= 0.0:
                continue
            pairs.setdefault(steps, []).append((ours, theirs))
            comparisons.append({'task': task, 'num_envs': num_envs,
                                **_comparison(name, steps, (ours, theirs))})
    for steps, found in pairs.items():
        if len(found) > 1:
            comparisons.append(_comparison(f'mean of the {len(found)} above', steps, *found))
    return comparisons


def _comparison(name: str, steps: int,
                *pairs: tuple[Sequence[float], Sequence[float]]) -> dict[str, Any]:
    found = relative_difference(*pairs)
    name = f'{name} at {steps:,}'
    return {'name': name, 'steps': steps, 'difference': list(found),
            'check': check(f'{name}: async / sync - 1, lower end', found.low, f'> {-MARGIN:g}',
                           found.low > -MARGIN)}


def speedups_of(results: Sequence[Result]) -> list[dict[str, Any]]:
    """
    Say how much sooner more environments reach the return that is waited for.

    Returns
    -------
    list of dict
        Per task, mode and number of environments ``speedup``: the median time of the fewest
        environments over theirs with its 95 % interval; only of arms whose seeds all got there.

    """
    speedups = []
    for task, mode in dict.fromkeys((entry['task'], entry['mode']) for entry in results):
        arms: dict[int, list[Result]] = {}
        for entry in results:
            if (entry['task'], entry['mode']) == (task, mode):
                arms.setdefault(entry['num_envs'], []).append(entry)
        seconds = {num_envs: seconds_until(entries) for num_envs, entries in arms.items()
                   if len(seconds_until(entries)) == len(entries)}
        fewest = min(arms)
        speedups += [{'task': task, 'mode': mode, 'num_envs': num_envs, 'against': fewest,
                      'speedup': list(median_ratio(seconds[fewest], seconds[num_envs]))}
                     for num_envs in sorted(seconds) if fewest in seconds and num_envs > fewest]
    return speedups


def text_of(arms: dict[str, list[Result]], comparisons: Sequence[dict[str, Any]],
            speedups: Sequence[dict[str, Any]]) -> str:
    """Give Markdown tables of everything; returns as mean ± deviation over seeds (IQM)."""
    steps = sorted({steps for results in arms.values() for steps in steps_of(results)})
    waited = any('until' in result for results in arms.values() for result in results)
    lines = [_line('task, mode', 'seeds', *(f'return at {at:,}' for at in steps),
                   'each seed at the end', 'wall-clock [s]', 'env steps/s',
                   *(['time to the return [s]'] if waited else [])),
             '|' + '---|' * (5 + len(steps) + waited)]
    for arm, results in arms.items():
        end = returns_at(results, steps_of(results)[-1])
        cells = [_score_text(returns_at(results, at)) for at in steps]
        seconds = statistics.median(result['wall_clock_s'] for result in results)
        rate = statistics.median(result['env_steps_per_s'] for result in results)
        lines.append(_line(arm, len(results), *cells, ', '.join(f'{value:,.0f}' for value in end),
                           f'{seconds:,.0f}', f'{rate:,.0f}',
                           *([_until_text(results)] if waited else [])))
    lines += [''] if comparisons or speedups else []
    for entry in comparisons:
        value, low, high = (100.0 * part for part in entry['difference'])
        lines.append(f'{entry["name"]}: async - sync = {value:+.1f} % of sync, '
                     f'95 % interval {low:+.1f} to {high:+.1f} %')
    if comparisons:
        lines.append(verdict([entry['check'] for entry in comparisons]))
    for entry in speedups:
        value, low, high = entry['speedup']
        lines.append(f'{entry["task"]} {entry["mode"]}: {entry["num_envs"]} environments get '
                     f'there {value:.2f} times as fast as {entry["against"]}, 95 % interval '
                     f'{low:.2f} to {high:.2f}')
    return '\n'.join(lines)


def steps_of(results: Sequence[Result]) -> list[int]:
    """Give after which transitions all of these runs were scored."""
    known = [{int(steps) for steps in result['returns']} for result in results]
    return sorted(set.intersection(*known)) if known else []


def returns_at(results: Sequence[Result], steps: int) -> list[float]:
    """Give the deterministic return of each run after so many transitions."""
    return [result['returns'][str(steps)]['return_mean'] for result in results
            if str(steps) in result['returns']]


def seconds_until(results: Sequence[Result]) -> list[float]:
    """Give when those runs that got there reached the return that is waited for [s]."""
    return [result['until']['wall_clock_s'] for result in results if result.get('until')]


def _std(values: Sequence[float]) -> float:
    """Give the standard deviation of the population that seeds are a sample of."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _score_text(values: Sequence[float]) -> str:
    if not values:
        return '–'
    return (f'{statistics.fmean(values):,.0f} ± {_std(values):,.0f} '
            f'({iqm_estimate([values]).value:,.0f})')


def _until_text(results: Sequence[Result]) -> str:
    seconds = seconds_until(results)
    if not seconds:
        return f'0 of {len(results)} got there'
    spread = f'{statistics.median(seconds):.1f} ({min(seconds):.1f} to {max(seconds):.1f})'
    return spread if len(seconds) == len(results) \
        else f'{spread}, {len(seconds)} of {len(results)} got there'


def _line(*cells: object) -> str:
    return '| ' + ' | '.join(map(str, cells)) + ' |'

"""
``asyncppo bench elastic``: ``num_actors: auto`` beside every fixed number of actors.

Two tasks: `physics` needs a core for each actor; of `sleeping` each batched step sleeps 10 ms and
needs next to none, so that many actors share one.  In each round stand a training with each fixed
number, and trainings with auto: `auto` begins with what is measured before the run, as it does for
a user, `auto from N` with N actors, and finds the rest while it goes on.  What counts is the rate
of transitions that reached an update once the number has come to rest, as a ratio to that of the
best fixed number in the same round.
"""

from collections.abc import Callable, Mapping, Sequence
import functools
import itertools
import json
import pathlib
import shutil
import statistics
import sys
import tempfile
from typing import Any

from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.nodes.actor_states import read_states, RUNNING
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.settings import build, to_dict
from asyncppo_ros.tools.arguments import Parser, refuse_settings, split_settings
from asyncppo_ros.tools.bench import actors
from asyncppo_ros.tools.bench.results import check, paired_row, report, row, table, verdict
from asyncppo_ros.tools.bench.rounds import interleaved
from asyncppo_ros.tools.bench.watched import Seen, WatchedRun, without_place

# Small batches, so that also a single actor that sleeps makes several updates in a few seconds;
# each holds a chunk of up to 16 actors.
SMALL = {**actors.SETTINGS, 'actor.chunk_length': 16, 'learner.batch_size': 2048,
         'learner.ppo.minibatch_size': 1024}
TASKS: dict[str, dict[str, Any]] = {
    'physics': {**SMALL, 'task': 'HalfCheetah-v5', 'actor.num_envs': 8},
    'sleeping': {**SMALL, 'actor.num_envs': 8}}
SHARE = 0.9
# The task that sleeps asks for at least so many actors, or it shows nothing.
MANY = 8
# So long and so many updates without a change: it has come to rest, as a change is judged sooner.
REST_S = 20.0
REST_UPDATES = 8


def main(arguments: list[str], stop: StopRequest) -> int:
    """Train in rounds and print the table or the JSON object."""
    parser = Parser(prog='asyncppo bench elastic', description=__doc__, allow_abbrev=False)
    parser.add_argument('--tasks', nargs='+', choices=TASKS, default=list(TASKS))
    parser.add_argument('--physics-counts', nargs='+', type=int, metavar='N', default=[1, 2, 4],
                        help='fixed numbers of `physics`, default 1 2 4')
    parser.add_argument('--sleeping-counts', nargs='+', type=int, metavar='N', default=[4, 8, 16],
                        help='fixed numbers of `sleeping`, default 4 8 16')
    parser.add_argument('--begin', nargs='+', type=int, default=[0, 1], metavar='N',
                        help='actors that auto begins with; 0 = measured; default 0 1')
    parser.add_argument('--seconds', type=float, default=10.0, help='of each training, default 10')
    parser.add_argument('--patience', type=float, default=150.0,
                        help='seconds that auto has to come to rest, default 150')
    parser.add_argument('--rounds', type=int, default=1)
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    own, given = split_settings(parser, arguments)
    counts = {name: getattr(own, f'{name}_counts') for name in own.tasks}
    _check(own, counts, given)
    tasks = {name: to_dict(build(Config, {**TASKS[name], **given})) for name in own.tasks}
    measures: dict[str, Callable[[], dict[str, Any]]] = {}
    for name, settings in tasks.items():
        for count in counts[name]:
            measures[_name(name, count)] = functools.partial(
                _fixed, _name(name, count), count, settings, own.seconds, stop)
        for begin in own.begin:
            measures[_auto(name, begin)] = functools.partial(
                _following, _auto(name, begin), begin, settings, own.seconds, own.patience, stop)
    found = interleaved(measures, own.rounds, stop, warm_up=False)
    if stop():
        return 0
    rows, checks = summary(found, counts, own.begin)
    result = report(tasks, rows, checks=checks, runs=found,
                    command=['asyncppo', 'bench', 'elastic', *arguments])
    print(json.dumps(result, indent=1) if own.json else
          '\n'.join([table(rows), '', *(_ratio(entry) for entry in rows if 'ratio' in entry),
                     verdict(checks)]))
    return 0 if all(entry['passed'] for entry in checks) else 1


def summary(found: Mapping[str, Sequence[Mapping[str, Any]]], counts: Mapping[str, Sequence[int]],
            begins: Sequence[int]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """
    Give the rows and the checks.

    Parameters
    ----------
    found : mapping from str to sequence of dict
        What each measurement gave in each round, ``env_steps_per_s`` among it.
    counts : mapping from str to sequence of int
        The fixed numbers of each task.
    begins : sequence of int
        With how many actors auto began; 0 = measured.

    """
    rates = {name: [entry['env_steps_per_s'] for entry in outcomes]
             for name, outcomes in found.items()}
    rows, checks = [], []
    for task, numbers in counts.items():
        rows += [row(_name(task, count), rates[_name(task, count)], 'env steps/s')
                 for count in numbers]
        best = max(numbers, key=lambda count: statistics.median(rates[_name(task, count)]))
        for begin in begins:
            name = _auto(task, begin)
            compared = paired_row(name, rates[name], rates[_name(task, best)], 'env steps/s')
            rows.append({**compared, 'best': best,
                         'actors': [entry['actors'] for entry in found[name]]})
            checks.append(check(f'{name} over {best} actors', compared['ratio'], f'>= {SHARE}',
                                compared['ratio'] >= SHARE))
        if task == 'sleeping':
            checks.append(check('best number of sleeping actors', best, f'>= {MANY}',
                                best >= MANY))
    return rows, checks


def at_rest(seen: Sequence[Seen], wanted: int) -> bool:
    """
    Say whether the number of actors has not changed for `REST_S` and `REST_UPDATES`.

    Parameters
    ----------
    seen : sequence of Seen
    wanted : int
        Actors that the supervisor has started: those that are about to join are a change.

    """
    same = list(itertools.takewhile(
        lambda entry: entry.row['actors'] == seen[-1].row['actors'], reversed(seen)))
    return (len(same) > REST_UPDATES and same[0].at - same[-1].at >= REST_S
            and same[0].row['actors'] == wanted)


def _check(own: Any, counts: Mapping[str, Sequence[int]], given: Mapping[str, Any]) -> None:
    for name, numbers in counts.items():
        if min(numbers) < 1:
            raise ConfigError(f'--{name}-counts {min(numbers)}: must be at least 1')
    if min(own.begin) < 0 or own.rounds < 1 or not own.seconds > 0.0:
        raise ConfigError(f'--begin {min(own.begin)} --rounds {own.rounds} --seconds '
                          f'{own.seconds}: at least 0 actors, 1 round, and more than 0 s')
    refuse_settings(given, ('task', 'num_actors', 'actors_at_start'),
                    '--tasks, --begin and the fixed numbers')


def _fixed(name: str, count: int, settings: dict[str, Any], seconds: float,
           stop: StopRequest) -> dict[str, Any]:
    found = actors.measure(count, settings, seconds, stop)
    if found:
        _tell(name, found)
    return found


def _following(name: str, begin: int, settings: dict[str, Any], seconds: float, patience: float,
               stop: StopRequest) -> dict[str, Any]:
    """Train with auto; measure once the number of actors has come to rest."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix='asyncppo-elastic-'))
    watched = WatchedRun(folder / 'run', {**without_place(settings), 'num_actors': 0,
                                          'actors_at_start': begin})
    try:
        watched.need(lambda: watched.seen, 'an update', 300.0, stop)
        rested = watched.watch(patience, stop, lambda: at_rest(
            watched.seen, sum(state['state'] == RUNNING for state in read_states(
                watched.run.folder))))
        begun = len(watched.seen) - 1
        watched.watch(seconds, stop)
        rows = [seen.row for seen in watched.seen[begun:]]
        watched.end()
        # What was cut short is not looked at.
        if stop():
            return {}
        found = actors.outcome_of(int(rows[-1]['actors']), rows)
        log = (watched.run.logs / 'supervisor.log').read_text(errors='replace')
        found |= {'rested': rested,
                  'changes': [line for line in log.splitlines() if ' -> ' in line]}
    finally:
        watched.kill()
        shutil.rmtree(folder, ignore_errors=True)
    _tell(name, found)
    return found


def _name(task: str, count: int) -> str:
    return f'{task}, {count} actors'


def _auto(task: str, begin: int) -> str:
    return f'{task}, auto from {begin}' if begin else f'{task}, auto'


def _ratio(entry: Mapping[str, Any]) -> str:
    low, high = entry['ratio_interval']
    return (f'{entry["name"]}: {", ".join(map(str, entry["actors"]))} actors in the end, '
            f'{entry["ratio"]:.3f} of {entry["best"]} actors, 95 % interval {low:.3f} to '
            f'{high:.3f}')


def _tell(name: str, found: Mapping[str, Any]) -> None:
    print('\n'.join([*found.get('changes', ()), f'{name}: {actors.summary(dict(found))}']),
          file=sys.stderr)

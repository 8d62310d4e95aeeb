"""
``asyncppo bench train``: env steps per second of a training, beside what its two sides do alone.

The training is `asyncppo train` as a user runs it: learner, actors, evaluator, ROS; what counts
is transitions that reached an update.  In the same rounds stand

- the actors alone: as many actor processes, which wait for no permit and send to a process that
  takes the chunks and throws them away;
- the learner alone: updates on made-up chunks, with the same settings and threads;
- both at once, and nothing between them.

Alone each side has all cores for itself, which in a training they share.  The ceiling is what a
perfect division of these cores would give, in which no core is ever idle and nobody waits:

    min(rate of the actors, rate of the learner, C / (A + L))

of one round.  A and L are what a transition costs the actors (with what takes their chunks) and
the learner, in time of a core.  C is the cores that both had when they ran at once, which is
what this machine, its limits and whoever else works on it leave to them.  Two that run at once
also slow each other down, as they share caches, memory or the threads of a core: by as much as
each took longer then, for the share of the time in which the other one runs
(`tools.throughput.bounds`).  The rates alone, which know nothing of that, and the ratio to the
smaller of them and of C / (A + L) are told as well.

With a core for every process C / (A + L) is never the smallest; with one core it is the only one
that counts.  The evaluator, ROS, metrics and checkpoints are part of the training and of no
ceiling.
"""

from collections.abc import Callable, Mapping, Sequence
import json
import pathlib
import shutil
import sys
import tempfile
import time
from typing import Any

from asyncppo_ros.config import Config
from asyncppo_ros.cores import core_limit
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.run import num_actors, resolve
from asyncppo_ros.settings import as_text, build, to_dict
from asyncppo_ros.tools.arguments import Parser, split_settings
from asyncppo_ros.tools.auto import settled
from asyncppo_ros.tools.bench.actors import outcome_of
from asyncppo_ros.tools.bench.actors_alone import ActorsAlone, Alone
from asyncppo_ros.tools.bench.results import check, paired_row, report, row, table, verdict
from asyncppo_ros.tools.bench.rounds import interleaved
from asyncppo_ros.tools.bench.watched import WatchedRun
from asyncppo_ros.tools.stage_process import StageProcess
from asyncppo_ros.tools.stopwatch import cpu_seconds
from asyncppo_ros.tools.throughput import bounds, Cost, Costs, NOTHING

TASK = 'HalfCheetah-v5'
SHARE = 0.85
WARM_UP_S = 3.0
# The sides alone change less than a training with its evaluations does.
ALONE_SHARE = 0.25


def main(arguments: list[str], stop: StopRequest) -> int:
    """Measure in rounds and print the table or the JSON object."""
    parser = Parser(prog='asyncppo bench train', description=__doc__, allow_abbrev=False)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--seconds', type=float, default=20.0,
                        help='of a training in each round, after its start (default 20, between '
                        'two evaluations of the usual settings); a quarter of it for each side '
                        'alone')
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    own, given = split_settings(parser, arguments)
    if own.rounds < 1 or not own.seconds > 0.0:
        raise ConfigError(f'--rounds {own.rounds} --seconds {own.seconds}: at least 1 round, and '
                          'more than 0 s')
    config = resolve({'task': TASK, **given, 'env_steps': 10 ** 12})
    config = settled(config, stop=stop, tell=_tell)
    config = build(Config, {**to_dict(config), 'num_actors': num_actors(config)})
    rounds = measure(config, own.rounds, own.seconds, stop)
    if stop():
        return 0
    cores = core_limit()
    rows, checks = summary(rounds, cores)
    result = report(to_dict(config), rows, checks=checks, rounds=rounds, cores=cores,
                    command=['asyncppo', 'bench', 'train', *arguments])
    print(json.dumps(result, indent=1) if own.json else
          '\n'.join([table(rows), '', *(
              f'{entry["name"]}: {entry["ratio"]:.3f} of {entry["ceiling"]:,.0f}, 95 % interval '
              f'{entry["ratio_interval"][0]:.3f} to {entry["ratio_interval"][1]:.3f}'
              for entry in rows if 'ratio' in entry), verdict(checks)]))
    return 0 if all(entry['passed'] for entry in checks) else 1


def measure(config: Config, rounds: int, seconds: float,
            stop: StopRequest) -> list[dict[str, Any]]:
    """
    Measure all three in each round.

    Returns
    -------
    list of dict
        For each round ``training`` (as `actors.outcome_of` gives it), ``actors`` and
        ``learner`` (`Alone` as a dict), and ``both`` (the two again, and ``cores``).

    """
    learner = StageProcess('learner', config, stop=stop)
    try:
        with tempfile.TemporaryDirectory(prefix='asyncppo-train-') as name, \
                ActorsAlone(config, pathlib.Path(name), stop) as actors:
            actors.start()
            learner.ask(snapshot=True)
            measures: dict[str, Callable[[], dict[str, Any]]] = {
                'training': lambda: _training(config, seconds, stop),
                'actors': lambda: actors.measure(ALONE_SHARE * seconds)._asdict(),
                'learner': lambda: _learner(learner, ALONE_SHARE * seconds)._asdict(),
                'both': lambda: _both(actors, learner, ALONE_SHARE * seconds)}
            # A training begins anew in every round, and is warm before it is measured.
            measures['both']()
            found = interleaved({name: _telling(name, each) for name, each in measures.items()},
                                rounds, stop, warm_up=False)
    finally:
        learner.close()
    return [dict(zip(found, values)) for values in zip(*found.values())]


def summary(rounds: Sequence[Mapping[str, Any]],
            cores: float) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Give the rows and the checks."""
    training = [entry['training']['env_steps_per_s'] for entry in rounds]
    ceilings = [ceiling(costs_of(entry), min(cores, entry['both']['cores'])) for entry in rounds]
    undisturbed = [ceiling(costs_of(entry)._replace(slow_actor=1.0, slow_learner=1.0), cores)
                   for entry in rounds]
    rows = [paired_row('training', training, ceilings, 'env steps/s'),
            row('actors alone', [entry['actors']['rate'] for entry in rounds], 'env steps/s'),
            row('learner alone', [entry['learner']['rate'] for entry in rounds], 'env steps/s'),
            row('cores at once', [entry['both']['cores'] for entry in rounds], 'cores'),
            paired_row('training, undisturbed', training, undisturbed, 'env steps/s')]
    ratio = rows[0]['ratio']
    return rows, [check('training over its ceiling', ratio, f'>= {SHARE}', ratio >= SHARE)]


def costs_of(entry: Mapping[str, Any]) -> Costs:
    """Give what a transition costs the sides in a round; all actors count as one."""
    actors, learner = (Alone(**entry[side]) for side in ('actors', 'learner'))
    both = [Alone(**entry['both'][side]) for side in ('actors', 'learner')]
    slow = [max(1.0, at_once.core_s / alone.core_s)
            for at_once, alone in zip(both, (actors, learner))]
    return Costs(Cost(1.0 / actors.rate, actors.core_s), NOTHING, NOTHING, NOTHING,
                 Cost(1.0 / learner.rate, learner.core_s), *slow)


def ceiling(costs: Costs, cores: float) -> float:
    """Give what no training with such sides on such cores exceeds [env steps/s]."""
    return bounds(costs, 1, cores).rate


def _training(config: Config, seconds: float, stop: StopRequest) -> dict[str, Any]:
    """Train anew; measure once all actors collect."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix='asyncppo-train-'))
    settings = {name: value for name, value in to_dict(config).items()
                if name not in ('run_dir', 'transport.address') and as_text(value)}
    watched = WatchedRun(folder / 'run', settings)
    try:
        watched.need_actors(config.num_actors, stop)
        watched.watch(WARM_UP_S, stop)
        begun = len(watched.seen)
        watched.watch(seconds, stop)
        rows = [seen.row for seen in watched.seen[begun:]]
        watched.end()
    finally:
        watched.kill()
    # After an error the logs, which it names, stay.
    shutil.rmtree(folder, ignore_errors=True)
    # What was cut short is not looked at.
    return {} if stop() else outcome_of(config.num_actors, rows)


def _learner(process: StageProcess, seconds: float) -> Alone:
    cost = Cost(*process.ask(seconds=seconds, batch_size=0))
    return Alone(1.0 / cost.wall_s, cost.cpu_s)


def _both(actors: ActorsAlone, process: StageProcess, seconds: float) -> dict[str, Any]:
    begun: list[float] = []

    def begin() -> None:
        process.send(seconds=seconds, batch_size=0)
        begun.extend((time.perf_counter(), cpu_seconds(process.pid)))

    ended: list[float] = []

    def until() -> bool:
        if not ended:
            ended.extend((time.perf_counter(), cpu_seconds(process.pid)))
        return process.ready()

    found = actors.measure(seconds, begin, until)
    cost = Cost(*process.answer())
    passed, used = (after - before for before, after in zip(begun, ended))
    learner = Alone(1.0 / cost.wall_s, cost.cpu_s)
    return {'actors': found._asdict(), 'learner': learner._asdict(),
            'cores': found.rate * found.core_s + used / passed}


def _telling(name: str, measured: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    def once() -> dict[str, Any]:
        found = measured()
        rate = found.get('env_steps_per_s', found.get('rate'))
        _tell(f'{name}: ' + (f'{rate:,.0f} env steps/s' if rate else
                             f'{found.get("cores", 0.0):.2f} cores'))
        return found
    return once


def _tell(text: str) -> None:
    print(text, file=sys.stderr)

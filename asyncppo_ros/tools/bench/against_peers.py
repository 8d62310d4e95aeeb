"""
``asyncppo bench peers``: ours, asynchronous, against other packages on the same cores.

Every peer trains in an interpreter of its own, which is given and has the package, by a script
of ``tools/bench/peers/``; one that is not given is not run.  All train in turn.

``rate``
    Env steps per second in training, round after round.  Start-up is not counted; of ours only
    transitions count that reached an update.  Packages make very different numbers of gradient
    steps of a transition, which stand beside the rates.
``return``
    Wall-clock to the deterministic return that Stable-Baselines3 has at the end of its training,
    beside the time of that training.  The time of evaluations does not count.  All are scored in
    Gymnasium's own environment with the same seeds.

Rounds and runs that are finished in the folder are not repeated.  Settings of ours are those of
the package (``config/TASK.yaml``) and what is given here.  For example:

    asyncppo bench peers --peer sb3=~/sb3/bin/python --peer cleanrl=~/cleanrl/bin/python
"""

import argparse
from collections.abc import Mapping
import json
import pathlib
import sys
from typing import Any

from asyncppo_ros.acting.evaluation import Interrupted
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.run import resolve
from asyncppo_ros.settings import to_dict
from asyncppo_ros.tools.arguments import Parser, split_settings
from asyncppo_ros.tools.bench import peer_rates, peer_returns
from asyncppo_ros.tools.bench.peer_jobs import named, Peer, require_interpreter, scripts, told
from asyncppo_ros.tools.bench.results import report, verdict
from asyncppo_ros.tools.figures import check_picture

PARTS = ('rate', 'return')
TASKS = {'rate': ['HalfCheetah-v5'], 'return': ['HalfCheetah-v5', 'Hopper-v5']}


def main(arguments: list[str], stop: StopRequest) -> int:
    """Measure what is missing, compare, print the tables or the JSON object."""
    own, given = split_settings(_parser(), arguments)
    peers = check_arguments(own, given)
    found: dict[str, Any] = {'rows': [], 'checks': []}
    texts: list[str] = []
    try:
        if 'rate' in own.parts:
            _rates(own, peers, given, stop, found, texts)
        if 'return' in own.parts and not stop():
            _returns(own, peers, given, stop, found, texts)
    except Interrupted:
        return 0
    if stop():
        return 0
    settings = {task: to_dict(resolve({**given, 'task': task})) for task in sorted(
        {task for part in own.parts for task in own.tasks or TASKS[part]})}
    command = told(arguments, {'--folder': own.folder, '--picture': own.picture})
    rows, checks = found.pop('rows'), found.pop('checks')
    print(json.dumps(report(settings, rows, checks=checks, **found, command=[
        'asyncppo', 'bench', 'peers', *command]), indent=1) if own.json else
        '\n\n'.join([*texts, verdict(checks)]))
    return 0 if all(entry['passed'] for entry in checks) else 1


def _parser() -> Parser:
    parser = Parser(prog='asyncppo bench peers', description=__doc__, allow_abbrev=False,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--peer', action='append', default=[], metavar='NAME=INTERPRETER',
                        help=f'a Python that has the package; names: {", ".join(scripts())}')
    parser.add_argument('--parts', nargs='+', default=list(PARTS), choices=PARTS)
    parser.add_argument('--variants', nargs='+', default=[], metavar='NAME:VARIANT',
                        help='run these of a peer instead of the usual ones: ' + ', '.join(
                            f'{name}:{variant}' for name, script in scripts().items()
                            for variant in script.VARIANTS))
    parser.add_argument('--tasks', nargs='+', default=[], help='default HalfCheetah-v5, and '
                        'Hopper-v5 for the returns')
    parser.add_argument('--rounds', type=int, default=5, help='of the rates, default 5')
    parser.add_argument('--seconds', type=float, default=30.0,
                        help='of each training of a round, after its start; default 30')
    parser.add_argument('--seeds', nargs='+', type=int, default=[0, 1, 2], help='of the returns')
    parser.add_argument('--steps', type=int, default=1_000_000,
                        help='env steps of the peers for their returns, default 1000000; those of '
                        'ours are the setting --env_steps')
    parser.add_argument('--episodes', type=int, default=100, help='of each score, default 100')
    parser.add_argument('--folder', default='runs/bench-peers', help='takes rounds and runs')
    parser.add_argument('--picture', default='', metavar='FILE',
                        help='draw the returns over the wall-clock into this PNG file')
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    return parser


def check_arguments(own: argparse.Namespace, given: Mapping[str, Any]) -> list[Peer]:
    """
    Refuse what cannot be run, before anything is.

    Raises
    ------
    ConfigError
        See there.

    """
    for name, instead in (('task', '--tasks'), ('seed', '--seeds'), ('run_dir', '--folder'),
                          ('learner.milestones', 'nothing')):
        if name in given:
            raise ConfigError(f'--{name}: is given to this bench as {instead}')
    for name in ('rounds', 'steps', 'episodes'):
        if getattr(own, name) < 1:
            raise ConfigError(f'--{name} {getattr(own, name)}: must be at least 1')
    if not own.seconds > 0.0:
        raise ConfigError(f'--seconds {own.seconds}: must be more than 0')
    peers = named(own.peer, own.variants)
    if not peers:
        raise ConfigError('--peer: none is given, as NAME=INTERPRETER; names: '
                          f'{", ".join(scripts())}; docs/peers.md says how to make one')
    if 'return' in own.parts and peer_returns.TARGET not in {peer.name for peer in peers}:
        raise ConfigError(f'--parts return: needs --peer {peer_returns.TARGET}=INTERPRETER, whose '
                          'return is waited for')
    if own.picture:
        if 'return' not in own.parts:
            raise ConfigError('--picture: only with --parts return')
        check_picture('--picture', own.picture)
    for peer in peers:
        require_interpreter(peer, f'--peer {peer.name}={peer.python}')
    return peers


def _rates(own: argparse.Namespace, peers: list[Peer], given: Mapping[str, Any],
           stop: StopRequest, found: dict[str, Any], texts: list[str]) -> None:
    folder = pathlib.Path(own.folder) / 'rate'
    folder.mkdir(parents=True, exist_ok=True)
    for task in own.tasks or TASKS['rate']:
        rounds = peer_rates.measure(task, peers, given, folder, own.rounds, own.seconds, stop)
        if stop():
            return
        comparisons = peer_rates.comparisons_of(task, rounds)
        found['rows'] += peer_rates.rows_of(task, rounds)
        found['checks'] += peer_rates.checks_of(comparisons)
        found.setdefault('rates', {})[task] = {'rounds': rounds, 'comparisons': comparisons}
        texts.append(peer_rates.text_of(task, rounds, comparisons))


def _returns(own: argparse.Namespace, peers: list[Peer], given: Mapping[str, Any],
             stop: StopRequest, found: dict[str, Any], texts: list[str]) -> None:
    trainings = peer_returns.trainings(
        own.tasks or TASKS['return'], own.seeds, peers, given,
        pathlib.Path(own.folder) / 'return', own.steps, own.episodes)
    peer_returns.train(trainings, stop)
    if stop():
        return
    results = [peer_returns.outcome(training, own.episodes) for training in trainings]
    comparisons = peer_returns.comparisons_of(trainings, results, own.episodes)
    found['rows'] += peer_returns.rows_of(results)
    found['checks'] += peer_returns.checks_of(comparisons)
    found['returns'] = {'runs': results, 'comparisons': comparisons}
    texts.append(peer_returns.text_of(results, comparisons))
    if own.picture:
        from asyncppo_ros.tools.bench.peer_curves import draw
        pathlib.Path(own.picture).write_bytes(draw(results, comparisons))
        print(f'curves: {pathlib.Path(own.picture).absolute()}', file=sys.stderr)

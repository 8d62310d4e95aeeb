"""``asyncppo bench NAME``: measurements; each is one module of this package."""

import importlib

from asyncppo_ros.errors import UserError
from asyncppo_ros.nodes.process import StopRequest

BENCHES = {'learning': 'deterministic returns over tasks, seeds and modes',
           'sb3': 'this learner, synchronous, against the PPO of Stable-Baselines3',
           'update': 'samples per second of the update, on a CPU or a GPU',
           'transport': 'chunks per second by ways from actors to the learner',
           'fuzz': 'damaged and forged messages against a second, independent reader',
           'lag': 'policy lag at each target, with a slow learner',
           'deploy': 'inference, and how well the policy node keeps its times',
           'actors': 'rate by number of actors, of a task that takes time and no cores',
           'memory': 'growth of the memory of a run with a slow learner',
           'faults': 'a long run with random faults against one without'}


def main(arguments: list[str], stop: StopRequest) -> int:
    """Run one bench."""
    names = ''.join(f'\n  {name:<12} {text}' for name, text in BENCHES.items())
    if not arguments or arguments[0] in ('-h', '--help'):
        print(f'usage: asyncppo bench NAME [options]\n\nbenches:{names}\n\n'
              '`asyncppo bench NAME --help` shows the options of a bench.')
        return 0 if arguments else 2
    name, *rest = arguments
    if name not in BENCHES:
        raise UserError(f'bench {name}: no such bench; there are {", ".join(BENCHES)}')
    return importlib.import_module(f'asyncppo_ros.tools.bench.{name}').main(rest, stop)

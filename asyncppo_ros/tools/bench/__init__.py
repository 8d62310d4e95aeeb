"""``asyncppo bench NAME``: measurements; each is one module of this package."""

import importlib

from asyncppo_ros.errors import UserError
from asyncppo_ros.nodes.process import StopRequest

BENCHES = {'learning': 'deterministic returns over tasks, seeds and modes'}


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

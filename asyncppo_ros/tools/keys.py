"""
``asyncppo keys DIR``: keys that encrypt the connections of a run and sign its policies.

CURVE (elliptic-curve) keys for the ZeroMQ sockets of the learner and its actors, and one secret
with which the learner signs every policy.  ``--add NAME`` makes keys for a further host, also
while a training runs.  A host whose file is removed from DIR/learner/authorized can no longer
connect.
"""

import argparse
import pathlib

from asyncppo_ros.launching import require
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.tools.arguments import Parser


def main(arguments: list[str], _stop: StopRequest) -> int:
    """Make keys, and say what to copy where."""
    parser = Parser(prog='asyncppo keys', description=__doc__, allow_abbrev=False,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('folder', metavar='DIR', help='takes the keys; nothing is overwritten')
    parser.add_argument('--add', metavar='NAME', default='',
                        help='make keys for a further host in DIR/NAME')
    own = parser.parse_args(arguments)
    require(['zmq'])
    from asyncppo_ros.transport.keys import add_actor, make_keys
    folder = pathlib.Path(own.folder).expanduser().absolute()
    if own.add:
        add_actor(folder, own.add)
        print(_said_of_addition(folder, own.add))
    else:
        make_keys(folder)
        print(_said_of_keys(folder))
    return 0


def _said_of_keys(folder: pathlib.Path) -> str:
    return (f'{folder}/learner   for the host of the learner: never copy it elsewhere\n'
            f'{folder}/actor     for hosts with actors: copy it there, for example\n'
            f'    scp -rp {folder}/actor HOST:asyncppo_keys\n\n'
            'On this host, for the learner and the actors beside it:\n'
            f'    asyncppo train --transport.keys {folder} --transport.address '
            'tcp://0.0.0.0:5577\n'
            'On HOST:\n'
            '    asyncppo actors --transport.keys ~/asyncppo_keys --address '
            'tcp://THIS_HOST:5577')


def _said_of_addition(folder: pathlib.Path, name: str) -> str:
    return (f'{folder}/{name}   copy it to the new host, for example\n'
            f'    scp -rp {folder}/{name} HOST:asyncppo_keys\n\n'
            'A running learner on this host takes it in at once.  If the learner runs '
            'elsewhere, copy there:\n'
            f'    {folder}/learner/authorized/{name}.key  to its own learner/authorized\n\n'
            'On HOST:\n'
            '    asyncppo actors --transport.keys ~/asyncppo_keys --address '
            'tcp://LEARNER_HOST:5577')

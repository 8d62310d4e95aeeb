"""
``asyncppo rank``: share the gradient steps of a learner, on this host or another.

On each host that takes part, with numbers of its own for RANK (rank 0 is the learner):

    RANK=1 WORLD_SIZE=2 MASTER_ADDR=HOST MASTER_PORT=29500 asyncppo rank

and on HOST the training, which is rank 0:

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=HOST MASTER_PORT=29500 asyncppo train --learner.ranks 2 ...

It needs no settings: network, optimizer and samples come from rank 0, and it ends with it.
Between hosts nothing is encrypted and nobody is asked for a key: use a network of your own.
"""

import argparse
import os
import signal
import sys
import threading

from asyncppo_ros.errors import ConfigError
from asyncppo_ros.nodes.process import die_with_parent, StopRequest
from asyncppo_ros.tools.arguments import Parser

POLL_S = 0.2
# Asked to end, a rank still takes part for so long: rank 0 was asked as well, ends its step, and
# then lets all others end.
LEAVE_S = 3.0


def main(arguments: list[str], stop: StopRequest) -> int:
    """Take part until rank 0 ends."""
    parser = Parser(prog='asyncppo rank', description=__doc__, allow_abbrev=False,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    # What rank 0 says to those that it starts itself.
    parser.add_argument('--meeting', default='', help=argparse.SUPPRESS)
    parser.add_argument('--rank', default='', help=argparse.SUPPRESS)
    parser.add_argument('--ranks', default='', help=argparse.SUPPRESS)
    own = parser.parse_args(arguments)
    # Nothing is lost with it, and it may wait for others at that moment.
    die_with_parent(signal.SIGKILL)
    from asyncppo_ros.cluster.ranks import outside
    if not own.meeting and not outside():
        raise ConfigError('asyncppo rank: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT must be '
                          'set; `asyncppo rank --help` shows how')
    if not own.meeting and os.environ['RANK'] == '0':
        raise ConfigError('RANK = 0: is the learner: asyncppo train or train-local')
    ended = _Ended()
    # The libraries wait without Python, which has to see signals meanwhile.
    threading.Thread(target=ended.by, args=(own,), daemon=True).start()
    while not ended.wait(POLL_S):
        if stop() and not ended.wait(LEAVE_S):
            sys.stderr.flush()
            os._exit(0)
    return 0 if stop() else ended.code


class _Ended(threading.Event):
    """Set when the work of a rank is over; `code` then is that of the process."""

    code = 0

    def by(self, own: argparse.Namespace) -> None:
        """Do the work."""
        from asyncppo_ros.cluster.data_parallel import take_part
        from asyncppo_ros.nodes.process import guarded
        self.code = guarded(lambda: take_part(own.meeting, own.rank, own.ranks),
                            'asyncppo rank')
        self.set()

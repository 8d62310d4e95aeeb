"""What ``--cluster ray`` adds to `asyncppo train`; Ray itself is not imported here."""

from argparse import ArgumentParser, Namespace
import math
import os
import pathlib
import signal
import socket
import tempfile

from asyncppo_ros.config import Config
from asyncppo_ros.errors import AddressError, ConfigError
from asyncppo_ros.launching import require
from asyncppo_ros.nodes.actor_states import (
    FINISHED,
    PENDING,
    QUARANTINED,
    read_states,
    RESTARTING,
    RUNNING,
    states_file,
)
from asyncppo_ros.run import Run

# Of the process of the fleet, and of its log.
NAME = 'ray_fleet'
# Its exit code where no actor is restarted any more.
GAVE_UP = 3
# Names of sockets must be short (107 bytes), and Ray appends 70.
SHORT = '/tmp'
# The head of a cluster answers within this [s].
ANSWER_S = 5.0


def add_options(parser: ArgumentParser) -> None:
    """Add the options of clusters."""
    parser.add_argument('--cluster', choices=('ray',), default='',
                        help='run the actors as Ray actors (docs/ray.md)')
    parser.add_argument('--ray_address', '--address', default='', metavar='ADDRESS',
                        help='of a running Ray cluster, such as auto or HOST:6379 (default: a '
                        'local Ray is started and ended with the run)')
    parser.add_argument('--ray_cpus', type=float, default=1.0, metavar='N',
                        help='CPUs that each actor asks Ray for (default 1)')


def fleet_of(own: Namespace) -> 'RayFleet | None':
    """
    Give the fleet that was asked for, if one was.

    Raises
    ------
    UserError
        Ray is missing, or an option is wrong.

    """
    if not own.cluster:
        for name, value, usual in (('--ray_address', own.ray_address, ''),
                                   ('--ray_cpus', own.ray_cpus, 1.0)):
            if value != usual:
                raise ConfigError(f'{name} {value}: only with --cluster ray')
        return None
    if not (math.isfinite(own.ray_cpus) and own.ray_cpus > 0.0):
        raise ConfigError(f'--ray_cpus {own.ray_cpus}: must be above 0')
    require(('ray',))
    check_head(own.ray_address)
    return RayFleet(own.ray_address, own.ray_cpus)


def check_head(address: str) -> None:
    """
    Find out that nobody is at an address: Ray itself tries for minutes.

    Parameters
    ----------
    address : str
        Of a running cluster; what is not HOST:PORT is left to Ray.

    Raises
    ------
    AddressError
        Nobody answers.

    """
    host, _, port = address.rpartition(':')
    if not host or '/' in host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip('[]'), int(port)), ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise AddressError(f'--ray_address {address}: no Ray cluster answers there ({error}); '
                           'start one with `ray start --head`, or leave the option out for a '
                           'local Ray') from None


class RayFleet:
    """
    The process that owns the actors of a run as Ray actors, as `asyncppo train` sees it.

    Parameters
    ----------
    address : str
        Of a running cluster; '' = a local Ray.
    cpus : float
        That each actor asks for.

    """

    def __init__(self, address: str, cpus: float) -> None:
        self._address = address
        self._cpus = cpus
        self._folder: tempfile.TemporaryDirectory | None = None
        self._told = ''

    def check(self, config: Config) -> None:
        """
        Refuse settings that do not go with Ray.

        Raises
        ------
        ConfigError
            Names the setting.

        """
        if config.actor.source == 'robot':
            raise ConfigError('actor.source = robot: must be simulation with --cluster ray; an '
                              'actor with a robot is a ROS 2 node beside it')
        if self._address and not config.num_actors:
            raise ConfigError('num_actors = auto: is measured on this host, which says nothing '
                              'of a cluster; give a number, such as --num_actors 16')
        if self._address and not config.transport.address.startswith('tcp://'):
            raise ConfigError(f'transport.address = {config.transport.address}: must be '
                              'tcp://HOST:PORT in a cluster')

    def arguments(self, run: Run) -> list[str]:
        """Give the command line of the process, before it is started for the first time."""
        # What the last process of a resumed run has told is no longer so.
        states_file(run.folder, 0).unlink(missing_ok=True)
        if self._address:
            place = ['--address', self._address]
        else:
            folder = SHORT if os.access(SHORT, os.W_OK) else None
            self._folder = tempfile.TemporaryDirectory(prefix='asyncppo-ray-', dir=folder,
                                                       ignore_cleanup_errors=True)
            place = ['--folder', self._folder.name]
        return ['--params-file', str(run.config_file), '--cpus', str(self._cpus), *place]

    def news(self, run: Run) -> str:
        """Say how many actors have been placed, where that has changed; mostly ''."""
        states = [state['state'] for state in read_states(run.folder)]
        text = f'Ray: {states.count(RUNNING)} of {len(states)} actors placed'
        for name in (PENDING, RESTARTING, QUARANTINED):
            text += f', {states.count(name)} {name}' if name in states else ''
        if not states or FINISHED in states or text == self._told:
            return ''
        self._told = text
        return text

    def sweep(self, pid: int) -> None:
        """
        End what a fleet that was killed has left of its local Ray.

        Parameters
        ----------
        pid : int
            Of the fleet that has ended: all that it started is in its session.

        """
        if not self._address:
            end_session(pid)

    def close(self) -> None:
        """Remove the files of a local Ray."""
        if self._folder is not None:
            self._folder.cleanup()


def end_session(leader: int) -> None:
    """Kill all processes of a session but this one and its leader."""
    for folder in pathlib.Path('/proc').glob('[0-9]*'):
        try:
            session = int((folder / 'stat').read_text().rpartition(')')[2].split()[3])
            if session == leader and int(folder.name) not in (leader, os.getpid()):
                os.kill(int(folder.name), signal.SIGKILL)
        except OSError:
            continue  # it has ended meanwhile

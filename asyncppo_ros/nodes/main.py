"""
Entry points of the processes of a run.

Each installs its signal handlers first, then imports what is heavy: a Ctrl-C during the
seconds in which torch and rclpy load still ends with exit code 0, and at once.
"""

import faulthandler
import importlib
import signal
import sys

from asyncppo_ros.nodes.process import die_with_parent, guarded, leave, StopRequest

NODES = ('learner', 'actor', 'evaluator', 'policy', 'sim_robot')
# An actor is a node only where its policies come from a topic.
MODULES = {'actor': 'actor', 'learner': 'learner_node', 'evaluator': 'evaluator_node',
           'policy': 'policy_node', 'sim_robot': 'sim_robot_node', 'asyncppo': 'cli'}
ROOMS = {'ray_fleet': 'cluster', 'asyncppo': 'tools'}
# torch loads it for its first optimizer, which takes seconds: better while a Ctrl-C ends at once.
LATE_LIBRARIES = {'learner': ('torch._dynamo',)}


def run(name: str, arguments: list[str] | None = None) -> int:
    """
    Run one process of a run.

    Parameters
    ----------
    name : str
        ``learner``, ``actor``, ``evaluator``, ``policy``, ``sim_robot``, ``supervisor``,
        ``ray_fleet`` or ``plots``; ``asyncppo`` is a verb of the command within a launch.
    arguments : list of str, optional
        The command line without the program; default ``sys.argv[1:]``.

    Returns
    -------
    int
        Exit code: 0, 2 for a user's mistake, 1 for a fault.

    """
    stop = StopRequest().install()
    # Nobody is left to end a hung actor whose supervisor died; the books know what it had made.
    die_with_parent(signal.SIGKILL if name == 'actor' else signal.SIGTERM)
    # A hung process is asked for its stacks before it is killed.
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    given = sys.argv[1:] if arguments is None else arguments
    suffix = f'{name}_node' if name in NODES else name

    def body() -> int | None:
        stop.loading = True
        room = ROOMS.get(name, 'nodes')
        module = importlib.import_module(f'asyncppo_ros.{room}.{MODULES.get(name, name)}')
        for library in LATE_LIBRARIES.get(name, ()):
            importlib.import_module(library)
        stop.loading = False
        return module.run(given, stop)

    return guarded(body, suffix)


def learner() -> None:
    """Run the learner node."""
    leave(run('learner'))


def actor() -> None:
    """Run an actor node."""
    leave(run('actor'))


def evaluator() -> None:
    """Run the evaluator node."""
    leave(run('evaluator'))


def sim_robot() -> None:
    """Run the simulated robot."""
    leave(run('sim_robot'))


def policy() -> None:
    """Run the policy node on a robot."""
    leave(run('policy'))


def supervisor() -> None:
    """Run the supervisor of this host's actors."""
    leave(run('supervisor'))


def plots() -> None:
    """Open rqt with the plots of a training."""
    leave(run('plots'))


if __name__ == '__main__':
    leave(run(sys.argv[1], sys.argv[2:]))

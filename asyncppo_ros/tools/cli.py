"""The ``asyncppo`` command: ``asyncppo VERB ...``; each verb is one module of this package."""

from collections.abc import Callable
import importlib
import os
import sys

from asyncppo_ros import __version__
from asyncppo_ros.errors import UserError
from asyncppo_ros.nodes.process import compute_in_one_thread, guarded, leave, StopRequest

VERBS = {
    'train': ('asyncppo_ros.tools.train',
              'train with a learner node and actor nodes, asynchronously'),
    'actors': ('asyncppo_ros.tools.actors',
               'collect for a run on another host, with or without ROS'),
    'train-local': ('asyncppo_ros.tools.local', 'train in this process, synchronously, no ROS'),
    'rank': ('asyncppo_ros.tools.rank', 'share the gradient steps of a learner, on any host'),
    'eval': ('asyncppo_ros.tools.evaluate', 'score a run or a policy, deterministically'),
    'report': ('asyncppo_ros.tools.report', 'make a picture and a page of the curves of a run'),
    'render': ('asyncppo_ros.tools.render', 'draw a picture strip of one episode'),
    'export': ('asyncppo_ros.tools.export', 'write a policy as ONNX, for C++ on the robot'),
    'check-deploy': ('asyncppo_ros.tools.check_deploy',
                     'compare a policy with what a robot tells, joint by joint'),
    'doctor': ('asyncppo_ros.tools.doctor',
               'name the stage that limits a training here, and what to turn'),
    'books': ('asyncppo_ros.tools.books', 'show where every transition of a run went'),
    'keys': ('asyncppo_ros.tools.keys', 'make keys: encrypted connections, signed policies'),
    'settings': ('asyncppo_ros.tools.show_settings', 'list all settings'),
    'tune': ('asyncppo_ros.tools.tune', 'search the best settings for a task'),
    'lag-study': ('asyncppo_ros.tools.lag_study',
                  'train at lags made on purpose: which objective holds to which'),
    'bench': ('asyncppo_ros.tools.bench', 'measure; `asyncppo bench` lists what'),
}


def usage() -> str:
    """Give the help text of the command."""
    lines = ['usage: asyncppo VERB [options]', '',
             'Asynchronous PPO for ROS 2 robots.', '', 'verbs:']
    lines += [f'  {name:<12} {text}' for name, (_, text) in VERBS.items()]
    lines += ['', '`asyncppo VERB --help` shows the options of a verb.',
              'First steps: asyncppo train --task reach; asyncppo report runs/latest']
    return '\n'.join(lines)


def run(arguments: list[str], stop: StopRequest) -> int:
    """Run one verb; see `main`."""
    if not arguments or arguments[0] in ('-h', '--help', 'help'):
        print(usage())
        return 0 if arguments else 2
    if arguments[0] == '--version':
        print(f'asyncppo_ros {__version__}')
        return 0
    verb, *rest = arguments
    if verb not in VERBS:
        raise UserError(f'{verb}: no such verb; there are {", ".join(VERBS)}')
    if verb in ('train', 'train-local') and os.environ.get('RANK', '0') != '0' \
            and 'MASTER_ADDR' in os.environ:
        # torchrun runs one command everywhere; where it is not rank 0 it takes part in that one.
        verb, rest = 'rank', []
    stop.loading = True
    module = importlib.import_module(VERBS[verb][0])
    stop.loading = False
    main_of_verb: Callable[[list[str], StopRequest], int] = module.main
    return main_of_verb(rest, stop)


def main() -> None:
    """
    Run the command line.

    Exit codes: 0, also after Ctrl-C; 1 for a fault or a check that failed; 2 for a mistake of
    the user, told in one line.
    """
    stop = StopRequest().install()
    # With matrices as small as those of robots, threads cost more than they give.
    compute_in_one_thread(os.environ)
    # A task beside the user is found as `python -m` and the nodes find it, but never before
    # what is installed.
    sys.path.append(os.getcwd())
    leave(guarded(lambda: run(sys.argv[1:], stop), 'asyncppo'))


if __name__ == '__main__':
    main()

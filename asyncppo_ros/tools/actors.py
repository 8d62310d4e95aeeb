"""
``asyncppo actors``: further actors for a run, on any host with MuJoCo.

ROS is needed for a robot only.
"""

import argparse
import dataclasses
import pathlib
import sys
import tempfile

from asyncppo_ros.launching import check_task, first_actor_id, require
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.run import resolve
from asyncppo_ros.settings import write_yaml
from asyncppo_ros.tools.arguments import Parser, settings_help, split_settings

# What an actor without ROS needs.
NEEDED = ('mujoco', 'zmq', 'safetensors')


def main(arguments: list[str], stop: StopRequest) -> int:
    """Own the actors of this host until the run is over."""
    parser = Parser(prog='asyncppo actors', description=__doc__, epilog=settings_help(),
                    formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument('--config', action='append', default=[], metavar='FILE',
                        help='YAML file of settings, best the config.yaml of the run; may be '
                        'given again, later wins')
    parser.add_argument('--address', default='', metavar='tcp://HOST:PORT',
                        help='of the learner (default: transport.address)')
    parser.add_argument('--num-actors', type=int, default=0,
                        help='actor processes on this host (default: by its cores)')
    parser.add_argument('--first-actor-id', type=int, default=-1,
                        help='number of the first one, unique over all hosts of the run (default: '
                        'from the name of this host)')
    parser.add_argument('--robot', default='', metavar='FILE',
                        help='settings of a robot behind ROS 2 topics: one actor collects from it '
                        'instead of from simulations')
    own, given = split_settings(parser, arguments)
    if own.address:
        given['transport.address'] = own.address
    from asyncppo_ros.nodes import supervisor
    robot = supervisor.robot_settings(own.robot)
    config = resolve({**robot, **given, 'transport.policies': 'zmq'}, own.config)
    require((*NEEDED, 'rclpy') if config.actor.source == 'robot' else NEEDED)
    check_task(config.task, config.seed)
    first = first_actor_id() if own.first_actor_id < 0 else own.first_actor_id
    print(f'task {config.task}: actors {first} and following collect for the learner at '
          f'{config.transport.address}', file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix='asyncppo-') as folder:
        file = pathlib.Path(folder) / 'config.yaml'
        # What belongs to the learner's folder, which another host does not have.
        write_yaml(dataclasses.replace(config, run_dir=''), file)
        # What the run has settled is the number of another host.
        by_cores = [] if own.num_actors or given.get('num_actors') else ['--by-cores']
        return supervisor.run(['--params-file', str(file), '--num-actors', str(own.num_actors),
                               '--first-actor-id', str(first), '--robot', own.robot, '--further',
                               *by_cores], stop)

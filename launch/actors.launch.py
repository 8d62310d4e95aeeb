"""
Further actors for a run: on another host, or more on this one.

``ros2 launch asyncppo_ros actors.launch.py config:=config.yaml learner:=tcp://HOST:5577`` needs
the ``config.yaml`` of the run; task and layout are checked when the actors say hello.
"""

import os
import socket
import sys
import zlib

from launch.actions import (
    DeclareLaunchArgument,
    EmitEvent,
    ExecuteProcess,
    OpaqueFunction,
    RegisterEventHandler,
)
from launch.event_handlers import OnProcessExit
from launch.events import Shutdown

from launch import LaunchContext, LaunchDescription

# Numbers of actors that belong to one host; the learner's own host begins at 0.
ACTORS_PER_HOST = 1000
ARGUMENTS = (
    ('config', '', 'config.yaml of the run (needed)'),
    ('learner', '', 'address of the learner, tcp://HOST:PORT; empty = as in the config'),
    ('num_actors', 'auto', 'actor processes on this host; auto follows the cores'),
    ('first_actor_id', 'auto', 'number of the first actor, unique over all hosts of the run; '
                               'auto = from the name of this host'),
    ('python', sys.executable, 'interpreter of the nodes'),
    ('namespace', 'asyncppo', 'ROS namespace of the run'),
)


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments; everything else needs their values."""
    return LaunchDescription([
        *(DeclareLaunchArgument(name, default_value=default, description=text)
          for name, default, text in ARGUMENTS),
        OpaqueFunction(function=start)])


def start(context: LaunchContext) -> list:
    """Start the supervisor of this host."""
    from asyncppo_ros.launching import check_arguments, count_of, needed_file, value_of
    from asyncppo_ros.nodes.process import child_environment
    names = [name for name, _, _ in ARGUMENTS]
    check_arguments(context, names)
    values = {name: value_of(context, name) for name in names}
    first = values['first_actor_id']
    if first == 'auto':
        host = zlib.crc32(socket.gethostname().encode()) % 1_000_000 + 1
        first = str(host * ACTORS_PER_HOST)
    environment = child_environment()
    supervisor = ExecuteProcess(
        cmd=[values['python'], '-m', 'asyncppo_ros.nodes.main', 'supervisor',
             '--params-file', needed_file('config', values['config']),
             '--namespace', values['namespace'], '--address', values['learner'],
             '--num-actors', count_of('num_actors', values['num_actors']),
             '--first-actor-id', count_of('first_actor_id', first)],
        name='supervisor', output='screen', additional_env={
            key: value for key, value in environment.items() if os.environ.get(key) != value})
    return [supervisor, RegisterEventHandler(OnProcessExit(
        target_action=supervisor, on_exit=[EmitEvent(event=Shutdown(
            reason='the supervisor has ended'))]))]

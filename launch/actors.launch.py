"""
Further actors for a run: on another host, or more on this one.

``ros2 launch asyncppo_ros actors.launch.py config:=config.yaml learner:=tcp://HOST:5577`` needs
the ``config.yaml`` of the run; task and layout are checked when the actors say hello.
"""

from functools import partial
import sys

from launch.actions import (
    DeclareLaunchArgument,
    ExecuteProcess,
    OpaqueFunction,
    RegisterEventHandler,
)
from launch.event_handlers import OnProcessExit

from launch import LaunchContext, LaunchDescription

# After this time launch gets impatient [s]; see train.launch.py.
STOP_S = '10'
ARGUMENTS = (
    ('config', '', 'config.yaml of the run (needed)'),
    ('learner', '', 'address of the learner, tcp://HOST:PORT; empty = as in the config'),
    ('keys', '', 'folder of the keys on this host (asyncppo keys); empty = as in the config'),
    ('num_actors', 'auto', 'actor processes on this host; auto follows the cores'),
    ('first_actor_id', 'auto', 'number of the first actor, unique over all hosts of the run; '
                               'auto = from the name of this host'),
    ('robot', '', 'settings of a robot: one actor collects from it; empty = simulations'),
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
    from asyncppo_ros.nodes.process import launch_interrupt
    launch_interrupt.install()
    from asyncppo_ros.launching import (
        added_environment,
        check_arguments,
        check_nodes,
        config_of,
        count_of,
        first_actor_id,
        namespace_of,
        needed_file,
        node_command,
        value_of,
    )
    from asyncppo_ros.nodes.launched import ended, told_late
    names = [name for name, _, _ in ARGUMENTS]
    check_arguments(context, names)
    values = {name: value_of(context, name) for name in names}
    config_file = needed_file('config', values['config'])
    count = count_of('num_actors', values['num_actors'])
    first = values['first_actor_id']
    if first == 'auto':
        first = str(first_actor_id())
    arguments = ['--params-file', config_file,
                 '--namespace', namespace_of('namespace:=', values['namespace']),
                 '--address', values['learner'], '--keys', values['keys'],
                 '--further', '--num-actors', count,
                 '--first-actor-id', count_of('first_actor_id', first)]
    if count == '0':
        arguments += ['--by-cores']
    if values['robot']:
        arguments += ['--robot', needed_file('robot', values['robot'])]
    with launch_interrupt.raised():
        check_nodes(values['python'], config_of('config', config_file))
    supervisor = ExecuteProcess(cmd=node_command(values['python'], 'supervisor', arguments),
                                name='supervisor', output='screen', sigterm_timeout=STOP_S,
                                additional_env=added_environment())
    launch_interrupt.check()
    return [told_late(supervisor), supervisor, RegisterEventHandler(OnProcessExit(
        target_action=supervisor, on_exit=partial(ended, 'the supervisor')))]

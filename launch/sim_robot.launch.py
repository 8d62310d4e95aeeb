"""
A simulated robot behind the topics of a real one, for people without one.

``ros2 launch asyncppo_ros sim_robot.launch.py task:=quadruped_walk`` waits for commands on
``joint_trajectory_controller/joint_trajectory`` and tells ``joint_states`` and ``imu/data``.
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
    ('task', '', 'whose robot: reach, quadruped_walk, or my_pkg.my_module:MyTask; empty = as the '
                 'config says, else reach'),
    ('config', '', 'YAML file of settings robot.* and sim_robot.* (a ROS parameter file), e.g. '
                   'config/robots/quadruped.yaml; empty = those of the package'),
    ('lockstep', '', 'true: time stands still until each command has come; false: real time; '
                     'empty = as the config says, else false'),
    ('python', sys.executable, 'interpreter of the node, e.g. that of a venv with mujoco'),
    ('namespace', '', 'ROS namespace of the robot'),
    ('rviz', 'false', 'true opens RViz and starts robot_state_publisher'),
)


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments; everything else needs their values."""
    return LaunchDescription([
        *(DeclareLaunchArgument(name, default_value=default, description=text)
          for name, default, text in ARGUMENTS),
        OpaqueFunction(function=start)])


def start(context: LaunchContext) -> list:
    """Check the arguments, then start the robot, and RViz where it is asked for."""
    from asyncppo_ros.nodes.process import launch_interrupt
    launch_interrupt.install()
    from asyncppo_ros.launching import (
        added_environment,
        check_arguments,
        check_nodes,
        flag_of,
        namespace_of,
        node_command,
        value_of,
    )
    from asyncppo_ros.nodes.launched import ended, told_late
    from asyncppo_ros.robot_launching import NEEDED, sim_robot_settings
    names = [name for name, _, _ in ARGUMENTS]
    check_arguments(context, names)
    values = {name: value_of(context, name) for name in names}
    namespace = namespace_of('namespace:=', values['namespace'])
    with_rviz = flag_of('rviz', values['rviz'])
    config, ros = sim_robot_settings(values)
    pictures = rviz(config, namespace) if with_rviz else []
    with launch_interrupt.raised():
        check_nodes(values['python'], config, NEEDED)
    robot = ExecuteProcess(
        cmd=node_command(values['python'], 'sim_robot',
                         ['--ros-args', *ros, '-r', f'__ns:=/{namespace}']),
        name='sim_robot', output='screen', sigterm_timeout=STOP_S,
        additional_env=added_environment())
    launch_interrupt.check()
    return [told_late(robot), robot, *pictures, RegisterEventHandler(OnProcessExit(
        target_action=robot, on_exit=partial(ended, 'the robot')))]


def rviz(config, namespace: str) -> list:
    """Give RViz and what it needs to know of where the links are."""
    from launch_ros.actions import Node

    from asyncppo_ros.resources import find
    from asyncppo_ros.robot_launching import description_of, require_packages, root_link

    require_packages('rviz', ('robot_state_publisher', 'rviz2'))
    urdf = description_of(config)
    remappings = [('joint_states', config.robot.joint_state_topics[0]),
                  ('robot_description', config.robot.description_topic or 'robot_description')]
    return [Node(package='robot_state_publisher', executable='robot_state_publisher',
                 namespace=namespace, parameters=[{'robot_description': urdf}],
                 remappings=remappings, output='screen'),
            Node(package='rviz2', executable='rviz2', namespace=namespace, output='screen',
                 remappings=remappings,
                 arguments=['-d', str(find('config/robots/robot.rviz')), '-f', root_link(urdf)])]

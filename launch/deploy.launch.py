"""
Deploy: a policy node in command of a robot, or of a simulated one.

``ros2 launch asyncppo_ros deploy.launch.py policy:=runs/latest robot:=my_robot.yaml`` makes the
node; it commands nothing before it is activated (``autostart:=true``, or ``ros2 lifecycle set
/policy_node configure`` and ``activate``).  No process is started again after it has ended: a
robot waits for people.
"""

import sys

from launch.actions import (
    DeclareLaunchArgument,
    ExecuteProcess,
    LogInfo,
    OpaqueFunction,
    RegisterEventHandler,
)
from launch.event_handlers import OnProcessExit

from launch import LaunchContext, LaunchDescription

# After this time launch gets impatient [s]; the node stops the robot before it ends.
STOP_S = '10'
ARGUMENTS = (
    ('policy', '', 'policy file (.safetensors), the folder of a run, or the name of one in '
                   'pretrained'),
    ('robot', '', 'YAML file of the settings robot.* and deploy.* (a ROS parameter file), or the '
                  'name of one in config/robots; empty = the defaults'),
    ('sim', 'false', 'true also starts a simulated robot'),
    ('task', '', 'whose robot is simulated; empty = the one the policy was trained on'),
    ('lockstep', 'false', 'true: simulated time stands still until each command has come'),
    ('ask', 'false', 'true: the simulated robot asks for what its task asks for, in episodes'),
    ('autostart', 'false', 'true configures and activates the node as soon as all checks pass'),
    ('namespace', '', 'ROS namespace of the node and the topics of the robot'),
    ('use_sim_time', 'auto', 'true: control steps by /clock; auto = where lockstep is on'),
    ('policy_topic', '', 'take newer policies of the run from this topic while running, e.g. '
                         '/asyncppo/policy; empty = none'),
    ('python', sys.executable, 'interpreter of the nodes, e.g. that of a venv'),
)


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments; everything else needs their values."""
    return LaunchDescription([
        *(DeclareLaunchArgument(name, default_value=default, description=text)
          for name, default, text in ARGUMENTS),
        OpaqueFunction(function=start)])


def start(context: LaunchContext) -> list:
    """Check everything, then start the node, and the robot where it is simulated."""
    from asyncppo_ros.nodes.process import launch_interrupt
    launch_interrupt.install()
    from asyncppo_ros.deploying import plan
    from asyncppo_ros.launching import check_arguments, namespace_of, value_of
    from asyncppo_ros.nodes.launched import told_late
    names = [name for name, _, _ in ARGUMENTS]
    check_arguments(context, names)
    values = {name: value_of(context, name) for name in names}
    namespace = namespace_of('namespace:=', values['namespace'])
    with launch_interrupt.raised():
        found = plan(values)
    policy = node(values['python'], 'policy', found.policy, namespace)
    full = f'/{namespace}/policy_node' if namespace else '/policy_node'
    actions = [told_late(policy), policy, RegisterEventHandler(OnProcessExit(
        target_action=policy, on_exit=end_with('the policy node')))]
    if values['autostart'].lower() != 'true':
        actions.append(LogInfo(msg=f'inactive until: ros2 lifecycle set {full} configure, then '
                               'activate'))
    if found.robot is not None:
        robot = node(values['python'], 'sim_robot', found.robot, namespace)
        actions += [told_late(robot), robot, RegisterEventHandler(OnProcessExit(
            target_action=robot, on_exit=end_with('the simulated robot')))]
    launch_interrupt.check()
    return actions


def node(python: str, name: str, arguments: list[str], namespace: str) -> ExecuteProcess:
    """Start one process with the chosen interpreter; once, whatever comes of it."""
    from asyncppo_ros.launching import added_environment, node_command
    return ExecuteProcess(
        cmd=node_command(python, name, ['--ros-args', *arguments, '-r', f'__ns:=/{namespace}']),
        name=name, output='screen', additional_env=added_environment(), sigterm_timeout=STOP_S)


def end_with(what: str) -> object:
    """Give the handler that ends the launch with one of its processes."""
    from asyncppo_ros.nodes.launched import ended

    def handler(event, context: LaunchContext) -> list:
        return [] if context.is_shutdown else ended(what, event, context)
    return handler

"""
Train: one learner node, one evaluator node, and a supervisor with the actors of this host.

``ros2 launch asyncppo_ros train.launch.py task:=reach`` ends by itself when all steps are done:
the learner's end is the end of the launch.
"""

import sys

from launch.actions import (
    DeclareLaunchArgument,
    EmitEvent,
    ExecuteProcess,
    LogInfo,
    OpaqueFunction,
    RegisterEventHandler,
)
from launch.event_handlers import OnProcessExit
from launch.events import Shutdown

from launch import LaunchContext, LaunchDescription

# After this time launch gets impatient [s].  Its default, 5, is what the nodes keep on an idle
# machine; on a busy one the learner must still be let write its checkpoint.
STOP_S = '10'
ARGUMENTS = (
    ('task', 'reach', 'what is learned: reach, cartpole_swingup, HalfCheetah-v5, gymnasium:ID, '
                      'or my_pkg.my_module:MyTask'),
    ('config', '', 'YAML file of settings (a ROS parameter file); empty = those of the package'),
    ('num_actors', 'auto', 'actor processes on this host; auto = as set, or measured'),
    ('num_envs', '0', 'simulations of each actor; 0 = as the settings say, auto = measured'),
    ('env_steps', '0', 'transitions to train for; 0 = as the settings say'),
    ('seed', '-1', 'seed of all random numbers; -1 = as the settings say'),
    ('run_dir', '', 'folder of the run; empty = runs/TASK-DATE-TIME below the working directory'),
    ('resume', '', 'folder of a run to continue; task and settings come from there'),
    ('python', sys.executable, 'interpreter of the nodes, e.g. that of a venv with torch'),
    ('namespace', 'asyncppo', 'ROS namespace of the run'),
    ('rqt', 'false', 'true opens rqt with the plots of the training'),
)


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments; everything else needs their values."""
    return LaunchDescription([
        *(DeclareLaunchArgument(name, default_value=default, description=text)
          for name, default, text in ARGUMENTS),
        OpaqueFunction(function=start)])


def start(context: LaunchContext) -> list:
    """Make the folder of the run, then start its processes."""
    from asyncppo_ros.nodes.process import launch_interrupt
    launch_interrupt.install()
    from asyncppo_ros.launching import (
        check_arguments,
        flag_of,
        namespace_of,
        open_run,
        value_of,
    )
    from asyncppo_ros.nodes.launched import told_late
    names = [name for name, _, _ in ARGUMENTS]
    check_arguments(context, names)
    values = {name: value_of(context, name) for name in names}
    namespace = namespace_of('namespace:=', values['namespace'])
    with_rqt = flag_of('rqt', values['rqt'])
    with launch_interrupt.raised():
        run = open_run(values)
    ros = ['--ros-args', '--params-file', str(run.config_file), '-r', f'__ns:=/{namespace}']
    learner = node(values['python'], 'learner', ros)
    evaluator = node(values['python'], 'evaluator', ros)
    supervisor = node(values['python'], 'supervisor',
                      ['--params-file', str(run.config_file), '--namespace', namespace])
    actions = [LogInfo(msg=f'run {run.folder}'),
               *map(told_late, (learner, evaluator, supervisor)), learner, evaluator, supervisor,
               RegisterEventHandler(OnProcessExit(
                   target_action=learner, on_exit=end_of_training(values['python'], run))),
               RegisterEventHandler(OnProcessExit(target_action=supervisor, on_exit=give_up))]
    if with_rqt:
        # It waits for the topics itself; rqt comes from the ROS installation.
        plots = node(values['python'], 'plots', ['--namespace', namespace])
        actions += [told_late(plots), plots]
    launch_interrupt.check()
    return actions


def node(python: str, name: str, arguments: list[str]) -> ExecuteProcess:
    """Start one process of the run with the chosen interpreter."""
    from asyncppo_ros.launching import added_environment, node_command
    return ExecuteProcess(cmd=node_command(python, name, arguments), name=name, output='screen',
                          additional_env=added_environment(), sigterm_timeout=STOP_S)


def end_of_training(python: str, run) -> object:
    """Give the handler that ends the launch when the learner has ended."""
    from asyncppo_ros.launching import is_done
    from asyncppo_ros.nodes.launched import ENDED_WELL, failed, told_late

    def handler(event, context: LaunchContext) -> list:
        if event.returncode not in ENDED_WELL:
            return failed('the learner', event.returncode)
        if context.is_shutdown:
            return []
        # A node that a Ctrl-C meets while it loads ends before launch has heard of it.
        if not is_done(run):
            return [EmitEvent(event=Shutdown(reason='the learner was stopped'))]
        # All steps are done: the score of the trained policy is the last thing that is shown.
        score = node(python, 'asyncppo', ['eval', str(run.folder)])
        return [told_late(score), score, RegisterEventHandler(OnProcessExit(
            target_action=score,
            on_exit=[LogInfo(msg=f'policy: {run.policy_file}; curves: asyncppo report '
                                 f'{run.folder}'),
                     EmitEvent(event=Shutdown(reason='training is done'))]))]
    return handler


def give_up(event, context: LaunchContext) -> list:
    """End the launch when the supervisor had to give up every actor."""
    from asyncppo_ros.nodes.launched import ENDED_WELL, failed
    if event.returncode in ENDED_WELL or context.is_shutdown:
        return []
    return failed('the supervisor', event.returncode)

"""The launch files: their form without launch, and `ros2 launch` run for real where it exists."""

import ast
import importlib.util
import math
import os
import pathlib
import pty
import select
import shutil
import signal
import subprocess
import sys
import time

from harness import free_address, processes_of, shared_memory
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / 'launch').glob('*.launch.py'))
MISSING = [name for name in ('launch', 'launch_ros', 'ros2launch', 'rclpy')
           if importlib.util.find_spec(name) is None]
needs_launch = pytest.mark.skipif(
    bool(MISSING) or shutil.which('ros2') is None,
    reason=f'no ros2 launch here: {", ".join(MISSING) or "the ros2 command"} is missing')
CTRL_C = b'\x03'


def ros2_launch(file, *arguments):
    return ['ros2', 'launch', str(ROOT / 'launch' / file), *arguments]


def small(folder):
    """Give the arguments of a small training in a folder, at an address of its own."""
    config = folder / 'address.yaml'
    config.write_text(f'/**: {{ros__parameters: {{transport: {{address: {free_address()}}}}}}}')
    return ['task:=cartpole_swingup', 'num_actors:=1', 'num_envs:=16', f'config:={config}',
            f'run_dir:={folder / "run"}']


def environment():
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get('PYTHONPATH', '')]))
    return {**os.environ, 'PYTHONPATH': path}


def launch(file, *arguments, cwd=None):
    """Run `ros2 launch` to its natural end."""
    return subprocess.run(ros2_launch(file, *arguments), capture_output=True, text=True,
                          timeout=200, cwd=cwd, env=environment(), stdin=subprocess.DEVNULL)


def launch_in_terminal(text, *command, after=0.0, timeout=120.0):
    """Press Ctrl-C in a terminal once `text` has appeared; give exit code, seconds, output."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(command[0], list(command), environment())
    output, pressed, deadline, moment = '', 0.0, time.monotonic() + timeout, math.inf
    try:
        while time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.1)[0]:
                try:
                    data = os.read(terminal, 65536)
                except OSError:  # how Linux says that the other side has closed
                    break
                output += data.decode(errors='replace')
            if text in output:
                moment = min(moment, time.monotonic() + after)
            if time.monotonic() >= moment and not pressed:
                pressed = time.monotonic()
                os.write(terminal, CTRL_C)
        else:
            os.kill(pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), time.monotonic() - pressed, output
    finally:
        os.close(terminal)


@pytest.mark.parametrize('file', FILES, ids=lambda file: file.name)
def test_the_form_of_a_launch_file(file):
    tree = ast.parse(file.read_text())
    assert ast.get_docstring(tree)
    modules = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import)
               for alias in node.names]
    modules += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not {name.split('.')[0] for name in modules} & {'torch', 'mujoco', 'rclpy'}
    # A Ctrl-C that breaks launch off in the midst of its work is kept from then on.
    start = next(node for node in tree.body if getattr(node, 'name', '') == 'start')
    assert [ast.unparse(line) for line in start.body[1:3]] == [
        'from asyncppo_ros.nodes.process import launch_interrupt', 'launch_interrupt.install()']
    declared = next(node.value for node in tree.body if isinstance(node, ast.Assign)
                    and node.targets[0].id == 'ARGUMENTS')
    for entry in declared.elts:
        name, _, description = entry.elts
        assert name.value.isidentifier()
        assert len(description.value) > 10, name.value


def test_what_launch_files_import_is_light():
    code = ('import sys, asyncppo_ros.launching; '
            'print({"torch", "mujoco", "rclpy", "zmq"} & set(sys.modules))')
    shown = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, cwd=ROOT)
    assert shown.stdout.strip() == 'set()', shown.stderr


@needs_launch
@pytest.mark.parametrize('file', FILES, ids=lambda file: file.name)
def test_the_arguments_are_described(file):
    shown = launch(file.name, '--show-args')
    assert shown.returncode == 0
    assert "'python':" in shown.stdout and "'namespace':" in shown.stdout


@needs_launch
@pytest.mark.parametrize('arguments, told', [
    (['tsk:=reach'], 'did you mean task:=?'),
    (['task:=nix'], "task 'nix' is unknown; there are: reach"),
    (['env_steps:=abc'], 'env_steps:=abc: a whole number'),
    (['config:=nowhere.yaml'], 'config:=nowhere.yaml: a file is needed'),
    (['namespace:=a/-b'], 'a ROS namespace is expected'),
    (['python:=/no/python'], 'no such interpreter'),
    (['run_dir:=taken'], 'is not empty'),
    (['resume:=nowhere'], 'resume:=nowhere: no run there'),
])
def test_a_mistake_is_told_in_one_line(arguments, told, tmp_path):
    (tmp_path / 'taken').mkdir()
    (tmp_path / 'taken' / 'thesis.tex').touch()
    ended = launch('train.launch.py', *arguments, cwd=tmp_path)
    assert ended.returncode == 1
    errors = [line for line in (ended.stdout + ended.stderr).splitlines() if '[ERROR]' in line]
    assert len(errors) == 1 and told in errors[0]
    assert 'Traceback' not in ended.stdout + ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ['taken']


@needs_launch
@pytest.mark.nodes
def test_a_launch_trains_to_its_end_and_scores_the_policy(tmp_path):
    run = tmp_path / 'run'
    ended = launch('train.launch.py', *small(tmp_path), 'env_steps:=20000')
    shown = ended.stdout + ended.stderr
    assert ended.returncode == 0, shown
    assert 'over 100 deterministic episodes' in shown and 'Traceback' not in shown
    assert (run / 'checkpoint' / 'checkpoint.safetensors').is_file()
    assert not processes_of(run) and not shared_memory()
    # All steps are done: to go on, more must be asked for, and that is a mistake of the user.
    again = launch('train.launch.py', f'resume:={run}')
    assert again.returncode == 1
    assert 'all 20000 env steps are done' in again.stdout + again.stderr


@needs_launch
@pytest.mark.nodes
# At its first line a Ctrl-C still meets launch alone, and may end its work but not its process; a
# second later the launch file tries the task.
@pytest.mark.parametrize('moment, after', [
    ('Default logging verbosity', 1.0), ('[learner-1]: process started', 0.0),
    ('[supervisor-3]: process started', 0.0), ('[supervisor-3] supervisor: 1 actors', 0.5),
    ('env steps done', 0.0), ('learner waits', 0.0)])
def test_ctrl_c_is_clean(moment, after, tmp_path):
    run = tmp_path / 'run'
    code, seconds, shown = launch_in_terminal(moment, *ros2_launch(
        'train.launch.py', *small(tmp_path), 'env_steps:=50000000'), after=after)
    assert code == 0, shown
    # The promise is 5 s; the learner's last checkpoint takes longer where other programs use all
    # cores, but never so long that launch gets impatient.
    assert seconds < 10.0 and 'failed to terminate' not in shown, shown
    assert 'Traceback' not in shown, shown
    if moment in ('env steps done', 'learner waits'):
        assert (run / 'checkpoint' / 'checkpoint.safetensors').is_file()
    assert not processes_of(run) and not shared_memory()


@pytest.fixture(scope='module')
def reach_policy(tmp_path_factory):
    from made_policies import card_of, made_learner

    from asyncppo_ros.simulation.registry import make
    path = tmp_path_factory.mktemp('reach') / 'policy.safetensors'
    environment = make('reach', 1, 0)
    path.write_bytes(made_learner(card_of(environment), 15, 6).snapshot().data)
    environment.close()
    return path


@needs_launch
@pytest.mark.parametrize('arguments, told', [
    (['polcy:=x'], 'did you mean policy:=?'),
    (['policy:=nowhere'], 'there is no file'),
    (['robot:=no_robot'], 'config/robots/no_robot.yaml is missing'),
    (['lockstep:=true'], 'only of a simulated robot'),
    (['python:=/no/python'], 'no such interpreter'),
])
def test_a_mistake_in_a_deployment_is_told_in_one_line(arguments, told, reach_policy, tmp_path):
    ended = launch('deploy.launch.py', f'policy:={reach_policy}', *arguments, cwd=tmp_path)
    assert ended.returncode == 1
    errors = [line for line in (ended.stdout + ended.stderr).splitlines() if '[ERROR]' in line]
    assert len(errors) == 1 and told in errors[0]
    assert 'Traceback' not in ended.stdout + ended.stderr


@needs_launch
@pytest.mark.nodes
@pytest.mark.parametrize('arguments, prefix', [
    (['namespace:=lab', 'lockstep:=true'], '/lab'),
    (['use_sim_time:=true'], ''),
    ([], ''),
])
def test_ctrl_c_ends_a_deployment(arguments, prefix, reach_policy, tmp_path):
    """Simulated, with and without a namespace and simulated time."""
    settings = tmp_path / 'robot.yaml'
    settings.write_text('/**: {ros__parameters: {sim_robot: {sensor_noise: 0.1}, deploy: '
                        '{state_timeout_s: 2.0, max_deadline_misses: 1000}}}')
    code, seconds, shown = launch_in_terminal(
        f'commands {prefix}/joint_trajectory_controller', *ros2_launch(
            'deploy.launch.py', f'policy:={reach_policy}', f'robot:={settings}', 'sim:=true',
            'ask:=true', 'autostart:=true', *arguments))
    assert code == 0, shown
    # The promise is 5 s; it takes longer where other programs use all cores.
    assert seconds < 10.0 and 'failed to terminate' not in shown, shown
    assert 'Traceback' not in shown and 'finalized' in shown, shown
    assert not processes_of(reach_policy)


@needs_launch
@pytest.mark.parametrize('arguments, told', [
    (['tsk:=reach'], 'did you mean task:=?'),
    (['task:=nix'], "task 'nix' is unknown; there are: reach"),
    (['lockstep:=maybe'], 'lockstep:=maybe: true or false is expected'),
    (['config:=nowhere.yaml'], 'config:=nowhere.yaml: a file is needed'),
    (['config:=wrong.yaml'], 'robot.topic: unknown setting'),
    (['namespace:=a/-b'], 'a ROS namespace is expected'),
    (['python:=/no/python'], 'no such interpreter'),
    (['rviz:=yes'], 'rviz:=yes: true or false is expected'),
])
def test_a_mistake_about_a_simulated_robot_is_told_in_one_line(arguments, told, tmp_path):
    (tmp_path / 'wrong.yaml').write_text('/**: {ros__parameters: {robot: {topic: x}}}')
    ended = launch('sim_robot.launch.py', *arguments, cwd=tmp_path)
    assert ended.returncode == 1
    errors = [line for line in (ended.stdout + ended.stderr).splitlines() if '[ERROR]' in line]
    assert len(errors) == 1 and told in errors[0]
    assert 'Traceback' not in ended.stdout + ended.stderr


@needs_launch
@pytest.mark.nodes
@pytest.mark.parametrize('arguments, told', [
    (['config:=config/robots/quadruped.yaml', 'namespace:=lab'],
     'robot of quadruped_walk: 12 joints, position commands on '
     '/lab/joint_trajectory_controller/joint_trajectory, 1 times real time'),
    (['lockstep:=true'], 'robot of reach: 6 joints, position commands on '
                         '/joint_trajectory_controller/joint_trajectory, in lockstep')])
def test_a_simulated_robot_runs_until_ctrl_c(arguments, told):
    arguments = [argument.replace('config/', f'{ROOT}/config/') for argument in arguments]
    code, seconds, shown = launch_in_terminal(
        'held until the first command', *ros2_launch('sim_robot.launch.py', *arguments))
    assert code == 0 and told in shown, shown
    assert seconds < 10.0 and 'Traceback' not in shown, shown

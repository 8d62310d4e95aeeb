"""What the launch files share: arguments, messages, commands; no launch and no ROS needed."""

import subprocess
import sys
import types

import pytest

from asyncppo_ros import launching
from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError, MissingDependency, RunError, UserError
from asyncppo_ros.run import create, resolve

VALUES = {'task': 'cartpole_swingup', 'config': '', 'num_actors': '1', 'num_envs': '0',
          'env_steps': '0', 'seed': '-1', 'run_dir': '', 'resume': '', 'python': sys.executable}


@pytest.fixture
def given(monkeypatch):
    """Set the command line of `ros2 launch`, and check no nodes: that takes seconds."""
    monkeypatch.setattr(launching, 'check_nodes', lambda python, config: None)

    def give(**arguments):
        monkeypatch.setattr(sys, 'argv', ['ros2', 'launch', 'asyncppo_ros', 'train.launch.py', *(
            f'{name}:={value}' for name, value in arguments.items())])
        return {**VALUES, **arguments}
    give()
    return give


def context(**arguments):
    return types.SimpleNamespace(launch_configurations=arguments)


def test_an_unknown_argument_is_refused_with_the_nearest_known_one(given):
    given(tsk='reach')
    with pytest.raises(ConfigError, match='tsk:= is not an argument.*did you mean task:='):
        launching.check_arguments(context(tsk='reach'), ['task', 'config'])
    given(zzz='1')
    with pytest.raises(ConfigError, match='there are task, config'):
        launching.check_arguments(context(), ['task', 'config'])
    given(task='reach')
    launching.check_arguments(context(), ['task', 'config'])


@pytest.mark.parametrize('value', ['abc', '-5', '1.5', '0x1', '', '²'])
def test_a_count_is_a_whole_number(value):
    with pytest.raises(ConfigError, match='num_envs:='):
        launching.count_of('num_envs', value)


def test_counts_and_flags():
    assert launching.count_of('num_actors', 'auto') == '0'
    assert launching.count_of('num_actors', '12') == '12'
    assert launching.flag_of('rqt', 'True') and not launching.flag_of('rqt', 'false')
    with pytest.raises(ConfigError, match='rqt:=maybe: true or false'):
        launching.flag_of('rqt', 'maybe')


@pytest.mark.parametrize('value', ['asyncppo', '/asyncppo/', 'lab/asyncppo_2', '', '/', 'a_'])
def test_namespaces_that_ros_takes(value):
    assert launching.namespace_of('namespace:=', value) == value.strip('/')


@pytest.mark.parametrize('value', ['a/-b', '1a', 'a//b', 'a__b', 'a b', 'ä', '~/a'])
def test_namespaces_that_ros_refuses(value):
    with pytest.raises(ConfigError, match='a ROS namespace is expected'):
        launching.namespace_of('namespace:=', value)


def test_a_file_is_needed(tmp_path):
    with pytest.raises(ConfigError, match='config:=: a file is needed'):
        launching.needed_file('config', '')
    with pytest.raises(ConfigError, match='a file is needed'):
        launching.needed_file('config', str(tmp_path))


def test_a_run_is_made_with_the_settings_that_were_given(tmp_path, given):
    run = launching.open_run(given(task='cartpole_swingup', run_dir=str(tmp_path / 'run'),
                                   env_steps='5000', num_envs='8', num_actors='1', seed='7'))
    config = run.config()
    assert (config.task, config.env_steps, config.actor.num_envs, config.num_actors,
            config.seed) == ('cartpole_swingup', 5000, 8, 1, 7)
    run.lock()


def test_messages_speak_of_launch_arguments(tmp_path, given):
    folder = tmp_path / 'run'
    values = given(task='cartpole_swingup', run_dir=str(folder))
    launching.open_run(values)
    with pytest.raises(RunError, match=f'continue it with resume:={folder} or choose') as caught:
        launching.open_run(values)
    assert '--' not in str(caught.value)
    with pytest.raises(RunError, match='^resume:=nowhere: no run there'):
        launching.open_run(given(resume='nowhere'))
    with pytest.raises(RunError, match='^resume:= and run_dir:= exclude each other'):
        launching.open_run(given(resume=str(folder), run_dir='x'))


def test_a_run_in_use_keeps_its_settings(tmp_path, given):
    run = launching.open_run(given(task='cartpole_swingup', run_dir=str(tmp_path / 'run')))
    before = run.config_file.read_bytes()
    run.lock()
    with pytest.raises(RunError, match='in use by process'):
        launching.open_run(given(resume=str(run.folder), env_steps='9'))
    assert run.config_file.read_bytes() == before


def test_nothing_is_left_where_the_task_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, 'argv', ['ros2', 'launch', 'task:=nix'])
    monkeypatch.setattr(launching, 'NEEDED', ())
    folder = tmp_path / 'run'
    with pytest.raises(UserError, match=r'\bnix\b|is missing from'):
        launching.open_run({**VALUES, 'task': 'nix', 'run_dir': str(folder)})
    assert not folder.exists()


def test_an_interpreter_that_does_not_exist_is_named(given, monkeypatch):
    monkeypatch.undo()
    with pytest.raises(MissingDependency, match='python:=/no/python: no such interpreter'):
        launching.check_nodes('/no/python', Config())


def test_the_command_of_a_node_runs():
    command = launching.node_command(sys.executable, 'learner', ['--x'])
    assert command[-5:] == [sys.executable, '-m', 'asyncppo_ros.nodes.main', 'learner', '--x']
    # What stands before the interpreter must hand over to it.
    front = command[:command.index(sys.executable)]
    assert subprocess.run([*front, sys.executable, '-c', 'print(1)'],
                          capture_output=True).stdout.strip() == b'1'


def test_a_run_is_done_when_all_its_steps_are(tmp_path):
    run, config = create(resolve({'task': 'cartpole_swingup', 'env_steps': 100,
                                  'run_dir': str(tmp_path / 'run')}))
    assert not launching.is_done(run)
    run.metrics_file.write_text('{"env_steps": 64}\n')
    assert not launching.is_done(run)
    run.metrics_file.write_text('{"env_steps": 64}\n{"env_steps": 128}\n')
    assert launching.is_done(run)

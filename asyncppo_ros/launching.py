"""
What the launch files share with `asyncppo train`: everything checked before a process starts.

Neither torch nor launch is imported here.
"""

from collections.abc import Mapping, Sequence
import difflib
import functools
import importlib.util
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
from typing import Any, Protocol
import zlib

from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError, MissingDependency, RunError, UserError
from asyncppo_ros.learning.jsonl import read_jsonl
from asyncppo_ros.nodes.process import child_environment, guarded, HINTS, StopRequest
from asyncppo_ros.run import create, num_actors, resolve, resume, Run
from asyncppo_ros.settings import build, read_yaml, to_dict
from asyncppo_ros.tools.auto import settled

# What a node of a training needs.
NEEDED = ('rclpy', 'torch', 'mujoco', 'zmq', 'safetensors')
# Numbers of actors that belong to one host; the learner's own host begins at 0.
ACTORS_PER_HOST = 1000
# A task of the user may build something large; a check that hangs must not hang the launch.
CHECK_S = 120.0
# As ROS 2 has it: tokens of letters, digits and single underscores, none begins with a digit.
NAMESPACE = re.compile(r'/?([A-Za-z](_?[A-Za-z0-9])*_?)(/[A-Za-z](_?[A-Za-z0-9])*_?)*/?|/?')


class Context(Protocol):
    """The part of `launch.LaunchContext` that is needed."""

    launch_configurations: Mapping[str, str]


def check_arguments(context: Context, known: Sequence[str]) -> None:
    """
    Refuse launch arguments that are not declared: ros2 launch itself ignores them.

    Raises
    ------
    ConfigError
        Names the argument and what exists.

    """
    # ros2 launch keeps some of its own under names with a dot or a leading underscore.
    given = command_line_arguments()
    for name in given or context.launch_configurations:
        if name not in known and (given or '.' not in name):
            close = difflib.get_close_matches(name, known, n=1)
            hint = f'did you mean {close[0]}:=?' if close else f'there are {", ".join(known)}'
            raise ConfigError(f'{name}:= is not an argument of this launch file; {hint}')


def command_line_arguments(arguments: Sequence[str] | None = None) -> list[str]:
    """Give the names of the ``name:=value`` arguments of this process."""
    given = sys.argv[1:] if arguments is None else arguments
    return [argument.partition(':=')[0] for argument in given if ':=' in argument]


def value_of(context: Context, name: str) -> str:
    """Give the value of a launch argument."""
    return context.launch_configurations[name]


def needed_file(name: str, value: str) -> str:
    """
    Check that a launch argument names a file.

    Raises
    ------
    ConfigError
        It is empty or there is no such file.

    """
    if not value or not pathlib.Path(value).is_file():
        raise ConfigError(f'{name}:={value}: a file is needed, for example '
                          'runs/latest/config.yaml')
    return str(pathlib.Path(value).absolute())


def count_of(name: str, value: str) -> str:
    """
    Check that a launch argument is a whole number, or auto, which is 0.

    Raises
    ------
    ConfigError
        It is neither.

    """
    if value == 'auto':
        return '0'
    if not re.fullmatch('[0-9]+', value):
        raise ConfigError(f'{name}:={value}: a whole number or auto is expected')
    return value


def flag_of(name: str, value: str) -> bool:
    """
    Check that a launch argument is true or false.

    Raises
    ------
    ConfigError
        It is neither.

    """
    if value.lower() not in ('true', 'false'):
        raise ConfigError(f'{name}:={value}: true or false is expected')
    return value.lower() == 'true'


def namespace_of(name: str, value: str) -> str:
    """
    Check that an argument is a ROS namespace: rcl tells a bad one with a traceback.

    Parameters
    ----------
    name : str
        As it was given, ``namespace:=`` or ``--namespace ``.
    value : str

    Returns
    -------
    str
        Without slashes at its ends.

    Raises
    ------
    ConfigError
        It is none.

    """
    if not NAMESPACE.fullmatch(value):
        raise ConfigError(f'{name}{value}: a ROS namespace is expected, such as asyncppo or '
                          'lab/asyncppo: letters, digits and underscores, and no digit in front')
    return value.strip('/')


def config_of(name: str, value: str) -> Config:
    """
    Read the settings of a run from the file that a launch argument names.

    Raises
    ------
    ConfigError
        There is no such file, or a setting in it is wrong.

    """
    return build(Config, read_yaml(needed_file(name, value)))


def open_run(values: Mapping[str, str]) -> Run:
    """
    Make or open the folder of the run that a launch file was asked for.

    Raises
    ------
    UserError
        As `run.create` and `run.resume`; an argument is not a number; the task does not work.

    """
    try:
        return _open_run(values)
    except UserError as error:
        raise type(error)(as_launch_arguments(str(error), values)) from None


def _open_run(values: Mapping[str, str]) -> Run:
    given: dict[str, Any] = {}
    if values['num_actors'] not in ('', 'auto'):
        given['num_actors'] = int(count_of('num_actors', values['num_actors']))
    for name, setting in (('num_envs', 'actor.num_envs'), ('env_steps', 'env_steps')):
        if values[name] != '0':
            given[setting] = int(count_of(name, values[name]))
    if values['seed'] != '-1':
        given['seed'] = int(count_of('seed', values['seed']))
    files = [needed_file('config', values['config'])] if values['config'] else []
    if 'task' in command_line_arguments() or not (files or values['resume']):
        given['task'] = values['task']
    if values['resume']:
        return _resume(values, given, files)
    if values['run_dir']:
        given['run_dir'] = values['run_dir']
    config = resolve(given, files)
    check_lag(config)
    # Before the folder is made: a mistake leaves nothing behind.
    check_nodes(values['python'], config)
    config = _settled(values['python'], config)
    num_actors(config)
    return create(config, ['ros2', 'launch', *sys.argv[1:]])[0]


def _resume(values: Mapping[str, str], given: Mapping[str, Any], files: Sequence[str]) -> Run:
    if values['run_dir']:
        raise RunError('--resume and --run_dir exclude each other: a resumed run stays in its '
                       'folder')

    def settle(config: Config) -> Config:
        check_lag(config)
        config = _settled(values['python'], config)
        check_resume(config, values['python'])
        return config

    return resume(values['resume'], given, files, settle)[0]


def _settled(python: str, config: Config) -> Config:
    return settled(config, python, tell=functools.partial(print, file=sys.stderr))


def as_launch_arguments(text: str, values: Mapping[str, str]) -> str:
    """Write the options of the asyncppo command in a message as launch arguments."""
    for name, value in values.items():
        text = text.replace(f'--{name} {value}', f'{name}:={value}') if value else text
        text = re.sub(rf'--{name}\b(?: (?=/))?', f'{name}:=', text)
    return text


def check_nodes(python: str, config: Config, needed: Sequence[str] = NEEDED) -> None:
    """
    Try the interpreter of the nodes, its libraries and the task, in a process of its own.

    Parameters
    ----------
    python : str
        The interpreter.
    config : Config
        Its task is tried.
    needed : sequence of str
        The libraries.

    Raises
    ------
    UserError
        One line says what is missing or wrong.

    """
    _try(python, ['asyncppo_ros.launching', config.task, str(config.seed), *needed], config)


def check_resume(config: Config, python: str = sys.executable, nodes: bool = True) -> None:
    """
    Let the learner of a run begin to go on with it, in a process of its own that ends there.

    Parameters
    ----------
    config : Config
        The settings that it is to go on with.
    python : str
        The interpreter of the learner.
    nodes : bool
        It is a node; else it trains in one process.

    Raises
    ------
    UserError
        One line says why it cannot.

    """
    num_actors(config)
    _try(python, ['asyncppo_ros.rehearsal', config.run_dir, *(() if nodes else ('--local',))],
         config, json.dumps(to_dict(config)))


def _try(python: str, arguments: Sequence[str], config: Config, told: str = '') -> None:
    if shutil.which(python) is None:
        raise MissingDependency(f'python:={python}: no such interpreter')
    try:
        # In a session of its own a Ctrl-C does not reach it: launch ends when it has ended.
        check = subprocess.run(
            [python, '-m', *arguments], input=told, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, errors='replace', start_new_session=True,
            timeout=CHECK_S, env=child_environment())
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f'python:={python}: {error}') from None
    if check.returncode == 0:
        return
    lines = check.stderr.strip().splitlines() or [f'exit code {check.returncode}']
    if check.returncode == 2:
        raise UserError(lines[-1].removeprefix('check: '))
    if 'asyncppo_ros' in lines[-1] and 'No module' in lines[-1]:
        raise MissingDependency(f'asyncppo_ros is missing from {python}: source '
                                'install/setup.bash, or pip install it there')
    # A fault in code of the user: its traceback is what helps.
    print(check.stderr, file=sys.stderr)
    raise UserError(f'task {config.task} does not work: {lines[-1]}')


def require(names: Sequence[str]) -> None:
    """
    Check that libraries are there, without importing them.

    Raises
    ------
    MissingDependency
        Names the library, this interpreter, and the fix.

    """
    for name in names:
        if sys.modules.get(name, True) is None or importlib.util.find_spec(name) is None:
            raise MissingDependency(f'{name} is missing from {sys.executable}: {HINTS[name]}')


def first_actor_id(host: str = '') -> int:
    """Give the number of the first actor of a host (this one) that is not the learner's."""
    number = zlib.crc32((host or socket.gethostname()).encode()) % 1_000_000 + 1
    return number * ACTORS_PER_HOST


def check_task(task: str, seed: int) -> None:
    """
    Try a task before anything is started with it.

    Raises
    ------
    TaskError
        It is unknown or faulty.

    """
    from asyncppo_ros.simulation.registry import check, make
    environment = make(task, 2, seed, privileged=True)
    check(environment)
    environment.close()


def check_lag(config: Config) -> None:
    """
    Refuse injected lag where lag comes about by itself.

    Raises
    ------
    ConfigError
        A setting of `injected_lag` is given.

    """
    for name, value in vars(config.injected_lag).items():
        if value:
            raise ConfigError(f'injected_lag.{name} = {value}: must be 0 in an asynchronous '
                              'training; only `asyncppo train-local` injects lag')


def check_keys(keys: str) -> None:
    """
    Try the keys of a run before anything is started with them.

    Raises
    ------
    ConfigError
        A file is missing, malformed, or a secret that others can read.

    """
    if keys:
        from asyncppo_ros.robot.signing import signing_key
        from asyncppo_ros.transport.keys import actor_keys, learner_keys
        learner_keys(keys)
        actor_keys(keys)
        signing_key(keys)


def node_command(python: str, name: str, arguments: Sequence[str]) -> list[str]:
    """
    Give the command line of one process of a run.

    A Ctrl-C in the first moments would end Python with a traceback before the process has its
    handlers: where `env` can, it is held back until `StopRequest.install` lifts the mask.
    """
    command = [python, '-m', 'asyncppo_ros.nodes.main', name, *arguments]
    hold = ['env', '--block-signal=INT', '--block-signal=TERM']
    try:
        able = subprocess.run([*hold, 'true'], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              timeout=5.0).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        able = False
    return [*hold, *command] if able else command


def is_done(run: Run) -> bool:
    """Say whether a run has consumed all its steps; one that was stopped has not."""
    if not run.metrics_file.exists():
        return False
    rows = read_jsonl(run.metrics_file)
    return bool(rows) and rows[-1].get('env_steps', 0) >= run.config().env_steps


def added_environment() -> dict[str, str]:
    """Give what the processes of a run need beyond the environment of this one."""
    return {key: value for key, value in child_environment().items()
            if os.environ.get(key) != value}


def main(arguments: Sequence[str]) -> int:
    """
    Check that this interpreter has libraries and can simulate a task.

    ``python -m asyncppo_ros.launching TASK SEED LIBRARY...``; without any, those of a training.

    Returns
    -------
    int
        0; 2 with one line on stderr for a user's mistake; 1 with a traceback for a fault.

    """
    StopRequest().install()
    task, seed, *needed = arguments

    def body() -> None:
        require(needed or NEEDED)
        # Without MuJoCo there is nothing to try: a robot runs policies alone.
        if 'mujoco' in (needed or NEEDED):
            check_task(task, int(seed))

    return guarded(body, 'check')


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))

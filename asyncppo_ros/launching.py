"""What the launch files share: their arguments checked, the run opened.  No torch, no launch."""

from collections.abc import Mapping, Sequence
import difflib
import pathlib
import sys
from typing import Any, Protocol

from asyncppo_ros.errors import ConfigError
from asyncppo_ros.run import create, num_actors, resolve, resume, Run


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
    if not value.isdigit():
        raise ConfigError(f'{name}:={value}: a whole number or auto is expected')
    return value


def open_run(values: Mapping[str, str]) -> Run:
    """
    Make or open the folder of the run that a launch file was asked for.

    Raises
    ------
    UserError
        As `run.create` and `run.resume`; an argument is not a number.

    """
    given: dict[str, Any] = {}
    if values['num_actors'] not in ('', 'auto'):
        given['num_actors'] = int(count_of('num_actors', values['num_actors']))
    for name, setting in (('num_envs', 'actor.num_envs'), ('env_steps', 'env_steps')):
        if values[name] != '0':
            given[setting] = int(count_of(name, values[name]))
    if values['seed'] != '-1':
        given['seed'] = int(count_of('seed', values['seed']))
    files = [needed_file('config', values['config'])] if values['config'] else []
    if values['resume']:
        return resume(values['resume'], given, files)[0]
    if 'task' in command_line_arguments() or not files:
        given['task'] = values['task']
    if values['run_dir']:
        given['run_dir'] = values['run_dir']
    config = resolve(given, files)
    num_actors(config)
    run, _ = create(config, ['ros2', 'launch', *sys.argv[1:]])
    run.lock()
    run.unlock()
    return run

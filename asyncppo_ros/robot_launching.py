"""
What the launch files of robots check before a process starts.

Neither mujoco nor launch is imported here.
"""

from collections.abc import Mapping, Sequence
import os
import pathlib
import xml.etree.ElementTree as ElementTree

from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError, MissingDependency
from asyncppo_ros.launching import flag_of, needed_file
from asyncppo_ros.resources import find
from asyncppo_ros.run import resolve

# What a simulated robot needs.
NEEDED = ('rclpy', 'mujoco')
# The URDF files of the package's own robots, by task.
URDFS = {'reach': 'models/reach_arm.urdf', 'quadruped_walk': 'models/quadruped.urdf'}


def sim_robot_settings(values: Mapping[str, str]) -> tuple[Config, list[str]]:
    """
    Bring together what a simulated robot was asked to be.

    Parameters
    ----------
    values : mapping from str to str
        The launch arguments ``task``, ``config`` and ``lockstep``; empty ones say nothing.

    Returns
    -------
    Config
    list of str
        The same for the node, behind ``--ros-args``.

    Raises
    ------
    ConfigError
        A file does not exist, or a setting is wrong.

    """
    given: dict[str, object] = {}
    if values['task']:
        given['task'] = values['task']
    if values['lockstep']:
        given['sim_robot.lockstep'] = flag_of('lockstep', values['lockstep'])
    files = [needed_file('config', values['config'])] if values['config'] else []
    arguments = [text for file in files for text in ('--params-file', file)]
    for name, value in given.items():
        arguments += ['-p', f'{name}:={str(value).lower() if isinstance(value, bool) else value}']
    return resolve(given, files), arguments


def description_of(config: Config) -> str:
    """
    Read the URDF of a robot: the file ``robot.urdf``, else that of the package.

    Raises
    ------
    ConfigError
        There is none.

    """
    file = config.robot.urdf or URDFS.get(config.task, '')
    if not file:
        raise ConfigError(f'task {config.task}: no URDF is known of its robot; set robot.urdf to '
                          'its file')
    path = pathlib.Path(config.robot.urdf) if config.robot.urdf else find(file)
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f'robot.urdf = {path}: {error}') from error


def root_link(urdf: str) -> str:
    """
    Find the link that is no joint's child.

    Raises
    ------
    ConfigError
        The text is no URDF.

    """
    try:
        root = ElementTree.fromstring(urdf)
    except ElementTree.ParseError as error:
        raise ConfigError(f'robot.urdf: not XML: {error}') from error
    children = {child.get('link') for child in root.findall('joint/child')}
    for link in root.findall('link'):
        name = link.get('name')
        if name and name not in children:
            return name
    raise ConfigError('robot.urdf: it has no link to begin with')


def require_packages(argument: str, names: Sequence[str]) -> None:
    """
    Check that ROS packages are installed.

    Raises
    ------
    MissingDependency
        Names the first that is not, and the fix.

    """
    prefixes = os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep)
    for name in names:
        marker = pathlib.Path('share', 'ament_index', 'resource_index', 'packages', name)
        if not any(prefix and (prefix / marker).is_file() for prefix in prefixes):
            distro = os.environ.get('ROS_DISTRO', 'DISTRO')
            raise MissingDependency(f'{argument}:=true: the ROS package {name} is missing: apt '
                                    f'install ros-{distro}-{name.replace("_", "-")}')

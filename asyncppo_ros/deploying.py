"""
What deploy.launch.py checks before a process starts, and with what it starts the nodes.

Neither torch nor launch is imported here.
"""

from collections.abc import Mapping
import dataclasses
import json
import pathlib
from typing import Any

from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError, UserError
from asyncppo_ros.launching import check_nodes, flag_of
from asyncppo_ros.policy_files import policy_file
from asyncppo_ros.resources import find
from asyncppo_ros.robot.artefact import read_artefact
from asyncppo_ros.robot.needs import needs_of
from asyncppo_ros.robot.signing import signing_key
from asyncppo_ros.robot_launching import NEEDED
from asyncppo_ros.settings import build, read_yaml, without_ros_own

# What the policy node needs.
ON_ROBOT = ('rclpy', 'numpy', 'yaml')
# What the evaluator of a run tells, beside the run's policies.
EVALUATION = 'evaluator/evaluation'


@dataclasses.dataclass(frozen=True)
class Plan:
    """
    The nodes of a deployment.

    Attributes
    ----------
    policy : list of str
        ROS arguments of the policy node, without its namespace.
    robot : list of str or None
        Those of the simulated robot; None where the robot is real.

    """

    policy: list[str]
    robot: list[str] | None


def plan(values: Mapping[str, str]) -> Plan:
    """
    Check the arguments of deploy.launch.py.

    Parameters
    ----------
    values : mapping from str to str
        Every argument of the launch file.

    Raises
    ------
    UserError
        One line says what is missing or wrong.

    """
    simulated = flag_of('sim', values['sim'])
    for name in ('task', 'lockstep', 'ask'):
        if not simulated and values[name] not in ('', 'false'):
            raise ConfigError(f'{name}:={values[name]}: only of a simulated robot, sim:=true')
    lockstep = flag_of('lockstep', values['lockstep'])
    file = robot_file(values['robot'])
    config = config_of(file)
    try:
        path = policy_file(values['policy'])
        card = read_artefact(path, signing_key(config.transport.keys)).card['task']
        needs_of(card)
    except UserError as error:
        raise type(error)(f'policy:={values["policy"]}: {error}') from None
    clocked = sim_time_of(values['use_sim_time'], simulated, lockstep)
    settings = ['--params-file', str(file)] if file else []
    policy = [*settings, '-p', f'use_sim_time:={json.dumps(clocked)}',
              '-p', f'deploy.policy:={json.dumps(str(path))}',
              '-p', f'deploy.autostart:={json.dumps(flag_of("autostart", values["autostart"]))}',
              *live(values['policy_topic'])]
    if not simulated:
        check_nodes(values['python'], config, ON_ROBOT)
        return Plan(policy, None)
    task = values['task'] or str(card['task'])
    check_nodes(values['python'], build(Config, {'task': task}), NEEDED)
    flags = {'sim_robot.lockstep': lockstep, 'sim_robot.ask': flag_of('ask', values['ask']),
             'sim_robot.publish_clock': clocked}
    # The robot itself makes the time, so it does not live by it.
    robot = [*settings, '-p', 'use_sim_time:=false', '-p', f'task:={json.dumps(task)}']
    for name, value in flags.items():
        if value:
            robot += ['-p', f'{name}:=true']
    return Plan(policy, robot)


def robot_file(value: str) -> pathlib.Path | None:
    """
    Find the settings of a robot: a file, or the name of one in the package's ``config/robots``.

    Raises
    ------
    UserError
        There is none.

    """
    if not value:
        return None
    path = pathlib.Path(value).expanduser()
    if path.is_file():
        return path.absolute()
    if path.suffix or len(path.parts) > 1:
        raise ConfigError(f'robot:={value}: there is no such file')
    return find(f'config/robots/{value}.yaml')


def config_of(file: pathlib.Path | None) -> Config:
    """
    Read the settings of a robot, to find mistakes in them.

    Raises
    ------
    ConfigError
        As `settings.build`.

    """
    if file is None:
        return Config()
    try:
        return build(Config, without_ros_own(read_yaml(file)))
    except ConfigError as error:
        raise ConfigError(f'robot:={file}: {error}') from None


def sim_time_of(value: str, simulated: bool, lockstep: bool) -> bool:
    """
    Say whether the nodes live by ``/clock``; auto = where the simulated robot is in lockstep.

    Raises
    ------
    ConfigError
        Lockstep without it, or no truth value.

    """
    clocked = simulated and lockstep if value == 'auto' else flag_of('use_sim_time', value)
    if lockstep and not clocked:
        raise ConfigError('use_sim_time:=false: must be true in lockstep, where time stands still '
                          'between control steps')
    return clocked


def live(topic: str) -> list[str]:
    """Give what makes the policy node take policies from a topic, and the evaluations beside."""
    if not topic:
        return []
    namespace = topic.rpartition('/')[0]
    evaluation = f'{namespace}/{EVALUATION}' if namespace or topic.startswith('/') else EVALUATION
    arguments: list[Any] = ['-p', 'deploy.live:=true', '-r', f'policy:={topic}',
                            '-r', f'{EVALUATION}:={evaluation}']
    return arguments

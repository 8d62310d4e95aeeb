"""
Actor process: a ROS 2 node where policies come from the topic, else a plain process.

With ``transport.policies: zmq`` rclpy is never imported, so that any host with MuJoCo and ZeroMQ
can collect; from a robot only a node can.  The command line is that of a node in both cases.
"""

import argparse
from collections.abc import Sequence
import os
import signal
import sys
from typing import Any

from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.nodes.process import die_with_parent, StopRequest, SupervisorHeartbeat
from asyncppo_ros.run import check_source, resolve
from asyncppo_ros.settings import read_yaml, without_ros_own

# The learner goes first where cores are few: the sooner its update ends, the sooner every actor
# has its next permit.  Otherwise an actor may take the core that all others wait for.
NICENESS = 5


def run(arguments: list[str], stop: StopRequest) -> int:
    """Run an actor until it is stopped."""
    own, ros = split_ros_arguments(arguments)
    parser = argparse.ArgumentParser(prog='actor_node', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--actor-id', type=int, default=0,
                        help='number of this actor, unique in the run (default 0)')
    actor_id = parser.parse_args(own).actor_id
    given = given_settings(ros)
    # A robot waits for nobody, and is reached by ROS wherever the policies come from.
    if given.get('actor.source') == 'robot':
        # Even where the supervisor dies the robot is to be stopped in good order.
        die_with_parent(signal.SIGTERM)
    else:
        os.nice(NICENESS)
        if given.get('transport.policies') == 'zmq':
            config = resolve(given)
            check_source(config)
            return _collect_without_ros(config, actor_id, stop)
    stop.loading = True
    from asyncppo_ros.nodes import actor_node
    stop.loading = False
    return actor_node.run(actor_id, arguments, stop)


def split_ros_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate what stands between ``--ros-args`` and ``--`` from the rest."""
    own: list[str] = []
    ros: list[str] = []
    within = False
    for argument in arguments:
        if argument == '--ros-args':
            within = True
        elif within and argument == '--':
            within = False
        else:
            (ros if within else own).append(argument)
    return own, ros


def given_settings(ros: Sequence[str]) -> dict[str, Any]:
    """
    Read the settings in ROS arguments, as rcl would: later ones win.

    Raises
    ------
    ConfigError
        A file cannot be read, or a parameter has no value.

    """
    import yaml
    given: dict[str, Any] = {}
    for option, value in zip(ros, ros[1:]):
        if option == '--params-file':
            given.update(read_yaml(value))
        elif option in ('-p', '--param'):
            name, separator, text = value.partition(':=')
            if not separator:
                raise ConfigError(f'-p {value}: expected -p NAME:=VALUE')
            # In rcl's full form a node stands before the name: node:name:=value.
            given[name.rpartition(':')[2]] = yaml.safe_load(text)
    return without_ros_own(given)


def _collect_without_ros(config: Config, actor_id: int, stop: StopRequest) -> int:
    stop.loading = True
    from asyncppo_ros.acting.actor import Actor
    from asyncppo_ros.robot.signing import signing_key
    from asyncppo_ros.transport.policy_fetch import ZmqPolicySubscriber
    stop.loading = False
    key = signing_key(config.transport.keys)

    def warn(text: str) -> None:
        print(f'actor {actor_id}: {text}', file=sys.stderr, flush=True)

    Actor(config, actor_id, lambda sender: ZmqPolicySubscriber(sender, key, warn), stop,
          SupervisorHeartbeat().beat, warn).collect()
    return 0

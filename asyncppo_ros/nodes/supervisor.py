"""
Supervisor: owns the actor processes of one host.

Starts them, restarts those that die (with a growing pause), kills the hung, gives up on one that
keeps dying, and takes all of them along when it ends.  Where ``num_actors`` is auto their number
follows the load.
"""

import argparse
from collections.abc import Callable, Sequence
import sys
import time
from typing import Any, Protocol

from asyncppo_ros.config import Config, TransportConfig
from asyncppo_ros.errors import UserError
from asyncppo_ros.nodes.actor_process import Actor, say, STOP_S
from asyncppo_ros.nodes.actor_states import StatesRecord
from asyncppo_ros.nodes.load_following import following
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.run import check_source, num_actors
from asyncppo_ros.settings import build, read_yaml, without_ros_own

POLL_S = 0.1
# What an actor with a robot is, whatever the settings of the run say.
ONE_ROBOT = {'actor.source': 'robot', 'actor.num_envs': 1}


def robot_settings(file: str) -> dict[str, Any]:
    """
    Read what a file of a robot changes in the settings of a run; '' = no robot.

    Raises
    ------
    ConfigError
        It cannot be read.

    """
    if not file:
        return {}
    # What is ROS's own the node reads from the file.
    return {**without_ros_own(read_yaml(file)), **ONE_ROBOT}


class Owned(Protocol):
    """What is supervised: an `Actor`, or one of a Ray cluster."""

    finished: bool
    quarantined: str
    exit_code: int | None

    def tend(self, now: float) -> None:
        """Do whatever is due at a steady time [s]."""

    def stop(self) -> None:
        """Ask it to end."""

    def wait(self, seconds: float) -> None:
        """Wait for its end, then end it."""


def supervise(actors: Sequence[Owned], stop: StopRequest,
              changed: Callable[[], None] = lambda: None) -> int:
    """
    Tend actors until they have finished or are asked to stop.

    Parameters
    ----------
    actors : sequence of Owned
    stop : StopRequest
    changed : callable
        Called after each look at the actors.

    Returns
    -------
    int
        0; 2 when an actor found a user's mistake; 1 when every actor had to be given up.

    """
    while not stop():
        now = time.monotonic()
        for actor in actors:
            actor.tend(now)
        changed()
        if any(actor.quarantined and actor.exit_code == 2 for actor in actors):
            return 2
        if all(actor.finished or actor.quarantined for actor in actors):
            return 1 if all(actor.quarantined for actor in actors) else 0
        stop.wait(POLL_S)
    return 0


def supervise_to_the_end(actors: Sequence[Owned], stop: StopRequest, record: StatesRecord,
                         stop_s: float, follow: Callable[[], None] = lambda: None) -> int:
    """
    Tend actors, see `supervise`, note their states, and take them along at the end.

    Parameters
    ----------
    actors : sequence of Owned
    stop : StopRequest
    record : StatesRecord
    stop_s : float
        Time that all of them have to end [s].
    follow : callable
        Called after each look at the actors; it may change how many there are.

    """
    def changed() -> None:
        follow()
        record.update()

    try:
        return supervise(actors, stop, changed)
    finally:
        for actor in actors:
            actor.stop()
        deadline = time.monotonic() + stop_s
        for actor in actors:
            actor.wait(deadline - time.monotonic())
        record.update()


def run(arguments: list[str], stop: StopRequest) -> int:
    """Run the supervisor of this host."""
    parser = argparse.ArgumentParser(
        prog='supervisor', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--params-file', required=True, help='settings of the run (config.yaml)')
    parser.add_argument('--namespace', default='asyncppo', help='ROS namespace of the run')
    parser.add_argument('--num-actors', type=int, default=0, help='0 = as the settings say')
    parser.add_argument('--by-cores', action='store_true',
                        help='start as many actors as the cores of this host have room for: the '
                        'settings say how many the host of the learner has')
    parser.add_argument('--first-actor-id', type=int, default=0,
                        help='number of the first actor; unique over all hosts of a run')
    parser.add_argument('--address', default='',
                        help='of the learner, where it is not as in the settings')
    parser.add_argument('--keys', default='',
                        help='folder of the keys, where it is not as in the settings')
    parser.add_argument('--further', action='store_true',
                        help='the learner is started by others: say so where it does not answer')
    parser.add_argument('--robot', default='',
                        help='settings of a robot: the one actor collects from it')
    own = parser.parse_args(arguments)
    robot = robot_settings(own.robot)
    by_cores = {'num_actors': 0, 'actors_at_start': 0} if own.by_cores else {}
    config = build(Config, {**read_yaml(own.params_file), **by_cores, **robot})
    check_source(config)
    count = own.num_actors or num_actors(config)
    if count < 1:
        raise UserError(f'--num-actors {own.num_actors}: must be at least 1, or 0 (auto)')
    if count > 1 and config.actor.source == 'robot':
        raise UserError(f'--num-actors {own.num_actors}: must be 1 where actor.source = robot')
    ros = ['--ros-args', '--params-file', own.params_file,
           '-r', f'__ns:=/{own.namespace.strip("/")}']
    if own.robot:
        ros += ['--params-file', own.robot]
        ros += [text for name, value in ONE_ROBOT.items() for text in ('-p', f'{name}:={value}')]
    place = {name: value for name, value in (('transport.address', own.address),
                                             ('transport.keys', own.keys)) if value}
    ros += [text for name, value in place.items() for text in ('-p', f'{name}:={value}')]
    if own.further:
        _look_for_learner(build(Config, {**read_yaml(own.params_file), **place}).transport)
    command = [sys.executable, '-m', 'asyncppo_ros.nodes.main', 'actor', *ros]
    hung_after = 2.0 * config.transport.heartbeat_timeout_s

    def make(index: int) -> Actor:
        return Actor(own.first_actor_id + index, command, hung_after, config.actor.max_crashes)

    actors = [make(index) for index in range(count)]
    # On a further host neither the metrics are seen nor what the other supervisors do.
    follow = None if own.num_actors or own.by_cores or own.further else following(
        config, actors, make, say)
    say(f'{count} actors, {config.actor.num_envs} environments each'
        + (f'; up to {follow.most} as the load asks for' if follow is not None else ''))
    return supervise_to_the_end(actors, stop, StatesRecord(
        config.run_dir, own.first_actor_id, lambda: [actor.state for actor in actors], say),
        STOP_S, follow.look if follow is not None else lambda: None)


def _look_for_learner(transport: TransportConfig) -> None:
    """Find a mistake here, in one line, before it is told by every actor, and later."""
    from asyncppo_ros.robot.signing import signing_key
    from asyncppo_ros.transport.keys import actor_keys
    from asyncppo_ros.transport.reach import why_out_of_reach
    signing_key(transport.keys)
    why = why_out_of_reach(transport.address, actor_keys(transport.keys))
    if why:
        say(f'no learner answers at {transport.address}; still trying; {why}')

"""
Supervisor: owns the actor processes of one host.

Starts them, restarts those that die (with a growing pause), kills the hung, gives up on one that
keeps dying, and takes all of them along when it ends.
"""

import argparse
from collections.abc import Callable, Sequence
import os
import signal
import subprocess
import sys
import time
from typing import Any, Protocol

from asyncppo_ros.config import ActorConfig, Config, TransportConfig
from asyncppo_ros.errors import UserError
from asyncppo_ros.nodes.actor_states import (
    FINISHED,
    QUARANTINED,
    RESTARTING,
    RUNNING,
    StatesRecord,
)
from asyncppo_ros.nodes.process import (
    child_environment,
    HEARTBEAT_VARIABLE,
    how_it_ended,
    signals_held_back,
    StopRequest,
)
from asyncppo_ros.run import check_source, num_actors
from asyncppo_ros.settings import build, read_yaml, without_ros_own

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
# An actor that lived this long is healthy again: its crashes are forgotten.
HEALTHY_S = 60.0
# Imports and the first build of the simulations may take long on a busy machine.
STARTUP_S = 120.0
STACK_DUMP_S = 1.0
STOP_S = 3.0
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


class Actor:
    """
    One actor process and what is known of it.

    Parameters
    ----------
    actor_id : int
    command : list of str
        Without ``--actor-id``.
    hung_after_s : float
        Silence after which it counts as hung [s].
    max_crashes : int
        In a row; then it is quarantined.

    """

    def __init__(self, actor_id: int, command: list[str], hung_after_s: float,
                 max_crashes: int = ActorConfig().max_crashes) -> None:
        self.actor_id = actor_id
        self.finished = False
        self.quarantined = ''
        self.exit_code: int | None = None
        self._command = command
        self._hung_after_s = hung_after_s
        self._max_crashes = max_crashes
        self._crashes = 0
        self._reason = ''
        self._start_at = 0.0
        self._dump_at = 0.0
        self._process: subprocess.Popen | None = None
        self._pipe = -1

    @property
    def pid(self) -> int:
        """Process id; 0 = not running."""
        return self._process.pid if self._process is not None else 0

    @property
    def state(self) -> dict[str, Any]:
        """What `actor_states.write_states` keeps of it."""
        name = (QUARANTINED if self.quarantined else FINISHED if self.finished
                else RUNNING if self._process is not None else RESTARTING)
        return {'actor_id': self.actor_id, 'state': name, 'pid': self.pid,
                'crashes': self._crashes, 'reason': self.quarantined or self._reason}

    def tend(self, now: float) -> None:
        """Start, reap, restart or kill the process, whatever is due."""
        if self.finished or self.quarantined:
            return
        if self._process is None:
            if now >= self._start_at:
                self._start(now)
            return
        self._hear(now)
        code = self._process.poll()
        if code is not None:
            self._reap(code, now)
        elif now > self._silent_until:
            self._kill_hung(now)

    def stop(self) -> None:
        """Ask the process to end."""
        self.finished = True
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float) -> None:
        """Wait for the end, then kill."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            _say(f'actor {self.actor_id} did not end in time: killed')
            self._process.kill()
            self._process.wait()
        self._process = None
        self._close_pipe()

    def _start(self, now: float) -> None:
        read, write = os.pipe()
        os.set_blocking(read, False)
        os.set_blocking(write, False)
        environment = {**child_environment(), HEARTBEAT_VARIABLE: str(write)}
        with signals_held_back():
            self._process = subprocess.Popen(
                [*self._command[:4], '--actor-id', str(self.actor_id), *self._command[4:]],
                env=environment, pass_fds=(write,))
        os.close(write)
        self._pipe = read
        self._started = now
        self._silent_until = now + STARTUP_S
        self._dump_at = 0.0

    def _hear(self, now: float) -> None:
        try:
            if os.read(self._pipe, 4096):
                self._silent_until = now + self._hung_after_s
                self._dump_at = 0.0
        except BlockingIOError:
            pass

    def _reap(self, code: int, now: float) -> None:
        self._close_pipe()
        self._process = None
        self.exit_code = code
        if code == 0:
            self.finished = True
            return
        if code == 2:
            self.quarantined = 'a mistake in its settings or task (its own message is above)'
            _say(f'actor {self.actor_id} gave up: {self.quarantined}')
            return
        self._crashes = 1 if now - self._started > HEALTHY_S else self._crashes + 1
        how = how_it_ended(code)
        self._reason = f'was hung, ended with {how}' if self._dump_at else f'died with {how}'
        if self._crashes >= self._max_crashes:
            self.quarantined = f'{self._crashes} crashes in a row, the last with {how}'
            _say(f'actor {self.actor_id} is not restarted any more: {self.quarantined}')
            return
        pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (self._crashes - 1))
        self._start_at = now + pause
        _say(f'actor {self.actor_id} died with {how}: restarted in {pause:g} s')

    def _kill_hung(self, now: float) -> None:
        assert self._process is not None
        if self._dump_at == 0.0:
            _say(f'actor {self.actor_id} is hung: its stacks follow, then it is killed')
            self._process.send_signal(signal.SIGUSR1)
            self._dump_at = now + STACK_DUMP_S
        elif now >= self._dump_at:
            self._process.kill()

    def _close_pipe(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


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
                         stop_s: float) -> int:
    """
    Tend actors, see `supervise`, note their states, and take them along at the end.

    Parameters
    ----------
    actors : sequence of Owned
    stop : StopRequest
    record : StatesRecord
    stop_s : float
        Time that all of them have to end [s].

    """
    try:
        return supervise(actors, stop, record.update)
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
    by_cores = {'num_actors': 0} if own.by_cores else {}
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
    actors = [Actor(own.first_actor_id + index, command, hung_after, config.actor.max_crashes)
              for index in range(count)]
    _say(f'{count} actors, {config.actor.num_envs} environments each')
    return supervise_to_the_end(actors, stop, StatesRecord(
        config.run_dir, own.first_actor_id, lambda: [actor.state for actor in actors], _say),
        STOP_S)


def _look_for_learner(transport: TransportConfig) -> None:
    """Find a mistake here, in one line, before it is told by every actor, and later."""
    from asyncppo_ros.robot.signing import signing_key
    from asyncppo_ros.transport.keys import actor_keys
    from asyncppo_ros.transport.reach import why_out_of_reach
    signing_key(transport.keys)
    why = why_out_of_reach(transport.address, actor_keys(transport.keys))
    if why:
        _say(f'no learner answers at {transport.address}; still trying; {why}')


def _say(text: str) -> None:
    print(f'supervisor: {text}', file=sys.stderr, flush=True)

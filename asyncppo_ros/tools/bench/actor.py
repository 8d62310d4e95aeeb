"""
``asyncppo bench actor``: env steps per second of an actor, beside a bare loop of `mj_step`.

Ours is all that an actor does in a training: environments, inference with a 64-64 network, the
chunk written and sent, and permits.  A process of its own takes the chunks and gives the permits,
as a learner whose updates take no time.  The ceilings are those of `asyncppo bench env`: the bare
loop makes each chunk's control steps once more, on the same states.  By CPU time the whole
process of the actor counts, the threads of ZeroMQ included.
"""

from collections.abc import Iterator
import contextlib
import functools
import json
import multiprocessing
import sys
from typing import Any

from asyncppo_ros.acting.actor import Actor
from asyncppo_ros.acting.rollout import layout_of, Rollout
from asyncppo_ros.chunk import Identity, Layout
from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError, RunError
from asyncppo_ros.learning.batcher import Batcher
from asyncppo_ros.learning.books import Books
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.settings import build, to_dict
from asyncppo_ros.simulation.environment import Environment
from asyncppo_ros.tools.arguments import Parser, split_settings
from asyncppo_ros.tools.bench.bare_physics import RecordedSimulation, Timer
from asyncppo_ros.tools.bench.beside_physics import (
    Case,
    measure,
    PLANAR,
    SPATIAL,
    summarize,
    text_of,
)
from asyncppo_ros.tools.bench.made_up_policy import made_up_network
from asyncppo_ros.tools.bench.results import report, verdict
from asyncppo_ros.transport.admission import Session
from asyncppo_ros.transport.intake import Intake
from asyncppo_ros.transport.permits import PermitBook
from asyncppo_ros.transport.policy_channel import PolicySubscriber
from asyncppo_ros.transport.receiver import ZmqChunkReceiver
from asyncppo_ros.transport.sender import ZmqChunkSender

# Share of the ceiling that is asked for.
NUM_ENVS = 64
NEEDED = {Case(task, NUM_ENVS): share
          for tasks, share in ((PLANAR, 0.90), (SPATIAL, 0.85)) for task in tasks}
RUN_ID = 1
# Nobody hears of an actor while others are measured.
FOR_EVER_S = 3600.0
_CONNECT_S = 30.0
_PROCESSES = multiprocessing.get_context('forkserver')


def main(arguments: list[str], stop: StopRequest) -> int:
    """Measure, print the table or the JSON object, and compare with what is asked for."""
    parser = Parser(prog='asyncppo bench actor', description=__doc__, allow_abbrev=False,
                    epilog='Settings are given as --name VALUE, for example '
                           '--actor.chunk_length 16; `asyncppo settings` lists them.')
    parser.add_argument('--tasks', nargs='+', default=[*PLANAR, *SPATIAL], metavar='TASK',
                        help='tasks with a MuJoCo model of their own')
    parser.add_argument('--num_envs', nargs='+', type=int, default=[NUM_ENVS],
                        help=f'default {NUM_ENVS}')
    parser.add_argument('--rounds', type=int, default=15, help='default 15')
    parser.add_argument('--seconds', type=float, default=0.3,
                        help='CPU time of ours in each measurement, default 0.3')
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    own, given = split_settings(parser, arguments)
    if own.rounds < 1 or min(own.num_envs) < 1 or own.seconds <= 0.0:
        raise ConfigError(f'--rounds {own.rounds} --num_envs {" ".join(map(str, own.num_envs))} '
                          f'--seconds {own.seconds:g}: must be above 0')
    configs = {Case(task, count): build(Config, {**given, 'task': task, 'actor.num_envs': count})
               for task in own.tasks for count in own.num_envs}
    with contextlib.ExitStack() as stack:
        workers = {case: stack.enter_context(sending(config, stop))
                   for case, config in configs.items()}
        found = measure(workers, own.rounds, own.seconds, stop)
    if found is None:
        return 0
    rows, checks = summarize(found, NEEDED)
    settings = {'rounds': own.rounds, 'seconds': own.seconds,
                **{str(case): to_dict(config) for case, config in list(configs.items())[:1]}}
    result = report(settings, rows, checks=checks,
                    command=['asyncppo', 'bench', 'actor', *arguments])
    print(json.dumps(result, indent=1) if own.json else f'{text_of(rows)}\n\n{verdict(checks)}')
    return 0 if all(entry['passed'] for entry in checks) else 1


@contextlib.contextmanager
def sending(config: Config, stop: StopRequest) -> Iterator['SendingActor']:
    """Give an actor that is connected to a process which takes its chunks."""
    simulation = RecordedSimulation(config.task, config.actor.num_envs)
    snapshot = made_up_snapshot(simulation, config)
    near, far = _PROCESSES.Pipe()
    taker = _PROCESSES.Process(target=take_chunks, daemon=True, args=(
        far, to_dict(config),
        layout_of(simulation, observation_dtype=config.transport.observation_dtype),
        snapshot.identity))
    taker.start()
    far.close()
    try:
        if not near.poll(_CONNECT_S):
            raise RunError(f'the process that takes chunks is not there after {_CONNECT_S:g} s')
        actor = SendingActor(config, simulation, snapshot, near.recv(), stop)
        try:
            yield actor
        finally:
            actor.close()
    finally:
        near.close()
        taker.join(_CONNECT_S)
        taker.kill()


def take_chunks(pipe: Any, settings: dict[str, Any], layout: Layout, identity: Identity) -> None:
    """Take chunks and give permits, until the other end of the pipe is closed."""
    config = build(Config, settings)
    learner, heartbeat_s = config.learner, config.transport.heartbeat_s
    session = Session(RUN_ID, layout, '', heartbeat_s, FOR_EVER_S, learner.batch_size)
    intake = Intake(session, PermitBook(learner.batch_size, learner.target_lag, identity),
                    Batcher(learner.batch_size, learner.max_policy_lag), Books())
    receiver = ZmqChunkReceiver(intake, 'tcp://127.0.0.1:*')
    receiver.start()
    intake.published(identity)
    pipe.send(receiver.address)
    while not pipe.poll():
        if intake.next_batch(identity, 0, 0.05) is not None:
            # With the version unchanged, no policy is outdated and none has to be fetched.
            intake.updated(identity.policy_version)
    receiver.close()


def made_up_snapshot(simulation: Environment, config: Config) -> PolicySnapshot:
    """Give a policy with random weights for a task."""
    architecture, tensors = made_up_network(
        simulation.observation_size, config.policy.hidden_sizes, simulation.action_size)
    return PolicySnapshot.make(
        {'run_id': RUN_ID, 'generation': 0, 'policy_version': 0, 'gradient_steps': 0,
         'env_steps': 0, 'task': simulation.describe(), 'architecture': architecture}, tensors)


class OnePolicy(PolicySubscriber):
    """A policy that is there from the start and stays the newest."""

    run_id = RUN_ID

    def __init__(self, snapshot: PolicySnapshot) -> None:
        self._snapshot = snapshot

    @property
    def newest(self) -> PolicySnapshot:
        """The policy."""
        return self._snapshot

    @property
    def identity(self) -> Identity:
        """Of the policy."""
        return self._snapshot.identity

    def look(self) -> None:
        """Nothing newer arrives."""


class SendingActor(Actor):
    """
    An actor that collects and sends one chunk at a time.

    Parameters
    ----------
    config : Config
    simulation : RecordedSimulation
    snapshot : PolicySnapshot
    address : str
        Where chunks go.
    stop : StopRequest

    Raises
    ------
    RunError
        Nobody answers there, or it refuses this actor.

    """

    def __init__(self, config: Config, simulation: RecordedSimulation, snapshot: PolicySnapshot,
                 address: str, stop: StopRequest) -> None:
        policies = OnePolicy(snapshot)
        super().__init__(config, 0, lambda sender: policies,
                         lambda: stop() or self._sender.next_sequence >= self._goal,
                         beat=lambda: None, warn=functools.partial(print, file=sys.stderr))
        self.simulation = simulation
        self._policies = policies
        greeting = self._greeting()
        self._sender = ZmqChunkSender(address, greeting, kind=config.transport.kind,
                                      slots=self._slots(greeting))
        self._goal = 1
        if not self._sender.connect(_CONNECT_S):
            raise RunError(f'no answer at {address} in {_CONNECT_S:g} s')
        self._rollout = Rollout(simulation, config.actor.chunk_length, config.seed)

    def work(self, watch: Timer) -> None:
        """Collect and send one chunk."""
        self._goal = self._sender.next_sequence + 1
        self._collect_until_stopped(self._rollout, self._sender, self._policies)

    def close(self) -> None:
        """Say goodbye."""
        self._sender.close()

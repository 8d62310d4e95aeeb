"""The actors of a training without its learner: what they send is taken and thrown away."""

from collections.abc import Callable
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import NamedTuple

from asyncppo_ros.acting.rollout import layout_of, sends_values
from asyncppo_ros.config import Config
from asyncppo_ros.errors import RunError
from asyncppo_ros.learning.batcher import Batcher
from asyncppo_ros.learning.books import Books
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.nodes.process import child_environment, signals_held_back, StopRequest
from asyncppo_ros.settings import build, to_dict, write_yaml
from asyncppo_ros.simulation.environment import critic_rows
from asyncppo_ros.simulation.registry import make
from asyncppo_ros.tools.stopwatch import cpu_seconds
from asyncppo_ros.transport.admission import Session
from asyncppo_ros.transport.intake import Intake
from asyncppo_ros.transport.permits import UnpacedPermitBook
from asyncppo_ros.transport.receiver import ZmqChunkReceiver

START_S = 300.0
WARM_UP_S = 1.0
# Actors stand still while others are measured: they are not to be given up.
FOR_EVER_S = 3600.0
_RUN_ID = 1
_LOOK_S = 0.1


class Alone(NamedTuple):
    """
    What a side of a training does by itself.

    Attributes
    ----------
    rate : float
        [env steps/s]
    core_s : float
        Of all its processes, for one transition [s].

    """

    rate: float
    core_s: float


class ActorsAlone:
    """
    So many actor processes, as a training starts them, that wait for no permit.

    Parameters
    ----------
    config : Config
        With `num_actors`.
    folder : path
        For their settings and logs.
    stop : StopRequest

    """

    def __init__(self, config: Config, folder: pathlib.Path, stop: StopRequest) -> None:
        self._stop = stop
        environment = make(config.task, 1, config.seed, randomization=config.randomization,
                           privileged=config.policy.privileged_critic)
        task = environment.describe()
        layout = layout_of(environment, sends_values(config),
                           config.transport.observation_dtype)
        critic_size = critic_rows(environment).shape[1]
        environment.close()
        policy = Learner(config, task, layout.observation_size, layout.action_size, _RUN_ID,
                         critic_size).snapshot()
        self._identity = policy.identity
        session = Session(_RUN_ID, layout, '', config.transport.heartbeat_s, FOR_EVER_S,
                          rings=config.transport.kind != 'zmq')
        # Each chunk is a batch, which is taken at once.
        self._intake = Intake(session, UnpacedPermitBook(1, 0, policy.identity), Batcher(1, 0),
                              Books(), lambda text: None)
        self._receiver = ZmqChunkReceiver(self._intake, 'tcp://127.0.0.1:*')
        self._receiver.start()
        self._intake.published(policy.identity, policy.data)
        file = folder / 'actors.yaml'
        write_yaml(build(Config, {
            **to_dict(config), 'run_dir': '', 'transport.address': self._receiver.address,
            'transport.policies': 'zmq', 'transport.keys': '', 'learner.pacing': False,
            'transport.heartbeat_timeout_s': FOR_EVER_S}), file)
        self.log = folder / 'actors.log'
        with open(self.log, 'ab') as log, signals_held_back():
            self._processes = [subprocess.Popen(
                [sys.executable, '-m', 'asyncppo_ros.nodes.main', 'actor', '--actor-id',
                 str(number), '--ros-args', '--params-file', str(file)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env=child_environment()) for number in range(config.num_actors)]

    def __enter__(self) -> 'ActorsAlone':
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self._receiver.close(timeout=0.0)

    def start(self) -> None:
        """
        Wait until all collect, and let them stand still.

        Raises
        ------
        RunError
            One of them ended, or it takes too long.

        """
        deadline = time.monotonic() + START_S
        heard: set[int] = set()
        while len(heard) < len(self._processes) and not self._stop():
            heard |= {source.actor_id for source, _ in self._taken(_LOOK_S)}
            if time.monotonic() > deadline or any(process.poll() is not None
                                                  for process in self._processes):
                raise RunError(f'the actors do not collect; see {self.log}')
        self._signal(signal.SIGSTOP)

    def measure(self, seconds: float, begin: Callable[[], None] = lambda: None,
                until: Callable[[], bool] = lambda: True) -> Alone:
        """
        Let them collect for so long, from one chunk that comes to another.

        Parameters
        ----------
        seconds : float
        begin : callable
            Called when they are under way.
        until : callable
            They go on, though that does not count, until this is true.

        """
        self._signal(signal.SIGCONT)
        try:
            self._taken(WARM_UP_S)
            begin()
            begun, cpu_s = time.perf_counter(), self._cpu_s()
            transitions = sum(size for _, size in self._taken(seconds))
            passed, used = time.perf_counter() - begun, self._cpu_s() - cpu_s
            while not (until() or self._stop()):
                self._taken(_LOOK_S)
        finally:
            self._signal(signal.SIGSTOP)
        if not transitions:
            raise RunError(f'--seconds: no chunk came in {seconds:g} s')
        return Alone(transitions / passed, used / transitions)

    def _taken(self, seconds: float) -> list[tuple]:
        """Take what comes for so long and until one more has come: who sent it, its size."""
        found: list[tuple] = []
        end = time.monotonic() + seconds
        while not self._stop():
            batch = self._intake.next_batch(self._identity, 0, _LOOK_S)
            if batch is not None:
                self._intake.updated(self._identity.policy_version)
                found += [(chunk.source, chunk.transitions) for chunk in batch.chunks]
            if time.monotonic() >= end and (batch is not None
                                            or time.monotonic() >= end + 10.0 * seconds):
                break
        return found

    def _cpu_s(self) -> float:
        return time.process_time() + sum(
            cpu_seconds(process.pid) for process in self._processes)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)

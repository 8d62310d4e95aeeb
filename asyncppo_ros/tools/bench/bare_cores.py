"""A bare loop of `mj_step` on every core at once, which says how fast the machine is just now."""

from collections.abc import Callable
import functools
import multiprocessing
import signal
import time
from typing import Any, NamedTuple

from asyncppo_ros.acting.rollout import environment_seed, Rollout, Stamp
from asyncppo_ros.config import Config
from asyncppo_ros.errors import RunError
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.settings import build, to_dict
from asyncppo_ros.tools.bench.bare_physics import BareLoop, Record, RecordedSimulation, Timer

# Work that is done once more, and how long the policy acts before it is noted: by then the
# environments are in states as those of an actor.
RECORD_S = 0.1
SETTLE_S = 1.0
ANSWER_S = 120.0
_LOOK_S = 0.05
_PROCESSES = multiprocessing.get_context('forkserver')


class BareRates(NamedTuple):
    """
    Env steps per second of all loops together.

    Attributes
    ----------
    first : float
        On states of the first policy: the same work each time.
    newest : float
        On states of the newest policy, which may take other time.

    """

    first: float
    newest: float


class BareCores:
    """
    So many processes that make physics steps when they are asked to, and else sleep.

    Parameters
    ----------
    config : Config
        Its task and the number of environments of an actor.
    count : int
    stop : StopRequest
        Ends every wait.

    Raises
    ------
    RunError
        One of them ended or does not answer.

    """

    def __init__(self, config: Config, count: int, stop: StopRequest) -> None:
        self._stop = stop
        self._pipes: list[Any] = []
        self._processes = []
        for number in range(count):
            near, far = _PROCESSES.Pipe()
            process = _PROCESSES.Process(target=_answer, daemon=True,
                                         args=(far, to_dict(config), number))
            process.start()
            far.close()
            self._pipes.append(near)
            self._processes.append(process)

    def __enter__(self) -> 'BareCores':
        return self

    def __exit__(self, *error: object) -> None:
        for pipe, process in zip(self._pipes, self._processes):
            pipe.close()
            process.kill()
            process.join()

    def begin(self, policy: bytes) -> None:
        """Note what is done with the first policy: it is the same work from now on."""
        self._ask((policy, 0.0))

    def measure(self, policy: bytes, seconds: float) -> BareRates:
        """
        Run all loops for about so long.

        Parameters
        ----------
        policy : bytes
            The newest.
        seconds : float

        """
        found = self._ask((policy, seconds))
        return BareRates(*(sum(rates) for rates in zip(*found))) if found else BareRates(0.0, 0.0)

    def _ask(self, question: tuple[bytes, float]) -> list[Any]:
        """Ask all at once; without answers where the end is asked for."""
        deadline = time.monotonic() + ANSWER_S
        try:
            for pipe in self._pipes:
                pipe.send(question)
            while not all(pipe.poll(_LOOK_S) for pipe in self._pipes):
                if self._stop():
                    return []
                if time.monotonic() > deadline:
                    raise RunError(f'a bare loop took more than {ANSWER_S:g} s')
            return [pipe.recv() for pipe in self._pipes]
        except (EOFError, OSError):
            raise RunError('a process of the bare loops ended; why is told above') from None


class BareCore:
    """
    One loop, and the environments whose work it does once more.

    Parameters
    ----------
    config : Config
    number : int
        Which of the processes: each has states of its own.

    """

    def __init__(self, config: Config, number: int) -> None:
        self._simulation = RecordedSimulation(
            config.task, config.actor.num_envs, environment_seed(config.seed, number, 0))
        self._rollout = Rollout(self._simulation, config.actor.chunk_length, number)
        self._loop = BareLoop(self._simulation)
        self._turns = 0
        self.first: Record | None = None

    def act(self, policy: PolicySnapshot, seconds: float) -> Record:
        """Act for so long, at least one control step; give what was done."""
        over = _deadline(seconds)
        watch = Timer()
        watch.start()
        self._simulation.begin_record(watch)
        while True:
            self._rollout.collect(policy, Stamp(0, 0, 0, 0), over)
            if over():
                return self._simulation.end_record()

    def measure(self, policy: PolicySnapshot, seconds: float) -> BareRates:
        """Do the same work as ever and that of the newest policy, in turn, at least once."""
        over = _deadline(seconds)
        assert self.first is not None
        records = (self.first, self.act(policy, RECORD_S))
        watches, counts = (Timer(), Timer()), [0, 0]
        while not (counts[0] and over()):
            for index in ((0, 1), (1, 0))[self._turns % 2]:
                self._loop.replay(records[index], watches[index])
                counts[index] += len(records[index].commands) * self._simulation.num_envs
            self._turns += 1
        return BareRates(*(watch.rate(count).wall for watch, count in zip(watches, counts)))


def _deadline(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def _answer(pipe: Any, settings: dict[str, Any], number: int) -> None:
    """Answer until the other end of the pipe is closed."""
    # Ctrl-C is for the process that asks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    core = BareCore(build(Config, settings), number)
    snapshot = functools.lru_cache(1)(PolicySnapshot.from_bytes)
    while True:
        try:
            data, seconds = pipe.recv()
        except EOFError:
            return
        policy = snapshot(data)
        if core.first is None:
            core.act(policy, SETTLE_S)
            core.first = core.act(policy, RECORD_S)
        pipe.send(tuple(core.measure(policy, seconds)) if seconds else ())

"""A learner whose updates take no time, for `asyncppo bench fleet`."""

from collections.abc import Callable
import pathlib
import resource
import threading
import time

from asyncppo_ros.chunk import Identity
from asyncppo_ros.config import Config
from asyncppo_ros.learning.batcher import Batcher
from asyncppo_ros.learning.books import Books
from asyncppo_ros.tools.bench.fleet_actors import Shape
from asyncppo_ros.transport.admission import Session
from asyncppo_ros.transport.intake import Intake
from asyncppo_ros.transport.keys import learner_keys
from asyncppo_ros.transport.permits import PermitBook
from asyncppo_ros.transport.receiver import ZmqChunkReceiver

# Of whatever is waited for [s].
LONGEST_S = 120.0
_RUN_ID = 1
_CLOSE_S = 10.0
_WAIT_S = 0.1


class Learner:
    """
    All that a learner has between its socket and its updates, which take no time.

    Attributes
    ----------
    intake : Intake
    address : str
    most_mib : float
        Most memory that this process had while `work` was looking [MiB].

    """

    def __init__(self, config: Config, shape: Shape) -> None:
        self._identity = Identity(1, 0)
        self._transitions = shape.transitions
        self.most_mib = 0.0
        settings, transport = config.learner, config.transport
        self.intake = Intake(
            Session(_RUN_ID, shape.layout, '', transport.heartbeat_s,
                    transport.heartbeat_timeout_s, settings.batch_size, rings=False),
            PermitBook(settings.batch_size, settings.target_lag, self._identity),
            Batcher(settings.batch_size, settings.max_policy_lag), Books())
        self._receiver = ZmqChunkReceiver(self.intake, 'tcp://127.0.0.1:*', False,
                                          learner_keys(transport.keys))
        self.address = self._receiver.address
        self._receiver.start()
        thread, = (one for one in threading.enumerate() if one.name == 'chunk receiver')
        assert thread.ident is not None
        self._clock = time.pthread_getcpuclockid(thread.ident)

    def receiving_s(self) -> float:
        """Give the CPU time of the thread that receives, so far [s]."""
        return time.clock_gettime(self._clock)

    def wait_for(self, count: int, may_go_on: Callable[[], bool]) -> bool:
        """Wait until so many actors are taken in; say whether they are."""
        end = time.monotonic() + LONGEST_S
        while len(self.intake.sources) < count:
            if not may_go_on() or time.monotonic() > end:
                return False
            time.sleep(_WAIT_S)
        return True

    def begin(self) -> None:
        """Publish the first policy: nobody has permits before, so that all begin alike."""
        self.intake.published(self._identity)

    def work(self, seconds: float) -> None:
        """Consume for so long."""
        self.work_until(lambda: False, seconds)

    def work_until(self, is_over: Callable[[], bool], seconds: float) -> None:
        """Consume until something holds, at most for so long."""
        end = time.monotonic() + seconds
        while not is_over() and (left := end - time.monotonic()) > 0.0:
            batch = self.intake.next_batch(self._identity, 0, min(left, _WAIT_S))
            self.most_mib = max(self.most_mib, resident_mib())
            if batch is not None:
                version = self._identity.policy_version + 1
                self._identity = self._identity._replace(policy_version=version)
                self.intake.updated(version)
                self.intake.published(self._identity)

    def has_heard(self, count: int, chunks: int) -> bool:
        """Say whether so many actors have sent so many chunks each."""
        return self.intake.chunks_received >= count * chunks \
            and sum(sent >= chunks for sent in self.chunks_of_each().values()) >= count

    def chunks_of_each(self) -> dict[int, int]:
        """Count the chunks of each actor that passed all checks."""
        return {entry['actor_id']: entry['received'] // self._transitions
                for entry in self.intake.books_state()['accounts']}

    def close(self) -> None:
        """Tell all actors to go, and wait until they have gone."""
        self._receiver.close(_CLOSE_S)


def resident_mib() -> float:
    """Give the memory of this process without the files that are mapped [MiB]."""
    _, resident, shared, *_ = pathlib.Path('/proc/self/statm').read_text().split()
    return (int(resident) - int(shared)) * resource.getpagesize() / 2 ** 20

"""A small real training into which faults are injected, and what must hold at its end."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

from harness import asyncppo, shared_memory, wait_for

from asyncppo_ros.nodes.actor_states import read_states
from asyncppo_ros.nodes.process import child_environment
from asyncppo_ros.tools.bench.watched import (
    median_rate,
    processes_of,
    rate,
    recovery_s,
    WatchedRun,
)

HERE = pathlib.Path(__file__).resolve().parent
# Its rate is set by sleeping, not by the processor, so it says what a fault did.
TASK = 'asyncppo_ros.tools.bench.sleeping:Sleeping'
ACTORS = 4
MAX_LAG = 4
SETTINGS = {
    'task': TASK, 'env_steps': 10 ** 9, 'num_actors': ACTORS, 'actor.num_envs': 8,
    'actor.chunk_length': 16, 'learner.batch_size': 512, 'learner.ppo.minibatch_size': 256,
    'learner.ppo.epochs': 1, 'learner.max_policy_lag': MAX_LAG, 'learner.checkpoint_seconds': 2.0,
    'transport.heartbeat_s': 0.1, 'transport.heartbeat_timeout_s': 2.0,
    'evaluation.episodes': 2, 'evaluation.every_seconds': 5.0}
BASELINE_S = 5.0
WINDOW_S = 3.0
# The rate that counts as back, as a share of the median before, and when it must be.
SHARE = 0.9
RECOVERY_S = 10.0
END_S = 5.0


class FaultRun:
    """
    Start `asyncppo train`, measure its rate, inject, and check.

    Use it as a context manager; `finish` makes the checks that hold after every fault.
    """

    def __init__(self, folder, environment=None, **settings):
        self.folder = folder / 'run'
        given = {**SETTINGS,
                 **{name.replace('__', '.'): value for name, value in settings.items()}}
        path = os.pathsep.join(filter(None, [str(HERE), os.environ.get('PYTHONPATH', '')]))
        self.actors = given['num_actors']
        self.max_lag = given['learner.max_policy_lag']
        self.drops_allowed = False
        self.watched = WatchedRun(self.folder, given,
                                  environment={'PYTHONPATH': path, **(environment or {})})
        self.run = self.watched.run
        self.median = 0.0
        self._extra = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.watched.kill()
        for process in self._extra:
            process.kill()
            process.wait()

    def settle(self, actors=None):
        """Wait until the actors collect, and take the median rate."""
        wanted = actors or self.actors
        self.watched.need(lambda: self.watched.seen
                          and self.watched.seen[-1].row['actors'] == wanted,
                          f'{wanted} actors')
        self.watched.watch(1.0)
        begun = time.monotonic()
        self.watched.watch(BASELINE_S)
        self.median = median_rate(self.watched.seen, begun, time.monotonic(), WINDOW_S)
        assert self.median > 0.0

    def kill(self, role, count=1, number=signal.SIGKILL):
        """Send a signal to processes of a role; give their numbers."""
        victims = self.watched.pids(role)[:count]
        assert len(victims) == count, (role, victims)
        for pid in victims:
            os.kill(pid, number)
        return victims

    def extra_actor(self, actor_id, *arguments, environment=None):
        """Start an actor by hand, as on another host; its log is ``actor-ID.log``."""
        with open(self.run.logs / f'actor-{actor_id}.log', 'wb') as log:
            process = subprocess.Popen(
                [sys.executable, '-m', 'asyncppo_ros.nodes.main', 'actor', '--actor-id',
                 str(actor_id), '--ros-args', '--params-file', str(self.run.config_file), '-r',
                 '__ns:=/asyncppo', *arguments], stdout=log, stderr=log,
                env={**child_environment(), **(environment or {})})
        self._extra.append(process)
        return process

    def log(self, name):
        path = self.run.logs / f'{name}.log'
        return path.read_text(errors='replace') if path.exists() else ''

    def told(self):
        """Give what `asyncppo train` has printed."""
        return self.watched.output.read_text()

    def wait_for(self, condition, what, timeout=30.0):
        """Wait for a condition while rows are taken."""
        def looked():
            self.watched.look()
            return condition()
        return wait_for(looked, what, timeout, self.watched.process)

    def states(self):
        """Give what the supervisor tells of its actors."""
        return {state['actor_id']: state for state in read_states(self.folder)}

    def assert_recovers(self, within_s=RECOVERY_S):
        """Assert that the rate comes back in time; the fault is over now."""
        over_at = time.monotonic()
        needed = SHARE * self.median
        self.watched.watch(within_s + WINDOW_S + 1.0, until=lambda: recovery_s(
            self.watched.seen, over_at, needed, WINDOW_S) is not None)
        seen = self.watched.seen
        took = recovery_s(seen, over_at, needed, WINDOW_S)
        after = [round(rate(seen, at, at + WINDOW_S)) for at in
                 (over_at, over_at + 3.0, over_at + 6.0, over_at + 9.0)]
        told = f'median {self.median:.0f}/s before, then {after}/s, back after {took} s'
        assert took is not None and took <= within_s, told
        print(told)

    def finish(self, tracebacks=()):
        """End the training and assert what holds after every fault."""
        ends = [process for process in self._extra if process.poll() is None]
        code, seconds = self.watched.end()
        assert code == 0, self.told()
        assert seconds < END_S
        for process in ends:
            assert process.wait(END_S) == 0
        wait_for(lambda: not processes_of(self.folder), 'end of all processes', timeout=2.0)
        assert not shared_memory()
        books = asyncppo('books', self.folder)
        assert books.returncode == 0, books.stdout
        rows = self.watched.rows()
        assert max(row['policy_lag_max'] for row in rows) <= self.max_lag
        if not self.drops_allowed:
            assert max(row['chunks_dropped'] for row in rows) == 0
        assert 'Traceback' not in self.told()
        for log in self.run.logs.iterdir():
            if log.stem not in tracebacks:
                assert 'Traceback' not in log.read_text(errors='replace'), log
        return rows


@contextlib.contextmanager
def stopped(pids):
    """SIGSTOP processes for a while; those that are still there go on."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

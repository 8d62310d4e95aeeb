"""One actor process of a supervisor: started, restarted, killed when hung, sent away."""

import os
import signal
import subprocess
import sys
from typing import Any

from asyncppo_ros.config import ActorConfig
from asyncppo_ros.nodes.actor_states import (
    FINISHED,
    QUARANTINED,
    RESTARTING,
    RUNNING,
    STOPPED,
)
from asyncppo_ros.nodes.process import (
    child_environment,
    HEARTBEAT_VARIABLE,
    how_it_ended,
    signals_held_back,
)
from asyncppo_ros.nodes.restarts import Restarts

# Imports and the first build of the simulations may take long on a busy machine.
STARTUP_S = 120.0
STACK_DUMP_S = 1.0
STOP_S = 3.0
# One that is only not needed has time to send what it has.
RETIRE_S = 15.0


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
        self.retired = False
        self.quarantined = ''
        self.exit_code: int | None = None
        self._command = command
        self._hung_after_s = hung_after_s
        self._restarts = Restarts(max_crashes)
        self._reason = ''
        self._dump_at = 0.0
        self._kill_at = 0.0
        self._process: subprocess.Popen | None = None
        self._pipe = -1

    @property
    def pid(self) -> int:
        """Process id; 0 = not running."""
        return self._process.pid if self._process is not None else 0

    @property
    def state(self) -> dict[str, Any]:
        """What `actor_states.write_states` keeps of it."""
        name = (QUARANTINED if self.quarantined else STOPPED if self.retired
                else FINISHED if self.finished else RUNNING if self._process is not None
                else RESTARTING)
        return {'actor_id': self.actor_id, 'state': name, 'pid': self.pid,
                'crashes': self._restarts.crashes, 'reason': self.quarantined or self._reason}

    def tend(self, now: float) -> None:
        """Start, reap, restart or kill the process, whatever is due."""
        if self.finished or self.quarantined:
            return
        if self._process is None:
            if self._restarts.due(now):
                self._start(now)
            return
        self._hear(now)
        code = self._process.poll()
        if code is not None:
            self._reap(code, now)
        elif self.retired:
            if now > self._kill_at:
                self._process.kill()
        elif now > self._silent_until:
            self._kill_hung(now)

    def retire(self, now: float) -> None:
        """Ask the process to end in good order, until `recall`."""
        self.retired = True
        self._kill_at = now + RETIRE_S
        if self._process is None:
            self.finished = True
        else:
            self._process.send_signal(signal.SIGTERM)

    def recall(self) -> None:
        """Start it again: its process has ended."""
        self.retired = self.finished = False
        self._restarts.forget()
        self._reason = ''

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
            say(f'actor {self.actor_id} did not end in time: killed')
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
        self._restarts.started(now)
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
        if code == 0 or self.retired:
            self.finished = True
            return
        if code == 2:
            self.quarantined = 'a mistake in its settings or task (its own message is above)'
            say(f'actor {self.actor_id} gave up: {self.quarantined}')
            return
        pause = self._restarts.crashed(now)
        how = how_it_ended(code)
        self._reason = f'was hung, ended with {how}' if self._dump_at else f'died with {how}'
        if pause is None:
            self.quarantined = f'{self._restarts.crashes} crashes in a row, the last with {how}'
            say(f'actor {self.actor_id} is not restarted any more: {self.quarantined}')
            return
        say(f'actor {self.actor_id} died with {how}: restarted in {pause:g} s')

    def _kill_hung(self, now: float) -> None:
        assert self._process is not None
        if self._dump_at == 0.0:
            say(f'actor {self.actor_id} is hung: its stacks follow, then it is killed')
            self._process.send_signal(signal.SIGUSR1)
            self._dump_at = now + STACK_DUMP_S
        elif now >= self._dump_at:
            self._process.kill()

    def _close_pipe(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


def say(text: str) -> None:
    """Tell people something in the name of the supervisor."""
    print(f'supervisor: {text}', file=sys.stderr, flush=True)

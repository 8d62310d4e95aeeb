"""Actors of a run as Ray actors: what is known of each, and what is done when it dies."""

from collections.abc import Callable
import time
from typing import Any, Protocol

from asyncppo_ros.cluster.ray_worker import Answer
from asyncppo_ros.nodes.actor_states import (
    FINISHED,
    PENDING,
    QUARANTINED,
    RESTARTING,
    RUNNING,
)
from asyncppo_ros.nodes.restarts import Restarts

POLL_S = 0.05


class Unavailable(Exception):
    """The process of an actor has died; Ray starts another."""


class Gone(Exception):
    """Ray does not start the actor again; the text says why."""


class Fault(Exception):
    """An exception ended the loop of an actor; the text is its traceback."""


class Placement(Protocol):
    """One actor in the hands of Ray; nothing here waits."""

    def answer(self) -> Answer | None:
        """
        Give the newest sign of life, once; None = nothing new.

        Raises
        ------
        Unavailable, Gone
            There is no process.

        """

    def collect(self) -> None:
        """Let the process that answered collect."""

    def outcome(self) -> str | None:
        """
        Say how collecting ended: a mistake of the user, or ''; None = it goes on.

        Raises
        ------
        Unavailable, Fault
            It died.

        """

    def restart(self) -> None:
        """Let Ray end the process and start another."""

    def ask_to_stop(self) -> None:
        """Ask the loop to end in good order."""

    def end(self) -> None:
        """End the process for good; the resources become free."""


class Actor:
    """
    One actor and what is known of it.

    Ray starts its process, also anew after a death.  What begins to collect there, after which
    pause, and when it is enough, is decided here as the supervisor of a host decides it.

    Parameters
    ----------
    actor_id : int
    placed : Placement
    max_crashes : int
        In a row; then it is quarantined.
    say : callable
        Takes one line for people.

    Attributes
    ----------
    exit_code : int or None
        2 after a mistake of the user.

    """

    def __init__(self, actor_id: int, placed: Placement, max_crashes: int,
                 say: Callable[[str], None]) -> None:
        self.actor_id = actor_id
        self.finished = False
        self.quarantined = ''
        self.exit_code: int | None = None
        self._placed = placed
        self._restarts = Restarts(max_crashes)
        self._say = say
        self._reason = ''
        self._host, self._pid = '', 0
        self._dead: tuple[str, int] | None = None
        self._collecting = False

    @property
    def state(self) -> dict[str, Any]:
        """What `actor_states.write_states` keeps of it."""
        name = (QUARANTINED if self.quarantined else FINISHED if self.finished
                else RUNNING if self._pid else RESTARTING if self._dead else PENDING)
        state = {'actor_id': self.actor_id, 'state': name, 'pid': self._pid,
                 'crashes': self._restarts.crashes, 'reason': self.quarantined or self._reason}
        return {**state, 'host': self._host} if self._host else state

    def tend(self, now: float) -> None:
        """Hear from it, begin to collect, note its end, whatever is due."""
        if self.finished or self.quarantined:
            return
        self._hear()
        if self._collecting:
            self._look(now)
        elif self._pid and self._restarts.due(now):
            self._placed.collect()
            self._restarts.started(now)
            self._collecting = True

    def stop(self) -> None:
        """Ask it to end."""
        self.finished = True
        if self._collecting:
            self._placed.ask_to_stop()

    def wait(self, seconds: float) -> None:
        """Wait for the end, so that it can take leave of the learner."""
        deadline = time.monotonic() + seconds
        while self._collecting:
            try:
                self._collecting = self._placed.outcome() is None
            except (Unavailable, Gone, Fault):
                self._collecting = False
            if time.monotonic() >= deadline:
                break
            time.sleep(POLL_S if self._collecting else 0.0)
        self._pid = 0

    def _hear(self) -> None:
        try:
            answer = self._placed.answer()
        except Unavailable:
            # The loop there has failed as well, and that is what counts.
            return
        except Gone as error:
            self._give_up(str(error))
            return
        if answer is None:
            return
        for line in answer.said:
            self._say(f'actor {self.actor_id}: {line}')
        if answer[:2] not in (self._dead, (self._host, self._pid)):
            self._host, self._pid = answer.host, answer.pid
            again = 'restarted' if self._dead else 'placed'
            self._say(f'actor {self.actor_id} {again}: process {answer.pid} on {answer.host}')

    def _look(self, now: float) -> None:
        try:
            mistake = self._placed.outcome()
        except Unavailable:
            self._crash(now, 'its worker process died')
            return
        except Fault as error:
            text = str(error).rstrip()
            self._say(f'actor {self.actor_id} failed:\n{text}')
            self._crash(now, f'a fault: {text.splitlines()[-1]}')
            if not self.quarantined:
                self._placed.restart()
            return
        if mistake is None:
            return
        self._collecting = False
        if mistake:
            self.exit_code = 2
            self._give_up(f'{mistake} (on {self._host})')
        else:
            self.finished = True
            self._placed.end()

    def _crash(self, now: float, reason: str) -> None:
        self._dead, self._pid, self._collecting = (self._host, self._pid), 0, False
        self._reason = reason
        if self._restarts.crashed(now) is None:
            self._give_up(f'{self._restarts.crashes} crashes in a row, the last: {reason}')
            return
        self._say(f'actor {self.actor_id} on {self._host}: {reason}; Ray starts it again')

    def _give_up(self, reason: str) -> None:
        self.quarantined = reason
        self._pid, self._collecting = 0, False
        self._say(f'actor {self.actor_id} is not restarted any more: {reason}')
        self._placed.end()

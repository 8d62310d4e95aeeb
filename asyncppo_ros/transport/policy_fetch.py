"""Policies beside the permits, for hosts without ROS and for when the policy topic is silent."""

from collections.abc import Callable
import math
import time
from typing import Protocol

from asyncppo_ros.chunk import Identity, NO_POLICY
from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.transport.policy_channel import NewestPolicy, PolicySubscriber

# A request or its answer may get lost with a connection.
ASK_AGAIN_S = 2.0


class Line(Protocol):
    """
    The part of `ZmqChunkSender` that policies need.

    Attributes
    ----------
    newest : Identity
        What the learner has published, as far as is known.
    on_news : callable
        Called when `newest` has changed, also within a chunk.
    policy_silent_ms : int
        Goes to the learner with each heartbeat.

    """

    newest: Identity
    on_news: Callable[[], None]
    policy_silent_ms: int

    def fetch(self, have: Identity) -> bool:
        """Ask for what is newer than `have`; False = it could not be sent."""

    def take_policy(self) -> bytes | None:
        """Give, once, the bytes of the policy that has come."""


class ZmqPolicySubscriber(NewestPolicy):
    """
    Asks the learner for each newer policy as soon as it is known that there is one.

    Parameters
    ----------
    line : Line
    key : bytes, optional
        Refuse policies that are not signed with it.
    warn : callable
        Takes one line for people.
    clock : callable
        Monotonic time [s].

    Attributes
    ----------
    active : bool
        Whether it asks.

    """

    def __init__(self, line: Line, key: bytes | None = None,
                 warn: Callable[[str], None] = lambda text: None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(key, warn)
        self.active = True
        self._line = line
        self._clock = clock
        self._asked_at = -math.inf
        line.on_news = self._ask

    def look(self) -> None:
        """Take in what has come, and ask for what is newer."""
        data = self._line.take_policy()
        # A policy that is refused is not asked for again at once: the answer would be the same.
        if data is not None and self.offer(data):
            self._asked_at = -math.inf
        self._ask()

    def _ask(self) -> None:
        now = self._clock()
        if self.active and self._line.newest > self.identity \
                and now - self._asked_at >= ASK_AGAIN_S and self._line.fetch(self.identity):
            self._asked_at = now


class PolicyFallback(PolicySubscriber):
    """
    The policy topic, and the learner's own line for as long as the topic is silent.

    A topic is silent when the learner is known to have published something that it does not
    bring.  Others are not concerned: what comes first is used, whichever way it comes.

    Parameters
    ----------
    topic : PolicySubscriber
    fetched : ZmqPolicySubscriber
    line : Line
    timeout_s : float
        Silence after which policies are fetched [s].
    warn : callable
        Takes one line for people.
    clock : callable
        Monotonic time [s].

    """

    def __init__(self, topic: PolicySubscriber, fetched: ZmqPolicySubscriber, line: Line,
                 timeout_s: float, warn: Callable[[str], None] = lambda text: None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._topic = topic
        self._fetched = fetched
        self._line = line
        self._timeout_s = timeout_s
        self._warn = warn
        self._clock = clock
        self._behind_since: float | None = None
        self._brought = NO_POLICY
        fetched.active = False

    @property
    def run_id(self) -> int:
        """Policies of other runs are ignored."""
        return self._topic.run_id

    @run_id.setter
    def run_id(self, run_id: int) -> None:
        self._topic.run_id = self._fetched.run_id = run_id

    @property
    def newest(self) -> PolicySnapshot | None:
        """The newest policy of the run, whichever way it came."""
        ahead = self._fetched.identity > self._topic.identity
        return self._fetched.newest if ahead else self._topic.newest

    @property
    def identity(self) -> Identity:
        """Of the newest policy; (-1, -1) before the first."""
        return max(self._topic.identity, self._fetched.identity)

    def look(self) -> None:
        """Take in what the topic brought, and fetch when it is silent."""
        self._topic.look()
        silent_s = self._silence()
        self._line.policy_silent_ms = round(silent_s * 1e3)
        silent = silent_s >= self._timeout_s
        if silent != self._fetched.active:
            self._fetched.active = silent
            self._warn(f'the policy topic has brought nothing for {silent_s:.0f} s, though the '
                       'learner publishes: policies are fetched over ZeroMQ' if silent else
                       'the policy topic is back')
        if silent:
            self._fetched.look()

    def _silence(self) -> float:
        now = self._clock()
        brought = self._topic.identity
        if brought != self._brought or brought >= self._line.newest:
            self._brought, self._behind_since = brought, None
        if brought < self._line.newest and self._behind_since is None:
            # From the first look on, not from the news: nobody looks while a chunk is collected.
            self._behind_since = now
        return 0.0 if self._behind_since is None else now - self._behind_since

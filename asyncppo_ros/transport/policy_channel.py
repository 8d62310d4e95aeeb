"""How a policy gets from the learner to those who act with it; here within one process."""

from collections.abc import Callable
import threading
from typing import Protocol

from asyncppo_ros.chunk import Identity, NO_POLICY
from asyncppo_ros.errors import ArtefactError
from asyncppo_ros.policy.snapshot import PolicySnapshot


class PolicyPublisher(Protocol):
    """The learner's end."""

    def publish(self, data: bytes, identity: Identity) -> None:
        """Make a policy, as the bytes of its snapshot, the newest one."""


class PolicySubscriber(Protocol):
    """
    The end of an actor or an evaluator; used by one thread.

    Attributes
    ----------
    run_id : int
        Policies of other runs are ignored; 0 accepts the first and stays with its run.

    """

    run_id: int

    @property
    def newest(self) -> PolicySnapshot | None:
        """The newest policy of the run; the same object as long as nothing newer has come."""

    @property
    def identity(self) -> Identity:
        """Of the newest policy; (-1, -1) before the first."""

    def look(self) -> None:
        """Take in what has arrived, without waiting."""


class NewestPolicy(PolicySubscriber):
    """
    What all subscribers have in common: of what is offered, the newest valid policy is kept.

    Parameters
    ----------
    key : bytes, optional
        Refuse policies that are not signed with it.
    warn : callable
        Takes one line for people.

    Attributes
    ----------
    refused : int
        Offers that failed a check.

    """

    def __init__(self, key: bytes | None = None,
                 warn: Callable[[str], None] = lambda text: None) -> None:
        self.run_id = 0
        self.refused = 0
        self._key = key
        self._warn = warn
        self._newest: PolicySnapshot | None = None

    @property
    def newest(self) -> PolicySnapshot | None:
        """The newest policy of the run, or None so far."""
        if self._newest is not None and self.run_id not in (0, self._newest.run_id):
            return None
        return self._newest

    @property
    def identity(self) -> Identity:
        """Of the newest policy; (-1, -1) before the first."""
        newest = self.newest
        return NO_POLICY if newest is None else newest.identity

    def look(self) -> None:
        """Do nothing: what is offered is taken in at once."""

    def offer(self, data: bytes) -> bool:
        """Check the bytes of a policy and keep it if it is newer; say whether they are valid."""
        known = self._newest
        if known is not None and data == known.data:
            return True
        try:
            snapshot = PolicySnapshot.from_bytes(data, self._key)
        except ArtefactError as error:
            self.refused += 1
            self._warn(f'a policy was refused: {error}')
            return False
        of_the_run = self.run_id in (0, snapshot.run_id)
        newer = known is None or snapshot.run_id != known.run_id \
            or snapshot.identity > known.identity
        if of_the_run and newer:
            self._newest = snapshot
        return True


class InMemoryPolicyChannel(NewestPolicy):
    """Both ends within one process; any thread may publish and read."""

    def __init__(self, key: bytes | None = None) -> None:
        super().__init__(key)
        self._lock = threading.Lock()

    def publish(self, data: bytes, identity: Identity) -> None:
        """
        Make a policy the newest one.

        Raises
        ------
        ValueError
            `identity` is not newer than what was published before, or `data` is not a policy.

        """
        with self._lock:
            if identity <= self.identity:
                raise ValueError(f'policy {identity} is not newer than {self.identity}')
            if not self.offer(data):
                raise ValueError(f'what was published as policy {identity} is none')

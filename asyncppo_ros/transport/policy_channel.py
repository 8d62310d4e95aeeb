"""How a policy gets from the learner to those who act with it; here within one process."""

import threading
from typing import Protocol

from asyncppo_ros.chunk import Identity, NO_POLICY


class PolicyPublisher(Protocol):
    """The learner's end."""

    def publish(self, artefact: bytes, identity: Identity) -> None:
        """Make a policy the newest one."""


class PolicySubscriber(Protocol):
    """The end of an actor, an evaluator or a robot."""

    def newest(self, minimum: Identity = NO_POLICY) -> bytes | None:
        """
        Give the newest artefact, without waiting.

        Returns
        -------
        artefact : bytes or None
            None while nothing at least as new as `minimum` has arrived.  The same object as
            before as long as nothing newer has arrived.

        """


class InMemoryPolicyChannel:
    """Both ends within one process; any thread may publish and read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._identity = NO_POLICY
        self._artefact: bytes | None = None

    @property
    def identity(self) -> Identity:
        """Of the newest policy; (-1, -1) before the first."""
        return self._identity

    def publish(self, artefact: bytes, identity: Identity) -> None:
        """
        Make a policy the newest one.

        Raises
        ------
        ValueError
            `identity` is not newer than what was published before.

        """
        with self._lock:
            if identity <= self._identity:
                raise ValueError(f'policy {identity} is not newer than {self._identity}')
            self._artefact, self._identity = artefact, identity

    def newest(self, minimum: Identity = NO_POLICY) -> bytes | None:
        """Give the newest artefact, or None while there is none at least as new as `minimum`."""
        with self._lock:
            return self._artefact if self._identity >= minimum else None

"""Count what was refused, by sender and cause, and name each sender once."""

from collections import Counter
from collections.abc import Callable

from asyncppo_ros.chunk import Source
from asyncppo_ros.errors import CodecError

# One warning for each sender and cause, up to this many.
_MAX_WARNINGS = 1000


def name_of(source: Source) -> str:
    """Give the words for an actor."""
    return f'actor {source.actor_id} (incarnation {source.incarnation})'


class RefusalLog:
    """
    The refusal counters.

    Parameters
    ----------
    warn : callable
        Takes one line for people.

    Attributes
    ----------
    counts : Counter
        (source or None, cause) → messages.

    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.counts: Counter[tuple[Source | None, str]] = Counter()
        self._warn = warn
        self._warned: set[tuple[bytes, str]] = set()

    def refused(self, peer: bytes, source: Source | None, error: CodecError) -> None:
        """Count a message that failed a check."""
        self.counts[source, error.cause] += 1
        key = (peer, error.cause)
        # A peer that is asked to say hello has done nothing wrong.
        if error.cause == 'unknown' or key in self._warned or len(self._warned) >= _MAX_WARNINGS:
            return
        self._warned.add(key)
        name = name_of(source) if source else f'peer {peer.hex()[:12]}'
        self._warn(f'{name}: refused: {error}')

    def by_cause(self) -> dict[str, int]:
        """Count the refused messages of all senders by cause."""
        causes: Counter[str] = Counter()
        for (_, cause), count in self.counts.items():
            causes[cause] += count
        return dict(causes)

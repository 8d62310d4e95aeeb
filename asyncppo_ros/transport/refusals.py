"""Count what was refused, by sender and cause, and name each sender once."""

from collections import Counter
from collections.abc import Callable

from asyncppo_ros.chunk import Source
from asyncppo_ros.errors import CodecError

# One warning for each sender and cause, up to this many.
_MAX_WARNINGS = 1000
_MAX_TEXT = 500


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
    connections : Counter
        cause → connections that were refused before anything could be sent.

    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.counts: Counter[tuple[Source | None, str]] = Counter()
        self.connections: Counter[str] = Counter()
        self._warn = warn
        self._warned: set[tuple[bytes, str]] = set()

    def refused(self, peer: bytes, source: Source | None, error: CodecError) -> None:
        """Count a message that failed a check."""
        self.counts[source, error.cause] += 1
        # A peer that is asked to say hello has done nothing wrong.
        if error.cause != 'unknown':
            name = name_of(source) if source else f'peer {peer.hex()[:12]}'
            self._warn_once((peer, error.cause), f'{name}: refused: {error}')

    def refused_connection(self, address: str, error: CodecError) -> None:
        """Count a connection that was refused; `address` is that of the peer, '' = unknown."""
        self.connections[error.cause] += 1
        self._warn_once((address.encode(), str(error)),
                        f'a connection from {address or "a peer that is gone"}: refused: {error}')

    def by_cause(self) -> dict[str, int]:
        """Count the refused messages of all senders by cause."""
        causes: Counter[str] = Counter()
        for (_, cause), count in self.counts.items():
            causes[cause] += count
        return dict(causes)

    def _warn_once(self, key: tuple[bytes, str], text: str) -> None:
        if key not in self._warned and len(self._warned) < _MAX_WARNINGS:
            self._warned.add(key)
            self._warn(_one_line(text))


def _one_line(text: str) -> str:
    """Show what strangers wrote without letting them write lines of the log."""
    shown = ''.join(letter if letter.isprintable() else '?' for letter in text)
    return shown if len(shown) <= _MAX_TEXT else f'{shown[:_MAX_TEXT]} …'

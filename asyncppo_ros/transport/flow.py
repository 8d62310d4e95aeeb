"""The intake as training sees it, and what flows through it as metrics."""

from collections.abc import Callable, Mapping, MutableMapping
import time
from typing import Any

from asyncppo_ros.chunk import Identity, Source
from asyncppo_ros.learning.batcher import ConsumedChunks
from asyncppo_ros.transport.intake import Intake

# Reading the ledgers of all actors is not free.
BOOKS_S = 1.0
_BOOKS = {'transitions_produced': 'produced', 'transitions_consumed': 'consumed',
          'transitions_dropped': 'dropped_by_age', 'transitions_refused': 'refused_by_check',
          'transitions_in_flight': 'in_flight', 'transitions_lost': 'lost_in_crash'}


class Flow:
    """
    A `learning.training.Source`.

    Parameters
    ----------
    intake : Intake
    clock : callable
        Monotonic time [s].

    """

    def __init__(self, intake: Intake, clock: Callable[[], float] = time.monotonic) -> None:
        self._intake = intake
        self._clock = clock
        self._books: dict[str, int] = {}
        self._books_at = float('-inf')

    def next_batch(self, current: Identity, gradient_steps: int,
                   timeout: float) -> ConsumedChunks | None:
        """Take the next batch."""
        return self._intake.next_batch(current, gradient_steps, timeout)

    def updated(self, version: int) -> None:
        """Report the end of an update."""
        self._intake.updated(version)

    def published(self, identity: Identity, data: bytes | None = None) -> None:
        """Report a publication, with the bytes for those who ask for them."""
        self._intake.published(identity, data)

    def restored(self, identity: Identity) -> None:
        """Report that an older state was restored."""
        self._intake.restored(identity)

    def flow(self) -> dict[str, float]:
        """Give the flow metrics; those of the books are at most a second old."""
        now = self._clock()
        if now - self._books_at >= BOOKS_S:
            totals = self._intake.books_totals()
            self._books = {name: totals[column] for name, column in _BOOKS.items()}
            self._books_at = now
        intake = self._intake
        return {'actors': len(intake.sources), 'actor_wait': intake.actor_wait,
                'chunks_consumed': intake.chunks_consumed,
                'chunks_dropped': intake.chunks_dropped, 'chunks_cut': intake.chunks_cut,
                'chunks_refused': sum(intake.refused().values()),
                'missed_steps': intake.missed_steps(),
                'observations_saturated': intake.saturated(),
                'connections_refused': sum(intake.refused_connections().values()),
                'transitions_under_way': intake.under_way, **self._books,
                'policy_silence_s': max(intake.policy_silence.values(), default=0.0)}

    def books(self) -> dict[str, Any]:
        """Write the books into the run, and give them, JSON types, for the checkpoint."""
        # With each checkpoint, so that `asyncppo books` shows a run that goes on.
        self._intake.write_books()
        return self._intake.books_state()


class SilenceAlarm:
    """
    Raises the alarm when the policy topic is silent at an actor.

    Parameters
    ----------
    timeout_s : float
        Silence that is borne [s].
    outages : mutable mapping
        Takes the text for as long as the silence lasts.
    warn : callable
        Is told once when it begins, and when it ends.

    """

    NAME = 'policy topic'

    def __init__(self, timeout_s: float, outages: MutableMapping[str, str],
                 warn: Callable[[str], None]) -> None:
        self._timeout_s = timeout_s
        self._outages = outages
        self._warn = warn

    def look(self, silence: Mapping[Source, float]) -> None:
        """Take what the actors say: for how long it has been silent [s]."""
        silent = {source: seconds for source, seconds in silence.items()
                  if seconds >= self._timeout_s}
        if silent:
            actors = sorted({source.actor_id for source in silent})
            text = (f'policy topic silent for {max(silent.values()):.0f} s at actors {actors}: '
                    'they fetch over ZeroMQ')
            if self.NAME not in self._outages:
                self._warn(text)
            self._outages[self.NAME] = text
        elif self._outages.pop(self.NAME, None):
            self._warn('the policy topic reaches all actors again')

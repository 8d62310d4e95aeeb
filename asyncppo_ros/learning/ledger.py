"""
An actor's own count of what it simulated, in a file that outlives ``kill -9``.

The file is mapped into memory, so what the actor wrote lies in the page cache even when it dies
between two instructions.  Every change that others may see is one aligned write of 8 bytes.

::

    words 0..7      magic, actor id, incarnation, completed chunks, 4 spare
    then 1024 × 3   slot of chunk s at s % 1024: s, transitions of all chunks before s,
                    transitions of s so far
"""

import dataclasses
import os
from pathlib import Path

import numpy as np

from asyncppo_ros.chunk import Source

RING = 1024
_MAGIC = 0x4C65646765723031  # b'Ledger01'
_HEAD = 8
_COMPLETED = 3
_WORDS = _HEAD + 3 * RING


@dataclasses.dataclass(frozen=True)
class Counters:
    """
    A ledger in three numbers.

    Attributes
    ----------
    chunks, transitions : int
        Completed so far in this incarnation.
    unfinished : int
        Transitions stepped in the chunk at hand.

    """

    chunks: int = 0
    transitions: int = 0
    unfinished: int = 0

    @property
    def produced(self) -> int:
        """All transitions that were simulated."""
        return self.transitions + self.unfinished


def ledger_path(run_dir: str | os.PathLike[str], source: Source) -> Path:
    """Say where the ledger of an actor lies."""
    return Path(run_dir) / 'books' / f'actor-{source.actor_id}-{source.incarnation}.ledger'


class ActorLedger:
    """
    What one incarnation of an actor has simulated; written by the actor alone.

    Parameters
    ----------
    source : Source
    run_dir : path, optional
        Whose ``books`` folder takes the file; None = keep it in memory (an actor on another
        host, or in the learner's own process).
    next_sequence : int
        Of the first chunk, where it is not 0.

    Raises
    ------
    OSError
        The file cannot be made.

    """

    def __init__(self, source: Source, run_dir: str | os.PathLike[str] | None = None,
                 next_sequence: int = 0) -> None:
        if run_dir is None:
            self._words = np.zeros(_WORDS, np.int64)
        else:
            path = ledger_path(run_dir, source)
            path.parent.mkdir(parents=True, exist_ok=True)
            mapped = np.memmap(path, np.int64, 'w+', shape=(_WORDS,))
            # The same memory as a plain array: items of a memmap are slow to reach.
            self._words = mapped.view(np.ndarray)
        self._slots = self._words[_HEAD:].reshape(RING, 3)
        self._slots[:, 0] = -1
        self._words[1:4] = (*source, next_sequence)
        self._transitions = 0
        self._begin(next_sequence)
        self._words[0] = _MAGIC

    def stepped(self, transitions: int) -> None:
        """Note that `transitions` were simulated for the chunk at hand."""
        self._slot[2] += transitions

    def completed(self, transitions: int) -> None:
        """
        Note that the chunk at hand is complete.

        What was `stepped` stands, also where it differs: then the books show it.
        """
        if self._slot[2] == 0:
            self._slot[2] = transitions
        self._transitions += int(self._slot[2])
        sequence = int(self._words[_COMPLETED])
        self._words[_COMPLETED] = sequence + 1
        self._begin(sequence + 1)

    @property
    def counters(self) -> Counters:
        """As it stands."""
        return Counters(int(self._words[_COMPLETED]), self._transitions, int(self._slot[2]))

    def _begin(self, sequence: int) -> None:
        self._slot = self._slots[sequence % RING]
        # The slot counts for a reader from the moment that it bears the sequence.
        self._slot[1:] = (self._transitions, 0)
        self._slot[0] = sequence


def open_ledger(source: Source, run_dir: str) -> ActorLedger:
    """Make a ledger in the folder of a run, or in memory where that cannot be written."""
    try:
        return ActorLedger(source, run_dir if os.path.isdir(run_dir) else None)
    except OSError:
        return ActorLedger(source)


@dataclasses.dataclass(frozen=True)
class LedgerReading:
    """
    A ledger file as the learner read it.

    Attributes
    ----------
    counters : Counters
    chunk_transitions : dict from int to int
        Sequence → transitions of each completed chunk that the ring still has.

    """

    counters: Counters
    chunk_transitions: dict[int, int]


def read_ledger(run_dir: str | os.PathLike[str], source: Source) -> LedgerReading | None:
    """Read the file of an actor, alive or dead; None where there is none that is whole."""
    try:
        words = np.fromfile(ledger_path(run_dir, source), np.int64)
    except OSError:
        return None
    if len(words) != _WORDS or words[0] != _MAGIC or tuple(words[1:3]) != source:
        return None
    completed = int(words[_COMPLETED])
    slots = {sequence: (before, transitions)
             for sequence, before, transitions in words[_HEAD:].reshape(RING, 3).tolist()
             if sequence >= 0}
    chunks = {sequence: transitions for sequence, (_, transitions) in slots.items()
              if sequence < completed}
    last_before, last = slots.get(completed - 1, (0, 0))
    # The actor may have died before it began the next slot.
    unfinished = slots.get(completed, (0, 0))[1]
    return LedgerReading(Counters(completed, last_before + last, unfinished), chunks)

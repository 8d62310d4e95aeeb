"""
Where every transition went, per actor and incarnation.

    produced = consumed + dropped_by_age + refused_by_check + in_flight + lost_in_crash

`produced` is the actor's own count (`ledger.py`).  The others are the learner's: consumed,
dropped and refused as it happens; in_flight is what lies in the batcher and what the actor has
begun or completed that has not arrived; once the actor is gone, the latter is lost.  Nothing is
computed as a remainder, so `check` can fail.
"""

import dataclasses
import json
import os
from pathlib import Path
import re
from typing import Any

from asyncppo_ros.chunk import Source
from asyncppo_ros.learning.ledger import Counters, LedgerReading, read_ledger
from asyncppo_ros.run import replace_file

COLUMNS = ('produced', 'consumed', 'dropped_by_age', 'refused_by_check', 'in_flight',
           'lost_in_crash')


@dataclasses.dataclass
class Account:
    """
    The learner's ledger of one actor [transitions].

    Attributes
    ----------
    expected : int
        Sequence of the next chunk; all earlier ones are settled.
    settled : int
        Transitions of all settled chunks: received, refused or lost on the way.
    received : int
        Transitions that reached the batcher.
    consumed, dropped_by_age, refused_by_check : int
    lost_on_the_way : int
        Of chunks whose successor arrived.
    alive : bool
    claimed : Counters
        What the actor last said of itself.

    """

    expected: int = 0
    settled: int = 0
    received: int = 0
    consumed: int = 0
    dropped_by_age: int = 0
    refused_by_check: int = 0
    lost_on_the_way: int = 0
    alive: bool = True
    claimed: Counters = Counters()

    @property
    def held(self) -> int:
        """Transitions in the batcher."""
        return self.received - self.consumed - self.dropped_by_age


class Books:
    """
    The accounts of all actors of a run; the caller holds a lock where there are threads.

    Parameters
    ----------
    run_dir : path or None
        Holds ``books/*.ledger`` and takes ``books.json``; None = neither.
    state : mapping, optional
        Of an earlier learner of the run (`state`): the accounts go on.

    """

    def __init__(self, run_dir: str | os.PathLike[str] | None = None,
                 state: dict[str, Any] | None = None) -> None:
        self._run_dir = run_dir
        self._accounts: dict[Source, Account] = {}
        self._final: dict[Source, LedgerReading] = {}
        for entry in (state or {}).get('accounts', ()):
            values = dict(entry)
            source = Source(values.pop('actor_id'), values.pop('incarnation'))
            account = Account(**values | {'claimed': Counters(**values['claimed'])})
            # What lay in the batcher of the earlier learner was lost with it.
            account.lost_on_the_way += account.held
            account.received -= account.held
            self._accounts[source] = account
        for source in self._ledgers():
            # Of an actor that joined the earlier learner after its last checkpoint: it may come
            # back; else all that it made is lost.
            self._accounts.setdefault(source, Account())

    def state(self) -> dict[str, Any]:
        """Give everything for a checkpoint, as JSON types."""
        return {'accounts': [{**source._asdict(), **dataclasses.asdict(account)}
                             for source, account in self._accounts.items()]}

    def alive(self) -> list[Source]:
        """Name the actors that have not left."""
        return [source for source, account in self._accounts.items() if account.alive]

    def expected(self, source: Source) -> int:
        """Give the sequence of the chunk that an actor sends next."""
        return self._accounts[source].expected

    def last_incarnation(self, actor_id: int) -> int:
        """Give the highest incarnation an actor ever had; 0 = none."""
        return max((source.incarnation for source in [*self._accounts, *self._ledgers()]
                    if source.actor_id == actor_id), default=0)

    def joined(self, source: Source, next_sequence: int = 0, before: int = 0) -> None:
        """
        Open the account of an actor, or reopen it: it only had been silent.

        What it no longer has, another learner took, whose checkpoints do not tell of it.
        """
        if source in self._accounts:
            self._accounts[source].alive = True
            self._final.pop(source, None)
            if next_sequence > self._accounts[source].expected:
                self.skipped(source, next_sequence, before)
            return
        # Chunks of before the first hello were sent to a learner that did not live to tell.
        self._accounts[source] = Account(expected=next_sequence, settled=before,
                                         lost_on_the_way=before)

    def claimed(self, source: Source, counters: Counters) -> None:
        """Note what an actor says of itself."""
        self._accounts[source].claimed = _plain(counters)

    def skipped(self, source: Source, sequence: int, before: int) -> None:
        """
        Note that the chunks between `expected` and `sequence` were lost on the way.

        `before` is the actor's own count of the transitions before `sequence`; the ring of its
        ledger, where it can be read, is believed first.
        """
        account = self._accounts[source]
        reading = self._read(source)
        missing = range(account.expected, sequence)
        if reading is not None and all(key in reading.chunk_transitions for key in missing):
            lost = sum(reading.chunk_transitions[key] for key in missing)
        else:
            lost = max(0, before - account.settled)
        account.lost_on_the_way += lost
        account.settled += lost
        account.expected = sequence

    def received(self, source: Source, transitions: int) -> None:
        """Note that the expected chunk arrived and passed every check."""
        account = self._accounts[source]
        account.received += transitions
        account.settled += transitions
        account.expected += 1

    def refused(self, source: Source, transitions: int) -> None:
        """Note that the expected chunk arrived and failed a check."""
        account = self._accounts[source]
        account.refused_by_check += transitions
        account.settled += transitions
        account.expected += 1

    def consumed(self, source: Source, transitions: int) -> None:
        """Note that transitions went into an update."""
        self._accounts[source].consumed += transitions

    def dropped(self, source: Source, transitions: int) -> None:
        """Note that transitions were dropped for their age."""
        self._accounts[source].dropped_by_age += transitions

    def gone(self, source: Source, counters: Counters | None = None) -> None:
        """Close an account: the actor said goodbye (with its counters) or went silent."""
        account = self._accounts[source]
        account.alive = False
        if counters is not None:
            account.claimed = _plain(counters)

    def table(self) -> list[dict[str, Any]]:
        """Give one row per actor: actor_id, incarnation, alive and `COLUMNS`."""
        return [self._row(source, account)
                for source, account in sorted(self._accounts.items())]

    def totals(self) -> dict[str, int]:
        """Give the sum of each of `COLUMNS`."""
        rows = self.table()
        return {column: sum(row[column] for row in rows) for column in COLUMNS}

    def check(self) -> list[str]:
        """Name every account that does not balance."""
        return imbalances(self.table())

    def write(self) -> list[str]:
        """Write ``books.json`` into the run, whole or not at all, and `check`."""
        rows = self.table()
        found = imbalances(rows)
        if self._run_dir is not None:
            content = {
                'balanced': not found,
                'totals': {column: sum(row[column] for row in rows) for column in COLUMNS},
                'actors': rows}
            replace_file(Path(self._run_dir) / 'books.json',
                         (json.dumps(content, indent=1) + '\n').encode())
        return found

    def _row(self, source: Source, account: Account) -> dict[str, Any]:
        reading = self._read(source)
        counters = reading.counters if reading else account.claimed
        if reading:
            outside = counters.unfinished + sum(
                transitions for sequence, transitions in reading.chunk_transitions.items()
                if sequence >= account.expected)
        else:
            outside = max(0, counters.transitions - account.settled) + counters.unfinished
        alive = account.alive
        return {
            **source._asdict(), 'alive': alive, 'produced': counters.produced,
            'consumed': account.consumed, 'dropped_by_age': account.dropped_by_age,
            'refused_by_check': account.refused_by_check,
            'in_flight': account.held + (outside if alive else 0),
            'lost_in_crash': account.lost_on_the_way + (0 if alive else outside)}

    def _ledgers(self) -> list[Source]:
        """Name the actors whose ledgers lie in the run."""
        if self._run_dir is None:
            return []
        found = (re.fullmatch(r'actor-([0-9]+)-([0-9]+)\.ledger', path.name)
                 for path in (Path(self._run_dir) / 'books').glob('actor-*.ledger'))
        return [Source(int(match[1]), int(match[2])) for match in found if match]

    def _read(self, source: Source) -> LedgerReading | None:
        if self._run_dir is None:
            return None
        if source in self._final:
            return self._final[source]
        reading = read_ledger(self._run_dir, source)
        if reading is not None and not self._accounts[source].alive:
            self._final[source] = reading
        return reading


def _plain(counters: Counters) -> Counters:
    # Messages inherit from Counters and carry more than is to be kept.
    return Counters(counters.chunks, counters.transitions, counters.unfinished)


def imbalances(rows: list[dict[str, Any]]) -> list[str]:
    """Say which rows of a table do not add up, and by how much."""
    found = []
    for row in rows:
        difference = row['produced'] - sum(row[column] for column in COLUMNS[1:])
        if difference:
            found.append(f'actor {row["actor_id"]}, incarnation {row["incarnation"]}: '
                         f'{abs(difference)} transitions '
                         f'{"unaccounted for" if difference > 0 else "counted twice"}')
    return found

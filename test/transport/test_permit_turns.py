"""Whose turn it is: what the permit book keeps up equals a look at all accounts."""

import random

import pytest

from asyncppo_ros.chunk import Identity, Source
from asyncppo_ros.transport.permits import PermitBook


class PlainBook(PermitBook):
    """Finds all that the book keeps up by looking at every account."""

    @property
    def under_way(self):
        return self._held + sum(account.outstanding * account.chunk_transitions
                                for account in self._accounts.values())

    def _next(self):
        return min(self._accounts.items(), key=lambda item: (
            item[1].outstanding > item[1].arrived, item[1].outstanding, item[1].granted_at))

    def _smallest_with(self, account):
        return min(other.chunk_transitions for other in self._accounts.values()
                   if other.outstanding or other is account)


class Run:
    """Two books that hear of the same events."""

    def __init__(self, seed, batch_size, target_lag):
        self.chance = random.Random(seed)
        self.books = [kind(batch_size, target_lag, Identity(1, 0))
                      for kind in (PermitBook, PlainBook)]
        self.batch_size = batch_size
        self.sizes, self.limits, self.expected = {}, {}, {}
        self.held, self.version = 0, 0
        self.both('published', Identity(1, 0))

    def both(self, event, *arguments):
        changes, plain = (getattr(book, event)(*arguments) for book in self.books)
        assert list(changes.items()) == list(plain.items()), event
        assert self.books[0].under_way == self.books[1].under_way
        self.limits.update({source: permit.limit for source, permit in changes.items()})

    def step(self):
        kind = self.chance.random()
        if kind < 0.05 or not self.sizes:
            # Also one that is known comes again.
            source = Source(self.chance.randrange(20), 1)
            self.sizes[source] = self.chance.choice((2, 2, 3, 7))
            self.expected[source] = self.expected.get(source, 0)
            self.both('joined', source, self.sizes[source], self.expected[source],
                      self.chance.choice((None, None, 0, 3)))
        elif kind < 0.08:
            source = self.chance.choice(sorted(self.sizes))
            del self.sizes[source]
            self.both('left', source)
        elif kind < 0.85:
            self.receive()
        elif self.held >= self.batch_size:
            self.held -= self.batch_size
            self.both('batch_taken', self.batch_size)
            self.version += 1
            self.both('updated', self.version)
            self.both('published', Identity(1, self.version))
        elif self.held and kind < 0.87:
            self.held -= 1
            self.both('dropped', 1)

    def receive(self):
        able = [source for source in sorted(self.sizes)
                if self.expected[source] < self.limits[source]]
        if able:
            source = self.chance.choice(able)
            # Cut short, refused, or after one that was lost.
            transitions = self.chance.choice((self.sizes[source], self.sizes[source], 1, 0))
            skipped = self.chance.random() < 0.1
            sequence = min(self.expected[source] + skipped, self.limits[source] - 1)
            self.expected[source] = sequence + 1
            self.held += transitions
            self.both('received', source, sequence, transitions)


@pytest.mark.parametrize('seed, batch_size, target_lag', [
    (0, 16, 0), (1, 40, 1), (2, 150, 3), (3, 7, 2)])
def test_a_kept_up_book_grants_as_one_that_looks_at_all(seed, batch_size, target_lag):
    run = Run(seed, batch_size, target_lag)
    for _ in range(1500):
        run.step()
    assert run.version > 10
    # Old turns do not pile up.
    assert len(run.books[0]._turns) <= 4 * len(run.sizes) + 17


def test_shares_of_many_actors_are_equal():
    chance, permits = random.Random(0), PermitBook(200, 1, Identity(1, 0))
    sources = [Source(number, 1) for number in range(100)]
    for source in sources:
        permits.joined(source, 2, 0)
    granted = permits.published(Identity(1, 0))
    received, held, version = dict.fromkeys(sources, 0), 0, 0
    for _ in range(60):
        # All are as fast, but in another order each time.
        for source in chance.sample(sources, len(sources)):
            if granted[source].limit > received[source]:
                granted |= permits.received(source, received[source], 2)
                received[source], held = received[source] + 1, held + 2
            if held >= 200:
                held, version = held - 200, version + 1
                granted |= permits.batch_taken(200) | permits.updated(version)
                granted |= permits.published(Identity(1, version))
    assert version > 50
    assert max(received.values()) - min(received.values()) <= 4

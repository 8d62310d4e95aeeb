"""
Flow control: who may begin a chunk, and with which policy at least.  No I/O, no clock.

A transition is *under way* from the grant of its chunk until it is consumed or dropped.  A chunk
may be granted while fewer than (target_lag + 1) × batch_size transitions are under way.  Those
before it fill ``under_way // batch_size`` batches, so it is consumed at the latest by

    c = next_version + under_way // batch_size

where next_version is what the learner has when it begins its next batch (one more while an
update runs).  So the actor must collect it with policy (generation, c - target_lag) or newer,
and gets its permit only once that policy is published: a waiting actor waits for its delivery
and for nothing else.  target_lag 0 is exactly synchronous.

Chunks may arrive in another order than they were granted.  So room for one more is counted
without the smallest chunk that is outstanding: a batch is never full without a chunk that was
meant for it, whoever comes last.  A slow actor can still be overtaken by several batches, as those
are granted anew while it collects; it cuts its chunk when it hears of the policies made meanwhile
(`acting.actor.cut_lag`).

Actors come one after the other, and nobody knows how many will.  What is granted cannot be taken
back, so the first must not be granted all that may be under way before the next is there.
Whenever somebody joins, all start afresh: an actor may have one chunk more outstanding than have
arrived from it since.  One that is alone, or when all are there, soon has as many as it can use.
"""

from collections import Counter
import dataclasses
import heapq
from typing import NamedTuple

from asyncppo_ros.chunk import Identity, NO_POLICY, Source

# More chunks than an actor will ever make.
UNLIMITED = 2 ** 61


class Permit(NamedTuple):
    """
    What an actor may begin.

    Attributes
    ----------
    limit : int
        Chunks with a sequence below this; absolute, so a lost message costs nothing.
    minimum : Identity
        The oldest policy to collect them with.

    """

    limit: int
    minimum: Identity


@dataclasses.dataclass
class _Account:
    """
    One actor's grants; `expected` is its next chunk, `arrived` how many since a join.

    `turn` is its place among those who wait: the smallest is next.
    """

    chunk_transitions: int
    target_lag: int
    expected: int
    permit: Permit
    joined_at: int
    outstanding: int = 0
    granted_at: int = -1
    arrived: int = 0
    turn: '_Turn' = (False, 0, -1, 0)

    @property
    def has_enough(self) -> bool:
        """Whether it must first deliver what it has, because others may still come."""
        return self.outstanding > self.arrived

    def take_turn(self) -> '_Turn':
        """Find out its turn anew, and give it."""
        self.turn = (self.has_enough, self.outstanding, self.granted_at, self.joined_at)
        return self.turn


_Turn = tuple[bool, int, int, int]
Changes = dict[Source, Permit]


class PermitBook:
    """
    Hands out permits; every event returns those that it changed.

    Parameters
    ----------
    batch_size : int
        Transitions of one update.
    target_lag : int
        Upper limit of the policy lag [versions].
    identity : Identity
        The policy the learner starts with.

    """

    def __init__(self, batch_size: int, target_lag: int, identity: Identity) -> None:
        self.batch_size = batch_size
        self.target_lag = target_lag
        self._identity = identity
        self._published = NO_POLICY
        self._updating = False
        self._paused = False
        self._held = 0
        self._grants = 0
        self._joins = 0
        self._accounts: dict[Source, _Account] = {}
        # Kept up with each change, because of a thousand accounts one or two change at a time:
        # transitions outstanding; size of a chunk → accounts that have such ones outstanding;
        # whose turn it is, a heap, in which the turns that an account had before remain.
        self._outstanding = 0
        self._sizes: Counter[int] = Counter()
        self._turns: list[tuple[_Turn, Source]] = []

    @property
    def generation(self) -> int:
        """The learner's generation."""
        return self._identity.generation

    @property
    def under_way(self) -> int:
        """Transitions that are granted or received and not yet consumed or dropped."""
        return self._held + self._outstanding

    @property
    def room(self) -> int:
        """Transitions below which there is room for one more chunk."""
        return (self.target_lag + 1) * self.batch_size

    def target_lag_of(self, source: Source) -> int:
        """Give the limit of an actor [versions]."""
        account = self._accounts.get(source)
        return account.target_lag if account else self.target_lag

    def permit(self, source: Source) -> Permit | None:
        """Give the permit of an actor; None = unknown."""
        account = self._accounts.get(source)
        return account.permit if account else None

    def joined(self, source: Source, chunk_transitions: int, next_sequence: int,
               target_lag: int | None = None) -> Changes:
        """
        Take an actor in (again).

        Parameters
        ----------
        source : Source
        chunk_transitions : int
            The most that a chunk of it has.
        next_sequence : int
            Of the first chunk that it may be granted.
        target_lag : int, optional
            Limit of this source alone [versions].

        """
        known = self._accounts.get(source)
        if known is not None:
            self._settle(source, known, 0)
        self._accounts[source] = account = _Account(
            chunk_transitions, self.target_lag if target_lag is None else target_lag,
            next_sequence, Permit(next_sequence, NO_POLICY),
            self._joins if known is None else known.joined_at)
        self._joins += 1
        for other in self._accounts.values():
            other.arrived = 0
            other.take_turn()
        self._order_turns()
        return {source: account.permit} | self._grant()

    def left(self, source: Source) -> Changes:
        """Free all that an actor was granted: it left or went silent."""
        account = self._accounts.get(source)
        if account is not None:
            self._settle(source, account, 0)
            del self._accounts[source]
        return self._grant()

    def received(self, source: Source, sequence: int, transitions: int) -> Changes:
        """
        Note a chunk that arrived (0 transitions: it was refused).

        All earlier ones are settled too: chunks of one actor arrive in order or never.
        """
        account = self._accounts.get(source)
        self._held += transitions
        if account is not None and sequence >= account.expected:
            account.expected = sequence + 1
            # Chunks of an earlier learner's permits may arrive beyond this one's limit.
            limit = max(account.permit.limit, account.expected)
            if limit > account.permit.limit:
                account.permit = account.permit._replace(limit=limit)
            account.arrived += 1
            self._settle(source, account, limit - account.expected)
        return self._grant()

    def batch_taken(self, transitions: int) -> Changes:
        """Note that the learner consumes a batch: an update begins."""
        self._held -= transitions
        self._updating = True
        return self._grant()

    def dropped(self, transitions: int) -> Changes:
        """Note that chunks were dropped for their age."""
        self._held -= transitions
        return self._grant()

    def updated(self, version: int) -> Changes:
        """Note the end of an update; a refused one leaves the version as it was."""
        self._identity = self._identity._replace(policy_version=version)
        self._updating = False
        return self._grant()

    def restored(self, identity: Identity) -> Changes:
        """Note that the learner goes on from an older state under a new generation."""
        self._identity = identity
        self._updating = False
        return self._grant()

    def published(self, identity: Identity) -> Changes:
        """Note that a policy can be had from now on."""
        self._published = max(self._published, identity)
        return self._grant()

    def paused(self) -> Changes:
        """Grant nothing until `resumed`."""
        self._paused = True
        return {}

    def resumed(self) -> Changes:
        """Grant again."""
        self._paused = False
        return self._grant()

    def _grant(self) -> Changes:
        changes: Changes = {}
        if self._paused:
            return changes
        while self._accounts and self.under_way < self.room:
            # Fewest outstanding first, then who has waited longest: nobody starves.  One with a
            # stricter limit than the others holds them back until there is room for it.
            source, account = self._next()
            if account.has_enough:
                break
            before = self.under_way + account.chunk_transitions - self._smallest_with(account)
            minimum = self._minimum(before, account.target_lag)
            if before >= self.room or minimum > self._published:
                break
            account.permit = Permit(account.permit.limit + 1, minimum)
            account.granted_at = self._grants
            self._grants += 1
            self._settle(source, account, account.outstanding + 1)
            changes[source] = account.permit
        return changes

    def _settle(self, source: Source, account: _Account, outstanding: int) -> None:
        """Note how many chunks an account has outstanding from now on."""
        size = account.chunk_transitions
        self._outstanding += (outstanding - account.outstanding) * size
        self._sizes[size] += (outstanding > 0) - (account.outstanding > 0)
        if not self._sizes[size]:
            del self._sizes[size]
        account.outstanding = outstanding
        heapq.heappush(self._turns, (account.take_turn(), source))
        if len(self._turns) > 4 * len(self._accounts) + 16:
            self._order_turns()

    def _order_turns(self) -> None:
        self._turns = [(account.turn, source) for source, account in self._accounts.items()]
        heapq.heapify(self._turns)

    def _next(self) -> tuple[Source, _Account]:
        while True:
            turn, source = self._turns[0]
            account = self._accounts.get(source)
            if account is not None and account.turn == turn:
                return source, account
            heapq.heappop(self._turns)

    def _smallest_with(self, account: _Account) -> int:
        """Give the size of the smallest chunk under way once this actor has one more."""
        return min((account.chunk_transitions, *self._sizes))

    def _minimum(self, under_way: int, target_lag: int) -> Identity:
        next_version = self._identity.policy_version + self._updating
        consumed_at = next_version + under_way // self.batch_size
        return Identity(self.generation, max(0, consumed_at - target_lag))


class UnpacedPermitBook(PermitBook):
    """
    Lets every actor collect as it likes, for experiments: only a pause holds them back.

    What comes in faster than it is consumed must be dropped by who keeps it.
    """

    @property
    def under_way(self) -> int:
        """Transitions that are received and not yet consumed or dropped."""
        return self._held

    def paused(self) -> Changes:
        """Grant nothing until `resumed`."""
        super().paused()
        for account in self._accounts.values():
            account.permit = Permit(account.expected, NO_POLICY)
        return {source: account.permit for source, account in self._accounts.items()}

    def _grant(self) -> Changes:
        changes: Changes = {}
        if self._paused or self._published == NO_POLICY:
            return changes
        for source, account in self._accounts.items():
            if account.permit.limit < UNLIMITED:
                changes[source] = account.permit = Permit(UNLIMITED, NO_POLICY)
        return changes

"""The permit rule, without sockets: by hand, and in a simulation of fast and slow actors."""

from collections import deque
import heapq
import math
from types import SimpleNamespace

import numpy as np
import pytest

from asyncppo_ros.acting.actor import cut_lag, is_outdated
from asyncppo_ros.chunk import Identity, NO_POLICY, Source
from asyncppo_ros.learning.batcher import Batcher
from asyncppo_ros.transport.permits import Permit, PermitBook, UNLIMITED, UnpacedPermitBook

STEPS = 32
A, B, C = Source(0, 1), Source(1, 1), Source(2, 1)
FIRST = Identity(1, 0)


def book(batch_size=4, target_lag=0, identity=FIRST, published=True):
    """Make a permit book, its first policy published."""
    permits = PermitBook(batch_size, target_lag, identity)
    if published:
        permits.published(identity)
    return permits


def test_nothing_is_granted_before_the_first_policy():
    permits = book(published=False)
    assert permits.joined(A, 2, 0) == {A: Permit(0, NO_POLICY)}
    assert permits.published(FIRST) == {A: Permit(1, FIRST)}


def test_zero_lag_is_synchronous():
    permits = book(batch_size=4, target_lag=0)
    assert permits.joined(A, 2, 0) == {A: Permit(1, FIRST)}
    assert permits.received(A, 0, 2) == {A: Permit(2, FIRST)}
    assert permits.received(A, 1, 2) == {}
    assert permits.batch_taken(4) == {}
    assert permits.updated(1) == {}
    assert permits.published(Identity(1, 1)) == {A: Permit(4, Identity(1, 1))}


def test_lag_one_collects_while_the_learner_learns():
    permits = book(batch_size=4, target_lag=1)
    assert permits.joined(A, 4, 0) == {A: Permit(1, FIRST)}
    assert permits.received(A, 0, 4) == {A: Permit(2, FIRST)}
    # Chunk 1 will be consumed at version 1, chunk 2 at version 2: it needs policy 1.
    assert permits.batch_taken(4) == {}
    permits.updated(1)
    assert permits.published(Identity(1, 1)) == {A: Permit(3, Identity(1, 1))}


def test_a_batch_that_chunks_do_not_divide_is_reached():
    permits = book(batch_size=10, target_lag=0)
    assert permits.joined(A, 4, 0)[A].limit == 1
    assert permits.received(A, 0, 4)[A].limit == 3
    assert permits.received(A, 1, 4) == permits.received(A, 2, 4) == {}
    assert permits.under_way == 12


def test_the_first_to_come_leaves_room_for_those_who_come_after_it():
    permits = book(batch_size=8, target_lag=1)
    for source in (A, B, C):
        assert permits.joined(source, 2, 0) == {source: Permit(1, FIRST)}
    # What it has delivered since, and one: 2 of 8 chunks under way arrived, 3 are outstanding.
    assert permits.received(A, 0, 2) == {A: Permit(3, FIRST)}
    assert permits.received(B, 0, 2) == {B: Permit(3, FIRST)}
    # The last chunk that there is room for is for whoever has the fewest.
    assert permits.received(C, 0, 2) == {C: Permit(2, FIRST)}


def test_one_that_is_alone_for_good_has_all_that_may_be_under_way():
    permits = book(batch_size=32, target_lag=1)
    limits = [permits.joined(A, 1, 0)[A].limit]
    for sequence in range(5):
        limits += [permits.received(A, sequence, 1)[A].limit]
    assert limits == [1, 3, 5, 7, 9, 11]
    for sequence in range(5, 64):
        assert permits.permit(A).limit > sequence
        permits.received(A, sequence, 1)
    assert permits.under_way == permits.room


def test_all_start_afresh_with_one_who_joins_and_none_waits_for_the_slow():
    permits = book(batch_size=8, target_lag=1)
    permits.joined(A, 1, 0)
    for sequence in range(4):
        permits.received(A, sequence, 1)
    assert permits.permit(A).limit == 9
    assert permits.joined(B, 1, 0) == {B: Permit(1, FIRST)}
    # 5 were outstanding; now it may have 1 and those that arrive, so it gets no more so soon.
    assert permits.received(A, 4, 1) == permits.received(A, 5, 1) == {}
    # B is slow and has delivered nothing: A, whose turn comes after it, is granted all the same.
    assert permits.received(A, 6, 1) == {A: Permit(11, FIRST)}


def test_newcomers_come_first_and_share_the_room():
    permits = book(batch_size=8, target_lag=0)
    permits.joined(A, 2, 0)
    for sequence in range(3):
        permits.received(A, sequence, 2)
    assert permits.permit(A).limit == 4
    assert permits.joined(B, 2, 5) == {B: Permit(5, NO_POLICY)}
    # A chunk that is cut short frees what it does not fill.
    assert permits.received(A, 3, 1) == {B: Permit(6, FIRST)}


def test_the_room_of_those_who_leave_is_given_to_others():
    permits = book(batch_size=8, target_lag=0)
    permits.joined(A, 2, 0)
    permits.joined(B, 2, 0)
    # 2 chunks of B are outstanding then, one has arrived, and one was granted to A.
    assert permits.received(B, 0, 2) == {B: Permit(3, FIRST)}
    permits.received(B, 1, 2)
    assert permits.left(A) == {B: Permit(4, FIRST)}


def test_lost_chunks_are_settled_by_the_next_one():
    permits = book(batch_size=8, target_lag=0)
    permits.joined(A, 2, 0)
    assert permits.received(A, 0, 2) == {A: Permit(3, FIRST)}
    assert permits.received(A, 2, 2) == {A: Permit(5, FIRST)}
    assert permits.under_way == 8


def test_a_repeated_chunk_changes_nothing_but_what_is_held():
    permits = book(batch_size=8, target_lag=0)
    permits.joined(A, 2, 0)
    permits.received(A, 0, 2)
    assert permits.received(A, 0, 0) == {}


def test_chunks_of_an_earlier_learner_do_not_eat_permits():
    permits = book(batch_size=4, target_lag=0)
    permits.joined(A, 2, 3)
    for sequence in range(3, 8):
        permits.received(A, sequence, 2)
    permits.batch_taken(10)
    permits.updated(1)
    assert permits.published(Identity(1, 1)) == {A: Permit(10, Identity(1, 1))}


def test_a_paused_learner_grants_nothing():
    permits = book(batch_size=8, target_lag=0)
    permits.paused()
    assert permits.joined(A, 2, 0) == {A: Permit(0, NO_POLICY)}
    assert permits.resumed() == {A: Permit(1, FIRST)}


def test_a_restored_learner_asks_for_its_own_generation():
    permits = book(batch_size=4, target_lag=2, identity=Identity(1, 50))
    permits.joined(A, 4, 0)
    assert permits.restored(Identity(2, 40)) == {}
    permits.received(A, 0, 4)
    assert permits.dropped(4) == {}
    changes = permits.published(Identity(2, 40))
    assert changes[A].minimum.generation == 2


def test_the_minimum_is_never_below_zero():
    assert book(target_lag=5).joined(A, 4, 0)[A].minimum == FIRST


class World:
    """A discrete-event simulation: actors and a learner with the real permits and batcher."""

    def __init__(self, batch_size, target_lag, update_s, publish_updates=1, seed=0,
                 max_policy_lag=1000, permits=PermitBook, capacity=math.inf):
        self.permits = permits(batch_size, target_lag, FIRST)
        self.batcher = Batcher(batch_size, max_policy_lag, self.drop, capacity)
        self.batch_size = batch_size
        self.update_s = update_s
        self.publish_updates = publish_updates
        self.random = np.random.default_rng(seed)
        self.now, self.events, self.count = 0.0, [], 0
        self.version, self.newest = 0, NO_POLICY
        self.updating = False
        self.actors = {}
        self.lags, self.most_under_way, self.most_waiting = {}, 0, 0
        self.consumed, self.dropped, self.cut, self.chunks = {}, 0, 0, 0
        self.publish()

    @property
    def all_lags(self):
        return [lag for lags in self.lags.values() for lag in lags]

    def after(self, delay, action, *arguments):
        self.count += 1
        heapq.heappush(self.events, (self.now + delay, self.count, action, arguments))

    def publish(self):
        self.newest = Identity(1, self.version)
        self.permits.published(self.newest)
        for source, actor in self.actors.items():
            if actor['busy'] and is_outdated(actor['policy'], self.newest, actor['cut_lag']):
                # It hears of it within its control step.
                self.after(actor['time'] / STEPS, self.finish, source, actor, actor['next'], True)

    def join(self, source, transitions, chunk_s, target_lag=None):
        limit = self.permits.target_lag if target_lag is None else target_lag
        self.actors[source] = {
            'size': transitions, 'time': chunk_s, 'next': 0, 'busy': False, 'policy': NO_POLICY,
            'cut_lag': cut_lag(limit, self.publish_updates), 'limit': limit}
        self.permits.joined(source, transitions, 0, target_lag)

    def leave(self, source):
        del self.actors[source]
        self.permits.left(source)

    def start_chunks(self):
        for source, actor in self.actors.items():
            permit = self.permits.permit(source)
            if not actor['busy'] and actor['next'] < permit.limit \
                    and self.newest >= permit.minimum:
                actor |= {'busy': True, 'policy': self.newest, 'begun': self.now}
                delay = actor['time'] * self.random.uniform(0.95, 1.05)
                self.after(delay, self.finish, source, actor, actor['next'], False)

    def finish(self, source, actor, sequence, cut):
        if self.actors.get(source) is not actor or sequence != actor['next']:
            return  # it died on the way, or the chunk had ended before
        share = min(1.0, (self.now - actor['begun']) / actor['time']) if cut else 1.0
        transitions = max(1, round(actor['size'] * share))
        self.cut += cut
        self.chunks += 1
        actor['busy'] = False
        actor['next'] += 1
        self.batcher.offer(
            SimpleNamespace(transitions=transitions, policy_version=actor['policy'][1],
                            generation=1, gradient_steps=0, collecting_ns=0, waiting_ns=0,
                            source=source), 0, target_lag=actor['limit'])
        self.permits.received(source, sequence, transitions)
        self.most_waiting = max(self.most_waiting, self.batcher.transitions)

    def drop(self, chunks):
        transitions = sum(chunk.transitions for chunk in chunks)
        self.dropped += transitions
        self.permits.dropped(transitions)

    def learn(self):
        if self.updating:
            return
        batch = self.batcher.next_batch(Identity(1, self.version), 0, 0.0)
        if batch is None:
            return
        for one in batch.measured:
            source = one.chunk.source
            self.lags.setdefault(source, []).append(one.lag_versions)
            self.consumed[source] = self.consumed.get(source, 0) + one.chunk.transitions
        self.permits.batch_taken(batch.transitions)
        self.updating = True
        self.after(self.update_s, self.end_update)

    def end_update(self):
        self.updating = False
        self.version += 1
        self.permits.updated(self.version)
        if self.version % self.publish_updates == 0:
            self.publish()

    def run_for(self, seconds):
        """Run until so much time has passed."""
        over = []
        self.after(seconds, over.append, True)
        while not over:
            self.step()

    def run(self, updates):
        """Run until the learner has made so many updates more; False = everything stands."""
        goal = self.version + updates
        while self.version < goal:
            if not self.step():
                return False
        return True

    def step(self):
        """Go on to the next event; False = there is none."""
        self.learn()
        self.start_chunks()
        self.most_under_way = max(self.most_under_way, self.permits.under_way)
        if not self.events:
            return False
        self.now, _, action, arguments = heapq.heappop(self.events)
        action(*arguments)
        return True


@pytest.mark.parametrize('target_lag', [0, 1, 2, 4])
@pytest.mark.parametrize('update_s', [0.01, 1.0, 20.0])
@pytest.mark.parametrize('size', [32, 30])
def test_lag_and_bytes_are_bounded(target_lag, update_s, size):
    for publish_updates in range(1, target_lag + 2):
        world = World(256, target_lag, update_s, publish_updates)
        for number in range(4):
            world.join(Source(number, 1), size, 1.0)
        assert world.run(60)
        assert world.most_under_way < (target_lag + 1) * 256 + size
        assert max(world.all_lags) <= target_lag
        shares = list(world.consumed.values())
        assert min(shares) > 0.7 * max(shares)


@pytest.mark.parametrize('target_lag', [0, 1, 2, 3, 5])
@pytest.mark.parametrize('update_s', [0.01, 1.0, 20.0])
def test_a_slow_actor_among_fast_ones_keeps_the_lag(target_lag, update_s):
    for publish_updates in range(1, target_lag + 2):
        world = World(256, target_lag, update_s, publish_updates)
        for number in range(4):
            world.join(Source(number, 1), 32, 1.0)
        # Its control step is shorter than a chunk of the others, or it would hear too late.
        world.join(Source(9, 1), 32, 24.0)
        assert world.run(60)
        assert max(world.all_lags) <= target_lag, publish_updates
        assert world.consumed[Source(9, 1)] > 0


@pytest.mark.parametrize('late_s', [0.1, 0.3, 1.0])
def test_shares_are_equal_though_one_comes_after_the_other(late_s):
    """There is room for 32 chunks; 8 actors take a while to come, as processes do."""
    world = World(16 * 32, 1, update_s=0.1)
    for number in range(8):
        world.join(Source(number, 1), 32, 1.0)
        assert world.permits.permit(Source(number, 1)).limit > 0, 'it waits for others'
        world.run_for(late_s)
    begun = {source: actor['next'] for source, actor in world.actors.items()}
    world.run_for(6.0)
    delivered = [actor['next'] - begun[source] for source, actor in world.actors.items()]
    assert max(delivered) <= 1.3 * min(delivered) and min(delivered) >= 5


@pytest.mark.parametrize('target_lag', [1, 2, 4])
def test_a_slow_learner_sees_the_lag_it_was_promised(target_lag):
    world = World(256, target_lag, update_s=100.0)
    for number in range(4):
        world.join(Source(number, 1), 32, 1.0)
    world.run(60)
    assert np.mean(world.all_lags) >= target_lag - 1
    assert max(world.all_lags) <= target_lag
    assert world.cut == 0


def test_a_slow_actor_does_not_hold_the_others_back():
    world = World(256, 1, update_s=0.1)
    for number in range(4):
        world.join(Source(number, 1), 32, 1.0)
    world.run(100)
    fast = 100 / world.now
    world.join(Source(9, 1), 32, 50.0)
    begun = world.now
    world.run(100)
    assert 100 / (world.now - begun) > 0.8 * fast


@pytest.mark.parametrize('update_s', [0.1, 20.0])
def test_a_source_may_have_a_stricter_and_another_a_looser_limit(update_s):
    world = World(256, 3, update_s)
    strict, loose = Source(8, 1), Source(9, 1)
    for number in range(3):
        world.join(Source(number, 1), 32, 1.0)
    world.join(strict, 32, 1.0, target_lag=1)
    world.join(loose, 32, 24.0, target_lag=6)
    assert world.run(100)
    # The others' queue may be as long as theirs allows when it is overtaken: one more at most.
    assert np.quantile(world.lags[strict], 0.95) <= 1 and max(world.lags[strict]) <= 2
    assert max(world.lags[loose]) <= 6
    assert max(max(world.lags[Source(number, 1)]) for number in range(3)) <= 3
    assert world.consumed[strict] > 0.3 * world.consumed[Source(0, 1)]


def test_a_looser_limit_lets_a_slow_source_collect_longer_chunks():
    lengths = []
    for target_lag in (None, 6):
        world = World(256, 1, 0.1)
        for number in range(4):
            world.join(Source(number, 1), 32, 1.0)
        world.join(Source(9, 1), 32, 24.0, target_lag)
        assert world.run(100)
        lengths.append(world.consumed[Source(9, 1)] / len(world.lags[Source(9, 1)]))
        assert max(world.lags[Source(0, 1)]) <= 1
    assert lengths[1] > 2 * lengths[0]


def test_without_pacing_the_lag_is_at_the_bound_and_memory_is_still_limited():
    world = World(256, 1, update_s=3.0, max_policy_lag=3, permits=UnpacedPermitBook,
                  capacity=5 * 256)
    for number in range(4):
        world.join(Source(number, 1), 32, 1.0)
        world.actors[Source(number, 1)]['cut_lag'] = math.inf
    assert world.run(60)
    assert np.mean(world.all_lags[len(world.all_lags) // 2:]) > 2
    assert max(world.all_lags) <= 3
    assert world.most_waiting <= 5 * 256
    consumed, waiting = sum(world.consumed.values()), world.batcher.transitions
    assert world.dropped > 0.3 * consumed
    assert world.chunks * 32 == consumed + world.dropped + waiting
    assert world.permits.under_way == waiting


def test_a_pause_takes_even_unlimited_permits_back():
    permits = UnpacedPermitBook(4, 1, FIRST)
    assert permits.joined(A, 2, 3) == {A: Permit(3, NO_POLICY)}
    assert permits.published(FIRST) == {A: Permit(UNLIMITED, NO_POLICY)}
    permits.received(A, 3, 2)
    assert permits.under_way == 2
    assert permits.paused() == {A: Permit(4, NO_POLICY)}
    assert permits.joined(B, 2, 0) == {B: Permit(0, NO_POLICY)}
    assert permits.resumed() == {source: Permit(UNLIMITED, NO_POLICY) for source in (A, B)}


@pytest.mark.parametrize('seed', range(60))
def test_actors_may_come_and_go_at_any_time(seed):
    random = np.random.default_rng(seed)
    target_lag = int(random.integers(0, 5))
    world = World(200, target_lag, float(random.choice([0.01, 1.0, 30.0])),
                  int(random.integers(1, target_lag + 2)), seed)
    number = 0
    for _ in range(30):
        if world.actors and random.uniform() < 0.4:
            world.leave(list(world.actors)[random.integers(len(world.actors))])
        else:
            number += 1
            world.join(Source(number, 1), int(random.integers(1, 50)),
                       float(random.choice([0.5, 1.0, 5.0])))
        if not world.actors:
            continue
        assert world.run(int(random.integers(1, 4))), 'nobody may do anything'
        assert world.most_under_way < (target_lag + 1) * 200 + 50
        assert max(world.all_lags) <= target_lag


@pytest.mark.parametrize('seed', range(40))
def test_the_accounts_are_right_whatever_happens(seed):
    """Random events, each checked against sums that are kept apart."""
    random = np.random.default_rng(seed)
    batch_size, target_lag = 64, int(random.integers(0, 4))
    permits = PermitBook(batch_size, target_lag, FIRST)
    permits.published(FIRST)
    version, updating, held = 0, False, deque()
    sizes, sent, granted = {}, {}, {}
    for step in range(400):
        kind = random.choice(['join', 'leave', 'send', 'send', 'send', 'learn', 'drop',
                              'refuse', 'pause'])
        source = Source(int(random.integers(6)), 1)
        if kind == 'join' and source not in sizes:
            sizes[source], sent[source] = int(random.integers(1, 30)), 0
            granted |= permits.joined(source, sizes[source], 0)
        elif kind == 'leave' and source in sizes:
            for known in (sizes, sent, granted):
                known.pop(source)
            granted |= permits.left(source)
        elif kind in ('send', 'refuse') and source in sizes \
                and sent[source] < granted[source].limit:
            transitions = int(random.integers(1, sizes[source] + 1)) if kind == 'send' else 0
            held.append(transitions)
            granted |= permits.received(source, sent[source], transitions)
            sent[source] += 1
        elif kind == 'drop' and held:
            granted |= permits.dropped(held.popleft())
        elif kind == 'pause':
            granted |= permits.paused()
            assert permits.received(Source(99, 1), 0, 0) == {}
            granted |= permits.resumed()
        elif kind == 'learn' and not updating and sum(held) >= batch_size:
            taken = 0
            while taken < batch_size:
                taken += held.popleft()
            granted |= permits.batch_taken(taken)
            updating = True
        elif kind == 'learn' and updating:
            updating, version = False, version + 1
            granted |= permits.updated(version)
            granted |= permits.published(Identity(1, version))
        outstanding = sum((granted[source].limit - sent[source]) * size
                          for source, size in sizes.items())
        assert permits.under_way == sum(held) + outstanding, step
        assert permits.under_way < (target_lag + 1) * batch_size + 30
        # Nobody waits for nothing: whoever is there can send, or the learner can learn.
        assert not sizes or outstanding or updating or sum(held) >= batch_size, step
        for source in sizes:
            assert granted[source].minimum <= Identity(1, version)

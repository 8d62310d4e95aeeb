"""The permit rule, without sockets: by hand, and in a simulation of fast and slow actors."""

from collections import deque
import heapq

import numpy as np
import pytest

from asyncppo_ros.chunk import Identity, NO_POLICY, Source
from asyncppo_ros.transport.permits import Permit, PermitBook

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
    assert permits.published(FIRST) == {A: Permit(2, FIRST)}


def test_zero_lag_is_synchronous():
    permits = book(batch_size=4, target_lag=0)
    assert permits.joined(A, 2, 0) == {A: Permit(2, FIRST)}
    permits.received(A, 0, 2)
    assert permits.received(A, 1, 2) == {}
    assert permits.batch_taken(4) == {}
    assert permits.updated(1) == {}
    assert permits.published(Identity(1, 1)) == {A: Permit(4, Identity(1, 1))}


def test_lag_one_collects_while_the_learner_learns():
    permits = book(batch_size=4, target_lag=1)
    assert permits.joined(A, 4, 0) == {A: Permit(2, FIRST)}
    permits.received(A, 0, 4)
    # Chunk 1 will be consumed at version 1, chunk 2 at version 2: it needs policy 1.
    assert permits.batch_taken(4) == {}
    permits.updated(1)
    assert permits.published(Identity(1, 1)) == {A: Permit(3, Identity(1, 1))}


def test_a_batch_that_chunks_do_not_divide_is_reached():
    permits = book(batch_size=10, target_lag=0)
    assert permits.joined(A, 4, 0)[A].limit == 3
    for sequence in range(3):
        permits.received(A, sequence, 4)
    assert permits.under_way == 12


def test_newcomers_come_first_and_share_the_room():
    permits = book(batch_size=8, target_lag=0)
    assert permits.joined(A, 2, 0)[A].limit == 4
    assert permits.joined(B, 2, 5) == {B: Permit(5, NO_POLICY)}
    permits.received(A, 0, 2)
    # A chunk that is cut short frees what it does not fill.
    assert permits.received(A, 1, 1) == {B: Permit(6, FIRST)}


def test_the_room_of_those_who_leave_is_given_to_others():
    permits = book(batch_size=8, target_lag=0)
    permits.joined(A, 2, 0)
    permits.joined(B, 2, 0)
    assert permits.left(A) == {B: Permit(4, FIRST)}


def test_lost_chunks_are_settled_by_the_next_one():
    permits = book(batch_size=8, target_lag=0)
    permits.joined(A, 2, 0)
    assert permits.received(A, 3, 2) == {A: Permit(7, FIRST)}
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
    assert permits.resumed() == {A: Permit(4, FIRST)}


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
    """A discrete-event simulation of actors and a learner that share a permit book."""

    def __init__(self, batch_size, target_lag, update_s, publish_updates=1, seed=0):
        self.permits = PermitBook(batch_size, target_lag, FIRST)
        self.batch_size = batch_size
        self.update_s = update_s
        self.publish_updates = publish_updates
        self.random = np.random.default_rng(seed)
        self.now, self.events, self.count = 0.0, [], 0
        self.version, self.newest = 0, NO_POLICY
        self.updating = False
        self.queue = deque()
        self.actors = {}
        self.lags, self.most_under_way = [], 0
        self.consumed = {}
        self.publish()

    def after(self, delay, action, *arguments):
        self.count += 1
        heapq.heappush(self.events, (self.now + delay, self.count, action, arguments))

    def publish(self):
        self.newest = Identity(1, self.version)
        self.permits.published(self.newest)

    def join(self, source, transitions, chunk_s):
        self.actors[source] = {'size': transitions, 'time': chunk_s, 'next': 0, 'busy': False}
        self.permits.joined(source, transitions, 0)

    def leave(self, source):
        del self.actors[source]
        self.permits.left(source)

    def start_chunks(self):
        for source, actor in self.actors.items():
            permit = self.permits.permit(source)
            if not actor['busy'] and actor['next'] < permit.limit \
                    and self.newest >= permit.minimum:
                actor['busy'] = True
                delay = actor['time'] * self.random.uniform(0.95, 1.05)
                self.after(delay, self.finish, source, actor, self.newest.policy_version)

    def finish(self, source, actor, version):
        if self.actors.get(source) is not actor:
            return  # it died on the way
        actor['busy'] = False
        transitions = actor['size'] if self.random.uniform() < 0.9 else max(
            1, actor['size'] // 2)
        self.queue.append((source, transitions, version))
        self.permits.received(source, actor['next'], transitions)
        actor['next'] += 1

    def learn(self):
        if self.updating or sum(chunk[1] for chunk in self.queue) < self.batch_size:
            return
        taken = 0
        while taken < self.batch_size:
            source, transitions, version = self.queue.popleft()
            taken += transitions
            self.lags.append(self.version - version)
            self.consumed[source] = self.consumed.get(source, 0) + transitions
        self.permits.batch_taken(taken)
        self.updating = True
        self.after(self.update_s, self.end_update)

    def end_update(self):
        self.updating = False
        self.version += 1
        self.permits.updated(self.version)
        if self.version % self.publish_updates == 0:
            self.publish()

    def run(self, updates):
        """Run until the learner has made so many updates more; False = everything stands."""
        goal = self.version + updates
        while self.version < goal:
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
        assert np.quantile(world.lags, 0.95) <= target_lag
        # Where chunks do not fill batches evenly, the last one of a batch may be overtaken.
        assert max(world.lags) <= target_lag + (256 % size > 0)
        shares = list(world.consumed.values())
        assert min(shares) > 0.7 * max(shares)


@pytest.mark.parametrize('target_lag', [1, 2, 4])
def test_a_slow_learner_sees_the_lag_it_was_promised(target_lag):
    world = World(256, target_lag, update_s=100.0)
    for number in range(4):
        world.join(Source(number, 1), 32, 1.0)
    world.run(60)
    assert np.mean(world.lags) >= target_lag - 1
    assert np.quantile(world.lags, 0.95) <= target_lag


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

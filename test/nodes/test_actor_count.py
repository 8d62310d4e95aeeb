"""How many actors: up, down, back, and not to and fro; hand-made numbers and a made-up run."""

import functools
import random

import pytest

from asyncppo_ros.nodes.actor_count import (
    ActorCount,
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    Seen,
)
from asyncppo_ros.tools.throughput import bounds, Cost, Costs, NOTHING

# A window and the time until all actors have joined [s].
TURN_S = 12.0
PHYSICS = Cost(50e-6, 50e-6)
# 16 environments whose batched step sleeps 10 ms.
SLEEPING = Cost(650e-6, 30e-6)
LEARNER = Cost(10e-6, 10e-6)


def seen(actors=4, rate=1000.0, **more):
    """Make up what was seen of a training whose learner waits and whose cores are free."""
    return Seen(**{'actors': actors, 'rate': rate, 'learner_wait': 0.8, 'actor_wait': 0.0,
                   'late': False, 'free_cores': 4.0, 'actor_cores': 0.1, 'starved': 0.0,
                   'room': 1000, **more})


@functools.cache
def rate_of(actor, learner, actors, cores):
    return bounds(Costs(actor, NOTHING, NOTHING, NOTHING, learner), actors, cores).rate


class MadeUpRun:
    """A training whose stages cost so much, its noise, and who decides how many actors it has."""

    def __init__(self, actor, learner, cores=2.0, most=16, actors=1, noise=0.0, seed=0):
        self.actor, self.learner, self.cores = actor, learner, cores
        self.actors, self.noise, self.now = actors, noise, 0.0
        self.random = random.Random(seed)
        self.count = ActorCount(most, max(1, int(cores)))
        self.numbers = [actors]

    def rate(self, actors):
        return rate_of(self.actor, self.learner, actors, self.cores)

    def turn(self):
        rate = self.rate(self.actors)
        # What an actor does not do of what it could is for want of work, or of a core.
        idle = max(0.0, 1.0 - rate * self.actor.wall_s / self.actors)
        busy = rate * (self.actor.cpu_s + self.learner.cpu_s) >= 0.99 * self.cores
        noisy = rate * (1.0 + self.random.uniform(-self.noise, self.noise))
        found = seen(self.actors, noisy, late=False, room=1000,
                     learner_wait=1.0 - min(1.0, rate * self.learner.wall_s),
                     actor_wait=0.0 if busy else idle, starved=idle if busy else 0.0,
                     actor_cores=rate * self.actor.cpu_s / self.actors,
                     free_cores=self.cores - rate * (self.actor.cpu_s + self.learner.cpu_s))
        change = self.count.decide(found, self.now)
        if change is not None:
            assert 1 <= change.actors <= self.count.most and change.actors != self.actors
            assert change.reason and '\n' not in change.reason
            self.actors = change.actors
        self.numbers.append(self.actors)
        self.now += TURN_S

    def turns(self, count):
        for _ in range(count):
            self.turn()
        return self.numbers

    @property
    def best(self):
        return max(self.rate(actors) for actors in range(1, self.count.most + 1))


def test_a_learner_that_waits_gets_twice_as_many_actors():
    change = ActorCount(16, 2).decide(seen(4), 0.0)
    assert change.actors == 8
    assert change.reason == 'the learner waits 80% of the time, an actor sleeps 90%'
    change = ActorCount(16, 2).decide(seen(4, actor_cores=0.6), 0.0)
    assert change.actors == 8
    assert change.reason == 'the learner waits 80% of the time, 4.0 cores are free'


@pytest.mark.parametrize(('given', 'expected'), [
    # The batch; the memory; cores of which an actor takes one each; a learner that waits little.
    ({'actors': 9}, 10), ({'room': 1}, 5), ({'room': 0}, None), ({'actors': 10}, None),
    ({'actor_cores': 1.0, 'free_cores': 2.4}, 6), ({'actor_cores': 1.0, 'free_cores': 0.3}, 5),
    ({'learner_wait': 0.2}, 8), ({'actors': 1}, 2)])
def test_never_more_than_there_is_room_for(given, expected):
    change = ActorCount(10, 2).decide(seen(**given), 0.0)
    assert (change and change.actors) == expected


@pytest.mark.parametrize('given', [
    {'learner_wait': 0.1}, {'actor_wait': 0.55}, {'late': True},
    {'starved': 0.3, 'actor_cores': 0.6},
    {'free_cores': 0.1, 'actor_cores': 0.9}])
def test_no_more_where_they_would_not_help(given):
    assert ActorCount(16, 4).decide(seen(4, **given), 0.0) is None


@pytest.mark.parametrize(('given', 'expected'), [
    ({'actor_wait': 0.75, 'learner_wait': 0.0}, 3), ({'actor_wait': 0.99, 'learner_wait': 0.0}, 1),
    ({'starved': 0.7, 'free_cores': 0.0, 'actor_cores': 0.25}, 4),
    ({'late': True, 'free_cores': 0.0}, 4)])
def test_fewer_where_they_wait(given, expected):
    count = ActorCount(16, 2)
    change = count.decide(seen(8, **given), 0.0)
    assert change.actors == expected
    # No more than noise is lost: it stays so.
    assert count.decide(seen(expected, 960.0, learner_wait=0.1), TURN_S) is None
    alone = seen(1, **{'learner_wait': 0.1, **given})
    assert ActorCount(16, 2).decide(alone, 0.0) is None


def test_actors_that_sleep_need_no_free_core():
    """Others have the cores; one that sleeps gets its little share of them all the same."""
    for starved in (0.1, 0.6):
        found = seen(4, free_cores=0.0, actor_cores=0.05, starved=starved)
        assert ActorCount(16, 2).decide(found, 0.0).actors == 8
    # Half of them would wait for a core as long.
    busy = seen(8, free_cores=0.0, actor_cores=0.05, starved=0.6, learner_wait=0.1)
    assert ActorCount(16, 2).decide(busy, 0.0) is None


def test_an_actor_a_core_is_worth_a_try_whoever_has_the_cores():
    change = ActorCount(16, 2).decide(seen(1, free_cores=0.0, actor_cores=0.4, starved=0.6), 0.0)
    assert change.actors == 2
    assert change.reason == ('the learner waits 80% of the time, there are fewer actors than the '
                             '2 that have a core')


def test_actors_that_take_turns_with_the_learner_are_left_alone():
    """With target_lag 0 both wait for each other."""
    assert ActorCount(16, 2).decide(seen(8, actor_wait=0.7, learner_wait=0.4), 0.0) is None


def test_what_did_not_help_is_undone_and_not_repeated_for_longer_and_longer():
    count, now, tries = ActorCount(16, 2), 0.0, []
    while len(tries) < 7:
        change = count.decide(seen(4), now)
        if change is not None:
            tries.append(now)
            now += TURN_S
            back = count.decide(seen(8, 1010.0, free_cores=2.0), now)
            assert back.actors == 4 and back.reason == (
                'the rate went from 1,000 to 1,010 env steps/s, 1,250 were needed')
        now += TURN_S
    pauses = [later - earlier - TURN_S for earlier, later in zip(tries, tries[1:])]
    wanted = [min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** number) for number in range(6)]
    assert all(0.0 <= pause - least <= TURN_S for pause, least in zip(pauses, wanted)), pauses


def test_where_others_have_left_the_machine_it_is_tried_sooner():
    count, now = ActorCount(16, 8), 0.0
    for _ in range(3):
        assert count.decide(seen(4, free_cores=0.5), now).actors == 8
        assert count.decide(seen(8, 1000.0, free_cores=0.0), now).actors == 4
        failed, now = now, now + LONGEST_PAUSE_S
    # The third pause is four times the first.
    later = failed + FIRST_PAUSE_S
    assert count.decide(seen(4, free_cores=0.5), later) is None
    assert count.decide(seen(4, free_cores=3.0), failed + 0.9 * FIRST_PAUSE_S) is None
    assert count.decide(seen(4, free_cores=3.0), later).actors == 8


def test_a_loss_of_rate_brings_actors_back():
    count = ActorCount(16, 2)
    idle = {'learner_wait': 0.0, 'actor_wait': 0.7}
    assert count.decide(seen(8, **idle), 0.0).actors == 4
    assert count.decide(seen(4, 800.0, **idle), TURN_S).actors == 8
    assert count.decide(seen(8, **idle), 2 * TURN_S) is None


def test_a_change_beside_it_ends_a_trial():
    count = ActorCount(16, 2)
    assert count.decide(seen(4), 0.0).actors == 8
    count.forget()
    assert count.decide(seen(8, 10.0, learner_wait=0.1), TURN_S) is None


@pytest.mark.parametrize('noise', [0.0, 0.02])
@pytest.mark.parametrize('begin', [1, 2, 16])
@pytest.mark.parametrize(('actor', 'learner', 'cores'), [
    (SLEEPING, LEARNER, 2.0), (SLEEPING, Cost(150e-6, 150e-6), 2.0), (PHYSICS, LEARNER, 2.0),
    (PHYSICS, LEARNER, 8.0), (PHYSICS, Cost(200e-6, 200e-6), 8.0),
    (PHYSICS, Cost(5e-6, 1e-6), 16.0)])
def test_a_made_up_run_comes_to_rest_near_its_best(actor, learner, cores, begin, noise):
    run = MadeUpRun(actor, learner, cores, actors=begin, noise=noise)
    run.turns(15)
    assert run.rate(run.actors) >= 0.9 * run.best, run.numbers
    # To and fro would change all the time; a refused try changes twice.
    numbers = run.turns(100)[15:]
    changes = sum(before != after for before, after in zip(numbers, numbers[1:]))
    assert changes <= 20, numbers
    rates = [run.rate(number) for number in numbers]
    assert sum(rates) / len(rates) >= 0.9 * run.best, numbers


def test_it_follows_cores_that_others_take_and_give_back():
    run = MadeUpRun(PHYSICS, LEARNER, cores=8.0, actors=1)
    run.turns(15)
    plenty = run.actors
    assert plenty >= 6
    run.cores = run.count.cores = 2
    run.turns(40)
    assert run.actors <= 4 and run.rate(run.actors) >= 0.95 * run.best, run.numbers
    run.cores = run.count.cores = 8
    run.turns(40)
    assert run.rate(run.actors) >= 0.9 * run.best, run.numbers

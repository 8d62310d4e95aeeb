"""What is done with actors in the hands of Ray; here what Ray says is what the test says."""

import pytest

from asyncppo_ros.cluster.ray_actors import Actor, Fault, Gone, Unavailable
from asyncppo_ros.cluster.ray_worker import Answer
from asyncppo_ros.nodes.restarts import HEALTHY_S
from asyncppo_ros.nodes.supervisor import supervise


class Told:
    """A placement whose answers and outcomes are given by the test."""

    def __init__(self):
        self.answers, self.outcomes, self.calls = [], [], []

    def answer(self):
        return self._next(self.answers)

    def outcome(self):
        return self._next(self.outcomes)

    def _next(self, told):
        found = told.pop(0) if told else None
        if isinstance(found, Exception):
            raise found
        return found

    def __getattr__(self, name):
        return lambda: self.calls.append(name)


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def said():
    return []


@pytest.fixture
def actor(told, said):
    return Actor(3, told, 2, said.append)


def answer(pid, *said):
    return Answer('node-a', pid, list(said))


def test_it_waits_for_a_place_then_collects(actor, told, said):
    actor.tend(0.0)
    assert actor.state['state'] == 'pending' and 'host' not in actor.state
    told.answers.append(answer(7, 'no learner answers'))
    actor.tend(1.0)
    assert actor.state == {'actor_id': 3, 'state': 'running', 'pid': 7, 'crashes': 0,
                           'reason': '', 'host': 'node-a'}
    assert told.calls == ['collect']
    assert said == ['actor 3: no learner answers', 'actor 3 placed: process 7 on node-a']


def test_a_dead_process_is_one_crash_and_its_successor_collects_after_a_pause(actor, told):
    told.answers.append(answer(7))
    actor.tend(0.0)
    # A sign of life from before the death comes after it; then there is nobody for a while.
    told.outcomes.append(Unavailable())
    actor.tend(10.0)
    told.answers += [answer(7), Unavailable()]
    actor.tend(10.1)
    actor.tend(10.2)
    assert actor.state['state'] == 'restarting' and actor.state['crashes'] == 1
    told.answers.append(answer(8))
    actor.tend(10.3)
    assert actor.state['pid'] == 8 and told.calls == ['collect']
    actor.tend(11.0)
    assert told.calls == ['collect', 'collect']
    assert actor.state['reason'] == 'its worker process died'


def test_deaths_in_a_row_are_given_up_and_those_of_long_ago_forgotten(actor, told):
    now = 0.0
    for pid in range(1, 4):
        told.answers.append(answer(pid))
        actor.tend(now)
        now += HEALTHY_S + 1.0
        told.outcomes.append(Unavailable())
        actor.tend(now)
        now += 1.0
    assert not actor.quarantined and 'end' not in told.calls
    told.answers.append(answer(9))
    actor.tend(now)
    told.outcomes.append(Unavailable())
    actor.tend(now + 1.0)
    assert actor.quarantined == '2 crashes in a row, the last: its worker process died'
    assert told.calls[-1] == 'end'
    assert supervise([actor], lambda: False) == 1


def test_a_fault_ends_the_process_so_that_ray_starts_a_clean_one(actor, told, said):
    told.answers.append(answer(7))
    actor.tend(0.0)
    told.outcomes.append(Fault('Traceback:\n  a line\nValueError: torn\n'))
    actor.tend(1.0)
    assert told.calls == ['collect', 'restart']
    assert actor.state['reason'] == 'a fault: ValueError: torn'
    assert any('a line' in line for line in said)


def test_a_mistake_of_the_user_ends_the_run(actor, told):
    told.answers.append(answer(7))
    actor.tend(0.0)
    told.outcomes.append('task: unknown')
    assert supervise([actor], lambda: False) == 2
    assert actor.quarantined == 'task: unknown (on node-a)' and told.calls[-1] == 'end'


def test_what_ray_gives_up_is_given_up(actor, told):
    told.answers.append(Gone('the package is missing there'))
    actor.tend(0.0)
    assert actor.state['state'] == 'quarantined'
    assert actor.state['reason'] == 'the package is missing there'


def test_the_end_of_the_run_is_the_end_of_the_actor(actor, told):
    told.answers.append(answer(7))
    actor.tend(0.0)
    told.outcomes.append('')
    assert supervise([actor], lambda: False) == 0
    assert actor.state['state'] == 'finished'


def test_stopping_lets_the_loop_end_and_does_not_wait_for_ever(actor, told):
    told.answers.append(answer(7))
    actor.tend(0.0)
    actor.stop()
    assert told.calls == ['collect', 'ask_to_stop']
    told.outcomes += [None, '']
    actor.wait(60.0)
    assert not told.outcomes and actor.state['pid'] == 0
    hung = Actor(4, told, 2, lambda line: None)
    told.answers.append(answer(8))
    hung.tend(0.0)
    hung.stop()
    hung.wait(0.0)

"""How often, and after which pauses, a process that crashed is started again."""

import pytest

from asyncppo_ros.nodes.restarts import HEALTHY_S, Restarts


def crash_at_once(restarts, now):
    restarts.started(now)
    return restarts.crashed(now)


def test_the_first_start_needs_no_pause():
    assert Restarts(5).due(0.0)


def test_pauses_double_up_to_the_longest():
    restarts, now, pauses = Restarts(100), 0.0, []
    for _ in range(9):
        pause = crash_at_once(restarts, now)
        assert not restarts.due(now + pause - 0.001) and restarts.due(now + pause)
        pauses.append(pause)
        now += pause
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert restarts.crashes == 9


@pytest.mark.parametrize('most', [1, 4])
def test_so_many_in_a_row_are_enough(most):
    restarts = Restarts(most)
    pauses = [crash_at_once(restarts, float(now)) for now in range(most)]
    assert pauses.index(None) == most - 1 == len(pauses) - 1
    assert restarts.crashes == most


@pytest.mark.parametrize(('lived', 'crashes', 'pause'), [
    (HEALTHY_S, 3, 2.0), (HEALTHY_S + 0.001, 1, 0.5)])
def test_a_crash_after_a_healthy_life_counts_anew(lived, crashes, pause):
    restarts = Restarts(4)
    for now in (0.0, 1.0):
        crash_at_once(restarts, now)
    restarts.started(0.0)
    assert restarts.crashed(lived) == pause
    assert restarts.crashes == crashes


def test_one_that_is_called_back_begins_anew():
    restarts = Restarts(3)
    for now in (100.0, 101.0):
        crash_at_once(restarts, now)
    restarts.forget()
    assert restarts.crashes == 0 and restarts.due(101.0)
    assert crash_at_once(restarts, 102.0) == 0.5


def test_thousands_of_crashes_are_allowed():
    restarts = Restarts(1_000_000)
    assert {crash_at_once(restarts, 0.0) for _ in range(3000)} == {
        0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0}

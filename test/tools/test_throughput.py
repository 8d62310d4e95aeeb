"""The model of a training: rates and limits from the costs of its stages, made up here."""

import pytest

from asyncppo_ros.tools.throughput import (
    best_num_envs,
    bounds,
    Cost,
    Costs,
    fewest_actors,
    limiting_stage,
)

US = 1e-6


def costs(physics=40.0, inference=1.0, sending=1.0, receiving=0.5, learner=20.0, **more):
    """Give costs in µs of a core; nothing waits."""
    return Costs(*(Cost(value * US, value * US)
                   for value in (physics, inference, sending, receiving, learner)), **more)


def test_with_cores_for_all_the_slower_side_decides():
    found = bounds(costs(), 1, cores=64.0)
    assert found.rate == pytest.approx(found.actors) == pytest.approx(1e6 / 42.0)
    found = bounds(costs(), 3, cores=64.0)
    assert found.rate == pytest.approx(found.learner) == pytest.approx(1e6 / 20.0)


def test_two_cores_are_shared():
    one, two = (bounds(costs(), count, cores=2.0) for count in (1, 2))
    assert one.rate == pytest.approx(1e6 / 42.0)
    # 42 µs of the actors, 0.5 + 20 of the learner, on two cores.
    assert two.rate == pytest.approx(two.cores) == pytest.approx(2e6 / 62.5)


def test_time_without_a_core_is_not_shared():
    sleeping = costs()._replace(physics=Cost(1000 * US, 1 * US))
    rates = [bounds(sleeping, count, cores=1.0).rate for count in (1, 4)]
    assert rates[1] == pytest.approx(4.0 * rates[0])


def test_without_lag_actors_and_learner_take_turns():
    found = bounds(costs(), 2, cores=64.0, takes_turns=True)
    assert found.rate == pytest.approx(1e6 / (42.0 / 2 + 20.0))


def test_processes_slow_each_other_down_for_as_long_as_both_run():
    found = bounds(costs(slow_actor=1.5), 1, cores=64.0)
    # The learner runs a share u of the time, and an actor takes 1 + 0.5 u times as long.
    share = found.rate * 20 * US
    assert found.rate == pytest.approx(1e6 / (42.0 * (1.0 + 0.5 * share)), rel=1e-3)
    assert 0.39 < share < 0.48
    alone = bounds(costs(slow_actor=1.5, learner=1e-6, receiving=0.0), 1, cores=64.0)
    assert alone.rate == pytest.approx(1e6 / 42.0, rel=1e-3)


@pytest.mark.parametrize(('changed', 'expected'), [
    ({'physics': 400.0}, 'physics'), ({'inference': 400.0}, 'inference'),
    ({'sending': 400.0}, 'transport'), ({'receiving': 400.0}, 'transport'),
    ({'learner': 400.0}, 'learner')])
@pytest.mark.parametrize('cores', [1.0, 2.0, 64.0])
def test_the_slowest_stage_limits(changed, expected, cores):
    assert limiting_stage(costs(**changed), 2, cores) == expected


def test_as_many_actors_as_keep_the_learner_busy():
    assert fewest_actors(actor_s=40 * US, learner_s=20 * US, most=63) == 4
    assert fewest_actors(actor_s=40 * US, learner_s=20 * US, most=2) == 2
    assert fewest_actors(actor_s=1 * US, learner_s=20 * US, most=63) == 1


def test_no_more_environments_than_pay():
    assert best_num_envs({8: 100.0, 16: 190.0, 32: 196.0, 64: 199.0}) == 16
    assert best_num_envs({8: 100.0}) == 8

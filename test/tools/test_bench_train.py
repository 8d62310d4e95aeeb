"""`asyncppo bench train`: a training beside its actors and its learner alone."""

import json

from harness import asyncppo, SMALL
import pytest

from asyncppo_ros.tools.bench.actors_alone import Alone
from asyncppo_ros.tools.bench.train import ceiling, costs_of, summary


def costs(*alone, both=()):
    def sides(pair):
        return {name: side._asdict() for name, side in zip(('actors', 'learner'), pair)}
    return costs_of({**sides(alone), 'both': sides(both or alone)})


def test_the_ceiling_is_that_of_the_slower_side_where_each_process_has_a_core():
    # Four actors at 20 µs, a learner at 10 µs.
    actors, learner = Alone(200_000.0, 21e-6), Alone(100_000.0, 10e-6)
    assert ceiling(costs(actors, learner), cores=8.0) == pytest.approx(100_000.0)
    slower = Alone(300_000.0, 3.3e-6)
    assert ceiling(costs(actors, slower), cores=8.0) == pytest.approx(200_000.0)


def test_the_ceiling_is_a_perfect_division_where_cores_are_shared():
    # Two actors on two cores, and a learner that would have one of them for itself.
    actors, learner = Alone(40_000.0, 50e-6), Alone(20_000.0, 50e-6)
    assert ceiling(costs(actors, learner), cores=2.0) == pytest.approx(20_000.0)
    assert ceiling(costs(actors, learner), cores=1.0) == pytest.approx(10_000.0)
    # 2 cores / 60 µs: less than either side alone.
    assert ceiling(costs(actors, Alone(100_000.0, 10e-6)), cores=2.0) == pytest.approx(
        33_333.3, rel=1e-4)


def test_who_runs_at_once_slows_the_other_down():
    actors, learner = Alone(40_000.0, 50e-6), Alone(20_000.0, 50e-6)
    found = costs(actors, learner, both=(Alone(30_000.0, 60e-6), Alone(9_000.0, 75e-6)))
    assert (found.slow_actor, found.slow_learner) == pytest.approx((1.2, 1.5))
    # Actors run for a part of the time only.
    assert 20_000.0 / 1.5 < ceiling(found, cores=8.0) < 20_000.0


def one_round(rate, speed=1.0):
    alone = {'actors': {'rate': 40_000.0 * speed, 'core_s': 50e-6 / speed},
             'learner': {'rate': 100_000.0 * speed, 'core_s': 10e-6 / speed}}
    return {'training': {'env_steps_per_s': rate * speed}, **alone,
            'both': {**alone, 'cores': 1.5}}


@pytest.mark.parametrize(('share', 'passed'), [(0.9, True), (0.8, False)])
def test_the_ratio_is_that_within_rounds(share, passed):
    # Of the two cores they had one and a half.
    top = 1.5 / 60e-6
    rounds = [one_round(share * top, speed) for speed in (1.0, 0.6, 0.8)]
    rows, checks = summary(rounds, cores=2.0)
    assert rows[0]['ratio'] == pytest.approx(share)
    assert rows[0]['ratio_interval'] == pytest.approx([share, share])
    assert checks[0]['passed'] == passed
    assert [entry['name'] for entry in rows] == [
        'training', 'actors alone', 'learner alone', 'cores at once', 'training, undisturbed']
    assert rows[-1]['ratio'] == pytest.approx(share * 0.75)


@pytest.mark.slow
def test_a_short_run():
    settings = [text for name, value in {**SMALL, 'num_actors': 1}.items()
                for text in (f'--{name}', str(value))]
    result = asyncppo('bench', 'train', '--task', 'cartpole_swingup', '--rounds', 1, '--seconds',
                      2, '--json', *settings, timeout=280)
    # How fast it is depends on the machine.
    assert result.returncode in (0, 1), result.stderr
    found = json.loads(result.stdout)
    assert all(entry['median'] > 0.0 for entry in found['rows'])
    assert found['rows'][0]['ratio'] > 0.0
    assert (result.returncode == 0) == all(entry['passed'] for entry in found['checks'])
    one, = found['rounds']
    assert one['training']['updates_per_s'] > 0.0 and one['actors']['core_s'] > 0.0
    assert one['both']['cores'] > 0.0
    assert found['settings']['num_actors'] == 1 and 'round 1 of 1' in result.stderr


@pytest.mark.parametrize('arguments', [('--rounds', 0), ('--seconds', 0)])
def test_mistakes(arguments):
    result = asyncppo('bench', 'train', *arguments, timeout=280)
    assert result.returncode == 2 and str(arguments[0]) in result.stderr

"""`asyncppo bench elastic`: every fixed number of actors, and auto once it has come to rest."""

import json

import pytest

from asyncppo_ros.tools.bench import elastic
from asyncppo_ros.tools.bench.watched import Seen

COUNTS = {'physics': [1, 2], 'sleeping': [4, 8, 16]}
RATES = {'physics, 1 actors': 10_000.0, 'physics, 2 actors': 16_000.0,
         'sleeping, 4 actors': 3_000.0, 'sleeping, 8 actors': 6_000.0,
         'sleeping, 16 actors': 12_000.0}
SPEEDS = (1.0, 0.6, 0.8)


def found(**auto):
    """Make up what three rounds gave on a machine that wanders."""
    rates = {**RATES, **{name.replace('_', ', '): rate for name, rate in auto.items()}}
    return {name: [{'env_steps_per_s': rate * speed, 'actors': 3} for speed in SPEEDS]
            for name, rate in rates.items()}


@pytest.mark.parametrize(('physics', 'sleeping', 'passed'), [
    (15_000.0, 11_500.0, [True, True, True]), (14_000.0, 13_000.0, [False, True, True]),
    (15_000.0, 10_000.0, [True, False, True])])
def test_auto_is_compared_with_the_best_number_within_rounds(physics, sleeping, passed):
    rows, checks = elastic.summary(found(physics_auto=physics, sleeping_auto=sleeping), COUNTS,
                                   [0])
    assert [entry['passed'] for entry in checks] == passed
    autos = [entry for entry in rows if 'ratio' in entry]
    assert [entry['best'] for entry in autos] == [2, 16]
    assert autos[0]['ratio'] == pytest.approx(physics / 16_000.0)
    assert autos[1]['ratio_interval'] == pytest.approx(2 * [sleeping / 12_000.0])
    assert len(rows) == len(RATES) + 2


def test_a_task_that_sleeps_must_want_many_actors():
    counts = {'sleeping': [4]}
    _, checks = elastic.summary(found(sleeping_auto=3_000.0), counts, [0])
    assert [entry['passed'] for entry in checks] == [True, False]


def test_at_rest_is_a_time_without_a_change():
    def seen(*numbers):
        return [Seen(float(at), at, {'actors': number}) for at, number in enumerate(numbers)]
    rest = int(elastic.REST_S)
    assert not elastic.at_rest([], 1)
    assert not elastic.at_rest(seen(*[1] * rest), 1)
    assert elastic.at_rest(seen(*[1] * (rest + 1)), 1)
    assert not elastic.at_rest(seen(*[1] * rest, *[2] * rest), 2)
    assert elastic.at_rest(seen(*[1] * rest, *[2] * (rest + 1)), 2)
    # Two more have been started and are about to join.
    assert not elastic.at_rest(seen(*[1] * rest, *[2] * (rest + 1)), 4)
    # Of a slow learner a few updates are too few to judge by.
    slow = [entry._replace(at=10.0 * entry.at) for entry in seen(*[1] * 12)]
    assert elastic.at_rest(slow, 1) and not elastic.at_rest(slow[:elastic.REST_UPDATES], 1)


@pytest.fixture
def made_up(monkeypatch):
    """Let trainings give what is made up, and remember their order."""
    asked = []

    def fixed(name, count, settings, seconds, stop):
        asked.append((name, settings['task']))
        return {'env_steps_per_s': RATES[name], 'actors': count}

    def following(name, begin, settings, seconds, patience, stop):
        asked.append((name, settings['task']))
        return {'env_steps_per_s': 0.95 * RATES['physics, 2 actors'], 'actors': 2}

    monkeypatch.setattr(elastic, '_fixed', fixed)
    monkeypatch.setattr(elastic, '_following', following)
    return asked


def test_the_bench_trains_with_each_in_turn(made_up, capsys):
    arguments = ['--tasks', 'physics', '--physics-counts', '1', '2', '--rounds', '2', '--begin',
                 '0', '1', '--json', '--learner.ppo.epochs', '2']
    assert elastic.main(arguments, lambda: False) == 0
    names = ['physics, 1 actors', 'physics, 2 actors', 'physics, auto', 'physics, auto from 1']
    assert made_up == [(name, 'HalfCheetah-v5') for name in [*names[::-1], *names]]
    result = json.loads(capsys.readouterr().out)
    assert {'machine', 'versions', 'settings', 'rows', 'checks', 'runs', 'command'} <= set(result)
    assert result['settings']['physics']['learner.ppo.epochs'] == 2
    assert [entry['name'] for entry in result['checks']] == [
        'physics, auto over 2 actors', 'physics, auto from 1 over 2 actors']
    assert elastic.main(arguments[:-3], lambda: False) == 0
    assert 'physics, auto: 2, 2 actors in the end, 0.950 of 2 actors' in capsys.readouterr().out
    assert elastic.main(['--tasks', 'sleeping', '--sleeping-counts', '4'], lambda: False) == 1


@pytest.mark.parametrize(('arguments', 'text'), [
    (['--num_actors', '3'], '--num_actors 3: this bench sets it'),
    (['--task', 'reach'], '--task reach: this bench sets it'),
    (['--physics-counts', '0', '2'], '--physics-counts 0: must be at least 1'),
    (['--begin', '-1'], '--begin -1 --rounds 1'), (['--rounds', '0'], '--rounds 0')])
def test_mistakes_are_told_before_anything_is_trained(made_up, arguments, text):
    from asyncppo_ros.errors import ConfigError
    with pytest.raises(ConfigError, match=text):
        elastic.main(arguments, lambda: False)
    assert made_up == []

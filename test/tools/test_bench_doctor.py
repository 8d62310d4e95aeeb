"""`asyncppo bench doctor`: predictions beside what is then measured."""

import json

import pytest

from asyncppo_ros.errors import ConfigError
from asyncppo_ros.tools.bench import doctor

SPEEDS = (1.0, 0.6, 0.8)


def found(predicted, measured):
    """Make up three rounds on a machine that wanders."""
    rounds = {'reach: predicted': [{'1': 0.9 * predicted * speed, '2': predicted * speed}
                                   for speed in SPEEDS]}
    for count, text in ((1, '1 actor'), (2, '2 actors')):
        rounds[f'reach: {text}'] = [{'env_steps_per_s': (0.5 + 0.25 * count) * measured * speed}
                                    for speed in SPEEDS]
    return rounds


@pytest.mark.parametrize(('predicted', 'passed'), [
    (860.0, True), (1_140.0, True), (840.0, False), (1_160.0, False)])
def test_the_prediction_of_two_actors_is_judged_within_rounds(predicted, passed):
    rows, (judged,) = doctor.summary(found(predicted, 1_000.0), ['reach'])
    assert judged['passed'] is passed
    assert judged['value'] == pytest.approx(predicted / 1_000.0)
    assert [entry['name'] for entry in rows] == [
        'reach: 1 actor', 'reach: predicted for 1', 'reach: 2 actors', 'reach: predicted for 2']
    assert rows[1]['ratio'] == pytest.approx(0.9 * predicted / 750.0)
    assert rows[3]['ratio_interval'] == pytest.approx([predicted / 1_000.0] * 2)


def test_the_same_settings_are_predicted_and_trained(monkeypatch, capsys):
    asked = []

    def predict(config, rounds, stop):
        asked.append(('predicted', config.num_actors, config.actor.num_envs, rounds))
        return {'1': 600.0, '2': 950.0}

    def measured(count, settings, seconds, stop):
        asked.append((count, settings['num_actors'], settings['actor.num_envs'], seconds))
        return {'actors': count, 'env_steps_per_s': 500.0 * count, 'actor_wait': 0.0,
                'learner_wait': 0.5, 'policy_lag_mean': 1.0, 'updates_per_s': 1.0}

    monkeypatch.setattr(doctor, 'predict', predict)
    monkeypatch.setattr(doctor.actors, 'measure', measured)
    arguments = ['--tasks', 'reach', '--rounds', '1', '--seconds', '7', '--json',
                 '--actor.num_envs', '8']
    assert doctor.main(arguments, lambda: False) == 0
    assert asked == [(2, 2, 8, 7.0), (1, 1, 8, 7.0), ('predicted', 1, 8, 5)]
    result = json.loads(capsys.readouterr().out)
    assert {'machine', 'versions', 'settings', 'rows', 'rounds', 'command'} <= set(result)
    assert result['checks'][0]['value'] == pytest.approx(0.95)


@pytest.mark.parametrize(('arguments', 'text'), [
    (['--num_actors', '3'], '--num_actors 3: this bench sets it'),
    (['--task', 'reach'], '--task reach: this bench sets it; see --tasks'),
    (['--rounds', '0'], '--rounds 0'), (['--seconds', '0'], '--seconds 0'),
    (['--tasks', 'reach', '--actor.num_envs', '8', '--learner.batch_size', '300',
      '--actor.chunk_length', '32'], 'learner.batch_size = 300: must be at least 512')])
def test_mistakes_are_told_before_anything_is_measured(arguments, text):
    with pytest.raises(ConfigError, match=text):
        doctor.main(arguments, lambda: False)

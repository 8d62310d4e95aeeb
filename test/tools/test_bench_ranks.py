"""`asyncppo bench ranks`: several learners beside one, and what their gradients weigh."""

import json
import math

import pytest

from asyncppo_ros.errors import ConfigError
from asyncppo_ros.tools.bench.ranks import checks_of, main, Measured, rows_of, text_of


def never():
    return False


FOUND = {'1 rank': [Measured(100.0, math.nan), Measured(120.0, math.nan)],
         '2 ranks none': [Measured(150.0, 800.0), Measured(180.0, 800.0)],
         '2 ranks bf16': [Measured(200.0, 400.0), Measured(240.0, 400.0)]}


def test_each_stands_beside_one_rank_with_its_bytes():
    rows = rows_of(FOUND)
    assert [entry['name'] for entry in rows] == [
        '1 rank', '2 ranks none', '2 ranks none sent', '2 ranks bf16', '2 ranks bf16 sent']
    assert rows[1]['ratio'] == pytest.approx(1.5) and rows[3]['ratio'] == pytest.approx(2.0)
    assert rows[4]['median'] == 400.0 and rows[4]['unit'] == 'bytes/update'
    assert '2 ranks bf16: 2.00 times one rank' in text_of(rows, [])


def test_compression_that_does_not_compress_fails():
    good, = checks_of(FOUND, 2, ['bf16'])
    bad, = checks_of({**FOUND, '2 ranks bf16': [Measured(200.0, 700.0)]}, 2, ['bf16'])
    assert good['passed'] and good['value'] == 0.5 and not bad['passed']
    # Between GPUs of one host nothing goes through sockets.
    unknown = {name: [Measured(1.0, math.nan)] for name in FOUND}
    assert checks_of(unknown, 2, ['bf16']) == []


@pytest.mark.slow
def test_the_whole_bench(capsys):
    assert main(['--widths', '64', '64', '--batch', '600', '--rounds', '2', '--json',
                 '--learner.ppo.minibatch_size', '200', '--learner.ppo.epochs', '1'], never) == 0
    result = json.loads(capsys.readouterr().out)
    assert all(entry['passed'] for entry in result['checks']) and len(result['checks']) == 2
    sent = {entry['name']: entry['median'] for entry in result['rows'] if 'sent' in entry['name']}
    weights = 2 * (64 * 64 + 64) + 2 * 64 * 17 + 2 * 64 + 64 * 6 + 6 + 64 + 1 + 6
    assert 3 * 4 * weights < sent['2 ranks none sent'] < 3 * 4 * weights * 1.1


@pytest.mark.parametrize('arguments', [['--rounds', '0'], ['--ranks', '1'], ['--batch', '1']])
def test_mistakes(arguments):
    with pytest.raises(ConfigError, match=' '.join(arguments)):
        main(arguments, never)

"""`asyncppo bench learner`: the update beside what its matmuls and its bytes cost alone."""

import json

import pytest
import torch

from asyncppo_ros.errors import ConfigError
from asyncppo_ros.tools.bench.learner import Case, main, Matmuls, minibatches


def never():
    return False


def test_the_flops_are_those_of_forward_and_backward():
    # 3 → 5 → 2 and 3 → 1: twice inputs × outputs × samples, forward and for the weights, and
    # once more for what comes from below, but not for the observation.
    matmuls = Matmuls([[(5, 3), (2, 5)], [(1, 3)]], size=7, device=torch.device('cpu'))
    assert matmuls.flops == 2 * 7 * (2 * 15 + 3 * 10 + 2 * 3)
    matmuls.run()


def test_minibatches_hold_every_sample():
    assert minibatches(10, 4) == [4, 4, 2]
    assert minibatches(8, 4) == [4, 4]
    assert minibatches(3, 4) == [3]


def test_a_sample_counts_once_for_each_epoch():
    case = Case('cpu', '8', 2048, {'learner.ppo.epochs': 3})
    measure = case.measures()['']
    assert measure() > 0.0 and case.learner.policy_version == 1
    assert measure() > 0.0 and case.learner.gradient_steps == 2 * 3 * 4
    assert case.learner.env_steps == 2 * 2048


def test_each_case_stands_beside_its_ceilings(capsys):
    assert main(['--networks', '8,8', '--batches', '2048', '--rounds', '1', '--json',
                 '--learner.ppo.epochs', '1'], never) == 0
    output = capsys.readouterr()
    result = json.loads(output.out)
    update, matmul, memcpy = result['rows']
    assert [entry['name'] for entry in result['rows']] == [
        'cpu 8,8 2048', 'cpu 8,8 2048 matmul', 'cpu 8,8 2048 memcpy']
    assert update['ceiling'] == matmul['median'] > 0.0 and memcpy['median'] > 0.0
    assert update['ratio'] == pytest.approx(update['median'] / matmul['median'])
    assert result['command'][:3] == ['asyncppo', 'bench', 'learner']
    assert 'round 1 of 1' in output.err


@pytest.mark.parametrize('arguments', [
    ['--rounds', '0'], ['--batches', '100'], ['--networks', '64x64']])
def test_mistakes(arguments):
    with pytest.raises(ConfigError, match=arguments[0]):
        main(arguments, never)

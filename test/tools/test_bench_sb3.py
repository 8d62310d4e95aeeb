"""The comparison with Stable-Baselines3, whose place is taken by a script that trains nothing."""

import json
import stat
import sys

import pytest

from asyncppo_ros.errors import ConfigError
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.tools.bench import sb3
from asyncppo_ros.tools.bench.peers import sb3_ppo

SMALL = ('--env_steps', 1000, '--actor.num_envs', 8, '--actor.chunk_length', 32,
         '--learner.batch_size', 512, '--learner.ppo.minibatch_size', 128,
         '--learner.ppo.epochs', 1, '--evaluation.final_episodes', 2)
# Answers the question whether the peer is there, and "trains" to the return 1000 + seed.
PEER = """#!{python}
import json, sys
if sys.argv[1] == '-c':
    sys.exit(0)
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
with open('{calls}', 'a') as file:
    file.write(json.dumps(options) + chr(10))
json.dump({{'env_steps': int(options['--steps']), 'gradient_steps': 80, 'wall_clock_s': 2.0,
           'settings': {{}}, 'versions': {{}},
           'returns': [1000.0 + int(options['--seed'])] * int(options['--episodes'])}},
          open(options['--out'], 'w'))
"""


@pytest.fixture
def peer(tmp_path):
    script = tmp_path / 'peer'
    script.write_text(PEER.format(python=sys.executable, calls=tmp_path / 'calls'))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


def test_both_train_and_are_compared_and_nothing_is_done_twice(tmp_path, peer, capsys):
    command = [str(word) for word in (
        '--python', peer, '--tasks', 'Hopper-v5', '--seeds', 7, '--sets', 'zoo', '--episodes', 2,
        '--workers', 2, '--folder', tmp_path / 'runs', '--json', *SMALL)]
    # The peer's return is more than 1024 steps of ours can reach.
    assert sb3.main(command, StopRequest()) == 1
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert printed.err.count('trained Hopper-v5') == 2
    ours, theirs = result['runs']
    assert (ours['who'], theirs['who']) == ('asyncppo_ros', 'sb3 zoo')
    for run in (ours, theirs):
        assert (run['seed'], run['env_steps'], run['episodes']) == (7, 1024, 2)
    assert 0.0 < ours['return_mean'] < 500.0 and theirs['return_mean'] == 1007.0
    assert [entry['passed'] for entry in result['checks']] == [False]
    # Nothing of this machine is in it.
    assert str(tmp_path) not in json.dumps(result['command'])
    calls = (tmp_path / 'calls').read_text()
    sb3.main(command, StopRequest())
    printed = capsys.readouterr()
    assert json.loads(printed.out)['runs'] == result['runs']
    assert (tmp_path / 'calls').read_text() == calls and 'trained' not in printed.err


def test_comparison_by_hand():
    results = [{'task': 'Hopper-v5', 'who': who, 'return_mean': value, 'wall_clock_s': 2.0,
                'gradient_steps': 50, 'env_steps': 1000}
               for who, values in (('asyncppo_ros', (3000.0, 2000.0)),
                                   ('sb3 zoo', (2400.0, 2000.0)),
                                   ('sb3 default', (2600.0, 2600.0))) for value in values]
    first, second = sb3.comparisons(results)
    assert (first['peer'], first['value'], first['ours'], first['theirs']) == (
        'sb3 zoo', 300.0, [3000.0, 2000.0], [2400.0, 2000.0])
    assert first['low'] < 0.0 < first['high'] <= 1000.0
    assert [entry['passed'] for entry in sb3.checks_of(results)] == [True, False]
    assert second['value'] == -100.0
    rows = {entry['name']: entry['mean'] for entry in sb3.rows_of(results)}
    assert rows['Hopper-v5 sb3 zoo return_mean'] == 2200.0
    assert rows['Hopper-v5 asyncppo_ros gradient_steps'] == 50.0
    text = sb3.comparison_text(results)
    assert 'asyncppo_ros 3000 2000, sb3 zoo 2400 2000: difference of the means +300 [' in text


def test_mistakes(tmp_path, peer):
    for arguments, words in (
            (('--python', tmp_path / 'nothing'), 'nothing: No such file'),
            (('--python', sys.executable), 'stable_baselines3'),
            (('--python', peer, '--tasks', 'reach'), '--tasks reach: must be of HalfCheetah-v5'),
            (('--python', peer, '--seed', '1'), '--seeds'),
            (('--python', peer, '--episodes', '0'), 'must be at least 1'),
            ((), '--python')):
        with pytest.raises(ConfigError) as error:
            sb3.main([*map(str, arguments)], lambda: False)
        assert words in str(error.value) and '\n' not in str(error.value)


def test_the_peer_makes_no_fewer_steps():
    given = {'task': 'Hopper-v5', 'actor.num_envs': 16, 'actor.chunk_length': 128,
             'learner.batch_size': 4096, 'env_steps': 1_000_000}
    assert sb3.steps_of(given) == 245 * 4096
    # A batch that is no multiple of a chunk is rounded up to one.
    assert sb3.steps_of({**given, 'learner.batch_size': 5000, 'env_steps': 7000}) == 12288


def test_published_settings_are_complete():
    for task in sb3_ppo.TUNED:
        tuned = sb3_ppo.settings_of(task, 'zoo')
        assert {'n_steps', 'batch_size', 'n_epochs', 'learning_rate', 'gamma', 'gae_lambda',
                'clip_range', 'ent_coef', 'vf_coef', 'max_grad_norm', 'policy_kwargs'} \
            == tuned.keys()
        assert sb3_ppo.settings_of(task, 'default') == {}
    assert sb3_ppo.settings_of('Hopper-v5', 'zoo')['policy_kwargs']['net_arch'] == {
        'pi': [256, 256], 'vf': [256, 256]}

"""The comparison with other packages, whose place is taken by a script that trains nothing."""

import argparse
import json
import math
import stat
import sys

import pytest

from asyncppo_ros.errors import ConfigError, RunError
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.tools import jobs
from asyncppo_ros.tools.bench import against_peers, peer_jobs, peer_rates, peer_returns, peers
from asyncppo_ros.tools.bench.peer_jobs import OURS, Peer, scripts, told
from asyncppo_ros.tools.bench.peers import peer_script

# Answers the question whether the package is there, and "trains": 1000 env steps/s, 160 gradient
# steps in 1000 env steps, and a return that rises to 1000 + seed.
PEER = """#!{python}
import json, sys
if sys.argv[1] == '-c':
    sys.exit('ModuleNotFoundError: nothing' if '{name}' == 'broken' else 0)
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
with open('{calls}', 'a') as file:
    file.write(options['--variant'] + ' ')
if '{name}' == 'fails':
    sys.exit('no such task')
top = 1000.0 + int(options['--seed'])
steps = int(options.get('--steps', 0))
json.dump({{'env_steps': steps, 'gradient_steps': 160 * steps // 1000, 'wall_clock_s': 100.0,
           'steady': {{'env_steps': 20000, 'gradient_steps': 3200, 'seconds': 20.0}},
           'num_envs': 8, 'settings': {{}}, 'versions': {{}},
           'curve': [{{'env_steps': steps // 2, 'gradient_steps': 1, 'seconds': 50.0,
                      'return_mean': top / 2}}],
           'returns': [top] * int(options.get('--episodes', 0))}},
          open(options['--out'], 'w'))
"""


@pytest.fixture(autouse=True)
def short_polls(monkeypatch):
    monkeypatch.setattr(jobs, 'POLL_S', 0.02)


def fake(folder, name='peer'):
    script = folder / name
    script.write_text(PEER.format(python=sys.executable, calls=folder / 'calls', name=name))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


def rate(steps_per_s, gradient_steps=0.1, num_envs=8):
    return {'env_steps_per_s': steps_per_s, 'num_envs': num_envs,
            'gradient_steps_per_env_step': gradient_steps}


@pytest.fixture
def quick(monkeypatch):
    """Ours are not trained: 15,000 env steps/s, 15 times those of the peer."""
    trained = []

    def of_ours(config, folder, seconds, stop):
        trained.append(folder.name)
        return rate(15000.0, 0.04, config.num_actors * config.actor.num_envs)

    monkeypatch.setattr(peer_rates, '_of_ours', of_ours)
    monkeypatch.setattr(peer_rates, 'settled', lambda config, **_: config)
    return trained


def test_rates_in_turn_and_no_round_twice(tmp_path, quick, capsys):
    command = [*map(str, (
        '--parts', 'rate', '--peer', f'sb3={fake(tmp_path)}', '--rounds', 2, '--seconds', 20,
        '--num_actors', 2, '--folder', tmp_path / 'runs', '--json'))]
    assert peers.main(command, StopRequest()) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    # Ours come first in the first round and last in the second.
    assert (tmp_path / 'calls').read_text().split() == ['dummy8', 'subproc8', 'subproc8', 'dummy8']
    assert [line.split(', ')[1].split(':')[0] for line in printed.err.splitlines()] == [
        OURS, 'sb3 dummy8', 'sb3 subproc8', 'sb3 subproc8', 'sb3 dummy8', OURS]
    rows = {row['name']: row['median'] for row in result['rows']}
    assert rows['HalfCheetah-v5 sb3 dummy8'] == 1000.0
    assert rows['HalfCheetah-v5 sb3 dummy8 gradient_steps'] == 160.0
    assert rows['HalfCheetah-v5 asyncppo_ros gradient_steps'] == 40.0
    assert [(entry['value'], entry['needed'], entry['passed']) for entry in result['checks']] == [
        (15.0, '>= 12', True)]
    # Nothing of this machine is in it.
    assert str(tmp_path) not in json.dumps(result['command'])
    assert 'sb3=PYTHON' in result['command']

    assert peers.main(command, StopRequest()) == 0
    assert json.loads(capsys.readouterr().out)['rates'] == result['rates']
    assert len((tmp_path / 'calls').read_text().split()) == 4 and len(quick) == 2
    # A round of other trainings is another round.
    command[command.index('20')] = '21'
    peers.main([*command, '--variants', 'sb3:default'], StopRequest())
    assert len((tmp_path / 'calls').read_text().split()) == 6 and len(quick) == 4


def test_the_faster_variant_of_a_package_counts():
    rounds = [{OURS: rate(12000.0), 'sb3 dummy8': rate(slow), 'sb3 subproc8': rate(fast),
               'cleanrl sync1': rate(600.0)}
              for slow, fast in ((900.0, 1100.0), (800.0, 1000.0), (1500.0, 1200.0))]
    found = peer_rates.comparisons_of('HalfCheetah-v5', rounds)
    assert [(entry['peer'], entry['variant'], entry['counts']) for entry in found] == [
        ('sb3', 'dummy8', False), ('sb3', 'subproc8', True), ('cleanrl', 'sync1', True)]
    # Paired: the median of 12000 / 1100, / 1000, / 1200.
    assert found[1]['ratio'][0] == pytest.approx(12000.0 / 1100.0)
    assert [(check['needed'], check['passed']) for check in peer_rates.checks_of(found)] == [
        ('>= 12', False), ('> 1', True)]
    # What was asked for was asked for one task.
    other = peer_rates.comparisons_of('Hopper-v5', rounds)
    assert [check['needed'] for check in peer_rates.checks_of(other)] == ['> 1', '> 1']
    assert '| sb3 subproc8 | 8 | 1,100 (1,000, 1,200) | 100.0 | 10.91 [10.00, 12.00] |' in (
        peer_rates.text_of('HalfCheetah-v5', rounds, found))


def test_rates_are_between_updates():
    rows = [{'env_steps': 4096 * index, 'gradient_steps': 160 * index, 'time_s': 3.0 + index}
            for index in range(1, 5)]
    found = peer_rates.rate_of_rows(rows, 128)
    assert (found['env_steps_per_s'], found['num_envs']) == (4096.0, 128)
    assert found['gradient_steps_per_env_step'] == pytest.approx(160 / 4096)
    with pytest.raises(ConfigError, match='too short'):
        peer_rates.rate_of_rows(rows[:1], 128)
    with pytest.raises(ConfigError, match='too short'):
        peer_rates.rate_of_result({'num_envs': 8, 'steady': {
            'env_steps': 0, 'gradient_steps': 0, 'seconds': 0.0}})


@pytest.fixture
def ours_trained(monkeypatch):
    """Ours take 1 s for each 100 of return; what the other environment says of a policy."""
    said = {}

    def played(run, milestone, task, episodes):
        return [said.get((run.folder.name, milestone), 5000.0)] * episodes

    monkeypatch.setattr(peer_returns, 'is_trained', lambda cell: True)
    monkeypatch.setattr(peer_returns, 'score', lambda cell, stop: None)
    monkeypatch.setattr(peer_returns, '_rows', lambda cell: [
        {'env_steps': 2000, 'gradient_steps': 80, 'time_s': 20.0}])
    monkeypatch.setattr(peer_returns, '_curve', lambda cell: [
        {'env_steps': 100 * index, 'seconds': float(index), 'milestone': index,
         'return_mean': 100.0 * index} for index in range(1, 21)])
    monkeypatch.setattr(peer_returns, '_played', played)
    return said


def test_time_to_the_return_of_the_peer(tmp_path, ours_trained, capsys):
    # The 11th policy of ours has 1100 by itself, but less where the peers are scored.
    ours_trained['Hopper-v5-async-1', 11] = 900.0
    python = fake(tmp_path)
    command = [*map(str, (
        '--parts', 'return', '--peer', f'sb3={python}', '--peer', f'cleanrl={python}', '--tasks',
        'Hopper-v5', '--seeds', 1, 2, '--steps', 4000, '--episodes', 2, '--folder',
        tmp_path / 'runs', '--json'))]
    # Ours are sooner than both, and all seeds got there.
    assert peers.main(command, StopRequest()) == 0
    printed = capsys.readouterr()
    assert '4 of 4 trainings' in printed.err
    result = json.loads(printed.out)['returns']
    # The mean of 1001 and 1002 is the return that is waited for.
    sb3, cleanrl = result['comparisons']
    assert (sb3['peer'], sb3['target'], sb3['ours'], sb3['theirs']) == (
        'sb3 zoo', 1001.5, [12.0, 11.0], [100.0, 100.0])
    assert sb3['ratio'][0] == pytest.approx(0.115)
    # Of the other peer one seed gets there in the end, and one not.
    assert (cleanrl['theirs'], cleanrl['ratio'][0]) == ([None, 100.0], pytest.approx(0.115))
    assert [(check['value'], check['needed'], check['passed'])
            for check in json.loads(printed.out)['checks']] == [
        (2, '2', True), (pytest.approx(0.115), '<= 0.1667', True),
        (pytest.approx(0.115), '< 1', True)]
    calls = (tmp_path / 'calls').read_text()
    assert calls.split() == ['zoo', 'sync1', 'sync1', 'zoo']
    peers.main(command[:-1], StopRequest())
    printed = capsys.readouterr()
    assert (tmp_path / 'calls').read_text() == calls and 'trainings' not in printed.err
    assert ('| Hopper-v5 | 1,002 | sb3 zoo | 12.0, 11.0 | cleanrl sync1 | never, 100.0 |'
            in printed.out)


def test_a_seed_that_never_gets_there_fails(ours_trained, tmp_path):
    peer = Peer('sb3', str(fake(tmp_path)))
    trainings = peer_returns.trainings(['Hopper-v5'], [0, 1], [peer], {}, tmp_path / 'runs',
                                       4000, 2)
    assert [training.who for training in trainings] == [OURS, 'sb3 zoo', 'sb3 zoo', OURS]
    peer_returns.train(trainings, StopRequest())
    for milestone in range(21):
        ours_trained['Hopper-v5-async-1', milestone] = 500.0
    results = [peer_returns.outcome(training, 2) for training in trainings]
    comparisons = peer_returns.comparisons_of(trainings, results, 2)
    assert comparisons[0]['ours'] == [11.0, None] and comparisons[0]['ratio'] is None
    check, = peer_returns.checks_of(comparisons)
    assert (check['value'], check['needed'], check['passed']) == (1, '2', False)
    assert 'never' in peer_returns.text_of(results, comparisons)


def test_the_policies_of_all_looks_are_kept(tmp_path):
    training, = peer_returns.trainings(['HalfCheetah-v5'], [3], [], {'env_steps': 1000}, tmp_path,
                                       1000, 2)
    assert training.cell.until == math.inf
    assert training.job.settings['learner.milestones'] == tuple(range(10, 1000, 10))


def test_picture(ours_trained, tmp_path):
    pytest.importorskip('matplotlib')
    from asyncppo_ros.tools.bench.peer_curves import draw
    results = [{'task': task, 'who': who, 'seed': seed, 'curve': [
        {'seconds': scale * (seed + step), 'return_mean': 10.0 * step} for step in range(1, end)]}
        for task in ('HalfCheetah-v5', 'Hopper-v5') for seed in (0, 1)
        for who, scale, end in ((OURS, 1.0, 9), ('sb3 zoo', 50.0, 2))]
    comparisons = [{'task': 'Hopper-v5', 'goal': 'sb3 zoo', 'target': 40.0}]
    assert draw(results, comparisons).startswith(b'\x89PNG')


def test_a_training_that_fails_is_told(tmp_path, quick):
    with pytest.raises(RunError, match='sb3 dummy8 failed: no such task'):
        peers.main([*map(str, ('--parts', 'rate', '--peer', f'sb3={fake(tmp_path, "fails")}',
                               '--rounds', 1, '--folder', tmp_path / 'runs'))], StopRequest())


def test_mistakes(tmp_path):
    good, broken = f'sb3={fake(tmp_path)}', f'cleanrl={fake(tmp_path, "broken")}'
    for arguments, words in (
            ((), '--peer: none is given'),
            (('--peer', 'sb3'), 'must be NAME=INTERPRETER'),
            (('--peer', good, '--peer', good), 'each name once'),
            (('--peer', 'rlpyt=python'), 'there is no peer rlpyt; there are cleanrl, '),
            (('--peer', f'sb3={tmp_path / "nothing"}'), 'nothing: No such file'),
            (('--peer', good, '--peer', broken), 'nothing; there: pip install torch'),
            (('--peer', broken, '--parts', 'return'), 'needs --peer sb3=INTERPRETER'),
            (('--peer', good, '--variants', 'sb3:fast'), 'one of zoo, default, dummy8, subproc8'),
            (('--peer', good, '--variants', 'envpool:pool8'), '--peer envpool=INTERPRETER'),
            (('--peer', good, '--rounds', '0'), '--rounds 0: must be at least 1'),
            (('--peer', good, '--seconds', '0'), 'must be more than 0'),
            (('--peer', good, '--seed', '1'), '--seeds'),
            (('--peer', good, '--parts', 'rate', '--picture', 'a.png'), '--parts return')):
        with pytest.raises(ConfigError) as error:
            against_peers.main([*map(str, arguments)], StopRequest())
        assert words in str(error.value) and '\n' not in str(error.value)
    # Nothing was begun.
    assert not (tmp_path / 'calls').exists()


def test_every_script_says_what_it_is():
    assert list(scripts()) == ['cleanrl', 'envpool', 'sample_factory', 'sb3']
    for script in scripts().values():
        assert script.NEEDS and script.INSTALL and callable(script.train)
        assert {*script.RATE, *script.RETURN} <= script.VARIANTS.keys() and script.RATE
        assert min(script.VARIANTS.values()) >= 1


def test_places_are_not_told():
    assert told(['--peer', 'sb3=/home/me/python', '--folder', '/mine', '--rounds', '3', '--json',
                 '--peer=cleanrl=/x', '--picture=/p.png'],
                {'--folder': '/mine', '--picture': '/p.png'}) == [
        '--peer', 'sb3=PYTHON', '--rounds', '3', '--json', '--peer=cleanrl=PYTHON']


@pytest.fixture
def clock(monkeypatch):
    """Time passes as the test says."""
    now = [100.0]
    monkeypatch.setattr(peer_script.time, 'monotonic', lambda: now[0])
    return now


def options(**given):
    return argparse.Namespace(**{
        'task': 'T', 'steps': 0, 'seconds': 0.0, 'evaluate_every': 0, 'look_episodes': 2,
        'evaluation_seed': 7, **given})


def test_progress_of_a_peer_counts_no_evaluation(clock, monkeypatch, capsys):
    def played(act, task, episodes, seed):
        clock[0] += 50.0
        return [act(0)] * episodes

    monkeypatch.setattr(peer_script, 'play', played)
    progress = peer_script.Progress(options(steps=3000, evaluate_every=2000))
    clock[0] = 110.0
    progress.begin()
    for steps in (1000, 2000, 3000):
        clock[0] += 1.0
        assert progress.update(steps, steps // 10, lambda _: 5.0) == (steps == 3000)
    facts = progress.facts()
    assert (facts['env_steps'], facts['gradient_steps'], facts['wall_clock_s']) == (3000, 300, 3.0)
    assert facts['steady'] == {'env_steps': 2000, 'gradient_steps': 200, 'seconds': 2.0}
    assert [(entry['seconds'], entry['return_mean']) for entry in facts['curve']] == [(2.0, 5.0)]
    assert [json.loads(line)['seconds'] for line in capsys.readouterr().out.splitlines()] == [
        1.0, 2.0, 3.0]


def test_seconds_of_a_peer_begin_with_its_first_update(clock):
    progress = peer_script.Progress(options(seconds=2.0))
    enough = []
    for _ in range(4):
        clock[0] += 1.0
        enough.append(progress.update(1, 1))
    assert enough == [False, False, True, True]


def test_scripts_name_the_versions_and_end_as_asked(tmp_path, monkeypatch, capsys):
    script = argparse.Namespace(
        __doc__='', VARIANTS={'only': 4}, train=lambda given, progress: (
            progress.update(64, 8), peer_script.Trained({'lr': 1.0}, ('numpy',), None))[1])
    out = tmp_path / 'result.json'
    monkeypatch.setattr(peer_script.signal, 'signal', lambda *_: None)
    words = ['script', '--task', 'T', '--variant', 'only', '--out', str(out)]
    monkeypatch.setattr(sys, 'argv', words)
    with pytest.raises(SystemExit, match='--steps or --seconds'):
        peer_script.main(script)
    monkeypatch.setattr(sys, 'argv', [*words, '--steps', '64'])
    assert peer_script.main(script) == 0
    result = json.loads(out.read_text())
    assert (result['env_steps'], result['num_envs'], result['returns']) == (64, 4, [])
    assert set(result['versions']) == {'python', 'numpy'} and result['settings'] == {'lr': 1.0}


def test_ours_are_played_once(tmp_path, monkeypatch):
    kept = tmp_path / 'returns.json'
    kept.write_text('[1.0, 2.0]')
    assert peer_jobs.returns_of(tmp_path / 'none', kept, 'Hopper-v5', 2) == [1.0, 2.0]
    with pytest.raises(Exception, match='none'):
        peer_jobs.returns_of(tmp_path / 'none', kept, 'Hopper-v5', 3)

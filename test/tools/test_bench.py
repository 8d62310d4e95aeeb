"""The form of results, and the bench that trains, at its smallest."""

import json

from harness import asyncppo
import pytest

from asyncppo_ros.tools.bench.results import report, row, table

SMALL = ('--env_steps', 1024, '--actor.num_envs', 8, '--actor.chunk_length', 16,
         '--learner.batch_size', 512, '--learner.ppo.minibatch_size', 128,
         '--evaluation.final_episodes', 3)


def test_rows_summarize_and_compare_with_their_ceiling():
    assert row('rate', [1.0, 4.0, 2.0], 'steps/s') == {
        'name': 'rate', 'median': 2.0, 'mean': pytest.approx(7 / 3), 'min': 1.0, 'max': 4.0,
        'unit': 'steps/s'}
    assert row('rate', [2.0], 'steps/s', ceiling=8.0)['ratio'] == 0.25
    assert {'machine', 'versions', 'settings', 'rows'} <= report({}, []).keys()
    assert 'steps/s' in table([row('rate', [123456.0], 'steps/s')])


def test_bench_learning_trains_scores_and_goes_on(tmp_path):
    command = ('bench', 'learning', '--tasks', 'cartpole_swingup', '--seeds', 0, 1, '--modes',
               'sync', '--folder', tmp_path / 'runs', '--json', '--milestones', 512, 10 ** 6,
               '--workers', 2, '--picture', tmp_path / 'curves.png', *SMALL)
    first = asyncppo(*command)
    assert first.returncode == 0, first.stderr
    result = json.loads(first.stdout)
    assert {'machine', 'versions', 'settings', 'rows', 'runs'} <= result.keys()
    rows = {entry['name']: entry for entry in result['rows']}
    assert set(result['runs'][0]['returns']) == {'512', '1024'}
    for steps in (512, 1024):
        returns = rows[f'cartpole_swingup sync return at {steps}']
        assert returns['values'] == [entry['returns'][str(steps)]['return_mean']
                                     for entry in result['runs']]
        assert returns['iqm'][1] <= returns['iqm'][0] <= returns['iqm'][2]
    assert (tmp_path / 'curves.png').read_bytes().startswith(b'\x89PNG')
    assert [entry['seed'] for entry in result['runs']] == [0, 1]
    assert all(entry['env_steps'] >= 1024 and entry['episodes'] == 3 for entry in result['runs'])
    assert result['settings']['cartpole_swingup']['learner.batch_size'] == 512
    # Finished runs are read, not trained again.
    again = asyncppo(*command)
    assert json.loads(again.stdout)['runs'] == result['runs']
    assert 'trainings' in first.stderr and 'trainings' not in again.stderr


@pytest.mark.nodes
@pytest.mark.one_distro
def test_bench_actors_measures_a_real_training():
    pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
    ended = asyncppo('bench', 'actors', '--counts', 1, '--seconds', 2, '--json',
                     '--learner.batch_size', 512, '--learner.ppo.minibatch_size', 512)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert [entry['name'] for entry in result['rows']] == ['1 actors']
    assert 0.0 < result['rows'][0]['median'] <= result['rows'][0]['ceiling']


def test_mistakes():
    for arguments, text in ((('bench', 'flying'), 'no such bench'),
                            (('bench', 'learning', '--seed', '1'), '--seeds'),
                            (('bench', 'learning', '--modes', 'fast'), 'fast')):
        result = asyncppo(*arguments)
        assert result.returncode == 2 and text in result.stderr
    assert 'learning' in asyncppo('bench', '--help').stdout

"""The real nodes: they learn, stop in good order, survive a death, continue where they were."""

import json
import os
import signal
import time

from harness import (
    asyncppo,
    end,
    free_address,
    options,
    pids_of,
    processes_of,
    rows_of,
    shared_memory,
    start,
    wait_for,
)
import pytest

pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
pytestmark = pytest.mark.nodes

# A solved swing-up returns about 400 of at most 500; hanging down and random actions give < 50.
BUDGET = 900_000
SOLVED = 350.0


@pytest.mark.one_distro
def test_cartpole_is_solved_by_the_asynchronous_nodes(tmp_path):
    run = tmp_path / 'run'
    result = asyncppo('train', '--task', 'cartpole_swingup', '--env_steps', BUDGET, '--run_dir',
                      run, '--num_actors', 2, '--transport.address', free_address(),
                      '--evaluation.final_episodes', 50, timeout=280)
    assert result.returncode == 0, result.stderr
    score = rows_of(run / 'evaluations.jsonl')[-1]
    assert score['final'] and score['episodes'] == 50
    assert score['return_mean'] >= SOLVED, score
    books = json.loads((run / 'books.json').read_text())
    assert books['balanced'] and books['totals']['consumed'] >= BUDGET
    assert books['totals']['lost_in_crash'] == books['totals']['refused_by_check'] == 0
    rows = rows_of(run / 'metrics.jsonl')
    assert max(row['policy_lag_max'] for row in rows) <= 8
    for line in ('policy    ', 'metrics   ', 'curves    ', 'next:'):
        assert line in result.stdout
    for name in ('policy.safetensors', 'report.png', 'report.html', 'config.yaml', 'run.json',
                 'checkpoint/checkpoint.safetensors'):
        assert (run / name).is_file(), name
    assert list((run / 'tensorboard').iterdir())
    assert not processes_of(run) and not shared_memory()


def test_a_random_policy_is_far_from_solving_it(tmp_path):
    """The threshold of the test above means something: random stays under a fifth of it."""
    import numpy as np

    from asyncppo_ros.simulation.registry import make
    environment = make('cartpole_swingup', 50, seed=3)
    out = np.empty((50, environment.observation_size), np.float32)
    environment.reset(out)
    rng, returns = np.random.default_rng(0), []
    while len(returns) < 50:
        result = environment.step(rng.uniform(-1, 1, (50, 1)).astype(np.float32), out)
        returns += result.episodes[:, 0].tolist()
    assert np.mean(returns) < SOLVED / 5


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_everything_and_resume_goes_on(tmp_path, number):
    run = tmp_path / 'run'
    arguments = options()
    training = start('train', '--task', 'cartpole_swingup', '--env_steps', 10 ** 7, '--run_dir',
                     run, *arguments)
    try:
        wait_for(lambda: len(rows_of(run / 'metrics.jsonl')) >= 5, 'update', process=training)
        code, seconds, output = end(training, number)
    finally:
        training.kill()
    assert code == 0, output
    assert seconds < 5.0
    assert 'Traceback' not in output and f'--resume {run}' in output
    assert (run / 'checkpoint' / 'checkpoint.safetensors').is_file()
    assert not processes_of(run) and not shared_memory()
    for log in (run / 'logs').iterdir():
        assert 'Traceback' not in log.read_text(), log
    assert asyncppo('books', run).returncode == 0
    before = rows_of(run / 'metrics.jsonl')[-1]
    more = int(before['env_steps']) + 8 * 1024
    result = asyncppo('train', '--resume', run, '--env_steps', more)
    assert result.returncode == 0, result.stderr
    rows = rows_of(run / 'metrics.jsonl')
    after = [row for row in rows if row['generation'] == before['generation'] + 1]
    # The last update before the signal may have come after its row.
    assert 0 < after[0]['policy_version'] - before['policy_version'] <= 2
    assert 0 < after[0]['env_steps'] - before['env_steps'] <= 3 * 2048
    assert after[0]['time_s'] > before['time_s'] and rows[-1]['env_steps'] >= more
    assert asyncppo('books', run).returncode == 0


@pytest.mark.parametrize('delay', [0.0, 0.7, 1.5, 2.5, 4.0])
def test_a_signal_while_it_starts(tmp_path, delay):
    run = tmp_path / 'run'
    training = start('train', '--task', 'cartpole_swingup', '--run_dir', run, *options())
    try:
        # Before the interpreter runs our first line nobody can have installed a handler.
        wait_for(lambda: (run / 'run.json').exists(), 'run folder', process=training)
        time.sleep(delay)
        code, seconds, output = end(training)
    finally:
        training.kill()
    assert code == 0 and seconds < 5.0, (seconds, output)
    assert 'Traceback' not in output
    wait_for(lambda: not processes_of(run), 'end of all processes', timeout=2.0)
    for log in (run / 'logs').iterdir():
        assert 'Traceback' not in log.read_text(), log


def test_a_killed_actor_costs_its_chunks_under_way(tmp_path):
    run = tmp_path / 'run'
    training = start('train', '--task', 'cartpole_swingup', '--env_steps', 10 ** 7, '--run_dir',
                     run, *options())
    try:
        wait_for(lambda: len(rows_of(run / 'metrics.jsonl')) >= 3, 'update', process=training)
        # One that dies before it has a ledger has not begun: its next start is its first.
        wait_for(lambda: len(list((run / 'books').glob('actor-*-1.ledger'))) == 2, 'both at work')
        victim, other = wait_for(lambda: pids_of(run, 'actor'), 'actors')
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: len(set(pids_of(run, 'actor')) - {victim}) == 2, 'new actor')
        # It has said hello again once it counts in a ledger of its own.
        wait_for(lambda: list((run / 'books').glob('actor-*-2.ledger')), 'second incarnation')
        count = len(rows_of(run / 'metrics.jsonl'))
        wait_for(lambda: len(rows_of(run / 'metrics.jsonl')) > count + 5, 'more updates')
        assert other in pids_of(run, 'actor')
        code, _, output = end(training)
    finally:
        training.kill()
    assert code == 0, output
    books = json.loads((run / 'books.json').read_text())
    assert books['balanced']
    dead = [row for row in books['actors'] if row['lost_in_crash']]
    assert len(dead) <= 1
    # At most the chunks it had permits for: one target lag and one batch in all.
    assert all(row['lost_in_crash'] <= 2 * 1024 for row in dead)
    assert sorted((row['actor_id'], row['incarnation']) for row in books['actors']) in (
        [(0, 1), (0, 2), (1, 1)], [(0, 1), (1, 1), (1, 2)])

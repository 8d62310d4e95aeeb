"""Real Ray: where the learner is reached, a worker that is killed, nothing that is left."""

import json
import os
import pathlib
import signal

from harness import asyncppo, end, options, processes_of, rows_of, start, wait_for
import pytest

pytest.importorskip('ray', reason='needs Ray: pip install "asyncppo_ros[ray]"')

from asyncppo_ros.cluster.ray_cluster import Cluster, learner_address  # noqa: E402
from asyncppo_ros.errors import AddressError  # noqa: E402
from asyncppo_ros.nodes.actor_states import read_states  # noqa: E402


@pytest.mark.parametrize(('address', 'others', 'expected'), [
    ('tcp://127.0.0.1:5577', (), 'tcp://127.0.0.1:5577'),
    ('tcp://0.0.0.0:5577', (), 'tcp://127.0.0.1:5577'),
    ('tcp://0.0.0.0:5577', ('10.0.0.2',), 'tcp://10.0.0.1:5577'),
    ('tcp://10.0.0.1:5577', ('10.0.0.2',), 'tcp://10.0.0.1:5577'),
    ('tcp://learner:5577', ('10.0.0.2',), 'tcp://learner:5577'),
    ('ipc:///tmp/x', (), 'ipc:///tmp/x'),
])
def test_workers_reach_the_learner_from_where_they_are(address, others, expected):
    assert learner_address(address, Cluster('10.0.0.1', others)) == expected


@pytest.mark.parametrize('address', ['tcp://127.0.0.1:5577', 'tcp://localhost:5577'])
def test_an_address_of_this_host_alone_is_refused_where_there_are_others(address):
    with pytest.raises(AddressError, match='other hosts of the Ray cluster .10.0.0.2.'):
        learner_address(address, Cluster('10.0.0.1', ('10.0.0.2',)))


@pytest.mark.nodes
@pytest.mark.slow
def test_ray_restarts_a_killed_worker_and_the_books_balance(tmp_path):
    pytest.importorskip('rclpy', reason='the learner needs ROS 2')
    run = tmp_path / 'run'
    folders = set(pathlib.Path('/tmp').glob('asyncppo-ray-*'))
    training = start('train', '--cluster', 'ray', '--task', 'cartpole_swingup', '--env_steps',
                     10 ** 7, '--run_dir', run, *options())

    def running():
        states = read_states(run)
        return len(states) == 2 and all(state['state'] == 'running' for state in states) and {
            state['actor_id']: state['pid'] for state in states}

    try:
        wait_for(lambda: len(rows_of(run / 'metrics.jsonl')) >= 3, 'update', 200, training)
        before = wait_for(running, 'two actors', 60, training)
        wait_for(lambda: len(list((run / 'books').glob('actor-*-1.ledger'))) == 2, 'both at work')
        sessions = {os.getsid(pid) for pid in before.values()}
        os.kill(before[1], signal.SIGKILL)
        after = wait_for(lambda: (running() or {}).get(1) not in (None, before[1]) and running(),
                         'a new process', 100, training)
        assert after[0] == before[0]
        wait_for(lambda: list((run / 'books').glob('actor-1-2.ledger')), 'second incarnation', 60)
        count = len(rows_of(run / 'metrics.jsonl'))
        wait_for(lambda: len(rows_of(run / 'metrics.jsonl')) > count + 5, 'more updates')
        code, _, output = end(training)
    finally:
        training.kill()
    assert code == 0, output
    assert 'Ray: 2 of 2 actors placed' in output
    assert json.loads((run / 'books.json').read_text())['balanced']
    assert asyncppo('books', run).returncode == 0
    assert not processes_of(run) and not members(sessions)
    assert set(pathlib.Path('/tmp').glob('asyncppo-ray-*')) == folders


def members(sessions):
    """Give the living processes of some sessions."""
    found = []
    for folder in pathlib.Path('/proc').glob('[0-9]*'):
        try:
            fields = (folder / 'stat').read_text().rpartition(')')[2].split()
        except OSError:
            continue
        if int(fields[3]) in sessions and fields[0] != 'Z':
            found.append(int(folder.name))
    return found

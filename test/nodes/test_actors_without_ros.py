"""Actors on a host without ROS 2: policies come over the socket that the chunks go over."""

import json
import os
import statistics
import subprocess

from harness import ASYNCPPO, end, free_address, options, pids_of, rows_of, start, wait_for
import pytest

from asyncppo_ros.errors import ConfigError
from asyncppo_ros.nodes.actor import given_settings, split_ros_arguments

FIRST = 5000


def test_what_stands_in_ros_arguments_is_read_without_rclpy(tmp_path):
    file = tmp_path / 'config.yaml'
    file.write_text('/**: {ros__parameters: {task: reach, actor: {num_envs: 8}}}\n')
    own, ros = split_ros_arguments([
        '--actor-id', '3', '--ros-args', '--params-file', str(file), '-r', '__ns:=/lab', '-p',
        'actor.num_envs:=4', '-p', 'actor_3:transport.policies:=zmq', '-p',
        'use_sim_time:=true', '--', '--more'])
    assert own == ['--actor-id', '3', '--more']
    assert given_settings(ros) == {'task': 'reach', 'actor.num_envs': 4,
                                   'transport.policies': 'zmq'}
    with pytest.raises(ConfigError, match='-p seed: expected -p NAME:=VALUE'):
        given_settings(['-p', 'seed'])


@pytest.fixture
def without_rclpy(tmp_path):
    """Give an environment in which importing rclpy fails."""
    package = tmp_path / 'blocked' / 'rclpy'
    package.mkdir(parents=True)
    (package / '__init__.py').write_text('raise ImportError("rclpy is not for this host")\n')
    paths = [str(package.parent), os.environ.get('PYTHONPATH', '')]
    return {**os.environ, 'PYTHONPATH': os.pathsep.join(filter(None, paths))}


def test_a_wrong_address_is_one_line(without_rclpy):
    result = subprocess.run([*ASYNCPPO, 'actors', '--address', 'nonsense', '--task',
                             'cartpole_swingup', '--num-actors', '1'], env=without_rclpy,
                            capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2
    assert 'transport.address = nonsense: cannot be used' in result.stderr
    assert 'Traceback' not in result.stderr


@pytest.mark.nodes
@pytest.mark.one_distro
def test_they_join_a_training_collect_and_leave(tmp_path, without_rclpy):
    pytest.importorskip('rclpy', reason='the learner needs ROS 2')
    run, address = tmp_path / 'run', free_address()
    training = start('train', '--task', 'cartpole_swingup', '--env_steps', 10 ** 7, '--run_dir',
                     run, *options(transport__address=address, num_actors=1))
    others = None
    try:
        wait_for(lambda: len(rows_of(run / 'metrics.jsonl')) >= 2, 'update', process=training)
        others = subprocess.Popen(
            [*ASYNCPPO, 'actors', '--address', address, '--task', 'cartpole_swingup',
             '--num-actors', '1', '--first-actor-id', str(FIRST), '--actor.num_envs', '16',
             '--actor.chunk_length', '16'],
            env=without_rclpy, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True)
        wait_for(lambda: rows_of(run / 'metrics.jsonl')[-1]['actors'] == 2, 'two actors',
                 process=others)
        count = len(rows_of(run / 'metrics.jsonl'))
        wait_for(lambda: len(rows_of(run / 'metrics.jsonl')) > count + 20, 'more updates',
                 process=others)
        assert pids_of(run, 'actor')
        assert end(training)[0] == 0
        # The learner told them that the run is over.
        output, _ = others.communicate(timeout=20)
    finally:
        for process in filter(None, (training, others)):
            process.kill()
    assert others.returncode == 0 and 'Traceback' not in output, output
    books = json.loads((run / 'books.json').read_text())
    assert books['balanced']
    consumed = {row['actor_id']: row['consumed'] for row in books['actors']}
    assert set(consumed) == {0, FIRST} and consumed[FIRST] > 2000
    # It gets its policies in time, or it would wait or be late with every chunk.
    rows = rows_of(run / 'metrics.jsonl')[count:]
    assert sum(row['policy_lag_mean'] for row in rows) / len(rows) <= 1
    assert statistics.median(row['actor_wait'] for row in rows) < 0.9

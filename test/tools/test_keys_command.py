"""``asyncppo keys``, and a training with what it makes."""

from harness import asyncppo, end, options, rows_of, start, wait_for
import pytest

from asyncppo_ros.robot.artefact import read_artefact
from asyncppo_ros.robot.signing import signing_key


def made(folder):
    result = asyncppo('keys', folder)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_it_says_what_to_copy_where(tmp_path):
    text = made(tmp_path / 'keys')
    assert f'scp -rp {tmp_path}/keys/actor HOST:asyncppo_keys' in text
    assert f'--transport.keys {tmp_path}/keys' in text
    assert 'never copy it' in text and signing_key(tmp_path / 'keys').hex() not in text
    added = asyncppo('keys', tmp_path / 'keys', '--add', 'arm')
    assert added.returncode == 0 and f'{tmp_path}/keys/learner/authorized/arm.key' in added.stdout


def test_mistakes_are_one_line(tmp_path):
    made(tmp_path / 'keys')
    for arguments, words in ((('keys', tmp_path / 'keys'), 'never overwritten'),
                             (('keys', tmp_path / 'keys', '--add', 'a/b'), 'a name is made of'),
                             (('keys', tmp_path / 'none', '--add', 'arm'), 'holds no keys'),
                             (('keys', '/proc/none'), '/proc/none'),
                             (('keys',), 'DIR')):
        result = asyncppo(*arguments)
        line, = result.stderr.strip().splitlines()
        assert result.returncode == 2 and words in line and line.startswith('asyncppo: ')


@pytest.mark.nodes
@pytest.mark.one_distro
def test_a_training_with_keys_takes_in_the_added_and_nobody_else(tmp_path):
    pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
    keys, others, run = tmp_path / 'keys', tmp_path / 'others', tmp_path / 'run'
    made(keys)
    made(others)
    # The learner's public key is no secret: its own keys are what a stranger lacks.
    (others / 'actor' / 'learner.key').write_bytes((keys / 'actor' / 'learner.key').read_bytes())
    near = options(num_actors=1)
    address = near[near.index('--transport.address') + 1]
    training = start('train', '--task', 'cartpole_swingup', '--env_steps', 10 ** 7, '--run_dir',
                     run, *near, '--transport.keys', keys, '--transport.address',
                     address.replace('127.0.0.1', '0.0.0.0'))
    far = ('actors', '--task', 'cartpole_swingup', *near, '--address', address, '--num-actors', 1)
    started = [training]

    def rows():
        return rows_of(run / 'metrics.jsonl')

    try:
        wait_for(lambda: rows() and rows()[-1]['actors'] == 1, 'update', process=training)
        started.append(start(*far, '--first-actor-id', 20, '--transport.keys', others))
        wait_for(lambda: rows()[-1]['connections_refused'] > 0, 'refusal', process=training)
        assert asyncppo('keys', keys, '--add', 'arm').returncode == 0
        started.append(start(*far, '--first-actor-id', 10, '--transport.keys', keys / 'arm'))
        wait_for(lambda: rows()[-1]['actors'] == 2, 'second actor', process=training)
        code, _, output = end(training)
    finally:
        for process in started:
            process.terminate()
            process.communicate(timeout=20)
    assert code == 0, output
    assert max(row['actors'] for row in rows()) == 2
    log = (run / 'logs' / 'learner.log').read_text()
    assert log.count('a connection from ') == log.count('curve_key: key ') == 1
    assert asyncppo('books', run).returncode == 0
    policy = run / 'policy.safetensors'
    assert read_artefact(policy, signing_key(keys)).card['env_steps'] > 0
    scored = asyncppo('eval', run, '--episodes', 1, '--keys', others)
    assert scored.returncode == 2 and 'is signed with another key' in scored.stderr
    assert asyncppo('eval', run, '--episodes', 1, '--keys', keys).returncode == 0


@pytest.mark.nodes
@pytest.mark.one_distro
def test_a_training_whose_keys_are_not_there_says_so_in_one_line(tmp_path):
    pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
    result = asyncppo('train', '--task', 'cartpole_swingup', '--run_dir', tmp_path / 'run',
                      *options(), '--transport.keys', tmp_path / 'none')
    lines = [line for line in result.stderr.splitlines() if line.startswith('asyncppo: ')]
    assert result.returncode == 2 and len(lines) == 1, result.stderr
    assert f'{tmp_path}/none' in lines[0] and '`asyncppo keys DIR` makes keys' in lines[0]

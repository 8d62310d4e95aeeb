"""What runs in a worker process, without Ray around it: no mistake is lost, no key is shown."""

import os
import pathlib
import stat
import subprocess
import sys
import threading

from harness import free_address, wait_for
import pytest

from asyncppo_ros.cluster.ray_fleet import folder_there, sent_keys
from asyncppo_ros.cluster.ray_worker import Collector, KeyFiles, unpacked
from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.robot.signing import signing_key
from asyncppo_ros.settings import to_dict
from asyncppo_ros.transport.keys import actor_keys, make_keys


@pytest.fixture
def keys(tmp_path):
    make_keys(tmp_path / 'keys')
    return str(tmp_path / 'keys')


def settings(**values):
    own = {'task': 'cartpole_swingup', 'transport.policies': 'zmq', 'actor.num_envs': 4,
           'transport.address': free_address()}
    return {**to_dict(Config()), **own,
            **{name.replace('__', '.'): value for name, value in values.items()}}


def test_keys_arrive_whole_are_shown_to_nobody_and_removed(keys):
    files = KeyFiles.of(keys)
    secret = (pathlib.Path(keys) / 'actor' / 'policy_hmac.key').read_text().strip()
    assert secret.encode() in files.contents['policy_hmac.key']
    assert repr(files) == str(files) == 'KeyFiles(actor.key_secret, learner.key, policy_hmac.key)'
    assert secret not in f'{[files]} {(files,)} {files!r}'
    with unpacked(files) as folder:
        assert actor_keys(folder) == actor_keys(keys)
        assert signing_key(folder) == signing_key(keys)
        modes = {stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) & 0o077
                 for name in ('', *files.contents)}
        assert modes == {0}
    assert not os.path.exists(folder)


def test_keys_travel_only_where_ray_encrypts(keys, monkeypatch):
    monkeypatch.delenv('RAY_USE_TLS', raising=False)
    assert sent_keys(keys, 'auto') is None
    monkeypatch.setenv('RAY_USE_TLS', '1')
    assert set(sent_keys(keys, 'auto').contents) == set(KeyFiles.of(keys).contents)
    assert sent_keys(keys, '') is None and sent_keys('', 'auto') is None
    os.chmod(os.path.join(keys, 'actor', 'policy_hmac.key'), 0o644)
    with pytest.raises(ConfigError, match='can be read by others'):
        sent_keys(keys, 'auto')


def test_a_folder_is_meant_where_the_worker_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert folder_there('keys') == str(tmp_path / 'keys')
    assert folder_there('~/keys') == '~/keys' and folder_there('') == ''


@pytest.mark.parametrize(('values', 'told'), [
    ({'transport__keys': '/nowhere/keys'}, 'transport.keys: /nowhere/keys'),
    ({'task': 'not_a_task'}, 'not_a_task'),
    ({'not_a_setting': 1}, 'not_a_setting'),
])
def test_a_mistake_comes_back_as_one_line(values, told):
    mistake = Collector(settings(**values), 0).collect()
    assert told in mistake and '\n' not in mistake


def test_it_collects_until_it_is_asked_to_stop_and_answers_meanwhile():
    collector = Collector(settings(), 5)
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(collector.collect()))
    thread.start()
    assert collector.answer()[1:] == (os.getpid(), [])
    collector._said.put('something')
    assert collector.answer().said == ['something'] and collector.answer().said == []
    collector.stop()
    thread.join(20.0)
    assert outcome == ['']


def test_the_folder_of_lent_keys_is_gone_when_collecting_has_ended(keys, tmp_path, monkeypatch):
    monkeypatch.setenv('TMPDIR', str(tmp_path))
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    collector = Collector(settings(transport__keys='/only/on/the/learners/host'), 5,
                          KeyFiles.of(keys))
    thread = threading.Thread(target=collector.collect)
    thread.start()
    wait_for(lambda: list(tmp_path.glob('asyncppo-keys-*')), 'keys')
    collector.stop()
    thread.join(20.0)
    assert not list(tmp_path.glob('asyncppo-keys-*'))


def test_a_worker_needs_neither_ros_nor_ray():
    code = ('import sys; sys.modules["rclpy"] = sys.modules["ray"] = None\n'
            'from asyncppo_ros.cluster.ray_worker import Collector\n'
            'import asyncppo_ros.acting.actor, asyncppo_ros.transport.policy_fetch\n'
            'sys.exit("torch" in sys.modules)')
    assert subprocess.run([sys.executable, '-c', code], timeout=60, check=False).returncode == 0

"""Keys: made private, never overwritten, and named by file where something is wrong."""

import stat

import pytest

from asyncppo_ros.errors import ConfigError
from asyncppo_ros.robot.signing import signing_key
from asyncppo_ros.transport.keys import (
    actor_keys,
    add_actor,
    fingerprint,
    learner_keys,
    make_keys,
    read_public_key,
)


@pytest.fixture
def keys(tmp_path):
    make_keys(tmp_path / 'keys')
    return tmp_path / 'keys'


def test_both_ends_read_what_was_made(keys):
    learner, actor = learner_keys(keys), actor_keys(keys)
    assert actor.learner == learner.public
    assert actor.public == read_public_key(keys / 'learner' / 'authorized' / 'actor.key')
    assert len({learner.public, learner.secret, actor.public, actor.secret}) == 4
    assert signing_key(keys, 'learner') == signing_key(keys, 'actor')
    assert len(signing_key(keys)) == 32


def test_a_folder_that_was_copied_is_read_by_itself(keys, tmp_path):
    (keys / 'actor').rename(tmp_path / 'elsewhere')
    assert actor_keys(tmp_path / 'elsewhere').learner == learner_keys(keys).public
    assert signing_key(tmp_path / 'elsewhere') == signing_key(keys, 'learner')


def test_no_folder_means_no_keys():
    assert learner_keys('') is actor_keys('') is signing_key('') is None


def test_nobody_else_can_read_them(keys):
    add_actor(keys, 'arm-2')
    files = [path for path in keys.rglob('*') if path.is_file()]
    assert len(files) == 13
    for path in keys.rglob('*'):
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_nothing_is_overwritten(keys):
    before = {path: path.read_bytes() for path in keys.rglob('*') if path.is_file()}
    with pytest.raises(ConfigError, match='learner: exists, and keys are never overwritten'):
        make_keys(keys)
    for name in ('actor', 'arm'):
        add_actor(keys, name) if name == 'arm' else None
        with pytest.raises(ConfigError, match=f'--add {name}: .* has keys of that name'):
            add_actor(keys, name)
    assert all(path.read_bytes() == content for path, content in before.items())


def test_a_further_host_has_keys_of_its_own(keys):
    add_actor(keys, 'arm')
    assert actor_keys(keys / 'arm').public != actor_keys(keys).public
    assert actor_keys(keys / 'arm').learner == learner_keys(keys).public
    assert {path.stem for path in (keys / 'learner' / 'authorized').iterdir()} == {'actor', 'arm'}


@pytest.mark.parametrize('name', ['', '../x', 'a b', 'learner', '.hidden', 'x' * 65])
def test_a_name_that_does_not_do_is_refused(keys, name):
    with pytest.raises(ConfigError, match='a name is made of letters'):
        add_actor(keys, name)


def test_a_host_is_added_only_to_keys(tmp_path):
    with pytest.raises(ConfigError, match='holds no keys of a learner; make them with'):
        add_actor(tmp_path, 'arm')


@pytest.mark.parametrize('read, file', [
    (learner_keys, 'learner/learner.key_secret'), (actor_keys, 'actor/actor.key_secret'),
    (actor_keys, 'actor/learner.key'), (signing_key, 'actor/policy_hmac.key')])
@pytest.mark.parametrize('content', [None, b'', b'curve\n public-key = "short"\n', b'\xff' * 9])
def test_a_missing_or_damaged_file_is_named(keys, read, file, content):
    path = keys / file
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        read(keys)
    assert str(path) in str(error.value) and '\n' not in str(error.value)
    assert 'asyncppo keys' in str(error.value)


@pytest.mark.parametrize('read, file', [
    (learner_keys, 'learner/learner.key_secret'), (actor_keys, 'actor/actor.key_secret'),
    (signing_key, 'actor/policy_hmac.key')])
@pytest.mark.parametrize('mode', [0o640, 0o604, 0o666])
def test_a_secret_that_others_can_read_is_refused(keys, read, file, mode):
    (keys / file).chmod(mode)
    with pytest.raises(ConfigError, match=rf'mode {mode:04o}.*chmod 600 {keys / file}'):
        read(keys)


def test_a_learner_needs_the_folder_of_the_authorized(keys):
    (keys / 'learner' / 'authorized').rename(keys / 'moved')
    with pytest.raises(ConfigError, match='authorized is missing'):
        learner_keys(keys)


def test_a_fingerprint_names_a_key_in_either_form(keys):
    import zmq.utils.z85
    public = learner_keys(keys).public
    assert fingerprint(public) == fingerprint(zmq.utils.z85.decode(public))
    assert fingerprint(public) != fingerprint(actor_keys(keys).public)
    assert len(fingerprint(public)) == 16

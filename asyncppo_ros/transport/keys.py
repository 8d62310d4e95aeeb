"""
The keys of a run: CURVE certificates for the sockets, one secret for signing policies.

::

    DIR/learner/   learner.key_secret  learner.key  policy_hmac.key
                   authorized/NAME.key     public keys of the actors that may connect
    DIR/actor/     actor.key_secret  actor.key  learner.key  policy_hmac.key
    DIR/NAME/      the same for each further host

Folders are open to their owner alone, and so are the files.
"""

from collections.abc import Iterator
import contextlib
import hashlib
import os
import pathlib
import re
import secrets
import shutil
import struct
from typing import NamedTuple

import zmq
import zmq.auth
import zmq.utils.z85

from asyncppo_ros.errors import ConfigError
from asyncppo_ros.robot.signing import (
    key_folder,
    read_secret,
    SIGNING_KEY_BYTES,
    SIGNING_KEY_FILE,
)

LEARNER, ACTOR, AUTHORIZED = 'learner', 'actor', 'authorized'
_NAME = re.compile(r'[A-Za-z0-9][A-Za-z0-9_.-]{0,63}')
_KEY_BYTES = 32


class LearnerKeys(NamedTuple):
    """What the learner's socket needs; the keys are in Z85."""

    public: bytes
    secret: bytes
    authorized: pathlib.Path


class ActorKeys(NamedTuple):
    """What an actor's socket needs; the keys are in Z85."""

    public: bytes
    secret: bytes
    learner: bytes


def make_keys(folder: pathlib.Path) -> None:
    """
    Make ``folder/learner`` and ``folder/actor``.

    Raises
    ------
    ConfigError
        One of them exists, or they cannot be written.

    """
    for role in (LEARNER, ACTOR):
        if (folder / role).exists():
            raise ConfigError(f'{folder / role}: exists, and keys are never overwritten; add a '
                              f'host with `asyncppo keys {folder} --add NAME`, or choose another '
                              'folder')
    with _private(folder):
        learner = folder / LEARNER
        _make_folder(learner)
        zmq.auth.create_certificates(learner, LEARNER)
        (learner / SIGNING_KEY_FILE).write_text(secrets.token_hex(SIGNING_KEY_BYTES) + '\n')
        _make_folder(learner / AUTHORIZED)
        _make_actor(folder, ACTOR)


def add_actor(folder: pathlib.Path, name: str) -> None:
    """
    Make ``folder/NAME`` for a further host, and let the learner take it in.

    Raises
    ------
    ConfigError
        The name is taken or does not do as one, or `folder` has no keys of a learner.

    """
    if not _NAME.fullmatch(name) or name == LEARNER:
        raise ConfigError(f'--add {name}: a name is made of letters, digits, "_", "-" and ".", '
                          f'and is not "{LEARNER}"')
    if not (folder / LEARNER / AUTHORIZED).is_dir():
        raise ConfigError(f'{folder}: holds no keys of a learner; make them with '
                          f'`asyncppo keys {folder}`')
    if (folder / name).exists() or (folder / LEARNER / AUTHORIZED / f'{name}.key').exists():
        raise ConfigError(f'--add {name}: {folder} has keys of that name; choose another')
    with _private(folder):
        _make_actor(folder, name)


def learner_keys(keys: str | pathlib.Path) -> LearnerKeys | None:
    """
    Read the keys of a learner from the folder that ``transport.keys`` names; None for ''.

    Raises
    ------
    ConfigError
        A file is missing, malformed, or a secret that others can read.

    """
    if not str(keys):
        return None
    folder = key_folder(keys, LEARNER)
    public, secret = _read_pair(folder / 'learner.key_secret')
    if not (folder / AUTHORIZED).is_dir():
        raise ConfigError(f'transport.keys: {folder / AUTHORIZED} is missing: it holds the public '
                          'keys of the actors that may connect')
    return LearnerKeys(public, secret, folder / AUTHORIZED)


def actor_keys(keys: str | pathlib.Path) -> ActorKeys | None:
    """
    Read the keys of an actor from the folder that ``transport.keys`` names; None for ''.

    Raises
    ------
    ConfigError
        A file is missing, malformed, or a secret that others can read.

    """
    if not str(keys):
        return None
    folder = key_folder(keys, ACTOR)
    return ActorKeys(*_read_pair(folder / 'actor.key_secret'),
                     read_public_key(folder / 'learner.key'))


def read_public_key(path: pathlib.Path) -> bytes:
    """
    Read a public key, in Z85.

    Raises
    ------
    ConfigError
        The file is missing or malformed.

    """
    return _checked(path, _load(path)[0])


def fingerprint(public: bytes) -> str:
    """
    Give a short name of a public key: the start of its SHA-256, in hex.

    Parameters
    ----------
    public : bytes
        In Z85 (40 bytes) or raw (32 bytes).

    """
    raw = zmq.utils.z85.decode(public) if len(public) != _KEY_BYTES else public
    return hashlib.sha256(raw).hexdigest()[:16]


def _make_actor(folder: pathlib.Path, name: str) -> None:
    actor, learner = folder / name, folder / LEARNER
    _make_folder(actor)
    zmq.auth.create_certificates(actor, ACTOR)
    shutil.copyfile(learner / 'learner.key', actor / 'learner.key')
    shutil.copyfile(learner / SIGNING_KEY_FILE, actor / SIGNING_KEY_FILE)
    shutil.copyfile(actor / 'actor.key', learner / AUTHORIZED / f'{name}.key')


@contextlib.contextmanager
def _private(folder: pathlib.Path) -> Iterator[None]:
    """Make all that is written within readable by nobody else, from its first byte."""
    before = os.umask(0o077)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise ConfigError(f'{error.filename or folder}: {error.strerror}') from None
    finally:
        os.umask(before)


def _make_folder(folder: pathlib.Path) -> None:
    folder.mkdir(mode=0o700)


def _read_pair(path: pathlib.Path) -> tuple[bytes, bytes]:
    read_secret(path)  # says what is wrong with the file and with who may read it
    public, secret = _load(path)
    if secret is None:
        raise ConfigError(f'transport.keys: {path} holds no secret key; copy it again from where '
                          '`asyncppo keys` made it')
    return _checked(path, public), _checked(path, secret)


def _load(path: pathlib.Path) -> tuple[bytes, bytes | None]:
    try:
        return zmq.auth.load_certificate(path)
    except (OSError, ValueError):
        raise ConfigError(f'transport.keys: {path} is missing or holds no key; `asyncppo keys '
                          'DIR` makes keys and says what to copy where') from None


def _checked(path: pathlib.Path, key: bytes) -> bytes:
    try:
        if len(zmq.utils.z85.decode(key)) == _KEY_BYTES:
            return key
    except (KeyError, ValueError, struct.error):
        pass
    raise ConfigError(f'transport.keys: {path} holds a damaged key; copy it again from where '
                      '`asyncppo keys` made it')

"""
Sign policies, and read the secrets of this host.

A signature is HMAC-SHA256 of an artefact's content hash under a key that the learner and all
who take its policies share (``policy_hmac.key``, made by ``asyncppo keys``).  Whoever has the
key can also sign, so it belongs only on hosts that are trusted with that.
"""

import hashlib
import hmac
import pathlib
import stat

from asyncppo_ros.errors import ConfigError

SIGNING_KEY_FILE = 'policy_hmac.key'
SIGNING_KEY_BYTES = 32
# For all but the owner of a file.
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def signature_of(key: bytes, content_hash: str) -> str:
    """Give the signature, in hex, of the policy with this content hash."""
    return hmac.new(key, content_hash.encode(), hashlib.sha256).hexdigest()


def is_signature(key: bytes, content_hash: str, signature: str) -> bool:
    """Tell whether a signature is right; takes equally long for every wrong one."""
    return hmac.compare_digest(signature_of(key, content_hash).encode(),
                               signature.encode(errors='replace'))


def key_folder(keys: str | pathlib.Path, role: str) -> pathlib.Path:
    """
    Find the files of a role in the folder that ``transport.keys`` names.

    Parameters
    ----------
    keys : path
        Made by ``asyncppo keys``, or one of the folders within it, copied to another host.
    role : str
        ``learner`` or ``actor``.

    """
    folder = pathlib.Path(keys).expanduser()
    return folder / role if (folder / role).is_dir() else folder


def signing_key(keys: str | pathlib.Path, role: str = 'actor') -> bytes | None:
    """
    Read the key that policies are signed and checked with.

    Parameters
    ----------
    keys : path
        As ``transport.keys`` names it; '' = no keys are in use, which gives None.
    role : str
        As `key_folder`.

    Raises
    ------
    ConfigError
        It is missing, malformed, or others can read it.

    """
    if not str(keys):
        return None
    path = key_folder(keys, role) / SIGNING_KEY_FILE
    try:
        key = bytes.fromhex(read_secret(path).decode())
    except ValueError:
        key = b''
    if len(key) != SIGNING_KEY_BYTES:
        raise ConfigError(f'transport.keys: {path} does not hold {SIGNING_KEY_BYTES} bytes in '
                          'hex; copy it again from where `asyncppo keys` made it')
    return key


def read_secret(path: pathlib.Path) -> bytes:
    """
    Read a file that nobody else may read.

    Raises
    ------
    ConfigError
        It is missing, cannot be read, or others can read it.

    """
    try:
        mode = path.stat().st_mode
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f'transport.keys: {path}: {error.strerror}; `asyncppo keys DIR` makes '
                          'keys and says what to copy where') from None
    if mode & _OTHERS:
        raise ConfigError(f'transport.keys: {path} can be read by others (mode '
                          f'{stat.S_IMODE(mode):04o}); make it private with: chmod 600 {path}')
    return data

"""
Read a policy artefact with numpy alone.

An artefact is one safetensors file: the length of a JSON header (8 bytes, little endian), the
header, raw tensors.  Its metadata holds the *card* under the key ``card``: everything a
consumer must know to run the policy.  The card's ``hash`` covers the rest of the card and
every tensor.  Where keys are in use the metadata also holds a ``signature`` of that hash (see
`signing`).
"""

from collections.abc import Mapping
import dataclasses
import hashlib
import json
import pathlib
from typing import Any

import numpy as np

from asyncppo_ros.errors import ArtefactError
from asyncppo_ros.robot.signing import is_signature

FORMAT = 'asyncppo-policy'
FORMAT_VERSION = 1
# The newest policy in the folder of a run.
POLICY_FILE = 'policy.safetensors'
# A header larger than this is not one of ours: refuse it before memory is taken.
MAX_HEADER = 1 << 20
DTYPES = {'F32': '<f4', 'F64': '<f8', 'I64': '<i8', 'U8': '|u1'}


@dataclasses.dataclass(frozen=True, eq=False)
class Artefact:
    """
    A policy as it was trained: immutable.

    Attributes
    ----------
    card : mapping
        Format, identity, counters, task, observation terms, actions, architecture, hash.
    tensors : mapping from str to array
        ``policy.K.weight`` [out, in], ``policy.K.bias`` [out], ``distribution.log_std`` [A]
        ([0] of a categorical policy), all float32; ``normalizer.mean``,
        ``normalizer.variance`` [O], ``normalizer.count`` [1], float64.
        Where actors send values, also ``critic.*``, which nothing but them reads.  Read-only.

    """

    card: Mapping[str, Any]
    tensors: Mapping[str, np.ndarray]


def read_artefact(path: str | pathlib.Path, key: bytes | None = None) -> Artefact:
    """
    Read and check a policy file.

    Parameters
    ----------
    path : path
    key : bytes, optional
        As `parse_artefact`.

    Raises
    ------
    ArtefactError
        The file is missing, cut short, altered, not signed as it must be, or not a policy of
        this package.

    """
    try:
        data = pathlib.Path(path).read_bytes()
    except OSError as error:
        raise ArtefactError(f'policy {path}: {error.strerror}') from error
    try:
        return parse_artefact(data, key)
    except ArtefactError as error:
        raise ArtefactError(f'policy {path}: {error}') from None


def parse_artefact(data: bytes, key: bytes | None = None) -> Artefact:
    """
    Read and check the bytes of a policy.

    Parameters
    ----------
    data : bytes
    key : bytes, optional
        Only a policy that was signed with it is accepted; without one, signed and unsigned
        policies are.

    Raises
    ------
    ArtefactError
        The bytes are cut short, altered, not signed as they must be, or not a policy of this
        package.

    """
    metadata, tensors = parse_safetensors(data)
    try:
        card = json.loads(metadata['card'])
    except (KeyError, TypeError, ValueError):
        raise ArtefactError('has no card: not a policy of asyncppo_ros') from None
    if not isinstance(card, dict) or card.get('format') != FORMAT:
        raise ArtefactError('not a policy of asyncppo_ros')
    if card.get('format_version') != FORMAT_VERSION:
        raise ArtefactError(f'format_version {card.get("format_version")} is not understood; '
                            f'this package reads version {FORMAT_VERSION}')
    if card.get('hash') != content_hash(card, tensors):
        raise ArtefactError('was altered: its content does not match the hash in its card')
    if key is not None:
        _check_signature(card['hash'], metadata.get('signature'), key)
    check_finite(tensors)
    return Artefact(card, tensors)


def check_finite(tensors: Mapping[str, np.ndarray]) -> None:
    """
    Check tensors before they are written and after they are read.

    Raises
    ------
    ArtefactError
        One has a NaN or an infinity.

    """
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise ArtefactError(f'tensor {name} is not finite')


def parse_safetensors(data: bytes) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """
    Take a safetensors file apart.

    Returns
    -------
    metadata : dict from str to str
    tensors : dict from str to array
        Views into `data`, read-only.

    Raises
    ------
    ArtefactError
        The bytes are cut short or malformed.

    """
    if len(data) < 8:
        raise ArtefactError(f'cut short: {len(data)} bytes')
    length = int.from_bytes(data[:8], 'little')
    if length > MAX_HEADER or 8 + length > len(data):
        raise ArtefactError('cut short or not a safetensors file')
    try:
        header = json.loads(data[8:8 + length])
        metadata = header.pop('__metadata__', {})
        end = 8 + length + max((entry['data_offsets'][1] for entry in header.values()), default=0)
        if len(data) != end:
            raise ArtefactError(f'{len(data)} bytes where its header says {end}: '
                                f'{"cut short" if len(data) < end else "something follows it"}')
        tensors = {name: _tensor(name, entry, data, 8 + length)
                   for name, entry in header.items()}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ArtefactError(f'malformed header: {error}') from None
    return metadata, tensors


def _check_signature(content_hash: str, signature: Any, key: bytes) -> None:
    if signature is None:
        raise ArtefactError('is not signed, and only signed policies are taken here: its learner '
                            'needs transport.keys')
    if not isinstance(signature, str) or not is_signature(key, content_hash, signature):
        raise ArtefactError('is signed with another key than policy_hmac.key of this host')


def _tensor(name: str, entry: Mapping[str, Any], data: bytes, start: int) -> np.ndarray:
    begin, end = entry['data_offsets']
    dtype = np.dtype(DTYPES[entry['dtype']])
    shape = tuple(int(size) for size in entry['shape'])
    count = int(np.prod(shape, dtype=np.int64))
    if not 0 <= begin <= end <= len(data) - start or count * dtype.itemsize != end - begin:
        raise ValueError(f'tensor {name} does not lie within the file')
    # An odd header length leaves tensors unaligned; numpy reads them all the same.
    return np.frombuffer(data, dtype, count, start + begin).reshape(shape)


def content_hash(card: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> str:
    """Give the SHA-256 of the card without its hash and of every tensor."""
    rest = {key: value for key, value in card.items() if key != 'hash'}
    digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f'{name}{tensor.dtype.str}{tensor.shape}'.encode())
        digest.update(np.ascontiguousarray(tensor).tobytes())
    return digest.hexdigest()

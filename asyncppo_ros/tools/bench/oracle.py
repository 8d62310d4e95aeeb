"""
A second reader of every message, for `asyncppo bench fuzz`: slow, plain, and on its own.

Written from what the format says (``transport/codec.py``, ``payload.py``, ``half.py``,
``messages.py``, ``ring.py``: their docstrings), and using none of that code, so that a mistake
there is not repeated here.  A chunk is read number by number into Python lists.
"""

from collections.abc import Mapping, Sequence
import json
import math
import struct
from typing import Any, NamedTuple
import zlib

MAGIC = b'APPO'
SCHEMA = 3
LIMIT = 2 ** 62
MOST = 65536
NUMBERS = ('run_id', 'actor_id', 'incarnation', 'sequence', 'generation', 'policy_version',
           'gradient_steps', 'collecting_ns', 'waiting_ns')
HEADER = struct.Struct('<4sIQ9qIIIIQ')
SLOT_HEADER = struct.Struct('<QQqqqq9qIIIIQQ')
SLOT_PAYLOAD = 192

COUNTERS: dict[str, type] = {'chunks': int, 'transitions': int, 'unfinished': int}
# Every message: its fields and their types.
MESSAGES: dict[bytes, dict[str, type]] = {
    b'HELLO': {
        'protocol': int, 'package_version': str, 'actor_id': int, 'task': str,
        'observation_size': int, 'action_size': int, 'parameters_size': int, 'terms': str,
        'critic_size': int, 'value_size': int, 'observation_dtype': str, 'num_envs': int,
        'chunk_length': int, 'host': str, 'pid': int, 'incarnation': int, 'run_id': int,
        'next_sequence': int, 'before': int,
        'ring_fd': int, 'ring_token': str, 'target_lag': int, 'max_policy_lag': int,
        'weight': float},
    b'WELCOME': {
        'run_id': int, 'generation': int, 'incarnation': int, 'next_sequence': int,
        'heartbeat_ms': int, 'heartbeat_timeout_ms': int, 'host': str, 'run_dir': str,
        'ring': bool},
    b'REFUSED': {'text': str},
    b'PERMIT': {'limit': int, 'generation': int, 'version': int, 'expected': int,
                'newest_generation': int, 'newest_version': int},
    b'HEARTBEAT': {**COUNTERS, 'sent_ns': int, 'handed': int, 'waited_ns': int,
                   'policy_silent_ms': int, 'missed_steps': int},
    b'PONG': {'sent_ns': int, 'handed': int, 'expected': int, 'generation': int,
              'version': int},
    b'NEWS': {'generation': int, 'version': int},
    b'FETCH': {'generation': int, 'version': int},
    b'POLICY': {'generation': int, 'version': int, 'size': int},
    b'BELL': {}, b'WHO': {}, b'STOP': {},
    b'BYE': COUNTERS,
    b'CHUNK': {'sequence': int, 'transitions': int, 'before': int, 'transport_ns': int}}
FOLLOWED_BY_FRAMES = (b'CHUNK', b'POLICY')
LONGEST_BODY = 65536


class Shape(NamedTuple):
    """
    What the reader trains: its digest, the sizes O, A, P, C and V, and how observations travel.

    `observation_dtype` is ``f4``, ``f2`` (float16) or ``b2`` (bfloat16).
    """

    digest: int
    observation: int
    action: int
    parameters: int
    critic: int
    value: int
    observation_dtype: str = 'f4'


class Invalid(Exception):
    """The message is not one that a sender could have sent."""


def read_chunk(frames: Sequence[bytes], shape: Shape, most: int) -> dict[str, Any]:
    """
    Read a chunk.

    Parameters
    ----------
    frames : header and payload
    shape : Shape
    most : int
        Largest T × N.

    Returns
    -------
    dict
        Every integer, and every array as a flat list.

    Raises
    ------
    Invalid

    """
    require(len(frames) == 2)
    header, payload = frames
    require(len(header) == HEADER.size + 4)
    magic, schema, digest, *numbers, length = HEADER.unpack(header[:-4])
    require(magic == MAGIC and schema == SCHEMA and digest == shape.digest)
    require(length == len(payload))
    require(int.from_bytes(header[-4:], 'little') == zlib.crc32(header[:-4] + payload))
    return _chunk(numbers[:9], numbers[9:], payload, shape, most, shape.observation_dtype)


def read_slot(slot: bytes, place: int, shape: Shape, most: int) -> dict[str, Any]:
    """
    Read a slot of the shared-memory ring.

    Returns
    -------
    dict
        As `read_chunk`, and ``notice``: its four numbers.

    Raises
    ------
    Invalid

    """
    header, crc = slot[:SLOT_HEADER.size], slot[SLOT_HEADER.size:SLOT_HEADER.size + 4]
    require(int.from_bytes(crc, 'little') == zlib.crc32(header))
    index, checksum, *numbers, length, digest = SLOT_HEADER.unpack(header)
    require(index == place and digest == shape.digest)
    require(SLOT_PAYLOAD + length <= len(slot) and length % 8 == 0)
    payload = slot[SLOT_PAYLOAD:SLOT_PAYLOAD + length]
    require(sum(struct.unpack(f'<{length // 8}Q', payload)) % 2 ** 64 == checksum)
    notice = numbers[:4]
    require(all(0 <= number < LIMIT for number in notice))
    return {'notice': notice, **_chunk(numbers[4:13], numbers[13:], payload, shape, most, 'f4')}


def read_message(frames: Sequence[bytes]) -> tuple[bytes, dict[str, Any]]:
    """
    Read the kind and the fields of a small message.

    Raises
    ------
    Invalid

    """
    require(len(frames) >= 2)
    kind, body = frames[0], frames[1]
    require(kind in MESSAGES)
    require(len(frames) == 2 or kind in FOLLOWED_BY_FRAMES)
    require(len(body) <= LONGEST_BODY)
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        raise Invalid from None
    fields = MESSAGES[kind]
    require(isinstance(values, dict) and sorted(values) == sorted(fields))
    for name, value in values.items():
        # True is an int in Python, but not here.
        require(isinstance(value, fields[name]) and isinstance(value, bool) == (
            fields[name] is bool))
        require(not isinstance(value, int) or -1 <= value < LIMIT)
        require(not isinstance(value, float) or math.isfinite(value))
    return kind, values


def require(condition: bool) -> None:
    """Raise `Invalid` unless the condition holds."""
    if not condition:
        raise Invalid


def _chunk(numbers: Sequence[int], sizes: Sequence[int], payload: bytes, shape: Shape,
           most: int, observation: str) -> dict[str, Any]:
    steps, envs, truncations, episodes = sizes
    require(1 <= steps <= MOST and 1 <= envs <= MOST and steps * envs <= most)
    require(truncations <= steps * envs and episodes <= steps * envs)
    require(all(0 <= number < LIMIT for number in numbers))
    arrays = _arrays(steps, envs, truncations, episodes, payload, shape, observation)
    for values in arrays.values():
        require(all(math.isfinite(value) for value in values))
    _check_ends(arrays, steps, envs)
    return {**dict(zip(NUMBERS, numbers)), **arrays}


def _arrays(steps: int, envs: int, truncations: int, episodes: int, payload: bytes,
            shape: Shape, observation: str) -> dict[str, list[Any]]:
    seen = {'f4': 'f', 'f2': 'e', 'b2': 'H'}[observation]
    counts = (('observation', seen, (steps + 1) * envs * shape.observation),
              ('critic_observation', seen, (steps + 1) * envs * shape.critic),
              ('action', 'f', steps * envs * shape.action),
              ('behaviour_log_prob', 'f', steps * envs),
              ('behaviour_parameters', 'f', steps * envs * shape.parameters),
              ('value', 'f', (steps + 1) * envs * shape.value),
              ('reward', 'f', steps * envs),
              ('terminated', 'B', steps * envs),
              ('truncated', 'B', steps * envs),
              ('final_observation', seen, truncations * shape.observation),
              ('final_critic_observation', seen, truncations * shape.critic),
              ('final_value', 'f', truncations * shape.value),
              ('final_index', 'i', truncations * 2),
              ('episodes', 'f', episodes * 3))
    arrays, position = {}, 0
    for name, code, count in counts:
        size = count * struct.calcsize(f'<{code}')
        require(position + size <= len(payload))
        values = list(struct.unpack_from(f'<{count}{code}', payload, position))
        # The first half of a float32 that has zeros in the other.
        arrays[name] = values if code != 'H' else [
            struct.unpack('<f', bytes(2) + value.to_bytes(2, 'little'))[0] for value in values]
        position += size
        while position % 8:
            position += 1
    require(position == len(payload))
    return arrays


def _check_ends(arrays: Mapping[str, list[Any]], steps: int, envs: int) -> None:
    terminated, truncated = arrays['terminated'], arrays['truncated']
    for one, other in zip(terminated, truncated):
        require((one, other) in ((0, 0), (0, 1), (1, 0)))
    named = []
    for step, env in zip(arrays['final_index'][0::2], arrays['final_index'][1::2]):
        require(0 <= step < steps and 0 <= env < envs)
        named.append((step, env))
    wanted = [(number // envs, number % envs)
              for number, flag in enumerate(truncated) if flag]
    require(sorted(named) == wanted)
    lengths, successes = arrays['episodes'][1::3], arrays['episodes'][2::3]
    require(len(lengths) <= sum(terminated) + sum(truncated))
    for length, success in zip(lengths, successes):
        require(length >= 1 and success in (-1, 0, 1))

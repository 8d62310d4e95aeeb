"""
``asyncppo bench payload``: what half precision and lossless compression would save on the wire.

Chunks of a task are collected by a policy.  Their payloads are encoded with observations in
float32, float16 and bfloat16, and compressed: as they lie, and with the bytes of each number
apart (all first bytes, then all second ones, …), which is easier to compress.  Rates are bytes of
the float32 payload per second of CPU time of one core.  A way pays on a link where it carries
more of them than the link would without it: the sender compresses on one core, the learner
expands on another, and the slowest of the three counts.

The log ratio is that of the same policy on the observations that arrive: what the first gradient
step of an update finds where there is no lag.
"""

from collections.abc import Callable, Sequence
import importlib
import json
import pathlib
import time
from typing import Any, NamedTuple
import zlib

import numpy as np

from asyncppo_ros.acting.exploration import exploration_for
from asyncppo_ros.acting.rollout import Rollout, Stamp
from asyncppo_ros.chunk import Chunk, Layout
from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.policy_files import policy_file
from asyncppo_ros.robot.numpy_policy import NumpyPolicy
from asyncppo_ros.settings import build, to_dict
from asyncppo_ros.simulation.registry import make
from asyncppo_ros.tools.arguments import Parser, split_settings
from asyncppo_ros.tools.bench.actor import made_up_snapshot
from asyncppo_ros.tools.bench.results import report, row, table
from asyncppo_ros.tools.bench.rounds import interleaved
from asyncppo_ros.transport.codec import decode_chunk, encode_chunk

SETTINGS = {'task': 'HalfCheetah-v5', 'actor.num_envs': 64, 'actor.chunk_length': 32}
DTYPES = ('float32', 'float16', 'bfloat16')
CHUNKS = 4
# 1 Gbit/s in megabytes per second.
LINK_MB = 125.0
_RUN_ID = 1

Codec = tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]


class Way(NamedTuple):
    """How a payload travels: dtype of its observations, its compression, its bytes apart."""

    dtype: str
    compression: str
    apart: bool

    def __str__(self) -> str:
        return f'{self.dtype} {self.compression}{" apart" * self.apart}'


class Cost(NamedTuple):
    """Bytes on the wire by those of float32, and megabytes of float32 per second and core."""

    share: float
    pack: float
    unpack: float

    @property
    def over_link(self) -> float:
        """Megabytes of float32 per second over a link of 1 Gbit/s, by those without the way."""
        return min(self.pack, self.unpack, LINK_MB / self.share) / LINK_MB


def main(arguments: list[str], stop: StopRequest) -> int:
    """Collect, measure, and print the table or the JSON object."""
    parser = Parser(prog='asyncppo bench payload', description=__doc__, allow_abbrev=False)
    parser.add_argument('--policy', default='',
                        help='policy file or run folder that collects; default: random weights')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    own, given = split_settings(parser, arguments)
    if own.rounds < 1:
        raise ConfigError(f'--rounds {own.rounds}: must be at least 1')
    config = build(Config, {**SETTINGS, **given})
    chunks, layout, policy, action = collected(config, own.policy)
    found = interleaved({str(way): lambda way=way: cost(way, chunks, layout)  # type: ignore[misc]
                         for way in ways()}, own.rounds, stop)
    if stop():
        return 0
    rows = [entry for name, costs in found.items() for entry in cost_rows(name, costs)]
    for dtype in DTYPES[1:]:
        rows += ratio_rows(dtype, chunks, layout, policy, action)
    size = sum(map(len, encode_chunk(chunks[0], layout)))
    result = report(to_dict(config), rows, chunk_bytes=size, policy=own.policy,
                    command=['asyncppo', 'bench', 'payload', *arguments])
    print(json.dumps(result, indent=1) if own.json else table(rows))
    return 0


def collected(config: Config, policy: str
              ) -> tuple[list[Chunk], Layout, NumpyPolicy, dict[str, Any]]:
    """Give chunks, their layout, the policy that made them, and the description of the action."""
    environment = make(config.task, config.actor.num_envs, config.seed, random_episode_start=True,
                       privileged=config.policy.privileged_critic)
    try:
        snapshot = PolicySnapshot.from_bytes(pathlib.Path(policy_file(policy)).read_bytes()) \
            if policy else made_up_snapshot(environment, config)
        rollout = Rollout(environment, config.actor.chunk_length, config.seed)
        found = [rollout.collect(snapshot, Stamp(_RUN_ID, 1, 1, number))
                 for number in range(CHUNKS)]
        return ([chunk for chunk in found if chunk is not None], rollout.layout,
                NumpyPolicy(snapshot.artefact), environment.describe()['action'])
    finally:
        environment.close()


def ways() -> list[Way]:
    """Give all combinations; that of float32 without compression is what there would be."""
    return [Way(dtype, name, apart) for dtype in DTYPES for name in codecs()
            for apart in ((False, True) if name != 'none' else (False,))]


def codecs() -> dict[str, Codec]:
    """Give the ways to compress and to expand that this machine has."""
    found: dict[str, Codec] = {'none': (lambda data: data, lambda data: data),
                               'zlib-1': (lambda data: zlib.compress(data, 1), zlib.decompress)}
    try:
        lz4 = importlib.import_module('lz4.frame')
    except ModuleNotFoundError:
        return found
    return {**found, 'lz4': (lz4.compress, lz4.decompress)}


def cost(way: Way, chunks: Sequence[Chunk], layout: Layout) -> Cost:
    """Send chunks one way, from memory to memory, all checks included."""
    compress, expand = codecs()[way.compression]
    plain = layout._replace(observation_dtype=way.dtype)
    size, width = 0, 4 if way.dtype == 'float32' else 2
    full = sum(len(encode_chunk(chunk, layout)[1]) for chunk in chunks)
    begun = time.thread_time()
    packed = []
    for chunk in chunks:
        header, payload = encode_chunk(chunk, plain)
        data = bytes_apart(payload, width) if way.apart else bytes(payload)
        packed.append((header, compress(data)))
    pack_s, begun = time.thread_time() - begun, time.thread_time()
    for header, data in packed:
        size += len(data)
        payload = expand(data)
        decode_chunk([header, bytes_together(payload, width) if way.apart else payload], plain,
                     chunks[0].transitions)
    unpack_s = time.thread_time() - begun
    return Cost(size / full, 1e-6 * full / pack_s, 1e-6 * full / unpack_s)


def bytes_apart(payload: bytes | memoryview, width: int) -> bytes:
    """Give all first bytes of the numbers, then all second ones, and so on."""
    return np.frombuffer(payload, np.uint8).reshape(-1, width).T.tobytes()


def bytes_together(data: bytes, width: int) -> bytes:
    """Undo `bytes_apart`."""
    return np.frombuffer(data, np.uint8).reshape(width, -1).T.tobytes()


def cost_rows(name: str, costs: Sequence[Cost]) -> list[dict[str, Any]]:
    """Give the rows of a way."""
    return [row(f'{name}: bytes', [entry.share for entry in costs], 'of float32'),
            row(f'{name}: to the wire', [entry.pack for entry in costs], 'MB/s a core'),
            row(f'{name}: from the wire', [entry.unpack for entry in costs], 'MB/s a core'),
            row(f'{name}: over 1 Gbit/s', [entry.over_link for entry in costs], 'of float32')]


def ratio_rows(dtype: str, chunks: Sequence[Chunk], layout: Layout, policy: NumpyPolicy,
               action: dict[str, Any]) -> list[dict[str, Any]]:
    """Give what a dtype does to observations, and to the log ratio of the policy that acted."""
    plain = layout._replace(observation_dtype=dtype)
    errors, ratios = [], []
    for chunk in chunks:
        arrived = decode_chunk(encode_chunk(chunk, plain), plain, chunk.transitions)
        errors.append(float(np.abs(arrived.observation - chunk.observation).max()))
        log_prob = log_prob_of(policy, arrived, action)
        ratios.append(np.abs(log_prob - log_prob_of(policy, chunk, action)))
    return [row(f'{dtype}: error of an observation, largest', errors, ''),
            row(f'{dtype}: |log ratio|, mean', [float(ratio.mean()) for ratio in ratios], ''),
            row(f'{dtype}: |log ratio|, largest', [float(ratio.max()) for ratio in ratios], '')]


def log_prob_of(policy: NumpyPolicy, chunk: Chunk, action: dict[str, Any]) -> np.ndarray:
    """Give log π of the actions of a chunk on its observations, float32 [T, N]."""
    steps, num_envs, size = chunk.action.shape
    exploration = exploration_for(action, steps, num_envs, size)
    parameters = np.array(chunk.behaviour_parameters)
    for step in range(steps):
        means = policy.head(chunk.observation[step])
        parameters[step, :, :means.shape[1]] = means
    return exploration.score(policy, parameters, chunk.action)

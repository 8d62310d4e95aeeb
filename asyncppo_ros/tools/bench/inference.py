"""
``asyncppo bench inference``: how long one call of the numpy policy takes, one thread.

::

    head         what the network says: normalizer, matrices, biases, tanh
    act          head, the action drawn with noise that is there, and its tanh
    step         act, and its share of what is made once for a chunk: noise, log-probabilities
    onnxruntime  the same network as a graph, normalizer and last tanh included, if installed
    matmul       the matrices alone, into arrays that are there: the ceiling

Observations and actions have the sizes of HalfCheetah-v5.
"""

import argparse
from collections.abc import Callable
import functools
import importlib.util
import json
import time
from typing import Any

import numpy as np

from asyncppo_ros import __version__
from asyncppo_ros.acting.exploration import GaussianExploration
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.robot.artefact import Artefact
from asyncppo_ros.robot.numpy_policy import NumpyPolicy
from asyncppo_ros.tools.arguments import Parser
from asyncppo_ros.tools.bench.made_up_policy import made_up_network
from asyncppo_ros.tools.bench.results import paired_row, report
from asyncppo_ros.tools.bench.rounds import interleaved

OBSERVATION_SIZE, ACTION_SIZE = 17, 6
NETWORKS = ('64,64', '256,256')
BATCHES = (1, 16, 64, 256)
# Control steps of a chunk.
CHUNK_LENGTH = 32
CEILING = 'matmul'
# Calls between two looks at the clock.
_CALLS = 8


def main(arguments: list[str], stop: StopRequest) -> int:
    """Measure and print the table or the JSON object."""
    parser = Parser(prog='asyncppo bench inference', description=__doc__, allow_abbrev=False,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--networks', nargs='+', default=list(NETWORKS), metavar='WIDTHS',
                        help=f'hidden layers, default {" ".join(NETWORKS)}')
    parser.add_argument('--batches', nargs='+', type=int, default=list(BATCHES),
                        help=f'rows of a call, default {" ".join(map(str, BATCHES))}')
    parser.add_argument('--rounds', type=int, default=15, help='default 15')
    parser.add_argument('--seconds', type=float, default=0.02,
                        help='of each measurement, default 0.02')
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    own = parser.parse_args(arguments)
    if own.rounds < 1 or min(own.batches) < 1 or own.seconds <= 0.0:
        raise ConfigError(f'--rounds {own.rounds} --batches {" ".join(map(str, own.batches))} '
                          f'--seconds {own.seconds:g}: must be above 0')
    cases = {(network, batch): calls_of(widths_of(network), batch)
             for network in own.networks for batch in own.batches}
    found = interleaved({name_of(*case, kind): functools.partial(
        microseconds, call, own.seconds, CHUNK_LENGTH if kind == 'step' else 1)
        for case, calls in cases.items() for kind, call in calls.items()}, own.rounds, stop)
    if not all(found.values()):
        return 0
    rows = [paired_row(name_of(*case, kind), found[name_of(*case, kind)],
                       found[name_of(*case, CEILING)], 'µs')
            for case, calls in cases.items() for kind in calls]
    settings = {'networks': own.networks, 'batches': own.batches, 'rounds': own.rounds,
                'seconds': own.seconds}
    result = report(settings, rows, command=['asyncppo', 'bench', 'inference', *arguments])
    print(json.dumps(result, indent=1) if own.json else text_of(rows))
    return 0


def name_of(network: str, batch: int, kind: str) -> str:
    """Name a row."""
    return f'{network.replace(",", "-")}, batch {batch}: {kind}'


def widths_of(text: str) -> tuple[int, ...]:
    """Read the widths of hidden layers; raises ConfigError."""
    try:
        return tuple(int(width) for width in text.split(','))
    except ValueError:
        raise ConfigError(f'--networks {text}: must be widths such as 64,64') from None


def calls_of(hidden_sizes: tuple[int, ...], batch: int) -> dict[str, Callable[[], Any]]:
    """Give what is measured, by kind; `step` makes a whole chunk and counts as so many calls."""
    architecture, tensors = made_up_network(OBSERVATION_SIZE, hidden_sizes, ACTION_SIZE)
    artefact = Artefact({
        'package_version': __version__, 'hash': '', 'run_id': 0, 'generation': 0,
        'policy_version': 0, 'task': {'task': 'inference', 'control_dt': 1.0},
        'architecture': architecture}, tensors)
    policy = NumpyPolicy(artefact)
    rng = np.random.default_rng(0)
    observation = rng.standard_normal((batch, OBSERVATION_SIZE), np.float32)
    mean = np.empty((batch, ACTION_SIZE), np.float32)
    exploration = GaussianExploration(CHUNK_LENGTH, batch, ACTION_SIZE)
    exploration.begin(policy, rng)
    parameters = np.empty((CHUNK_LENGTH, batch, 2 * ACTION_SIZE), np.float32)
    action = np.empty((CHUNK_LENGTH, batch, ACTION_SIZE), np.float32)

    def act(step: int = 0) -> None:
        exploration.act(policy, observation, step, parameters[step], action[step], mean)

    def chunk() -> None:
        exploration.begin(policy, rng)
        for step in range(CHUNK_LENGTH):
            act(step)
        exploration.score(policy, parameters, action)

    calls: dict[str, Callable[[], Any]] = {
        CEILING: functools.partial(multiply, policy, observation,
                                   [np.empty((batch, len(bias)), np.float32)
                                    for _, bias in policy.layers]),
        'head': lambda: policy.head(observation, mean), 'act': act, 'step': chunk}
    session = onnx_call(artefact, observation)
    return calls | ({} if session is None else {'onnxruntime': session})


def multiply(policy: NumpyPolicy, x: np.ndarray, buffers: list[np.ndarray]) -> None:
    """Multiply by the matrices of a policy, and nothing else."""
    for (weight, _), buffer in zip(policy.layers, buffers):
        x = np.matmul(x, weight, out=buffer)


def onnx_call(artefact: Artefact, observation: np.ndarray) -> Callable[[], Any] | None:
    """Give a call of onnxruntime; None = it is not installed."""
    if any(importlib.util.find_spec(name) is None for name in ('onnx', 'onnxruntime')):
        return None
    import onnxruntime

    from asyncppo_ros.policy.onnx_export import onnx_model
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        onnx_model(artefact).SerializeToString(), options, ['CPUExecutionProvider'])
    return lambda: session.run(['action'], {'observation': observation})


def microseconds(call: Callable[[], Any], seconds: float, steps: int = 1) -> float:
    """Give the time of one control step [µs] of as many as fit into `seconds`."""
    calls, count, begun = max(1, _CALLS // steps), 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begun) < seconds:
        for _ in range(calls):
            call()
        count += calls
    return 1e6 * elapsed / (count * steps)


def text_of(rows: list[dict[str, Any]]) -> str:
    """Lay rows out for a terminal: time, and ratio to the ceiling with its 95 % interval."""
    width = max(len(entry['name']) for entry in rows) + 2
    return '\n'.join([f'{"":<{width}}{"µs":>9}{"/ matmul":>10}  95 % interval', *(
        f'{entry["name"]:<{width}}{entry["median"]:9.1f}{entry["ratio"]:10.2f}'
        f'  {entry["ratio_interval"][0]:.2f} to {entry["ratio_interval"][1]:.2f}'
        for entry in rows)])

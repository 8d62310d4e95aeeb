"""
``asyncppo bench deploy``: how fast a policy acts, and how well its node keeps its times.

Inference: one observation through normalizer, network and tanh, beside a bare numpy forward of
the same matrices.  Node: the policy node commands 12 joints of a made-up robot at each rate, in
turn with a bare rclpy node that publishes the same messages in the same way; both say how long a
control step took until its command was published, how old the state was that it used, and how
late it began.  Swap: the same node while newer policies are published, in turn with one that
is left alone.  No torch and no MuJoCo: run it on the computer of the robot.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
import json
import pathlib
import statistics
import sys
import tempfile
import time
from typing import Any

import numpy as np

from asyncppo_ros.errors import ConfigError
from asyncppo_ros.launching import require
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.robot.numpy_policy import NumpyPolicy
from asyncppo_ros.tools.arguments import Parser
from asyncppo_ros.tools.bench.deploy_swap import measure_swaps, swap_part, SWAP_RATES
from asyncppo_ros.tools.bench.made_up_policy import made_up_policy, written
from asyncppo_ros.tools.bench.results import check, paired_row, report, row, verdict

PARTS = ('inference', 'nodes', 'swap')
NETWORKS = ((64, 64), (256, 256))
RATES = (50.0, 200.0, 500.0)
KINDS = ('bare', 'policy_node')
METRICS = ('tick_to_publish_ms', 'state_age_ms', 'loop_jitter_ms')
PERCENTILES = ('p50', 'p95', 'p99', 'max')
# What is asked for.
CHECKED_NETWORK, MOST_RATIO = (256, 256), 3.0
CHECKED_RATE, MOST_EXTRA_MS = 200.0, 0.5
# One measurement of inference [s].
INFERENCE_S = 0.05
Layers = Sequence[tuple[np.ndarray, np.ndarray]]
Measured = dict[tuple[float, str], list[dict[str, float]]]


def main(arguments: list[str], stop: StopRequest) -> int:
    """Measure, print the table or the JSON object, and compare with what is asked for."""
    parser = Parser(prog='asyncppo bench deploy', description=__doc__, allow_abbrev=False,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--parts', nargs='+', default=list(PARTS), choices=PARTS)
    parser.add_argument('--rates', nargs='+', type=float,
                        help='of control steps [Hz], default 50 200 500, of swap 50 200')
    parser.add_argument('--seconds', type=float, default=8.0,
                        help='of each measurement of a node, default 8')
    parser.add_argument('--rounds', type=int, default=5, help='default 5')
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    own = parser.parse_args(arguments)
    rates, swap_rates = own.rates or RATES, own.rates or SWAP_RATES
    if own.rounds < 1 or own.seconds <= 0.0 or min(rates) <= 0.0:
        raise ConfigError(f'--rounds {own.rounds} --seconds {own.seconds:g} --rates '
                          f'{" ".join(map(str, rates))}: must be above 0')
    rows: list[dict[str, Any]] = []
    checks: list[dict[str, Any]] = []
    if 'inference' in own.parts:
        inference_part(5 * own.rounds, rows, checks)
    if 'nodes' in own.parts:
        require(['rclpy'])
        measured = measure_nodes(rates, own.seconds, own.rounds, stop)
        if stop():
            return 0
        nodes_part(measured, rows, checks)
    if 'swap' in own.parts:
        require(['rclpy'])
        swaps = measure_swaps(swap_rates, CHECKED_NETWORK, own.seconds, own.rounds, stop)
        if stop():
            return 0
        swap_part(swaps, rows, checks)
    settings = {'rates': list(rates), 'swap_rates': list(swap_rates), 'seconds': own.seconds,
                'rounds': own.rounds}
    result = report(settings, rows, checks=checks,
                    command=['asyncppo', 'bench', 'deploy', *arguments])
    print(json.dumps(result, indent=1) if own.json
          else '\n'.join([text_of(rows), '', verdict(checks)]))
    return 0 if all(entry['passed'] for entry in checks) else 1


def inference_part(rounds: int, rows: list[dict[str, Any]],
                   checks: list[dict[str, Any]]) -> None:
    """Add how long one inference takes [µs], and its ratio to a bare forward."""
    for network in NETWORKS:
        policy = NumpyPolicy(made_up_policy(1.0, network))
        layers = policy.layers
        observation = np.random.default_rng(0).standard_normal(
            (1, policy.observation_size), dtype=np.float32)
        bodies = {'act': lambda policy=policy, x=observation: policy.act(x),
                  'bare forward': lambda layers=layers, x=observation: bare_forward(layers, x),
                  'bare products': lambda layers=layers, x=observation: bare_products(layers, x)}
        # In turn, so that all of them see the same machine.
        times: dict[str, list[float]] = {name: [] for name in bodies}
        for _ in range(rounds):
            for name, body in bodies.items():
                times[name].append(1e6 * duration(body))
        title = '-'.join(map(str, network))
        act = paired_row(f'{title} act', times['act'], times['bare forward'], 'µs')
        rows += [act, *(row(f'{title} {name}', times[name], 'µs')
                        for name in ('bare forward', 'bare products'))]
        for other in ('bare forward', 'bare products'):
            ratios = [ours / theirs for ours, theirs in zip(times['act'], times[other])]
            rows.append(row(f'{title} act / {other}', ratios, ''))
        if network == CHECKED_NETWORK:
            checks.append(check(f'{title} inference, batch 1, by a bare numpy forward',
                                act['ratio'], f'<= {MOST_RATIO:g}', act['ratio'] <= MOST_RATIO))


def bare_forward(layers: Layers, x: np.ndarray) -> np.ndarray:
    """Give what a forward pass of the same matrices is in plain numpy: no normalizer, no tanh."""
    for weight, bias in layers[:-1]:
        x = np.tanh(x @ weight + bias)
    weight, bias = layers[-1]
    return x @ weight + bias


def bare_products(layers: Layers, x: np.ndarray) -> np.ndarray:
    """Multiply by the matrices, and nothing else."""
    for weight, _ in layers:
        x = x @ weight
    return x


def duration(body: Callable[[], Any]) -> float:
    """Give the time of one call [s], of as many as fit into `INFERENCE_S`."""
    body()
    count, begun = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begun) < INFERENCE_S:
        for _ in range(50):
            body()
        count += 50
    return elapsed / count


def measure_nodes(rates: Sequence[float], seconds: float, rounds: int,
                  stop: StopRequest) -> Measured:
    """Run both nodes at every rate, in turn; give what they said, by rate and kind."""
    from asyncppo_ros.tools.bench.deploy_nodes import measure
    measured: Measured = {(rate, kind): [] for rate in rates for kind in KINDS}
    with tempfile.TemporaryDirectory(prefix='asyncppo-deploy-') as folder:
        for number in range(rounds):
            for rate in rates:
                path = pathlib.Path(folder) / f'{rate:g}.safetensors'
                path.write_bytes(written(made_up_policy(1.0 / rate, CHECKED_NETWORK)))
                # Who goes first changes: a machine that slows down is fair to both.
                for kind in KINDS if number % 2 == 0 else reversed(KINDS):
                    if stop():
                        return measured
                    measured[rate, kind].append(measure(kind, path, rate, seconds, stop))
            print(f'round {number + 1} of {rounds}', file=sys.stderr)
    return measured


def nodes_part(measured: Measured, rows: list[dict[str, Any]],
               checks: list[dict[str, Any]]) -> None:
    """Add percentiles of each metric, rate and node; each value is that of one measurement."""
    for (rate, kind), said in measured.items():
        rows += [row(f'{rate:g} Hz {kind} {metric} {percentile}',
                     [values[f'{metric}_{percentile}'] for values in said], 'ms')
                 for metric in METRICS for percentile in PERCENTILES]
        rows.append(row(f'{rate:g} Hz {kind} cpu', [values['cpu'] for values in said], 'cores'))
    if (CHECKED_RATE, KINDS[0]) in measured:
        bare, ours = (measured[CHECKED_RATE, kind] for kind in KINDS)
        name = 'tick_to_publish_ms_p95'
        extra = statistics.median(mine[name] - theirs[name]
                                  for theirs, mine in zip(bare, ours))
        checks.append(check(f'tick to publish at {CHECKED_RATE:g} Hz, p95 beyond the bare loop',
                            extra, f'<= {MOST_EXTRA_MS:g} ms', extra <= MOST_EXTRA_MS))


def text_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Lay the medians out for a terminal: percentiles of one thing in one line."""
    single = [entry for entry in rows if entry['unit'] != 'ms']
    lines = [f'{entry["name"]:<28}{entry["median"]:9.3g} {entry["unit"]}'.rstrip()
             for entry in single]
    found: dict[str, dict[str, float]] = {}
    for entry in rows:
        if entry['unit'] == 'ms':
            name, _, percentile = entry['name'].rpartition(' ')
            found.setdefault(name, {})[percentile] = entry['median']
    if found:
        lines += ['', f'{"[ms]":<42}' + ''.join(f'{name:>9}' for name in PERCENTILES)]
    lines += [f'{name.replace("_ms", ""):<42}'
              + ''.join(f'{values[percentile]:9.3f}' for percentile in PERCENTILES)
              for name, values in found.items()]
    return '\n'.join(lines)

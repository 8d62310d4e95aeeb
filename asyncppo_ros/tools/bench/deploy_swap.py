"""The part ``swap`` of ``asyncppo bench deploy``: policies that come while the robot runs."""

from collections.abc import Mapping, Sequence
import functools
import math
import pathlib
import statistics
import tempfile
from typing import Any

from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.tools.bench.made_up_policy import made_up_policy, written
from asyncppo_ros.tools.bench.results import check, row
from asyncppo_ros.tools.bench.rounds import interleaved
from asyncppo_ros.tools.bench.uncertainty import paired_difference

SWAP_RATES = (50.0, 200.0)
ALONE, PUBLISHING = 'left alone', 'with newer policies'
LOAD, WAIT, TAKEOVER = 'policy_load_ms', 'policy_wait_ms', 'takeover_ms'
PERCENTILES = ('p50', 'p95', 'p99', 'max')
# How long policies go on to come after a measurement, at most [s].
REST_S = 3.0
# By rate: what each kind said in each round.
Swaps = dict[float, dict[str, list[dict[str, float]]]]


def measure_swaps(rates: Sequence[float], network: Sequence[int], seconds: float, rounds: int,
                  stop: StopRequest) -> Swaps:
    """Run the policy node left alone and while policies come, in turn; give what it said."""
    from asyncppo_ros.tools.bench.deploy_nodes import measure, PUBLISH_S
    found: Swaps = {}
    for rate in rates:
        count = math.ceil((seconds + REST_S) / PUBLISH_S)
        first, *newer = [written(made_up_policy(1.0 / rate, network, 1 + number))
                         for number in range(count + 1)]
        with tempfile.TemporaryDirectory(prefix='asyncppo-swap-') as folder:
            path = pathlib.Path(folder) / 'policy.safetensors'
            path.write_bytes(first)
            found[rate] = interleaved(
                {kind: functools.partial(measure, kind, path, rate, seconds, stop, policies)
                 for kind, policies in ((ALONE, ()), (PUBLISHING, newer))}, rounds, stop)
    return found


def swap_part(swaps: Swaps, rows: list[dict[str, Any]], checks: list[dict[str, Any]]) -> None:
    """Add how long a takeover takes, and what it costs of the control steps, at each rate."""
    for rate, said in swaps.items():
        alone, publishing = said[ALONE], said[PUBLISHING]
        rows += [row(f'{rate:g} Hz {metric} {percentile}',
                     [values[f'{metric}_{percentile}'] for values in publishing], 'ms')
                 for metric in (LOAD, WAIT, TAKEOVER) for percentile in PERCENTILES]
        rows += [row(f'{rate:g} Hz {kind} missed', [share_missed(values) for values in said[kind]],
                     'of 1000 steps') for kind in (ALONE, PUBLISHING)]
        # A loop that is late beside other programs is not late because of a policy.
        late = statistics.median(values['loop_jitter_ms_p95'] for values in alone)
        wait = statistics.median(values[f'{WAIT}_p95'] for values in publishing)
        period = 1e3 / rate
        checks.append(check(
            f'{rate:g} Hz: a policy that is loaded is in command, p95 [ms]', wait,
            f'<= the period, {period:g}, and what the loop is late left alone, {late:.3f}',
            wait <= period + late))
        more = paired_difference([share_missed(values) for values in publishing],
                                 [share_missed(values) for values in alone])
        checks.append(check(
            f'{rate:g} Hz: more steps of 1000 are missed while policies come '
            f'(95 %: {more.low:.3g} to {more.high:.3g})', more.value,
            'an interval that begins at 0 or below', more.low <= 0.0))


def share_missed(said: Mapping[str, float]) -> float:
    """Give how many of 1000 control steps were missed."""
    return 1e3 * said['missed_steps'] / said['steps']

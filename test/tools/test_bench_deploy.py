"""``asyncppo bench deploy`` at its smallest, and what it measures with."""

import json

from harness import asyncppo
import numpy as np
import pytest
import safetensors.numpy

from asyncppo_ros.robot.artefact import parse_artefact
from asyncppo_ros.robot.numpy_policy import NumpyPolicy
from asyncppo_ros.robot.pilot import Pilot
from asyncppo_ros.tools.bench.deploy import (
    bare_forward,
    bare_products,
    KINDS,
    METRICS,
    nodes_part,
    PERCENTILES,
)
from asyncppo_ros.tools.bench.deploy_swap import (
    ALONE,
    LOAD,
    PUBLISHING,
    swap_part,
    TAKEOVER,
    WAIT,
)
from asyncppo_ros.tools.bench.made_up_policy import JOINTS, made_up_policy, written


def test_the_made_up_policy_is_one_that_a_robot_takes():
    made = made_up_policy(0.005, (64, 64))
    data = written(made)
    again = parse_artefact(data)
    assert again.card == json.loads(json.dumps(made.card))
    for name, tensor in safetensors.numpy.load(data).items():
        np.testing.assert_array_equal(again.tensors[name], tensor)
    pilot = Pilot(again)
    assert pilot.joints == JOINTS and pilot.control_dt == 0.005


def test_the_bare_forward_is_the_same_network():
    policy = NumpyPolicy(made_up_policy(0.005, (256, 256)))
    x = np.random.default_rng(0).standard_normal((1, 45), dtype=np.float32)
    # The normalizer of the made-up policy leaves observations as they are.
    np.testing.assert_allclose(bare_forward(policy.layers, x), policy.head(x), rtol=1e-5)
    assert bare_products(policy.layers, x).shape == (1, 12)


def test_the_node_is_compared_within_a_round():
    def said(p95):
        return {'cpu': 0.1, **{f'{metric}_{percentile}': p95 for metric in METRICS
                               for percentile in PERCENTILES}}
    # Beyond the bare loop by 0.1, 0.4 and 9 ms.
    measured = {(200.0, 'bare'): [said(value) for value in (0.2, 3.0, 0.2)],
                (200.0, 'policy_node'): [said(value) for value in (0.3, 3.4, 9.2)]}
    rows, checks = [], []
    nodes_part(measured, rows, checks)
    assert len(rows) == len(KINDS) * (len(METRICS) * len(PERCENTILES) + 1)
    assert checks[0]['value'] == pytest.approx(0.4) and checks[0]['passed']
    measured[200.0, 'policy_node'][1] = said(3.6)
    nodes_part(measured, rows, checks)
    assert checks[1]['value'] == pytest.approx(0.6) and not checks[1]['passed']


def checked_swaps(wait=19.0, missed=(4, 5, 3)):
    """Give the checks of made-up measurements: 1000 steps at 50 Hz, late by 0.5 ms at p95."""
    alone = [{'loop_jitter_ms_p95': 0.5, 'steps': 1000.0, 'missed_steps': count}
             for count in (4.0, 4.0, 4.0)]
    publishing = [{'steps': 500.0, 'missed_steps': 0.5 * count,
                   **{f'{metric}_{percentile}': wait for metric in (LOAD, WAIT, TAKEOVER)
                      for percentile in PERCENTILES}} for count in missed]
    rows, checks = [], []
    swap_part({50.0: {ALONE: alone, PUBLISHING: publishing}}, rows, checks)
    medians = {entry['name']: entry['median'] for entry in rows}
    assert medians['50 Hz takeover_ms p95'] == wait
    assert medians['50 Hz left alone missed'] == 4.0
    return checks


def test_a_takeover_must_take_a_period_and_cost_no_step():
    assert [entry['passed'] for entry in checked_swaps(wait=20.4)] == [True, True]
    assert [entry['passed'] for entry in checked_swaps(wait=20.6)] == [False, True]
    within, cost = checked_swaps(missed=(5, 6, 7))
    assert within['passed'] and not cost['passed']
    assert cost['value'] == pytest.approx(2.0)


def test_newer_policies_are_of_the_same_run():
    first, second = (made_up_policy(0.02, (64, 64), version) for version in (1, 2))
    assert first.card['hash'] != second.card['hash']
    pilot = Pilot(first)
    pilot.swap(parse_artefact(written(second)))
    assert pilot.run_id == second.card['run_id']


def test_inference_is_timed():
    result = asyncppo('bench', 'deploy', '--parts', 'inference', '--rounds', 1, '--json')
    assert result.returncode in (0, 1), result.stderr
    said = json.loads(result.stdout)
    rows = {entry['name']: entry for entry in said['rows']}
    for name in ('64-64', '256-256'):
        act, bare, ratio = (rows[f'{name} {what}']
                            for what in ('act', 'bare forward', 'act / bare forward'))
        # How they compare is for a quiet machine to say; here the ratio is one of those taken.
        assert rows[f'{name} bare products']['min'] > 0.0
        assert act['min'] / bare['max'] <= ratio['median'] <= act['max'] / bare['min']
    assert said['checks'][0]['passed'] == (said['checks'][0]['value'] <= 3.0)


def test_mistakes():
    result = asyncppo('bench', 'deploy', '--rates', 0)
    assert result.returncode == 2 and 'must be above 0' in result.stderr


@pytest.mark.nodes
@pytest.mark.one_distro
def test_both_nodes_say_how_they_keep_their_times():
    pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
    result = asyncppo('bench', 'deploy', '--parts', 'nodes', '--rates', 50, '--rounds', 1,
                      '--seconds', 1, '--json')
    assert result.returncode == 0, result.stderr
    rows = {entry['name']: entry['median'] for entry in json.loads(result.stdout)['rows']}
    for kind in KINDS:
        p50, p95, p99, largest = (rows[f'50 Hz {kind} tick_to_publish_ms {name}']
                                  for name in PERCENTILES)
        assert 0.0 < p50 <= p95 <= p99 <= largest
        assert rows[f'50 Hz {kind} state_age_ms max'] > 0.0
        assert rows[f'50 Hz {kind} cpu'] > 0.0

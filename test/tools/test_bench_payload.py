"""The bench of payloads: what it sends is what arrives, and its numbers are those of the wire."""

import json

import numpy as np
import pytest

from asyncppo_ros.config import Config
from asyncppo_ros.settings import build
from asyncppo_ros.tools.bench import payload


@pytest.fixture(scope='module')
def collected():
    return payload.collected(build(Config, {
        'task': 'cartpole_swingup', 'actor.num_envs': 2, 'actor.chunk_length': 8}), '')


@pytest.mark.parametrize('width', [2, 4])
def test_bytes_come_together_as_they_were(width):
    data = np.random.default_rng(0).bytes(64)
    apart = payload.bytes_apart(memoryview(data), width)
    assert payload.bytes_together(apart, width) == data
    assert apart[:3] == data[:3 * width:width]


def test_every_way_brings_chunks_through(collected):
    chunks, layout, _, _ = collected
    for way in payload.ways():
        found = payload.cost(way, chunks, layout)
        if way.compression == 'none':
            assert found.share == 1.0 if way.dtype == 'float32' else 0.5 < found.share < 1.0
        assert found.pack > 0.0 and found.unpack > 0.0


def test_a_link_is_used_better_only_where_both_ends_keep_up():
    assert payload.Cost(0.5, 1000.0, 1000.0).over_link == 2.0
    assert payload.Cost(0.5, 1000.0, 62.5).over_link == 0.5


def test_log_ratios_are_those_of_rounded_observations(collected):
    chunks, layout, policy, action = collected
    log_prob = payload.log_prob_of(policy, chunks[0], action)
    assert np.allclose(log_prob, chunks[0].behaviour_log_prob, atol=1e-5)
    largest = [payload.ratio_rows(dtype, chunks, layout, policy, action)[2]['max']
               for dtype in ('float32', 'float16', 'bfloat16')]
    assert largest[0] == 0.0 < largest[1] < largest[2]


def test_the_table_is_one_object(capsys):
    assert payload.main(['--rounds', '1', '--task', 'cartpole_swingup', '--actor.num_envs', '2',
                         '--actor.chunk_length', '8', '--json'], lambda: False) == 0
    names = {entry['name'] for entry in json.loads(capsys.readouterr().out)['rows']}
    assert {'float32 none: bytes', 'bfloat16 zlib-1 apart: over 1 Gbit/s',
            'float16: |log ratio|, largest'} <= names

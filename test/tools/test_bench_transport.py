"""The bench of the transport, at its smallest: every way carries chunks."""

import json

from harness import asyncppo
import numpy as np

from asyncppo_ros.tools.bench.transport import chunks_of, Load, Rate, rows_of, WAYS
from asyncppo_ros.transport.codec import checked_arrays


def test_the_chunks_that_are_sent_are_valid_and_some_have_ends():
    for load in (Load(22, 16, 512, 1), Load(83, 64, 128, 1)):
        chunks = chunks_of(load)
        ends = sum(len(checked_arrays(chunk).episodes) for chunk in chunks)
        assert ends == int(20 * load.transitions / 1000)
        assert all(chunk.transitions == load.transitions for chunk in chunks)


def test_ratios_are_taken_within_a_round():
    rounds = [{name: Rate(100.0 * scale, 1.0) for name in WAYS} for scale in (1, 10)]
    rounds[0]['ring'] = Rate(300.0, 1.0)
    rounds[1]['ring'] = Rate(5000.0, 1.0)
    ratio = rows_of('x', Load(22, 16, 512, 1), rounds)[-1]
    assert ratio['name'] == 'x: ring / memcpy' and ratio['median'] == np.mean([3.0, 5.0])


def test_every_way_carries_chunks():
    result = asyncppo('bench', 'transport', '--chunks', '54 kB', '--senders', 2, '--rounds', 1,
                      '--seconds', 0.02, '--json')
    assert result.returncode == 0, result.stderr
    rates = {entry['name']: entry['median'] for entry in json.loads(result.stdout)['rows']}
    assert {name.rpartition(': ')[2] for name in rates} > set(WAYS)
    assert all(rate > 0.0 for rate in rates.values())

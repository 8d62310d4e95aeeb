"""A bench of an actor that really sends."""

import json

from harness import asyncppo
import numpy as np

from asyncppo_ros.config import Config
from asyncppo_ros.settings import build
from asyncppo_ros.tools.bench.actor import NEEDED, sending
from asyncppo_ros.tools.bench.bare_physics import BareLoop, Timer


def test_each_turn_is_a_chunk_that_is_taken():
    config = build(Config, {'task': 'reach', 'actor.num_envs': 4, 'actor.chunk_length': 8,
                            'learner.batch_size': 64})
    with sending(config, lambda: False) as actor:
        bare = BareLoop(actor.simulation)
        # Permits are for 4 chunks at a time, so that more come only if these are taken.
        for number in range(1, 12):
            actor.simulation.begin_record(Timer())
            actor.simulation.watch.start()
            actor.work(actor.simulation.watch)
            record = actor.simulation.end_record()
            assert len(record.commands) == 8 and actor._sender.next_sequence == number
        bare.replay(record, Timer())
        np.testing.assert_array_equal(bare.states(), record.end)
        assert actor._sender.ledger.counters.transitions == 11 * 32
        # Commands are those of the policy, which differ.
        assert np.ptp(record.commands[0], axis=0).all()


def test_what_is_needed():
    assert {case.task: share for case, share in NEEDED.items()} == {
        'HalfCheetah-v5': 0.90, 'Hopper-v5': 0.90, 'Walker2d-v5': 0.90, 'Ant-v5': 0.85,
        'Humanoid-v5': 0.85}
    assert {case.num_envs for case in NEEDED} == {64}


def test_a_short_run():
    result = asyncppo('bench', 'actor', '--tasks', 'reach', '--num_envs', 8, '--rounds', 2,
                      '--seconds', 0.02, '--json', '--actor.chunk_length', 8)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert {'machine', 'versions', 'settings', 'rows', 'checks', 'command'} <= found.keys()
    assert [entry['clock'] for entry in found['rows']] == ['wall', 'cpu']
    assert all(entry['median'] > 0.0 and entry['ratio'] > 0.0 for entry in found['rows'])
    assert found['settings']['reach, 8 environments']['actor.chunk_length'] == 8


def test_mistakes():
    for arguments, text in ((('--seconds', 0), 'above 0'), (('--actor.chunks', 1), 'actor.chunks'),
                            (('--tasks', 'flying'), 'unknown')):
        result = asyncppo('bench', 'actor', *arguments)
        assert result.returncode == 2 and text in result.stderr, result.stderr
        assert len(result.stderr.strip().splitlines()) == 1

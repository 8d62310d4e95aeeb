"""The bench of a fleet: real actors as the learner sees them, and what is made of the numbers."""

import json

import pytest

from asyncppo_ros.chunk import INTEGERS
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.tools.bench import fleet
from asyncppo_ros.tools.bench.fleet_actors import ReadyPayload
from asyncppo_ros.transport.codec import encode_chunk
from asyncppo_ros.transport.payload import packed_chunk, packing_of

SMALL = ('--task', 'cartpole_swingup', '--actor.num_envs', '2', '--actor.chunk_length', '4')
GIVEN = {'task': 'cartpole_swingup', 'actor.num_envs': 2, 'actor.chunk_length': 4}


def outcome(chunks_per_s=100.0, **other):
    values = {'joined_s': 0.1, 'chunks_per_s': chunks_per_s, 'cpu_ms': 0.5, 'thread_ms': 0.3,
              'senders_ms': 0.2, 'actor_wait': 0.5, 'chunks': (10, 10), 'mib': 5.0,
              'mib_after': 1.0, 'dropped': 0, 'refused': 0, 'balanced': True}
    return fleet.Outcome(**values | other)


def failed(outcomes, bound=6.0):
    return [entry['name'].split()[0] for entry in fleet.checks_of(outcomes, 2, bound)
            if not entry['passed']]


def test_what_is_asked_for_is_checked():
    alone = [outcome(chunks=(20,)), outcome(chunks=(20,))]
    assert failed({1: alone, 2: [outcome(91.0), outcome(92.0)]}) == []
    assert failed({1: alone, 2: [outcome(89.0), outcome(89.0)]}) == ['bytes/s']
    # Rounds count together, and who sent nothing has no share.
    assert failed({1: alone, 2: [outcome(chunks=(12, 9)), outcome(chunks=(9, 12))]}) == []
    assert failed({1: alone, 2: [outcome(chunks=(13, 10)), outcome(chunks=(13, 10))]}) == [
        'chunks']
    assert failed({1: alone, 2: [outcome(chunks=(5, 0)), outcome(chunks=(5, 0))]}) == ['chunks']
    assert failed({1: alone, 2: [outcome(mib=6.5), outcome()]}) == ['memory']
    assert failed({1: [outcome(refused=1), alone[0]], 2: [outcome(), outcome()]}) == ['messages']
    assert failed({1: alone, 2: [outcome(), outcome(balanced=False)]}) == ['books']


def test_a_batch_holds_a_chunk_of_each_and_memory_grows_with_it():
    config, shape = fleet.prepared(GIVEN, 5)
    assert config.learner.batch_size == 5 * shape.transitions == 40
    larger, _ = fleet.prepared({**GIVEN, 'learner.batch_size': 4_000_000}, 5)
    more = fleet.memory_bound(larger, shape, 5) - fleet.memory_bound(config, shape, 5)
    assert more == pytest.approx(2 * 3 * (500_000 - 5) * shape.wire_bytes() / 2 ** 20)
    with pytest.raises(ConfigError, match='learner.batch_size = 39: must be at least 40'):
        fleet.prepared({**GIVEN, 'learner.batch_size': 39}, 5)


@pytest.mark.parametrize('dtype', ['float32', 'float16'])
def test_a_payload_that_is_made_once_travels_as_one_that_is_made_for_each_chunk(dtype):
    _, shape = fleet.prepared({**GIVEN, 'transport.observation_dtype': dtype}, 1)
    chunk = shape.packed()
    memory, plan = packing_of(chunk)
    ready = ReadyPayload(chunk, shape.layout)
    for sequence in (0, 1, 2 ** 40 + 77):
        numbered = packed_chunk(range(sequence, sequence + len(INTEGERS)), memory, plan)
        assert [ready.header(numbered), bytes(ready.frame)] == [
            bytes(frame) for frame in encode_chunk(numbered, shape.layout)]


def test_all_senders_are_heard(capsys):
    # Whether its checks pass is a matter of the machine.
    assert fleet.main(['--senders', '3', '--rounds', '1', '--seconds', '0.05', '--chunks', '4',
                       '--processes', '1', '--transport.observation_dtype', 'float16', '--json',
                       *SMALL], lambda: False) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    assert set(found['rounds']) == {'1', '3'}
    for count, entries in found['rounds'].items():
        for entry in entries:
            assert len(entry['chunks']) == int(count) and min(entry['chunks']) > 0
            assert sum(entry['chunks']) >= 4 * int(count) and entry['balanced']
            assert entry['refused'] == 0 and entry['senders_ms'] > 0.0
    # 5 rows of 2 observations of 4 numbers and an odd rest: half of these bytes are saved.
    assert found['chunk_bytes'] < fleet.prepared(GIVEN, 3)[1].wire_bytes()


@pytest.mark.parametrize('option', ['--senders', '--rounds', '--chunks', '--processes'])
def test_nothing_less_than_one_is_measured(option):
    with pytest.raises(ConfigError, match='must be above 0|all must be'):
        fleet.main([option, '0'], lambda: False)

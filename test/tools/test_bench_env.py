"""What environments are measured by: the same physics, done once more by a bare loop."""

import json

from harness import asyncppo
import numpy as np
import pytest

from asyncppo_ros.tools.bench.bare_physics import (
    BareLoop,
    Rate,
    RecordedSimulation,
    Timer,
)
from asyncppo_ros.tools.bench.beside_physics import (
    BARE,
    Case,
    OURS,
    Pair,
    summarize,
    text_of,
    WITH_FORCES,
)
from asyncppo_ros.tools.bench.env import Environments, NEEDED


@pytest.mark.parametrize('task', ['Hopper-v5', 'Humanoid-v5', 'reach'])
def test_the_bare_loop_goes_through_the_same_states(task):
    simulation = RecordedSimulation(task, 3)
    out = np.empty((3, simulation.observation_size), np.float32)
    simulation.reset(out)
    rng = np.random.default_rng(0)
    bare = BareLoop(simulation)
    ends = 0
    for _ in range(2):
        simulation.begin_record(Timer())
        for _ in range(30):
            simulation.step(rng.uniform(-1.0, 1.0, (3, simulation.action_size)), out)
        record = simulation.end_record()
        ends += sum(len(index) for index, _ in record.begun)
        for with_forces in (False, True):
            bare.replay(record, Timer(), with_forces)
            np.testing.assert_array_equal(bare.states(), record.end)
        assert not np.array_equal(record.start, record.end)
    # Episodes began meanwhile: what is random is part of the record.
    assert ends > 0


def test_notes_are_not_timed():
    class Marks:
        def __init__(self):
            self.calls = []

        def start(self):
            self.calls.append('start')

        def stop(self):
            self.calls.append('stop')

    simulation, marks = RecordedSimulation('reach', 2), Marks()
    out = np.empty((2, simulation.observation_size), np.float32)
    simulation.reset(out)
    simulation.begin_record(marks)
    simulation.step(np.zeros((2, simulation.action_size), np.float32), out)
    assert marks.calls == ['stop', 'start']
    BareLoop(simulation).replay(simulation.end_record(), marks)
    assert marks.calls == ['stop', 'start', 'start', 'stop']


def test_a_measurement_counts_env_steps():
    worker = Environments('reach', 4)
    rates = Pair(worker, 0.01).measure()
    assert set(rates) == {OURS, BARE}
    assert all(rate > 0.0 for both in rates.values() for rate in both)
    assert set(Pair(Environments('Ant-v5', 2), 0.001).measure()) == {OURS, BARE, WITH_FORCES}


def test_the_check_is_of_the_last_ceiling_by_the_clock_on_the_wall():
    case = Case('Ant-v5', 64)
    rounds = [{OURS: Rate(90.0, 80.0), BARE: Rate(200.0, 100.0), WITH_FORCES: Rate(100.0, 160.0)}]
    rows, checks = summarize({case: rounds, Case('reach', 64): rounds}, NEEDED)
    assert [(entry['clock'], entry['ratio']) for entry in rows[:4]] == [
        ('wall', 0.45), ('cpu', 0.8), ('wall', 0.9), ('cpu', 0.5)]
    assert [(entry['value'], entry['passed']) for entry in checks] == [(0.9, True)]
    assert WITH_FORCES in checks[0]['name'] and '>= 0.9' in checks[0]['needed']
    rounds[0][OURS] = Rate(89.0, 200.0)
    assert not summarize({case: rounds}, NEEDED)[1][0]['passed']
    assert '0.450' in text_of(rows) and 'reach, 64 environments / mj_step' in text_of(rows)


def test_what_is_needed():
    assert {(*case, share) for case, share in NEEDED.items()} == {
        *((task, 64, 0.95) for task in ('HalfCheetah-v5', 'Hopper-v5', 'Walker2d-v5')),
        *((task, 16, 0.88) for task in ('HalfCheetah-v5', 'Hopper-v5', 'Walker2d-v5')),
        *((task, 64, 0.90) for task in ('Ant-v5', 'Humanoid-v5')),
        *((task, 16, 0.85) for task in ('Ant-v5', 'Humanoid-v5'))}


def test_a_short_run():
    result = asyncppo('bench', 'env', '--tasks', 'reach', '--num_envs', 4, '--rounds', 2,
                      '--seconds', 0.02, '--json')
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert {'machine', 'versions', 'settings', 'rows', 'checks', 'command'} <= found.keys()
    assert [entry['clock'] for entry in found['rows']] == ['wall', 'cpu']
    assert all(entry['median'] > 0.0 and entry['ratio'] > 0.0 for entry in found['rows'])
    assert 'round 2 of 2' in result.stderr


def test_mistakes():
    for arguments, text in ((('--rounds', 0), 'above 0'), (('--num_envs', 0), 'above 0'),
                            (('--tasks', 'gymnasium:Ant-v5'), 'gymnasium:Ant-v5'),
                            (('--tasks', 'flying'), 'unknown')):
        result = asyncppo('bench', 'env', *arguments)
        assert result.returncode == 2 and text in result.stderr, result.stderr
        assert len(result.stderr.strip().splitlines()) == 1

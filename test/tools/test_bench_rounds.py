"""Interleaved rounds, and the ratios within them."""

import numpy as np
import pytest

from asyncppo_ros.tools.bench.results import paired_row
from asyncppo_ros.tools.bench.rounds import interleaved
from asyncppo_ros.tools.bench.uncertainty import paired_ratio


def test_every_round_measures_all_and_the_first_does_not_count():
    order = []

    def measure(name):
        def once():
            order.append(name)
            return float(len(order))
        return once

    found = interleaved({name: measure(name) for name in 'abc'}, 2, lambda: False)
    assert ''.join(order) == 'abc' + 'cba' + 'abc'
    assert found == {'a': [6.0, 7.0], 'b': [5.0, 8.0], 'c': [4.0, 9.0]}


def test_a_stop_gives_whole_rounds():
    left = iter([False] * 5 + [True] * 9)
    found = interleaved({'a': lambda: 1.0, 'b': lambda: 2.0}, 9, lambda: next(left))
    assert found == {'a': [1.0], 'b': [2.0]}


def test_a_ratio_within_rounds_does_not_see_the_machine_wander():
    rng = np.random.default_rng(0)
    machine = rng.uniform(1.0, 2.0, 40)
    ceilings = 100.0 * machine
    values = 0.9 * ceilings * rng.uniform(0.99, 1.01, 40)
    found = paired_ratio(values, ceilings)
    assert 0.89 < found.low < found.value < found.high < 0.91
    shuffled = paired_ratio(values, rng.permutation(ceilings))
    assert shuffled.high - shuffled.low > 5.0 * (found.high - found.low)


def test_a_paired_row():
    entry = paired_row('x', [1.0, 4.0, 3.0], [2.0, 4.0, 4.0], 'steps/s')
    assert entry['median'] == 3.0 and entry['ceiling'] == 4.0
    assert entry['ratio'] == pytest.approx(0.75) and entry['ratio_interval'] == [0.5, 1.0]

"""What the benches of whole runs work out of rows, on rows made up here."""

import numpy as np
import pytest

from asyncppo_ros.errors import ConfigError
from asyncppo_ros.settings import as_text
from asyncppo_ros.tools.bench import actors, faults, lag, memory
from asyncppo_ros.tools.bench.results import check, verdict
from asyncppo_ros.tools.bench.uncertainty import (
    Estimate,
    mean_difference,
    paired_difference,
    paired_share_difference,
    slope,
    slope_estimate,
)
from asyncppo_ros.tools.bench.watched import (
    median_rate,
    rate,
    recovery_s,
    Seen,
    WatchedRun,
)


def seen(*pieces, step=0.25):
    """Rows every `step` s of pieces of (duration [s], env steps per s)."""
    at, steps, rows = 0.0, 0.0, [Seen(0.0, 0, {})]
    for duration, per_s in pieces:
        for _ in range(round(duration / step)):
            at, steps = at + step, steps + per_s * step
            rows.append(Seen(at, round(steps), {}))
    return rows


def test_rates_are_those_of_the_rows():
    rows = seen((10.0, 1000.0), (10.0, 500.0))
    assert rate(rows, 2.0, 5.0) == pytest.approx(1000.0)
    assert rate(rows, 9.0, 11.0) == pytest.approx(750.0)
    # Between two rows in proportion.
    assert rate(rows, 2.1, 2.2) == pytest.approx(1000.0)
    assert median_rate(rows, 0.0, 10.0, 3.0) == pytest.approx(1000.0)


@pytest.mark.parametrize(('pieces', 'expected'), [
    # down for 4 s, then as before: the first good window begins there
    (((10.0, 1000.0), (4.0, 0.0), (10.0, 1000.0)), pytest.approx(3.7, abs=0.2)),
    # back at once
    (((10.0, 1000.0), (10.0, 1000.0)), pytest.approx(0.0, abs=0.01)),
    # back, but not to 90 %
    (((10.0, 1000.0), (4.0, 0.0), (10.0, 850.0)), None),
    # never back
    (((10.0, 1000.0), (14.0, 0.0)), None),
    # what was before the fault does not count
    (((10.0, 5000.0), (14.0, 10.0)), None)])
def test_recovery(pieces, expected):
    assert recovery_s(seen(*pieces), 10.0, 900.0, 3.0) == expected


def test_a_learner_that_goes_back_loses_no_count(tmp_path):
    """Steps are counted on over a restart; the steps it takes back are not."""
    watched = WatchedRun.__new__(WatchedRun)
    watched.seen = []
    rows = [{'generation': 0, 'env_steps': 100}, {'generation': 0, 'env_steps': 300},
            {'generation': 1, 'env_steps': 200}, {'generation': 1, 'env_steps': 350}]
    watched._tail = type('Tail', (), {'read': lambda self: rows})()
    assert [entry.steps for entry in watched.look()] == [0, 200, 200, 350]


def test_settings_as_the_command_line_reads_them():
    assert [as_text(value) for value in (True, 0.5, (64, 64), 'zmq')] == [
        'true', '0.5', '64,64', 'zmq']


def test_a_slope_is_found_within_its_interval():
    rng = np.random.default_rng(0)
    x = np.arange(300.0)
    noise = np.cumsum(rng.normal(size=300)) * 0.05 + rng.normal(size=300)
    rising = slope_estimate(x, 0.5 * x + noise)
    assert slope(x, 2.0 * x) == pytest.approx(2.0)
    assert rising.low <= 0.5 <= rising.high and rising.low > 0.4
    flat = slope_estimate(x, rng.normal(size=300))
    assert flat.low < 0.0 < flat.high
    # One outlier, such as a checkpoint being written, moves nothing.
    y = 0.0 * x
    y[150] = 1e6
    assert slope(x, y) == 0.0


def test_a_difference_is_found_where_there_is_one():
    rng = np.random.default_rng(1)
    first, second = rng.normal(10.0, 1.0, 200), rng.normal(9.0, 1.0, 200)
    found = mean_difference(first, second)
    assert found.low > 0.5 and found.high < 1.5 and found.low < found.value < found.high
    none = mean_difference(first, first[::-1])
    assert none.low < 0.0 < none.high


def chunk(version, lag_versions):
    return {'policy_version': version, 'lag_versions': lag_versions}


def flow_row(version, dropped=0, wait=0.3):
    return {'policy_version': version, 'chunks_dropped': dropped, 'actor_wait': wait,
            'learner_wait': 0.0, 'env_steps_per_s': 100.0, 'policy_lag_max': 2}


def test_lag_of_the_start_does_not_count():
    # Target 2: until version 8 the lag may still grow.
    chunks = [chunk(0, 0)] * 50 + [chunk(8, 2)] * 96 + [chunk(8, 1)] * 3 + [chunk(8, 3)]
    outcome = lag.outcome_of(2, 8, chunks, [flow_row(3, dropped=1), flow_row(20)])
    assert (outcome['lag_p95'], outcome['lag_max'], outcome['dropped']) == (2.0, 3.0, 1)
    assert outcome['lag_mean'] == pytest.approx(1.98) and outcome['chunks'] == 100
    failed = [entry['name'] for entry in lag.checks_of(outcome) if not entry['passed']]
    assert failed == ['target 2 dropped']
    low = {**outcome, 'lag_mean': 0.9, 'lag_p95': 3.0, 'lag_max': 9.0, 'actor_wait': 0.0}
    assert not any(entry['passed'] for entry in lag.checks_of(low))


def test_actors_are_compared_with_one():
    def rows(per_s):
        return [{'time_s': 10.0 + at, 'env_steps': per_s * at, 'actor_wait': 0.0,
                 'learner_wait': 0.5, 'policy_lag_mean': 1.0, 'policy_lag_max': 1.0,
                 'sample_age_mean': 3.0} for at in range(5)]

    one, many = actors.outcome_of(1, rows(1500)), actors.outcome_of(16, rows(23000))
    assert one['env_steps_per_s'] == 1500.0 and one['seconds'] == 4.0
    comparison, = actors.checks_of([one, many])
    assert comparison['passed'] and comparison['value'] == pytest.approx(15.33, abs=0.01)
    assert not actors.checks_of([one, actors.outcome_of(16, rows(22000))])[0]['passed']
    assert actors.rows_of([one, many], 16)[0]['ceiling'] == 1600.0


def test_memory_grows_or_not():
    def samples(kb_per_minute):
        rng = np.random.default_rng(2)
        # The warm-up is steep and does not count.
        sizes = [min(0, at - 60) * 1000 + 2e5 + kb_per_minute * at / 60 + rng.normal(0, 50)
                 for at in range(0, 600, 2)]
        return [{'time_s': float(at), 'kb': {'learner': size, memory.TOTAL: size}}
                for at, size in zip(range(0, 600, 2), sizes)]

    settings = {'learner.max_policy_lag': 8, 'learner.pacing': True}
    for slope_kb, passed in ((0.0, True), (500.0, False)):
        growth = memory.growth_of(samples(slope_kb))
        assert growth['learner']['kb_per_minute'] == pytest.approx(slope_kb, abs=20.0)
        checks = memory.checks_of(growth, [flow_row(1)], settings, balanced=True)
        assert all(entry['passed'] for entry in checks) == passed
    dropped = memory.checks_of(growth, [flow_row(1, dropped=2)], settings, balanced=False)
    assert [entry['passed'] for entry in dropped] == [False, True, False, False]


def test_the_faulted_run_is_compared():
    entry = {'policy_lag_max': 3, 'max_policy_lag': 8, 'balanced': True, 'generations': 3}
    injected = [{'fault': 'kill_learner'}] * 2 + [{'fault': 'full_disk'}]
    good = faults.checks_of({**entry, 'injected': injected}, entry, Estimate(-1.0, -3.0, 1.0),
                            margin=4.0)
    assert all(item['passed'] for item in good)
    assert faults.counts_of(injected) == {'kill_learner': 2, 'full_disk': 1}
    bad = faults.checks_of(
        {**entry, 'injected': injected, 'policy_lag_max': 9, 'balanced': False, 'generations': 2},
        entry, Estimate(-2.0, -5.0, 1.0), margin=4.0)
    assert [item['passed'] for item in bad] == [False, False, False, True, True, False]


def test_checks_are_told():
    text = verdict([check('lag', 3.0, '<= 2', False), check('rate', 5.0, '>= 1', True)])
    assert text.splitlines() == ['FAILED  lag: 3, needed <= 2', 'ok      rate: 5, needed >= 1']


def test_pairs_that_differ_much_still_show_a_small_difference():
    rng = np.random.default_rng(0)
    level = rng.normal(0.0, 100.0, 50)
    first, second = level + 1.0 + rng.normal(0.0, 0.5, 50), level
    value, low, high = paired_difference(first, second)
    assert low < value < high and low > 0.5 and high < 1.5
    # Without the pairs nothing can be said.
    assert mean_difference(first, second).low < -10.0


def test_shares_that_agree_are_not_known_for_certain():
    agree = np.arange(200) % 10 > 0
    value, low, high = paired_share_difference(agree, agree)
    assert value == 0.0 and low == -high and 0.005 < high < 0.015
    worse = agree.copy()
    worse[np.flatnonzero(agree)[:20]] = False
    value, low, high = paired_share_difference(worse, agree)
    assert value == pytest.approx(-0.1) and low < -0.1 < high < -0.04


def test_shares_are_within_their_intervals_as_often_as_they_say():
    rng = np.random.default_rng(1)
    within = 0
    for _ in range(400):
        # Of each pair both succeed, one of the two does, or none.
        kind = rng.choice(4, size=200, p=[0.9, 0.04, 0.02, 0.04])
        low, high = paired_share_difference((kind == 0) | (kind == 1),
                                            (kind == 0) | (kind == 2))[1:]
        within += low <= 0.02 <= high
    assert 0.92 < within / 400 < 0.98


def test_a_training_that_is_stopped_is_not_looked_at(monkeypatch):
    """A Ctrl-C before the second update is no mistake of the user."""
    class Stopped:
        seen = ()

        def __init__(self, folder, settings):
            pass

        need_actors = watch = end = kill = lambda self, *arguments: None

    monkeypatch.setattr(actors, 'WatchedRun', Stopped)
    assert actors.measure(2, {}, 1.0, lambda: True) == {}
    with pytest.raises(ConfigError, match='too short for two updates'):
        actors.measure(2, {}, 1.0, lambda: False)

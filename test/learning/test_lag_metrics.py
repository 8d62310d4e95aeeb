"""Lag and age of the chunks of an update: parts, histograms, the log of chunks."""

import csv
import json
import math

import pytest
from test_batcher import chunk

from asyncppo_ros.chunk import Identity
from asyncppo_ros.learning.batcher import Batcher
from asyncppo_ros.learning.jsonl import read_jsonl
from asyncppo_ros.learning.lag_metrics import CHUNK_COLUMNS, ChunkLog, lag_row
from asyncppo_ros.learning.metrics import (
    AGE_EDGES_MS,
    histogram_edges,
    HISTOGRAMS,
    JsonlWriter,
    LAG_BINS,
    LEARNER_METRICS,
    TensorBoardWriter,
)

MS = 1_000_000


def consume(chunks, version=4):
    batcher = Batcher(sum(one.transitions for one in chunks), 1000, clock_ns=lambda: 100 * MS)
    for one in chunks:
        batcher.offer(one, 90 * MS, MS // 2)
    return batcher.next_batch(Identity(1, version), 50, 0.0)


def batch():
    return consume([
        chunk(4, 1, collecting_ns=2 * MS, gradient_steps=50),
        chunk(3, 2, collecting_ns=40 * MS, waiting_ns=MS, gradient_steps=40),
        chunk(1, 4, collecting_ns=5 * MS, gradient_steps=20)])


def test_every_part_of_lag_and_age_is_a_metric():
    row = lag_row(batch())
    # One value per chunk; with so few the 95th percentile is the largest.
    assert [row[f'policy_lag_{name}'] for name in ('min', 'mean', 'p95', 'max')] == [
        0.0, pytest.approx(4 / 3), 3.0, 3.0]
    assert [row[f'gradient_lag_{name}'] for name in ('min', 'mean', 'p95', 'max')] == [
        0.0, pytest.approx(40 / 3), 30.0, 30.0]
    assert row['age_collecting_max'] == row['age_collecting_p95'] == 40.0
    assert row['age_waiting_mean'] == pytest.approx(1 / 3) and row['age_waiting_max'] == 1.0
    assert row['age_transport_p95'] == 0.5 and row['age_learner_max'] == 10.0
    assert row['sample_age_max'] == pytest.approx(40 + 1 + 0.5 + 10)
    assert set(row) <= set(LEARNER_METRICS) | set(HISTOGRAMS)


def test_histograms_count_transitions():
    row = lag_row(batch())
    assert row['policy_lag_histogram'] == [1, 2, 0, 4]
    # 12.5 ms, 51.5 ms and 15.5 ms: between 8 and 16, and between 32 and 64.
    ages = row['sample_age_histogram']
    assert len(ages) == len(AGE_EDGES_MS) + 1 == len(histogram_edges(
        'sample_age_histogram', len(ages))) - 1
    assert {histogram_edges('sample_age_histogram', len(ages))[place]: count
            for place, count in enumerate(ages) if count} == {8.0: 5, 32.0: 2}


def test_the_outer_bins_have_all_that_lies_beyond():
    row = lag_row(consume([chunk(0, 3, collecting_ns=10 ** 6 * MS)], version=900))
    assert len(row['policy_lag_histogram']) == LAG_BINS
    assert row['policy_lag_histogram'][-1] == 3 and row['sample_age_histogram'][-1] == 3


def test_writers_take_histograms(tmp_path):
    row = {'env_steps': 7, 'kl': math.nan, **lag_row(batch())}
    writer = JsonlWriter(tmp_path / 'metrics.jsonl')
    writer.write(row)
    writer.close()
    assert read_jsonl(tmp_path / 'metrics.jsonl')[0]['policy_lag_histogram'] == [1, 2, 0, 4]
    pytest.importorskip('torch.utils.tensorboard')
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    board = TensorBoardWriter(tmp_path / 'board')
    board.write(row)
    board.write({'env_steps': 8, 'policy_lag_histogram': [0, 0]})
    board.close()
    events = EventAccumulator(str(tmp_path / 'board')).Reload()
    assert events.Tags()['histograms'] == ['lag/policy_lag_histogram', 'age/sample_age_histogram']
    lag = events.Histograms('lag/policy_lag_histogram')[0]
    assert lag.step == 7 and lag.histogram_value.num == 7
    assert lag.histogram_value.sum == 0 * 1 + 1 * 2 + 3 * 4
    assert 'lag/policy_lag_max' in events.Tags()['scalars']


def test_the_log_has_a_line_for_every_chunk_and_goes_on(tmp_path):
    path = tmp_path / 'chunks.csv'
    first = ChunkLog(path)
    first.write(1.25, batch().measured)
    first.close()
    with path.open('a') as file:
        file.write('2.0,1')  # cut by a crash
    second = ChunkLog(path)
    second.write(2.5, consume([chunk(2, 3, sequence=8, collecting_ns=MS)]).measured)
    second.close()
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == CHUNK_COLUMNS and len(rows) == 4
    assert [row['time_s'] for row in rows] == ['1.250'] * 3 + ['2.500']
    assert json.loads(json.dumps(rows[0])) | {'transitions': '4', 'lag_versions': '3',
                                              'lag_gradient_steps': '30'} == rows[0]
    assert rows[3]['sequence'] == '8' and rows[3]['policy_version'] == '2'
    assert float(rows[1]['collecting_ms']) == 40.0 and float(rows[1]['learner_ms']) == 10.0

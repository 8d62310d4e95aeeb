"""The table of metrics, and the files that rows go to."""

import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest

from asyncppo_ros.errors import RunError
from asyncppo_ros.learning.jsonl import read_jsonl, Tail
from asyncppo_ros.learning.metrics import (
    EpisodeWindow,
    evaluation_row,
    EVALUATOR_METRICS,
    HISTOGRAMS,
    JsonlWriter,
    LEARNER_METRICS,
    METRICS,
    metrics_table,
    TensorBoardWriter,
)


def test_names_are_ros_names_and_every_metric_is_described():
    for name, metric in METRICS.items():
        assert re.fullmatch(r'[a-z][a-z0-9_]*', name), name
        assert '__' not in name
        assert metric.description.endswith('.'), name
        assert metric.group


def test_learner_and_evaluator_share_out_the_metrics():
    assert set(LEARNER_METRICS) | set(EVALUATOR_METRICS) == set(METRICS)
    assert not set(LEARNER_METRICS) & set(EVALUATOR_METRICS)
    assert all(name.startswith('evaluation_') for name in EVALUATOR_METRICS)


def test_markdown_table_has_one_line_per_metric():
    lines = metrics_table().splitlines()
    assert len(lines) == 2 + len(METRICS) + len(HISTOGRAMS)
    assert '| `kl` | nat | ' in metrics_table()


def test_importing_needs_no_torch():
    code = ('import sys; sys.modules["torch"] = None; '
            'import asyncppo_ros.learning.metrics, asyncppo_ros.tools.progress, '
            'asyncppo_ros.tools.report')
    subprocess.run([sys.executable, '-c', code], check=True, timeout=60)


def test_rows_survive_the_file(tmp_path):
    path = tmp_path / 'metrics.jsonl'
    writer = JsonlWriter(path)
    writer.write({'env_steps': np.int64(8192), 'return_mean': np.float32(-1.5)})
    assert read_jsonl(path) == [{'env_steps': 8192, 'return_mean': -1.5}]
    writer.write({'env_steps': 16384, 'return_mean': math.nan, 'kl': math.inf, 'success': None})
    writer.close()
    JsonlWriter(path).write({'env_steps': 24576})
    rows = read_jsonl(path)
    assert rows[1] == {'env_steps': 16384, 'return_mean': None, 'kl': None, 'success': None}
    assert [row['env_steps'] for row in rows] == [8192, 16384, 24576]
    assert isinstance(rows[0]['env_steps'], int)


@pytest.mark.parametrize('rest', [b'{"env_st', b'{"env_steps": 2}', b'\0' * 9, b'\xc3'])
def test_a_last_line_that_a_crash_cut_is_removed(tmp_path, rest):
    path = tmp_path / 'metrics.jsonl'
    path.write_bytes(b'{"env_steps": 1}\n' + rest)
    assert read_jsonl(path) == [{'env_steps': 1}]
    JsonlWriter(path).write({'env_steps': 3})
    assert path.read_bytes() == b'{"env_steps": 1}\n{"env_steps": 3}\n'


def test_file_with_nothing_but_a_cut_line(tmp_path):
    path = tmp_path / 'metrics.jsonl'
    path.write_bytes(b'{"env')
    JsonlWriter(path)
    assert path.read_bytes() == b''


def test_unwritable_path_is_one_clear_line(tmp_path):
    with pytest.raises(RunError, match=r'metrics\.jsonl: cannot be written: '):
        JsonlWriter(tmp_path / 'missing' / 'metrics.jsonl')


def test_reading_a_missing_or_broken_file(tmp_path):
    assert read_jsonl(tmp_path / 'metrics.jsonl') == []
    path = tmp_path / 'broken.jsonl'
    path.write_text('{"env_steps": 1}\n[2]\n')
    with pytest.raises(RunError, match='line 2 is not a JSON object'):
        read_jsonl(path)


def test_tail_gives_each_row_once_and_only_when_it_is_complete(tmp_path):
    path = tmp_path / 'metrics.jsonl'
    tail = Tail(path)
    assert tail.read() == []
    path.write_text('{"env_steps": 1}\n{"env_steps": 2}\n{"env')
    assert [row['env_steps'] for row in tail.read()] == [1, 2]
    assert tail.read() == []
    with path.open('a') as file:
        file.write('_steps": 3}\n')
    assert tail.read() == [{'env_steps': 3}]


def test_tail_goes_on_after_a_resume_cut_the_last_line(tmp_path):
    path = tmp_path / 'metrics.jsonl'
    path.write_text('{"env_steps": 1}\n{"env')
    tail = Tail(path)
    assert len(tail.read()) == 1
    JsonlWriter(path).write({'env_steps': 2})
    assert tail.read() == [{'env_steps': 2}]


def test_follow_gives_the_rows_that_came_before_the_stop(tmp_path):
    path = tmp_path / 'metrics.jsonl'
    writer = JsonlWriter(path)
    waits = []

    def stopped(seconds):
        waits.append(seconds)
        writer.write({'env_steps': len(waits)})
        return len(waits) == 3

    assert [row['env_steps'] for row in Tail(path).follow(stopped, 0.25)] == [1, 2, 3]
    assert waits == [0.25, 0.25, 0.25]


def test_episode_window_by_hand():
    window = EpisodeWindow(size=3)
    assert window.row() == {}
    window.add(np.empty((0, 3), np.float32))
    assert window.row() == {}
    window.add([[100.0, 1000, 1], [1.0, 10, 1], [2.0, 20, 0], [6.0, 30, 1]])
    # The first episode has left the window: (1 + 2 + 6) / 3 and (1 + 0 + 1) / 3.
    assert window.row() == pytest.approx({'return_mean': 3.0, 'return_max': 6.0,
                                          'episode_length_mean': 20.0, 'success_rate': 2 / 3})


def test_episode_window_of_a_task_without_success():
    window = EpisodeWindow()
    window.add([[1.0, 10, -1], [2.0, 20, -1]])
    assert 'success_rate' not in window.row()


def test_evaluation_row_leaves_out_what_is_unknown():
    line = json.loads('{"generation": 0, "policy_version": 7, "env_steps": 800, "time_s": 2.5, '
                      '"episodes": 20, "return_mean": -3.0, "return_std": 1.0, '
                      '"length_mean": 50.0, "success": null}')
    assert evaluation_row(line) == {
        'generation': 0, 'policy_version': 7, 'env_steps': 800, 'time_s': 2.5,
        'evaluation_return_mean': -3.0, 'evaluation_return_std': 1.0,
        'evaluation_length_mean': 50.0}
    assert set(evaluation_row(line)) <= set(METRICS)


def test_missing_tensorboard_is_one_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, 'torch.utils.tensorboard', None)
    writer = TensorBoardWriter(tmp_path)
    writer.write({'env_steps': 1, 'kl': 0.1})
    writer.close()
    assert [record.message for record in caplog.records] == [
        'no TensorBoard events: tensorboard is missing (pip install tensorboard)']


def test_tensorboard_events_and_resume(tmp_path):
    pytest.importorskip('torch.utils.tensorboard')
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    first = TensorBoardWriter(tmp_path)
    for step in (100, 200, 300):
        first.write({'env_steps': step, 'kl': step / 1e4, 'return_mean': math.nan})
    first.close()
    second = TensorBoardWriter(tmp_path, purge_step=200)
    second.write({'env_steps': 200, 'kl': 0.5})
    second.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert events.Tags()['scalars'] == ['update/kl']
    assert [(event.step, round(event.value, 4)) for event in events.Scalars('update/kl')] == [
        (100, 0.01), (200, 0.5)]

"""The picture and the page of a run."""

import base64
from html.parser import HTMLParser
import json
import re
import sys

import numpy as np
import pytest

from asyncppo_ros.config import Config
from asyncppo_ros.errors import MissingDependency, RunError
from asyncppo_ros.learning.metrics import JsonlWriter, METRICS
from asyncppo_ros.settings import build, write_yaml
from asyncppo_ros.tools import curves
from asyncppo_ros.tools.report import changed_settings, headline, report, table


def make_run(run, steps, generations=None, evaluations=True):
    """Write a run whose return is its env steps, so that a wrong row is visible."""
    run.mkdir()
    generations = generations or [0] * len(steps)
    writer = JsonlWriter(run / 'metrics.jsonl')
    for index, (step, generation) in enumerate(zip(steps, generations)):
        writer.write({**dict.fromkeys(METRICS, 0.25), 'env_steps': step,
                      'generation': generation, 'policy_version': index + 1,
                      'time_s': 1.5 * index, 'return_mean': float(step)})
    if evaluations:
        JsonlWriter(run / 'evaluations.jsonl').write({
            'generation': 0, 'policy_version': 1, 'env_steps': 100, 'time_s': 1.0,
            'episodes': 20, 'return_mean': -12.5, 'return_std': 2.0, 'length_mean': 50.0,
            'success': 0.75})
    write_yaml(build(Config, {'learner.ppo.clip_ratio': 0.1, 'policy.hidden_sizes': (32, 16)}),
               run / 'config.yaml')
    (run / 'run.json').write_text(json.dumps({
        'run_id': 7, 'task': 'reach<b>', 'seed': 3, 'versions': {'torch': '2.13'},
        'machine': {'cores': 2}, 'command': 'asyncppo train'}))
    return run


class Checker(HTMLParser):
    """Counts tags that are open, and notes what would be loaded from outside."""

    def __init__(self):
        super().__init__()
        self.open, self.outside = [], []

    def handle_starttag(self, tag, attributes):
        if tag not in ('meta', 'img'):
            self.open.append(tag)
        self.outside += [value for name, value in attributes
                         if name in ('src', 'href') and not value.startswith('data:')]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_report_of_a_run(tmp_path):
    run = make_run(tmp_path / 'run', [100, 200, 300])
    (run / 'books.json').write_text(json.dumps(
        {'actors': [{'actor_id': 5, 'produced': 1234567}], 'balanced': True}))
    png, page = report(run)
    assert (png, page) == (run / 'report.png', run / 'report.html')
    assert png.read_bytes().startswith(b'\x89PNG')
    text = page.read_text()
    checker = Checker()
    checker.feed(text)
    assert checker.open == [] and checker.outside == []
    picture = re.search(r'data:image/png;base64,([^"]+)"', text).group(1)
    assert base64.b64decode(picture) == png.read_bytes()
    assert '<b>' not in text and 'reach&lt;b&gt;, seed 3: 300 env steps in 0:03' in text
    for part in ('learner.ppo.clip_ratio', '(32, 16)', '1,234,567', 'versions.torch', '-12.5',
                 'explained_variance', 'machine.cores'):
        assert part in text, part
    assert 'learner.ppo.epochs' not in text
    assert not list(run.glob('*.part'))


@pytest.mark.parametrize('steps, generations, evaluations', [
    ([100], [0], False), ([100, 200, 300, 200, 300], [0, 0, 0, 1, 1], True),
    (range(1, 2000), None, False)])
def test_one_row_resumed_and_long_runs(tmp_path, steps, generations, evaluations):
    for path in report(make_run(tmp_path / 'run', list(steps), generations, evaluations)):
        assert path.stat().st_size > 10_000


def test_row_with_little_and_unknown_numbers(tmp_path):
    run = tmp_path / 'run'
    run.mkdir()
    writer = JsonlWriter(run / 'metrics.jsonl')
    writer.write({'env_steps': 100, 'kl': float('nan')})
    report(run)
    writer.write({'env_steps': 200, 'kl': 0.1, 'return_mean': None})
    assert 'unknown task, seed unknown: 200 env steps' in report(run)[1].read_text()


def test_no_metrics_yet(tmp_path):
    with pytest.raises(RunError, match='no such run directory'):
        report(tmp_path / 'missing')
    with pytest.raises(RunError, match=r'no metrics yet in .*metrics\.jsonl'):
        report(tmp_path)
    (tmp_path / 'metrics.jsonl').write_text('{"env_st')
    with pytest.raises(RunError, match='no metrics yet'):
        report(tmp_path)


def test_broken_run_json_is_one_clear_line(tmp_path):
    run = make_run(tmp_path / 'run', [100])
    (run / 'run.json').write_text('{')
    with pytest.raises(RunError, match=r'run\.json: not JSON'):
        report(run)


def test_missing_matplotlib_names_the_interpreter(tmp_path, monkeypatch):
    run = make_run(tmp_path / 'run', [100])
    monkeypatch.setitem(sys.modules, 'matplotlib.figure', None)
    with pytest.raises(MissingDependency, match=re.escape(sys.executable)):
        report(run)


def test_rows_that_a_resume_took_back_are_left_out():
    rows = [{'env_steps': step, 'generation': generation} for step, generation in (
        (100, 0), (200, 0), (300, 0), (200, 1), (300, 1), (400, 1), (300, 2))]
    starts = curves.generation_starts(rows)
    assert starts == {0: 100, 1: 200, 2: 300}
    assert [(row['env_steps'], row['generation']) for row in curves.current(rows, starts)] == [
        (100, 0), (200, 1), (300, 2)]
    assert curves.current([{'env_steps': 500}], starts) == [{'env_steps': 500}]


def test_thinned_keeps_peaks_and_gaps():
    values = np.arange(12.0)
    values[4:6] = np.nan
    assert curves.thinned(values, np.max, most=6).tolist()[:2] == [1.0, 3.0]
    assert np.isnan(curves.thinned(values, np.max, most=6)[2])
    assert curves.thinned(values, np.mean, most=6)[3] == 6.5
    assert curves.thinned(values, np.max, most=12) is values


def test_every_curve_is_a_metric_and_the_brief_is_covered():
    names = {curve.name for panel in curves.PANELS for curve in panel.curves}
    assert names <= set(METRICS)
    assert names >= {'return_mean', 'evaluation_return_mean', 'success_rate', 'policy_lag_p95',
                     'age_learner_mean', 'entropy', 'kl', 'dual_clip_fraction', 'learner_wait',
                     'actor_wait', 'learning_rate', 'log_std_mean', 'env_steps_per_s'}


def test_headline_and_table():
    assert headline({'task': 'reach', 'seed': 0}, {
        'env_steps': 1_000_000, 'time_s': 303.2, 'policy_version': 120}) == (
        'reach, seed 0: 1,000,000 env steps in 5:03, policy version 120')
    assert table(['name'], []) == '<p>none</p>'
    assert '<td class="number">1,234</td><td></td><td>&lt;</td>' in table(
        ['a', 'b', 'c'], [(1234, None, '<')])


def test_settings_of_an_older_run_that_no_longer_exist_are_passed_over(tmp_path):
    run = make_run(tmp_path / 'run', [100])
    with (run / 'config.yaml').open('a') as file:
        file.write('    gone: 1\n')
    assert changed_settings(run) == [('policy.hidden_sizes', (32, 16), (64, 64)),
                                     ('learner.ppo.clip_ratio', 0.1, 0.2)]
    (run / 'config.yaml').unlink()
    assert changed_settings(run) == []


def test_histograms_of_the_run_are_added_up_and_drawn(tmp_path):
    rows = [{'env_steps': 1, 'policy_lag_histogram': [5], 'sample_age_histogram': [0] * 18 + [7]},
            {'env_steps': 2, 'policy_lag_histogram': [1, 0, 4]}, {'env_steps': 3}]
    assert curves.total_counts(rows, 'policy_lag_histogram').tolist() == [6, 0, 4]
    assert not curves.total_counts(rows, 'missing').any()
    sizes = [len(curves.draw(rows[:count], [], 'title')) for count in (1, 2)]
    pictures = [curves.draw([{'env_steps': 1, 'kl': 1.0, **extra}], [], 'title') for extra in
                ({}, {'policy_lag_histogram': [0, 9]}, {'policy_lag_histogram': [0, 0]})]
    assert len(pictures[1]) > len(pictures[0]) == len(pictures[2]) and min(sizes) > 1000

"""What the bench of learning works out of runs, on runs made up here."""

import json
import math
import pathlib

import numpy as np
import pytest
from toys import random_chunk, TASK

from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.learning.checkpoint import save_checkpoint
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.tools.bench import learning, learning_runs
from asyncppo_ros.tools.bench.learning_curves import at_equal_steps
from asyncppo_ros.tools.bench.learning_runs import Cell, is_trained, outcome, score
from asyncppo_ros.tools.bench.uncertainty import (
    interquartile_mean,
    iqm_estimate,
    median_ratio,
    relative_difference,
)

STEPS = 1000


def cell_of(folder=pathlib.Path('nowhere'), mode='async', num_envs=0, seed=0, milestones=(100,),
            until=math.nan):
    return Cell(pathlib.Path(folder), 'cartpole_swingup', mode, num_envs, seed,
                {'env_steps': STEPS}, milestones, until)


def result(mode, returns, num_envs=64, until=None, task='reach'):
    scores = {str(steps): {'return_mean': value, 'return_std': 1.0, 'episodes': 100,
                           'env_steps': steps} for steps, value in returns.items()}
    entry = {'task': task, 'mode': mode, 'num_envs': num_envs, 'returns': scores, 'until': until,
             'wall_clock_s': 10.0, 'env_steps_per_s': 100.0, 'policy_lag_mean': 1.0}
    return entry


def reached(seconds):
    return {'wall_clock_s': seconds} if seconds else None


@pytest.mark.parametrize('values, expected', [
    ([5.0], 5.0), ([1.0, 3.0], 2.0), ([0.0, 1.0, 2.0, 100.0], 1.5),
    # A quarter of each border value, and all of the middle one.
    ([0.0, 1.0, 5.0], (0.25 * 0.0 + 1.0 + 0.25 * 5.0) / 1.5),
    (list(range(100)), 49.5), ([7.0, -1000.0, 8.0, 9.0, 1000.0], (0.75 * 7 + 8 + 0.75 * 9) / 2.5)])
def test_interquartile_mean(values, expected):
    assert float(interquartile_mean(values)) == pytest.approx(expected)
    np.testing.assert_allclose(interquartile_mean([values, values[::-1]]), [expected] * 2)


def test_the_interval_of_the_iqm_holds_what_it_should():
    rng = np.random.default_rng(0)
    # Two tasks of different level: their difference is no uncertainty.
    groups = [rng.normal(10.0, 1.0, 40), rng.normal(20.0, 1.0, 40)]
    found = iqm_estimate(groups)
    assert found.low < found.value < found.high and found.high - found.low < 4.0
    assert found.value == pytest.approx(float(interquartile_mean(np.concatenate(groups))))
    pooled = iqm_estimate([np.concatenate(groups)])
    assert pooled.high - pooled.low > found.high - found.low
    assert iqm_estimate([[3.0]]) == (3.0, 3.0, 3.0)


def test_relative_difference_and_ratio_of_medians():
    rng = np.random.default_rng(1)
    ours, theirs = rng.normal(95.0, 5.0, 200), rng.normal(100.0, 5.0, 200)
    found = relative_difference((ours, theirs))
    assert found.low > -0.1 and found.low < -0.05 < found.high < 0.0
    # With a second pair of the opposite difference: about 0, and surer.
    other = (rng.normal(105.0, 5.0, 200), rng.normal(100.0, 5.0, 200))
    both = relative_difference((ours, theirs), other)
    assert both.value == pytest.approx(0.5 * (found.value + relative_difference(other).value))
    assert both.low < 0.0 < both.high and both.high - both.low < found.high - found.low
    ratio = median_ratio(rng.normal(30.0, 1.0, 50), rng.normal(10.0, 1.0, 50))
    assert ratio.low < 3.0 < ratio.high and ratio.high - ratio.low < 0.6


def test_modes_are_compared_where_there_are_both():
    results = [*(result('async', {100: value, STEPS: 10 * value}) for value in (9.5, 10.0, 10.5)),
               *(result('sync', {100: value, STEPS: 100.0}) for value in (12.9, 13.0, 13.1)),
               result('async', {STEPS: 5.0}, task='other')]
    early, end = learning.comparisons_of(results)
    assert (early['steps'], end['steps'], early['task']) == (100, STEPS, 'reach')
    assert early['difference'][0] == pytest.approx(10.0 / 13.0 - 1.0)
    assert not early['check']['passed']
    assert end['difference'][0] == pytest.approx(0.0) and end['check']['passed']
    # With a second task: the mean of both, where both were scored.
    *_, mean = learning.comparisons_of(results + [result('sync', {STEPS: 4.0}, task='other')])
    assert mean['steps'] == STEPS and mean['difference'][0] == pytest.approx(0.5 * (0.0 + 0.25))
    assert mean['name'] == f'mean of the 2 above at {STEPS:,}' and mean['check']['passed']
    # No share can be told of a return below 0.
    negative = [result(mode, {STEPS: -5.0}) for mode in ('async', 'sync')]
    assert learning.comparisons_of(negative) == []


def test_speedup_only_where_all_got_there():
    def arm(num_envs, *seconds):
        return [result('async', {STEPS: 1.0}, num_envs, reached(value)) for value in seconds]

    speedup, = learning.speedups_of([*arm(1, 12.0, 10.0, 14.0), *arm(8, 3.0, 4.0, 5.0)])
    assert (speedup['num_envs'], speedup['against'], speedup['speedup'][0]) == (8, 1, 3.0)
    assert learning.speedups_of([*arm(1, 12.0, None), *arm(8, 3.0, 4.0)]) == []
    assert learning.speedups_of([*arm(1, 12.0, 11.0), *arm(8, 3.0, None)]) == []


def test_rows_and_text():
    results = [result('async', {100: value, STEPS: value + 1.0}, until=reached(seconds))
               for value, seconds in ((1.0, 2.0), (3.0, None))]
    results[0]['until']['env_steps'] = 50
    rows = {entry['name']: entry for entry in learning.rows_of({'reach async': results})}
    at_end = rows['reach async return at 1000']
    assert (at_end['mean'], at_end['values']) == (3.0, [2.0, 4.0])
    assert at_end['std'] == pytest.approx(2.0 ** 0.5)
    assert rows['reach async until']['reached'] == 1 and rows['reach async until']['seeds'] == 2
    text = learning.text_of({'reach async': results}, [], [])
    assert '| reach async | 2 | 2 ± 1 (2) | 3 ± 1 (3) | 2, 4 |' in text
    assert '1 of 2 got there' in text


def test_a_run_without_a_milestone_is_told_of_by_the_others():
    results = [result('sync', {100: 1.0, STEPS: 2.0}), result('sync', {STEPS: 3.0})]
    assert learning.steps_of(results) == [STEPS]


def test_jobs_keep_the_policies_that_are_scored():
    cell = cell_of(num_envs=8, until=400.0)
    settings = cell.job().settings
    assert {100, 10, 990} <= set(settings['learner.milestones'])
    assert (settings['actor.num_envs'], settings['num_actors']) == (8, 1)
    words = cell.job().command()
    assert words[words.index('--transport.address') + 1].startswith('tcp://127.0.0.1:')
    plain = cell_of(mode='sync', milestones=()).job()
    assert plain.settings['learner.milestones'] == (0,) and plain.verb == 'train-local'
    assert '--transport.address' not in plain.command()
    assert cell_of(num_envs=1).run.folder.name == 'cartpole_swingup-async-1envs-0'
    assert cell_of(num_envs=1).arm == 'cartpole_swingup async 1 env'


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Give a cell whose run has policies and metrics, and scores by the policy's transitions."""
    monkeypatch.setattr(learning_runs, 'score_artefact', lambda artefact, episodes, seed, stop: {
        'return_mean': float(artefact.card['env_steps']), 'return_std': 0.0, 'success': None,
        'length_mean': 1.0, 'episodes': episodes, 'env_steps': artefact.card['env_steps']})
    cell = cell_of(tmp_path, until=400.0)
    run = cell.run
    run.policies.mkdir(parents=True)
    learner = Learner(Config(), TASK, 3, 2, 1)
    rows = []
    for steps in (128, 384, 512, 1024):
        learner.update([random_chunk(steps)])
        learner.env_steps = steps
        data = learner.snapshot().data
        run.policies.joinpath(f'milestone-{steps // 10 * 10}.safetensors').write_bytes(data)
        rows.append({'env_steps': steps, 'time_s': steps / 100, 'generation': 0,
                     'gradient_steps': 1, 'policy_lag_mean': 1.0, 'policy_lag_max': 2.0})
    run.policies.joinpath('milestone-100.safetensors').write_bytes(
        run.policies.joinpath('milestone-120.safetensors').read_bytes())
    run.policy_file.write_bytes(data)
    run.metrics_file.write_text(''.join(json.dumps(row) + '\n' for row in rows))
    return cell, learner


def test_policies_are_scored_once_and_the_time_is_that_of_the_policy(trained):
    cell, _ = trained
    score(cell, StopRequest())
    found = outcome(cell)
    lines = cell.run.evaluations_file.read_text()
    score(cell, StopRequest())
    assert cell.run.evaluations_file.read_text() == lines
    assert {steps: entry['env_steps'] for steps, entry in found['returns'].items()} == {
        '100': 128, '1000': 1024}
    # 384 was not enough; the first above 400 had 512 transitions, after 5.12 s.
    assert (found['until']['env_steps'], found['until']['wall_clock_s']) == (512, 5.12)
    assert (found['env_steps'], found['wall_clock_s']) == (1024, 10.24)


def test_a_run_that_ended_before_its_score_is_not_trained_again(trained):
    cell, learner = trained
    assert not is_trained(cell)
    save_checkpoint(cell.run.checkpoint, learner)
    assert is_trained(cell)
    learner.env_steps = 512
    save_checkpoint(cell.run.checkpoint, learner)
    assert not is_trained(cell)


def test_curves_meet_where_all_of_them_reach():
    x, y = at_equal_steps([(np.array([0.0, 10.0]), np.array([0.0, 10.0])),
                           (np.array([2.0, 8.0]), np.array([5.0, 5.0]))], points=4)
    assert x.tolist() == [2.0, 4.0, 6.0, 8.0]
    assert y.tolist() == [[2.0, 4.0, 6.0, 8.0], [5.0] * 4]


@pytest.mark.parametrize('arguments, message', [
    (['--learner.milestones', '5'], '--learner.milestones: is given to this bench as --milest'),
    (['--workers', '0'], '--workers 0: must be at least 1'),
    (['--milestones', '-5'], '--milestones -5: must be at least 1'),
    (['--num_envs', '1', '8', '--num_actors', '4'], '--actor.num_envs, --num_actors: exclude')])
def test_refused(arguments, message):
    with pytest.raises(ConfigError) as error:
        learning.main(arguments, StopRequest())
    assert str(error.value).startswith(message)

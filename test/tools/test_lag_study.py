"""The lag study: its grid, what is repeated, and what it makes of runs that are made up here."""

import json
import math

import numpy as np
import pytest

from asyncppo_ros.errors import ConfigError
from asyncppo_ros.learning.checkpoint import read_state
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.run import resolve, Run
from asyncppo_ros.settings import to_dict, write_yaml
from asyncppo_ros.tools import lag_study
from asyncppo_ros.tools.bench.uncertainty import Estimate, relative_iqm
from asyncppo_ros.tools.jobs import Ended
from asyncppo_ros.tools.lag_grid import ARMS, Cell, cells_of, FIXED, Lag, PLAIN
from asyncppo_ros.tools.lag_plots import curve_of, draw_curves, draw_returns
from asyncppo_ros.tools.lag_results import (
    as_rows,
    DETAILS,
    holds_to,
    markdown,
    mean_return,
    Outcome,
    outcome_of,
    reading,
    Study,
    thinned,
    verdict,
)

TASK = 'cartpole_swingup'
LAGS = [Lag('versions', amount) for amount in (0, 2, 8)]
PNG = b'\x89PNG'


def outcome(arm, lag, value, seed=0, dropped=0, task=TASK):
    """Make up a run that reached `value`."""
    cell = Cell(task, arm, lag)
    return Outcome(cell, seed, {
        'task': task, 'arm': arm, 'lag_kind': lag.kind, 'lag': lag.amount, 'seed': seed,
        'return_mean': value, 'return_std': 1.0, 'training_return_mean': value / 2.0,
        'transitions_produced': 1000, 'transitions_dropped': dropped,
        **{name: 0.25 for name, _, _ in DETAILS},
        'curve': [(0.0, 0.0), (500.0, value), (1000.0, value)]})


def outcomes(arm, means, kind='versions', dropped=0):
    """Make up three runs at each lag, 1 % apart."""
    return [outcome(arm, Lag('versions' if lag == 0 else kind, lag), mean * (1.0 + 0.01 * seed),
                    seed, dropped) for lag, mean in means.items() for seed in (-1, 0, 1)]


@pytest.fixture
def study():
    """Give a study in which every arm has another fate."""
    return Study([
        *outcomes('clipped', {0: 1000.0, 2: 980.0, 8: 100.0, 32: 50.0}),
        *outcomes('clipped', {16: 300.0}, 'spread'),
        *outcomes('decoupled', {0: 1000.0, 2: 1010.0, 8: 990.0, 32: 980.0}),
        *outcomes('decoupled', {10: 1000.0, 50: 990.0, 100: 200.0}, 'gradient_steps'),
        *outcomes('vtrace', {2: 1000.0, 8: 1000.0}),
        *outcomes('max_lag_drop', {0: 1000.0}),
        *outcomes('max_lag_drop', {16: 600.0}, 'spread', dropped=470),
        *outcomes('misread_dual_clip', {0: 20.0, 2: 20.0, 8: 20.0, 32: 20.0})])


def test_exact_lags_leave_the_drop_nothing():
    lags = [*LAGS, Lag('gradient_steps', 10), Lag('spread', 16)]
    cells = list(cells_of([TASK, 'reach'], list(ARMS), lags))
    assert len(cells) == len(set(cells)) == 2 * (6 * 5 + 2)
    assert {cell.lag for cell in cells if cell.arm == 'max_lag_drop'} == {lags[0], lags[-1]}
    # Neighbours are different tasks.
    assert cells[0][1:] == cells[1][1:] and cells[0].task != cells[1].task
    # Without lag it is what `clipped` is, and is trained once.
    assert (Cell(TASK, 'max_lag_drop', LAGS[0]).run_name(3)
            == Cell(TASK, 'clipped', LAGS[0]).run_name(3) == f'{TASK}-clipped-versions0-seed3')


def test_every_arm_changes_what_it_says_and_nothing_else():
    def settings(arm, lag):
        return to_dict(resolve(Cell(TASK, arm, lag).settings(0, {'learner.discount': 0.5})))

    lag = Lag('spread', 16)
    plain = settings('clipped', lag)
    assert {name: plain[name] for name in PLAIN} == PLAIN
    assert plain['learner.discount'] == 0.5 and plain['injected_lag.spread'] == 16
    assert plain['learner.max_policy_lag'] >= 10_000
    for arm, (changed, _) in ARMS.items():
        found = {name: value for name, value in settings(arm, lag).items()
                 if value != plain[name]}
        assert found == (changed or ({'learner.max_policy_lag': 8} if arm != 'clipped' else {}))
        assert len(found) <= 1 or arm == 'decoupled_dual_clip'
        assert set(changed) <= set(FIXED)
    assert settings('max_lag_drop', LAGS[0]) == settings('clipped', LAGS[0])


def test_what_a_run_tells(tmp_path):
    run = Run(tmp_path / 'run')
    run.folder.mkdir()
    rows = [{'transitions_produced': 100.0 * (k + 1), 'transitions_dropped': 10.0 * k,
             'return_mean': None if k == 0 else 10.0 * k, 'policy_lag_mean': k,
             'policy_lag_max': k, 'kl': 0.5, 'policy_version': k + 1, 'gradient_steps': 4 * k,
             'time_s': 2.0 * k} for k in range(101)]
    run.metrics_file.write_text(''.join(json.dumps(row) + '\n' for row in rows))
    finals = [{'return_mean': 1.0, 'return_std': 0.0, 'episodes': 5},
              {'return_mean': 7.0, 'return_std': 2.0, 'episodes': 50, 'final': True}]
    run.evaluations_file.write_text(''.join(json.dumps(entry) + '\n' for entry in finals))
    found = outcome_of(Cell(TASK, 'clipped', LAGS[1]), 4, run).value
    assert (found['return_mean'], found['episodes'], found['seed']) == (7.0, 50, 4)
    # From 10 to 1000 in equal steps.
    assert found['training_return_mean'] == pytest.approx(505.0)
    assert found['training_return_last'] == 1000.0 and found['policy_lag_mean'] == 50.0
    assert found['transitions_dropped'] == 1000.0 and found['kl'] == 0.5
    assert math.isnan(found['explained_variance'])
    assert len(found['curve']) <= 60
    assert found['curve'][0] == (200.0, 10.0) and found['curve'][-1] == (10_100.0, 1000.0)


def test_the_mean_return_is_the_area_under_the_curve():
    rows = [{'transitions_produced': at, 'return_mean': value}
            for at, value in ((0, 0.0), (10, 10.0), (40, 10.0))]
    assert mean_return(rows) == pytest.approx((50.0 + 300.0) / 40.0)
    assert math.isnan(mean_return([])) and mean_return(rows[1:2]) == 10.0
    assert thinned([(k, k) for k in range(5)], 9) == [(k, k) for k in range(5)]
    assert thinned([(k, k) for k in range(101)], 3) == [(0, 0), (50, 50), (100, 100)]


def test_relative_change():
    change = relative_iqm([50.0] * 3, [100.0] * 3)
    assert change == (-0.5, -0.5, -0.5)
    # A return below 0 that falls is a loss, too.
    assert relative_iqm([-150.0] * 3, [-100.0] * 3).value == pytest.approx(-0.5)
    assert relative_iqm([1.0, 2.0], [0.0, 0.0]) is None
    wide = relative_iqm([50.0, 90.0, 130.0], [80.0, 100.0, 120.0])
    assert wide.value == pytest.approx(-0.1) and wide.low < wide.value < wide.high


@pytest.mark.parametrize('low, high, expected', [
    (-0.1, 0.2, 'holds'), (-0.101, 0.2, 'open'), (-0.5, -0.1, 'open'), (-0.5, -0.11, 'loses'),
    (0.1, 0.2, 'holds'), (math.nan, math.nan, 'open')])
def test_verdict(low, high, expected):
    assert verdict(Estimate(0.0, low, high)) == expected


def test_an_arm_holds_up_to_the_first_lag_at_which_it_does_not():
    good, bad = Estimate(0.0, -0.05, 0.05), Estimate(-0.5, -0.6, -0.4)
    assert holds_to([(2, good), (8, good), (32, good)]) == 32
    assert holds_to([(2, good), (8, bad), (32, good)]) == 2
    assert holds_to([(2, bad), (8, good)]) == holds_to([]) == holds_to([(2, None)]) == 0


def test_the_reading_says_what_the_runs_say(study):
    text = reading(study)
    assert f'On {TASK} (3 seeds a cell):' in text
    assert '`clipped` holds to lag 2, loses -90 % [-90, -90] at 8 and -95 % ' in text
    assert '`decoupled` holds to lag 32' in text
    assert '`vtrace` was not trained without lag, so nothing can be said of it' in text
    assert '`misread_dual_clip` learns less already without lag (-98 % [-98, -98]' in text
    assert 'At lag 32 the highest return is that of `decoupled`: 980 [970, 990]' in text
    assert 'may be chance' not in text
    assert 'In gradient steps, each holds to: `decoupled` 50.' in text
    assert 'At spread 16, dropping what is older than 8 costs 47 % of the simulation and gains ' \
           '(+100 % ' in text


def test_the_reading_of_what_is_not_sure():
    wide = [outcome('clipped', lag, value, seed) for lag, values in (
        (LAGS[0], (80.0, 100.0, 120.0)), (LAGS[1], (70.0, 95.0, 130.0)))
        for seed, value in enumerate(values)]
    assert '`clipped` is not shown to hold, undecided at 2' in reading(Study(wide))
    # One run does not tell how far another would lie from it.
    single = Study([outcome('clipped', LAGS[0], 100.0), outcome('clipped', LAGS[1], 100.0),
                    outcome('decoupled', LAGS[1], 101.0)])
    text = reading(single)
    assert '(1 seed a cell)' in text and 'undecided at 2' in text and 'may be chance' in text
    assert '100 [-, -] (+0 %)' in markdown(single)


def test_tables_and_rows(study):
    text = markdown(study)
    assert '| arm | no lag | lag 2 | lag 8 | lag 32 | holds to |' in text
    assert '| `clipped` | 1,000 [990, 1,010] | 980 [970, 990] (-2 %) | 100 [99.0, 101] (-90 %) ' \
           '| 50.0 [49.5, 50.5] (-95 %) | 2 |' in text
    assert '| `vtrace` | - | 1,000 [990, 1,010] | 1,000 [990, 1,010] | - | - |' in text
    assert '| arm | no lag | spread 16 | holds to |' in text
    assert 'return in % of 1,000, which `clipped` reaches without lag' in text
    assert '| `clipped` | 100 | 98 [96, 100] | 10 [10, 10] | 5 [5, 5] | 2 |' in text
    assert '| `max_lag_drop` | spread 16 | 3 | 300 [297, 303] |' in text and '| 47 |' in text
    rows = as_rows(study)
    assert len(rows) == len(study.outcomes)
    drop = next(row for row in rows if (row['arm'], row['lag']) == ('max_lag_drop', 16))
    assert drop['against_same_lag']['value'] == pytest.approx(1.0)
    assert drop['change']['value'] == pytest.approx(-0.4) and drop['dropped'] == 0.47


def test_curves_are_compared_at_the_same_points():
    x, returns = curve_of([{'curve': [(0, 0.0), (100, 100.0)]},
                           {'curve': [(50, 0.0), (90, 0.0), (150, 60.0)]}, {'curve': []}])
    assert (x[0], x[-1]) == (50, 100) and returns.shape == (2, len(x))
    np.testing.assert_allclose(returns[0], x)
    assert returns[1, -1] == pytest.approx(10.0)


def test_plots(study):
    pytest.importorskip('matplotlib')
    assert draw_returns(study).startswith(PNG)
    # One cell with several seeds, one with a single one.
    few = Study([*outcomes('clipped', {2: 80.0}), outcome('clipped', LAGS[0], 100.0)])
    assert draw_curves(few).startswith(PNG)


class Trainings:
    """Stands for `run_jobs`: a training ends at once, and its return is 100 less its lag."""

    def __init__(self, broken=()):
        self.begun = []
        self.broken = broken

    def __call__(self, jobs, workers, stop):
        for job in jobs:
            self.begun.append(job.run.folder.name)
            assert not job.run.folder.exists()
            job.run.folder.mkdir()
            job.log.write_text('reason\n')
            if job.run.folder.name in self.broken:
                yield Ended(job, 1, False)
                continue
            config = resolve(job.settings)
            write_yaml(config, job.run.config_file, 'made up')
            lag = config.injected_lag.versions
            rows = [{'transitions_produced': at, 'transitions_dropped': 0, 'policy_version': at,
                     'gradient_steps': at, 'time_s': 1.0, 'return_mean': 100.0 - lag,
                     'policy_lag_max': lag, 'policy_lag_mean': lag} for at in (1, 2)]
            job.run.metrics_file.write_text(''.join(json.dumps(row) + '\n' for row in rows))
            job.run.evaluations_file.write_text(json.dumps(
                {'return_mean': 100.0 - lag + config.seed, 'return_std': 0.0, 'episodes': 1,
                 'final': True}) + '\n')
            yield Ended(job, 0, False)


@pytest.fixture
def trainings(monkeypatch):
    fake = Trainings()
    monkeypatch.setattr(lag_study, 'run_jobs', fake)
    for name in ('draw_returns', 'draw_curves'):
        monkeypatch.setattr(lag_study, name, lambda study: PNG * 50)
    return fake


def start(folder, *more, lags=('0', '2'), seeds=('0', '1')):
    return lag_study.main(['--tasks', TASK, '--arms', 'clipped', 'max_lag_drop', '--lags', *lags,
                           '--seeds', *seeds, '--folder', str(folder), *more], StopRequest())


def test_what_is_finished_is_not_trained_again(trainings, tmp_path, capsys):
    assert start(tmp_path, seeds=('0',)) == 0
    names = [f'{TASK}-clipped-versions{lag}-seed{seed}' for seed in (0, 1) for lag in (0, 2)]
    # The arm that drops has no run of its own without lag.
    assert trainings.begun == names[:2]
    assert '2 of 2 runs, 0:00 left' in capsys.readouterr().err
    assert start(tmp_path, '--json') == 0
    assert trainings.begun == names
    result = json.loads(capsys.readouterr().out)
    assert {'machine', 'versions', 'settings', 'rows', 'runs', 'reading', 'arms'} <= set(result)
    assert result['unfinished'] == [] and len(result['runs']) == 6
    assert result['command'] == ['asyncppo', 'lag-study', '--tasks', TASK, '--arms', 'clipped',
                                 'max_lag_drop', '--lags', '0', '2', '--seeds', '0', '1', '--json']
    assert {row['arm'] for row in result['rows'] if row['lag'] == 0} == {'clipped',
                                                                         'max_lag_drop'}
    assert start(tmp_path) == 0 and trainings.begun == names
    assert start(tmp_path, lags=('0', '2', '8')) == 0
    assert trainings.begun[4:] == [f'{TASK}-clipped-versions8-seed{seed}' for seed in (0, 1)]
    for name in ('lag-study.json', 'lag-study.md', 'lag-study.png', 'lag-study-curves.png'):
        assert (tmp_path / name).stat().st_size > 100
    assert '`clipped`' in (tmp_path / 'lag-study.md').read_text()


def test_what_was_begun_is_begun_again(trainings, tmp_path):
    half = Run(tmp_path / f'{TASK}-clipped-versions2-seed0')
    (half.checkpoint).mkdir(parents=True)
    (half.checkpoint / 'checkpoint.safetensors').write_bytes(b'old')
    start(tmp_path, seeds=('0',))
    assert len(trainings.begun) == 2 and not half.checkpoint.exists()


def test_a_failure_ends_nothing_and_is_told(trainings, tmp_path, capsys):
    trainings.broken = (f'{TASK}-clipped-versions2-seed0',)
    assert start(tmp_path) == 1
    assert len(trainings.begun) == 4
    output = capsys.readouterr()
    assert f'{trainings.broken[0]} failed: reason' in output.err
    assert output.out.startswith('1 runs are not finished.')
    trainings.broken = ()
    assert start(tmp_path) == 0 and len(trainings.begun) == 5


def test_runs_of_other_settings_are_not_mixed_in(trainings, tmp_path):
    start(tmp_path, seeds=('0',))
    with pytest.raises(ConfigError, match='was trained with learner.batch_size = 1024, now it is '
                                          '4096; choose another --folder'):
        start(tmp_path, '--learner.batch_size', '4096')
    assert len(trainings.begun) == 2


@pytest.mark.parametrize('arguments, text', [
    (['--learner.ppo.objective', 'clipped'], '--learner.ppo.objective: is chosen by the study'),
    (['--injected_lag.versions', '3'], '--injected_lag.versions: is chosen by the study'),
    (['--lags', '-1'], '--lags -1: must be in'), (['--spreads', '0'], '--spreads 0: must be in'),
    (['--workers', '0'], '--workers 0: must be in'), (['--arms', 'clip'], 'clip'),
    (['--lags'], 'there is no lag'),
    (['--tasks', 'no_such:Task', '--learner.discount', '2'], 'learner.discount = 2.0'),
])
def test_mistakes(arguments, text, tmp_path, trainings):
    with pytest.raises(ConfigError) as error:
        lag_study.main([*arguments, '--folder', str(tmp_path / 'study')], StopRequest())
    assert text in str(error.value) and '\n' not in str(error.value)
    assert not (tmp_path / 'study').exists() and not trainings.begun


def test_help_names_every_arm(capsys):
    with pytest.raises(SystemExit) as ended:
        lag_study.main(['--help'], StopRequest())
    text = capsys.readouterr().out
    assert ended.value.code == 0 and all(arm.what in text for arm in ARMS.values())


def test_a_real_run_is_scored(tmp_path, capsys):
    small = {'env_steps': 1024, 'actor.num_envs': 4, 'actor.chunk_length': 16,
             'learner.batch_size': 128, 'learner.ppo.epochs': 1,
             'learner.ppo.minibatch_size': 64, 'evaluation.final_episodes': 2}
    options = [text for name, value in small.items() for text in (f'--{name}', str(value))]
    code = lag_study.main(
        ['--tasks', TASK, '--arms', 'max_lag_drop', '--lags', '--spreads', '4', '--seeds', '0',
         '--folder', str(tmp_path), '--json', *options], StopRequest())
    output = capsys.readouterr()
    assert code == 0, output.err
    run, = json.loads(output.out)['runs']
    assert run['policy_lag_max'] <= 2 and run['transitions_dropped'] > 0
    assert 1024 <= run['transitions_produced'] + 128 < 1024 + 2 * 128
    assert run['episodes'] == 2
    # A run that is continued goes on counting.
    folder, = (path for path in tmp_path.iterdir() if path.is_dir() and not path.is_symlink())
    chunks, transitions = read_state(Run(folder).checkpoint)['extra']['dropped']
    assert transitions == run['transitions_dropped'] == chunks * 64

"""`asyncppo bench drift`: whether a training becomes slower, beside bare loops in its pauses."""

import json
import math

from harness import asyncppo, SMALL
import numpy as np
import pytest

from asyncppo_ros.config import Config
from asyncppo_ros.settings import build
from asyncppo_ros.tools.bench.bare_cores import BareRates
from asyncppo_ros.tools.bench.drift import checks_of, falls_of, Pause, rows_of, windows_of
from asyncppo_ros.tools.bench.watched import Seen

EVERY_S, PAUSE_S, STEP_S = 20.0, 2.0, 0.5


def made_up(rate_at, bare_at=lambda minute: 40_000.0, newest_at=None, count=30):
    """Give rows and pauses of a training; a function gives the rate at a minute of training."""
    seen, pauses, clock, going, steps, row_in = [], [], 100.0, 0.0, 0.0, 0.0
    for number in range(count + 1):
        bare = bare_at(going / 60.0)
        pauses.append(Pause(clock, clock + PAUSE_S, BareRates(
            bare, newest_at(going / 60.0) if newest_at else bare), 2.0 * going))
        clock += PAUSE_S
        end = going + EVERY_S
        while going < end - 1e-9:
            # Updates do not end where pauses begin.
            piece = min(STEP_S - row_in, end - going)
            steps += piece * rate_at(going / 60.0)
            clock, going, row_in = clock + piece, going + piece, row_in + piece
            if row_in >= STEP_S - 1e-9:
                seen.append(Seen(clock, round(steps), {'actors': 2}))
                row_in = 0.0
        if number == 0:
            row_in = 0.3
    return seen, pauses


def ratio_fall(seen, pauses, bare='mj_step'):
    return falls_of(windows_of(seen, pauses))[f'training / {bare}']


def noisy(rate_at, share=0.03, seed=1):
    rng = np.random.default_rng(seed)
    return lambda minute: rate_at(minute) * (1.0 + share * rng.standard_normal())


def test_pauses_take_no_time():
    """The rate is that of the training while it goes on, also for updates across a pause."""
    windows = windows_of(*made_up(lambda minute: 8_000.0, count=5))
    assert len(windows) == 5
    # The first row tells nothing of what was before it.
    for window in windows[1:]:
        assert window['env_steps_per_s'] == pytest.approx(8_000.0, rel=1e-6)
    assert [window['minute'] for window in windows] == pytest.approx(
        [(number + 0.5) / 3.0 for number in range(5)])
    assert all(window['cores'] == pytest.approx(2.0) for window in windows)


def test_a_training_that_slows_down_falls():
    # From 8,000 to 7,200 over ten minutes.
    fall = ratio_fall(*made_up(noisy(lambda minute: 8_000.0 * (1.0 - 0.01 * minute))))
    assert fall.value == pytest.approx(0.1, abs=0.02) and fall.low > 0.05
    assert fall.low < fall.value < fall.high


def test_a_training_that_stays_does_not_fall():
    fall = ratio_fall(*made_up(noisy(lambda minute: 8_000.0)))
    assert abs(fall.value) < 0.03 and fall.low < 0.0 < fall.high


def test_a_training_that_becomes_faster_falls_by_less_than_nothing():
    assert ratio_fall(*made_up(lambda minute: 8_000.0 + 80.0 * minute)).value < -0.08


def test_a_machine_that_slows_down_is_no_fall():
    def speed(minute):
        return 1.0 - 0.03 * minute + 0.1 * math.sin(minute)

    seen, pauses = made_up(lambda minute: 8_000.0 * speed(minute),
                           lambda minute: 40_000.0 * speed(minute))
    falls = falls_of(windows_of(seen, pauses))
    assert falls['training'].value > 0.2 and falls['mj_step'].value > 0.2
    assert abs(falls['training / mj_step'].value) < 0.02


def test_a_machine_that_becomes_faster_hides_no_fall():
    seen, pauses = made_up(lambda minute: 8_000.0, lambda minute: 40_000.0 * 1.02 ** minute)
    falls = falls_of(windows_of(seen, pauses))
    assert abs(falls['training'].value) < 0.01
    assert falls['training / mj_step'].value == pytest.approx(1.0 - 1.02 ** (-29 / 3), abs=0.01)


def test_states_of_a_policy_that_learns_are_told_apart():
    seen, pauses = made_up(lambda minute: 8_000.0,
                           newest_at=lambda minute: 40_000.0 * 1.01 ** minute)
    assert abs(ratio_fall(seen, pauses).value) < 0.01
    assert ratio_fall(seen, pauses, "mj_step on the newest policy's states").value > 0.08


def checks_for(seen, pauses, **settings):
    config = build(Config, {'num_actors': 2, **settings})
    found = checks_of(falls_of(windows_of(seen, pauses)), seen, pauses, config)
    return {entry['name']: entry['passed'] for entry in found}


def test_the_checks():
    good = made_up(lambda minute: 8_000.0)
    assert all(checks_for(*good).values())
    falls = checks_for(*made_up(lambda minute: 8_000.0 - 60.0 * minute))
    assert falls == {'fall of the normalized rate': False, 'fewest actors': True,
                     'longest pause [s]': True}
    seen, pauses = good
    seen[50] = seen[50]._replace(row={'actors': 1})
    assert checks_for(seen, pauses)['fewest actors'] is False
    # What is there at the end, when all is stopped, does not count.
    assert checks_for(seen[:50] + seen[51:] + [Seen(1e6, 0, {'actors': 0})], pauses)[
        'fewest actors']
    assert not checks_for(*good, **{'transport.heartbeat_timeout_s': 2.0})['longest pause [s]']


def test_the_rows_have_both_ratios():
    rows = rows_of(windows_of(*made_up(lambda minute: 8_000.0,
                                       newest_at=lambda minute: 50_000.0)))
    ratios = {entry['name']: entry['ratio'] for entry in rows if 'ratio' in entry}
    assert ratios['training / mj_step'] == pytest.approx(0.2)
    assert ratios["training / mj_step on the newest policy's states"] == pytest.approx(0.16)


@pytest.mark.slow
def test_a_short_run():
    settings = [text for name, value in {**SMALL, 'num_actors': 1, 'evaluation.every_seconds': 60,
                                         'transport.heartbeat_timeout_s': 10}.items()
                for text in (f'--{name}', str(value))]
    result = asyncppo('bench', 'drift', '--task', 'cartpole_swingup', '--minutes', 0.025,
                      '--every', 0.5, '--pause', 0.05, '--json', *settings, timeout=280)
    # How the rates go depends on the machine.
    assert result.returncode in (0, 1), result.stderr
    found = json.loads(result.stdout)
    assert len(found['windows']) == 3 and '2 of 3' in result.stderr
    assert all(window['bare'] > 0.0 and window['bare_newest'] > 0.0 and window['cores'] > 0.0
               for window in found['windows'])
    assert sum(window['env_steps_per_s'] for window in found['windows']) > 0.0
    checks = {entry['name']: entry for entry in found['checks']}
    assert checks['fewest actors']['passed']
    assert (result.returncode == 0) == all(entry['passed'] for entry in found['checks'])


@pytest.mark.parametrize(('arguments', 'text'), [
    (('--minutes', 0.1, '--every', 20), '--minutes 0.1 --every 20'),
    (('--pause', 5), '--pause 5: must be more than 0 and at most 2.5 s'),
    (('--task', 'gymnasium:CartPole-v1'), 'gymnasium:CartPole-v1')])
def test_mistakes(arguments, text):
    result = asyncppo('bench', 'drift', *arguments, timeout=280)
    assert result.returncode == 2, result.stderr
    assert text in result.stderr and len(result.stderr.splitlines()) == 1

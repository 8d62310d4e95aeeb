"""`asyncppo train` starts again what died, within limits, and says so."""

import os
import signal
import sys
import time

import pytest

from asyncppo_ros.nodes import restarts
from asyncppo_ros.tools import train


@pytest.fixture
def make_child(tmp_path, monkeypatch):
    monkeypatch.setattr(restarts, 'FIRST_PAUSE_S', 0.01)
    children = []

    def make(name, code):
        child = train._Child(name, [], tmp_path)
        child._command = [sys.executable, '-c', code]
        child.start()
        children.append(child)
        return child

    yield make
    for child in children:
        child.wait(0.0)


def tend_until(child, condition, timeout=20.0):
    told, deadline = [], time.monotonic() + timeout
    while not condition() and time.monotonic() < deadline:
        text = child.tend(time.monotonic())
        told += [text] if text else []
        time.sleep(0.01)
    assert condition(), told
    return told


def test_a_learner_that_is_killed_is_started_again(make_child):
    child = make_child('learner', 'import time; time.sleep(60)')
    first = child._process.pid
    os.kill(first, signal.SIGKILL)
    told = tend_until(child, lambda: child._process is not None and child._process.pid != first)
    assert told == [f'the learner died with signal SIGKILL: started again from the last '
                    f'checkpoint in 0.01 s ({child.log})']
    assert child.ended is None


def test_three_times_in_a_row_and_no_more(make_child):
    child = make_child('learner', 'raise SystemExit(1)')
    told = tend_until(child, lambda: child.ended is not None)
    assert child.ended == 1 and len(told) == 4
    assert told[-1] == ('the learner died with exit code 1, 4 times in a row: it is not started '
                        'again')


def test_a_death_after_a_healthy_time_counts_anew(make_child, monkeypatch):
    monkeypatch.setattr(restarts, 'HEALTHY_S', 0.0)
    child = make_child('evaluator', 'raise SystemExit(1)')
    told = []
    tend_until(child, lambda: told.append(child.tend(time.monotonic())) or len(
        [text for text in told if text]) > 5)
    assert child.ended is None


@pytest.mark.parametrize(('name', 'code'), [('learner', 0), ('learner', 2), ('evaluator', 2),
                                            ('supervisor', 1), ('supervisor', 2)])
def test_what_no_other_start_would_mend_is_the_end(make_child, name, code):
    child = make_child(name, f'raise SystemExit({code})')
    assert tend_until(child, lambda: child.ended is not None) == []
    assert child.ended == code

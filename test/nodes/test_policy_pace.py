"""When a control step is due, and how times are told; no ROS needed."""

import pytest

from asyncppo_ros.nodes.policy_pace import SimulatedPace, SteadyPace
from asyncppo_ros.nodes.policy_timing import Takeovers, Timing


class Robot:
    """Stands for what is measured: a stamp, and faults."""

    def __init__(self):
        self.stamp, self.wrong = 0.0, []

    def newest_stamp(self):
        return self.stamp

    def faults(self, now):
        return self.wrong


def test_steps_keep_to_their_times_whatever_each_takes():
    pace = SteadyPace(0.1)
    assert pace.until_due(5.0) == 0.0
    assert pace.step(5.0) == (0.0, False)
    assert pace.until_due(5.04) == pytest.approx(0.06)
    late, missed = pace.step(5.13)
    assert late == pytest.approx(0.03) and not missed
    # The next one is not later because of that.
    assert pace.until_due(5.13) == pytest.approx(0.07)


def test_steps_that_are_missed_are_left_out():
    pace = SteadyPace(0.1)
    pace.step(0.0)
    late, missed = pace.step(0.35)
    assert missed and late == pytest.approx(0.25)
    assert pace.until_due(0.35) == pytest.approx(0.05)


def test_a_hurried_step_is_no_missed_one():
    pace = SteadyPace(0.1)
    pace.step(0.0)
    pace.hurry()
    assert pace.until_due(0.01) < 0.0
    assert not pace.step(0.01)[1]
    assert pace.until_due(0.01) == pytest.approx(0.09)


@pytest.fixture
def simulated():
    clock, robot = [10.0], Robot()
    robot.stamp = 10.0
    pace = SimulatedPace(0.02, lambda: clock[0], robot, patience=0.05)
    assert pace.until_due(0.0) == 0.0
    pace.step(0.0)
    return pace, clock, robot


def test_a_step_in_simulated_time_waits_for_clock_and_state(simulated):
    pace, clock, robot = simulated
    assert pace.until_due(0.1) > 0.0
    clock[0] = 10.02
    assert pace.until_due(0.1) > 0.0, 'the state of that time has not come'
    robot.stamp = 10.02
    assert pace.until_due(0.1) == 0.0
    pace.step(0.1)
    assert pace.until_due(0.1) > 0.0
    # Sums of 0.02 are not quite what a clock of whole nanoseconds says.
    clock[0] = robot.stamp = 10.0399999999
    assert pace.until_due(0.2) == 0.0


def test_a_state_that_is_late_by_the_same_time_always_is_no_reason_to_wait(simulated):
    pace, clock, robot = simulated
    clock[0], robot.stamp = 10.02, 10.02 - 0.02
    pace.step(0.1)
    clock[0], robot.stamp = 10.04, 10.04 - 0.02
    assert pace.until_due(0.2) == 0.0


def test_a_step_whose_state_does_not_come_is_done_without_it(simulated):
    pace, clock, _ = simulated
    clock[0] = 10.02
    assert pace.until_due(0.10) > 0.0
    assert pace.until_due(0.12) > 0.0
    assert pace.until_due(0.16) == 0.0


def test_where_time_stands_still_nothing_is_due_but_a_trip(simulated):
    pace, _, robot = simulated
    assert pace.until_due(100.0) > 0.0
    robot.wrong = ['stale']
    assert pace.until_due(100.0) == 0.0


def test_time_that_goes_back_begins_anew(simulated):
    pace, clock, _ = simulated
    clock[0] = 1.0
    assert pace.until_due(0.1) == 0.0


def test_timing_tells_percentiles_and_counts():
    timing = Timing()
    assert timing.percentiles() == {} and timing.newest(5) == {}
    for step in range(1, 101):
        timing.add(0.001 * step, 0.002, 0.0, missed=step % 50 == 0)
    assert (timing.steps, timing.missed) == (100, 2)
    found = timing.percentiles()
    assert found['tick_to_publish_ms_max'] == pytest.approx(100.0)
    assert found['tick_to_publish_ms_p50'] == pytest.approx(50.5)
    assert timing.newest(1)['tick_to_publish_ms'] == pytest.approx(100.0)
    timing.begin()
    assert timing.steps == 0 and timing.newest(1) == {}


def test_a_takeover_is_from_the_arrival_to_the_first_step_that_asks_the_policy():
    takeovers = Takeovers()
    takeovers.used((1, 0), 9.0)  # that of the file
    assert takeovers.percentiles() == {}
    takeovers.handed_over((1, 1), 10.0, 10.002)
    for tick in (10.005, 10.015):
        takeovers.used((1, 1), tick)
    # The step had begun when the policy was ready, and still asked it.
    takeovers.used((1, 2), 10.020)
    takeovers.handed_over((1, 2), 10.019, 10.021)
    takeovers.handed_over((1, 3), 10.022, 10.023)  # a newer one came before a step asked it
    takeovers.used((1, 1), 10.025)  # gone back to: it did not come again
    found = takeovers.percentiles()
    assert found['policy_load_ms_p50'] == pytest.approx(2.0)
    assert found['policy_wait_ms_max'] == pytest.approx(3.0)
    assert found['policy_wait_ms_p50'] == pytest.approx(1.5)
    assert found['takeover_ms_max'] == pytest.approx(5.0)
    # Of those that were never asked only the newest are kept in mind.
    for version in range(4, 1000):
        takeovers.handed_over((1, version), 11.0, 11.0)
    takeovers.used((1, 5), 12.0)
    takeovers.used((1, 999), 12.0)
    assert takeovers.percentiles()['takeover_ms_max'] == pytest.approx(1000.0)
    assert len(takeovers._handed_over) < 1000

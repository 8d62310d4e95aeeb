"""The safety supervisor: every rule by itself, and thousands of random lives."""

import dataclasses
import math
import threading

import hypothesis
from hypothesis import strategies
import numpy as np
import pytest
from supervised import DT, LIFE, LIMITS, live, SETTINGS, Violation

from asyncppo_ros.errors import RobotError
from asyncppo_ros.robot.limits import Limits
from asyncppo_ros.robot.safety import Mode, SafetySettings, Supervisor

NAN, INF = math.nan, math.inf
ZERO = np.zeros(2)


def numbers(*values):
    return np.array(values, dtype=float)


def unlimited(**changes):
    return Limits(**{'joints': ('a', 'b'), 'low': numbers(-INF, -INF), 'high': numbers(INF, INF),
                     'rate': numbers(INF, INF), 'speed': numbers(INF, INF),
                     'effort': numbers(INF, INF), **changes})


def made(interface='position', limits=None, **settings):
    return Supervisor(limits or unlimited(), interface, DT, SafetySettings(
        **{'ramp_s': 0.0, 'damping': 0.5, **settings}))


def active(interface='position', limits=None, position=ZERO, **settings):
    supervisor = made(interface, limits, **settings)
    supervisor.activate(position)
    return supervisor


def tripped(supervisor, *reasons):
    assert supervisor.mode is Mode.TRIPPED
    assert all('\n' not in reason for reason in supervisor.reasons)
    return supervisor.reasons == list(reasons) if reasons else True


def test_inactive_it_says_nothing():
    supervisor = made()
    assert supervisor.mode is Mode.INACTIVE and not supervisor.speaks
    assert supervisor.tick(numbers(1, 1), ZERO) is None
    supervisor.activate(ZERO)
    assert supervisor.speaks and supervisor.tick(numbers(1, 1), ZERO) is not None
    supervisor.deactivate()
    assert supervisor.mode is Mode.INACTIVE and supervisor.tick(numbers(1, 1), ZERO) is None


@pytest.mark.parametrize('interface', ['position', 'velocity', 'effort'])
def test_a_target_within_the_limits_comes_out_bit_for_bit(interface):
    supervisor = active(interface)
    rng = np.random.default_rng(0)
    for _ in range(20):
        target = rng.normal(size=2)
        command = supervisor.tick(target, ZERO)
        np.testing.assert_array_equal(command, target)
        command[...] = 99.0
    assert supervisor.mode is Mode.RUNNING
    assert supervisor.clamped == supervisor.rate_limited == 0


def test_a_position_is_ramped_in_from_the_measured_pose():
    supervisor = active(position=numbers(1.0, -1.0), ramp_s=0.4)
    assert supervisor.mode is Mode.RAMPING
    commands = []
    for step in range(6):
        commands.append(supervisor.tick(numbers(2.0, 1.0), numbers(7.0, 7.0)).tolist())
        assert (supervisor.mode is Mode.RUNNING) == (step >= 4)
    np.testing.assert_allclose(commands, [
        [1.0, -1.0], [1.25, -0.5], [1.5, 0.0], [1.75, 0.5], [2.0, 1.0], [2.0, 1.0]])


@pytest.mark.parametrize('interface', ['velocity', 'effort'])
def test_a_velocity_or_effort_is_ramped_in_from_nothing(interface):
    supervisor = active(interface, position=numbers(1.0, -1.0), ramp_s=0.4)
    commands = [supervisor.tick(numbers(2.0, -4.0), ZERO).tolist() for _ in range(5)]
    np.testing.assert_allclose(
        commands, [[0.0, 0.0], [0.5, -1.0], [1.0, -2.0], [1.5, -3.0], [2.0, -4.0]])


def test_commands_stay_within_the_limits():
    limits = unlimited(low=numbers(-1.0, -INF), high=numbers(0.5, 2.0))
    supervisor = active(limits=limits)
    assert supervisor.tick(numbers(9.0, 9.0), ZERO).tolist() == [0.5, 2.0]
    assert supervisor.tick(numbers(-9.0, -9.0), ZERO).tolist() == [-1.0, -9.0]
    assert supervisor.tick(numbers(0.0, 0.0), ZERO).tolist() == [0.0, 0.0]
    assert supervisor.clamped == 2


def test_a_pose_beyond_the_limits_leads_to_no_command_beyond_them():
    limits = unlimited(low=numbers(-1.0, -1.0), high=numbers(1.0, 1.0), rate=numbers(1.0, INF))
    outside = numbers(3.0, -3.0)
    supervisor = active(limits=limits, position=outside, ramp_s=1.0)
    assert supervisor.tick(ZERO, outside).tolist() == [1.0, -1.0]
    supervisor.trip('e-stop')
    assert supervisor.tick(None, outside).tolist() == [1.0, -1.0]
    supervisor.reset_trip()
    supervisor.go_to_start(outside, numbers(0.9, 5.0))
    assert supervisor.tick(None, outside).tolist() == [pytest.approx(0.95), -0.95]


def test_commands_change_no_faster_than_the_rate_limit():
    supervisor = active(limits=unlimited(rate=numbers(2.0, INF)), position=numbers(1.0, 1.0))
    commands = [supervisor.tick(numbers(0.7, 5.0), ZERO).tolist() for _ in range(3)]
    np.testing.assert_allclose(commands, [[0.8, 5.0], [0.7, 5.0], [0.7, 5.0]])
    assert supervisor.rate_limited == 1 and supervisor.clamped == 0


CAUSES = {
    'stale': ({'faults': ['joint state: not heard', 'frozen']},
              ['joint state: not heard', 'frozen']),
    'stale, so no target': ({'faults': ['joint state: not heard'], 'target': None},
                            ['joint state: not heard']),
    'position is nan': ({'position': numbers(0.0, NAN)},
                        ["measured position of joint 'b' is nan"]),
    'position is inf': ({'position': numbers(-INF, NAN)},
                        ["measured position of joint 'a' is -inf"]),
    'tilt': ({'tilt': 1.21}, ['the base is tilted by 1.21 rad (deploy.max_tilt = 1.2)']),
    'tilt is nan': ({'tilt': NAN}, ['the base is tilted by nan rad (deploy.max_tilt = 1.2)']),
    'speed': ({'velocity': numbers(1.0, -5.5)},
              ["joint 'b' moves at 5.5 (limit 5; deploy.max_speed)"]),
    'speed is inf': ({'velocity': numbers(INF, NAN)},
                     ["joint 'a' moves at inf (limit inf; deploy.max_speed)"]),
    'target is nan': ({'target': numbers(NAN, 0.0)}, ["target of joint 'a' is nan"]),
    'target is inf': ({'target': numbers(0.0, INF)}, ["target of joint 'b' is inf"]),
    'no target': ({'target': None}, ['the policy gave no target']),
    'targets of others': ({'target': numbers(1.0)}, ['the policy gave 1 targets for 2 joints']),
}


@pytest.mark.parametrize('cause', CAUSES)
@pytest.mark.parametrize('ramp_s', [0.0, 10.0])
def test_whatever_is_wrong_trips(cause, ramp_s):
    wrong, reasons = CAUSES[cause]
    fine = {'target': numbers(0.1, 0.1), 'position': numbers(0.0, 0.2),
            'velocity': numbers(1.0, 4.9), 'tilt': 1.19, 'faults': []}
    supervisor = active(limits=unlimited(speed=numbers(INF, 5.0)), ramp_s=ramp_s)
    supervisor.tick(**fine)
    assert supervisor.mode in (Mode.RAMPING, Mode.RUNNING)
    assert supervisor.tick(**{**fine, **wrong}) is not None
    assert tripped(supervisor, *reasons)


def test_what_is_not_known_or_not_asked_does_not_trip():
    supervisor = active(max_tilt=0.0)
    supervisor.tick(ZERO, ZERO, numbers(NAN, NAN), 3.0)
    supervisor.tick(ZERO, ZERO, None, None)
    assert supervisor.mode is Mode.RUNNING


def test_missed_deadlines_in_a_row_trip():
    supervisor = active(max_deadline_misses=3)
    for _ in range(5):
        supervisor.missed_deadline()
        supervisor.missed_deadline()
        supervisor.met_deadline()
    assert supervisor.mode is Mode.RAMPING and supervisor.deadline_misses == 0
    for _ in range(3):
        supervisor.missed_deadline()
    assert tripped(supervisor, '3 control steps in a row were missed '
                               '(deploy.max_deadline_misses)')


def test_deadlines_count_only_while_commands_are_given():
    supervisor = made(max_deadline_misses=1)
    supervisor.missed_deadline()
    assert supervisor.mode is Mode.INACTIVE
    supervisor = active(max_deadline_misses=2)
    supervisor.missed_deadline()
    supervisor.deactivate()
    supervisor.activate(ZERO)
    supervisor.missed_deadline()
    assert supervisor.mode is Mode.RAMPING


def test_an_emergency_stop_is_latched_until_it_is_reset():
    supervisor = active()
    supervisor.tick(numbers(1.0, 1.0), ZERO)
    supervisor.trip('e-stop')
    for reason in ('e-stop', 'exception', 'e-stop'):
        supervisor.trip(reason)
        supervisor.tick(numbers(1.0, 1.0), ZERO)
    assert tripped(supervisor, 'e-stop', 'exception')
    for refused in (lambda: supervisor.activate(ZERO),
                    lambda: supervisor.go_to_start(ZERO, ZERO)):
        with pytest.raises(RobotError, match='^tripped: e-stop; reset the trip first$'):
            refused()
    supervisor.reset_trip()
    assert supervisor.mode is Mode.INACTIVE and not supervisor.reasons
    assert supervisor.tick(ZERO, ZERO) is None
    supervisor.activate(ZERO)
    assert supervisor.tick(numbers(1.0, 1.0), ZERO).tolist() == [1.0, 1.0]


def test_reasons_do_not_grow_for_ever():
    supervisor = active()
    for number in range(1000):
        supervisor.trip(f'reason {number}')
    assert supervisor.reasons[0] == 'reason 0' and len(supervisor.reasons) == 20


def test_tripped_it_holds_the_pose_measured_at_the_trip():
    supervisor = active()
    supervisor.tick(numbers(1.0, 1.0), numbers(0.4, 0.5))
    supervisor.trip('e-stop')
    assert supervisor.tick(numbers(1.0, 1.0), numbers(0.6, 0.7)).tolist() == [0.6, 0.7]
    # The arm sinks, and the targets go on: neither moves it.
    assert supervisor.tick(numbers(9.0, 9.0), numbers(0.1, 0.1)).tolist() == [0.6, 0.7]
    assert supervisor.tick(None, numbers(NAN, NAN)).tolist() == [0.6, 0.7]


def test_tripped_it_moves_to_that_pose_no_faster_than_the_rate_limit():
    supervisor = active(limits=unlimited(rate=numbers(10.0, 2.0)))
    for _ in range(10):
        supervisor.tick(numbers(1.0, 1.0), numbers(0.9, 0.5))
    commands = [supervisor.tick(numbers(1.0, 1.0), numbers(0.9, 0.5), faults=['stale']).tolist()
                for _ in range(4)]
    np.testing.assert_allclose(commands, [[0.9, 0.8], [0.9, 0.6], [0.9, 0.5], [0.9, 0.5]])


def test_a_joint_that_is_no_longer_measured_stays_where_it_was_last_told_to_be():
    supervisor = active()
    supervisor.tick(numbers(1.0, 1.0), numbers(0.4, 0.5))
    assert supervisor.tick(numbers(2.0, 2.0), numbers(NAN, 0.6)).tolist() == [1.0, 0.6]
    # It is measured again: that is no reason to move.
    assert supervisor.tick(None, numbers(0.9, 0.9)).tolist() == [1.0, 0.6]


def test_a_trip_before_the_first_step_holds_the_pose_of_the_activation():
    supervisor = active(position=numbers(0.3, 0.4))
    supervisor.trip('exception')
    assert supervisor.tick(None, numbers(NAN, NAN)).tolist() == [0.3, 0.4]


def test_tripped_velocities_are_zero_at_once():
    supervisor = active('velocity', unlimited(rate=numbers(0.1, 0.1)))
    supervisor.tick(numbers(1.0, 1.0), ZERO)
    assert supervisor.tick(numbers(NAN, 1.0), ZERO, numbers(3.0, 3.0)).tolist() == [0.0, 0.0]
    assert supervisor.tick(numbers(1.0, 1.0), ZERO, numbers(3.0, 3.0)).tolist() == [0.0, 0.0]


def test_tripped_efforts_damp():
    limits = unlimited(low=numbers(-1.0, -1.0), high=numbers(1.0, 1.0), rate=numbers(0.1, 0.1))
    supervisor = active('effort', limits)
    supervisor.trip('e-stop')
    for velocity, effort in (((1.0, -1.5), [-0.5, 0.75]), ((9.0, -9.0), [-1.0, 1.0]),
                             ((NAN, -INF), [0.0, 0.0])):
        assert supervisor.tick(numbers(1, 1), ZERO, numbers(*velocity)).tolist() == effort
    assert supervisor.tick(numbers(1, 1), ZERO, None).tolist() == [0.0, 0.0]


def test_a_trip_while_inactive_is_latched_and_silent():
    """The robot may be in other hands: nothing is commanded, and nothing can be activated."""
    supervisor = made()
    supervisor.trip('e-stop')
    assert tripped(supervisor, 'e-stop')
    assert supervisor.tick(numbers(1.0, 1.0), ZERO) is None
    with pytest.raises(RobotError, match='tripped: e-stop'):
        supervisor.activate(ZERO)


def test_deactivation_silences_a_trip_and_does_not_forget_it():
    supervisor = active()
    supervisor.trip('e-stop')
    supervisor.deactivate()
    assert tripped(supervisor, 'e-stop') and not supervisor.speaks
    assert supervisor.tick(ZERO, ZERO) is None
    with pytest.raises(RobotError, match='tripped'):
        supervisor.activate(ZERO)


def test_the_way_to_the_start_pose_is_slow():
    supervisor = made(limits=unlimited(rate=numbers(1.0, 100.0)), start_speed=2.0)
    supervisor.go_to_start(numbers(0.25, 0.5), numbers(0.0, 1.0))
    assert supervisor.mode is Mode.GOING_TO_START
    commands = []
    for _ in range(4):
        assert not supervisor.at_start
        commands.append(supervisor.tick(numbers(NAN, 9.0), ZERO).tolist())
        if len(commands) == 3:
            break
    np.testing.assert_allclose(commands, [[0.15, 0.7], [0.05, 0.9], [0.0, 1.0]])
    assert supervisor.at_start
    assert supervisor.tick(None, ZERO).tolist() == [0.0, 1.0]


def test_a_policy_begins_where_the_way_to_the_start_pose_ended():
    """An arm that hangs below its command is not dropped to where it was measured."""
    supervisor = made(ramp_s=1.0)
    supervisor.go_to_start(numbers(0.0, 0.0), numbers(0.05, 0.05))
    supervisor.tick(None, ZERO)
    supervisor.activate(numbers(-0.3, -0.3))
    assert supervisor.mode is Mode.RAMPING and not supervisor.at_start
    assert supervisor.tick(numbers(1.0, 1.0), ZERO).tolist() == [0.05, 0.05]


def test_on_the_way_to_the_start_pose_the_rules_hold():
    for cause in ('stale', 'position is nan', 'tilt', 'speed'):
        wrong, reasons = CAUSES[cause]
        supervisor = made(limits=unlimited(speed=numbers(INF, 5.0)))
        supervisor.go_to_start(ZERO, numbers(1.0, 1.0))
        supervisor.tick(**{'target': None, 'position': ZERO, **wrong})
        assert tripped(supervisor, *reasons)


@pytest.mark.parametrize('interface', ['velocity', 'effort'])
def test_only_positions_lead_to_a_pose(interface):
    with pytest.raises(RobotError, match=f'the policy commands {interface}, and only positions'):
        made(interface).go_to_start(ZERO, ZERO)


def test_nobody_is_sent_to_the_start_pose_while_a_policy_is_in_command():
    with pytest.raises(RobotError, match='a policy is in command; deactivate it first'):
        active().go_to_start(ZERO, ZERO)


@pytest.mark.parametrize('pose', [numbers(0.0, NAN), numbers(0.0, INF), numbers(0.0)])
def test_nothing_begins_from_a_pose_that_is_not_known(pose):
    for begin in (lambda it: it.activate(pose), lambda it: it.go_to_start(pose, ZERO),
                  lambda it: it.go_to_start(ZERO, pose)):
        supervisor = made()
        with pytest.raises(RobotError, match='pose'):
            begin(supervisor)
        assert supervisor.mode is Mode.INACTIVE and supervisor.tick(ZERO, ZERO) is None


def test_a_second_activation_changes_nothing():
    supervisor = active(ramp_s=1.0)
    supervisor.tick(numbers(1.0, 1.0), ZERO)
    supervisor.activate(numbers(5.0, 5.0))
    np.testing.assert_allclose(supervisor.tick(numbers(1.0, 1.0), ZERO), [0.1, 0.1])


def test_an_unknown_interface_is_refused():
    with pytest.raises(RobotError, match='interface = torque: must be one of position, velocity'):
        made('torque')


def test_stops_of_another_thread_take_effect():
    supervisor = active('velocity')
    stopper = threading.Thread(target=lambda: supervisor.trip('e-stop'))
    stopper.start()
    stopper.join()
    assert supervisor.tick(numbers(1.0, 1.0), ZERO).tolist() == [0.0, 0.0]


@hypothesis.settings(max_examples=10_000, deadline=None, database=None,
                     suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(strategies.binary(min_size=LIFE, max_size=LIFE))
def test_no_sequence_of_events_leads_to_a_command_that_must_not_be(events):
    live(Supervisor, events)


class WithoutLimits(Supervisor):
    def _within(self, command):
        return np.array(command)


class WithoutRateLimit(Supervisor):
    def _move_to(self, goal, step):
        self._command[...] = goal


class WithoutLatch(Supervisor):
    def _begin(self, position, mode):
        self.reset_trip()
        super()._begin(position, mode)


class WithoutSilence(Supervisor):
    def deactivate(self):
        pass


class WithoutSilenceAfterTrips(Supervisor):
    def trip(self, reason):
        super().trip(reason)
        self._speaks = True


class WithoutTripAction(Supervisor):
    def _stop(self, position, velocity):
        self._move_to(np.full(2, 0.1), self._step)


class WithoutHolding(Supervisor):
    def _stop(self, position, velocity):
        self._held = None
        super()._stop(position, velocity)


class WithoutLastCommands(Supervisor):
    """Goes back to where a joint was last seen."""

    _seen = np.zeros(2)

    def tick(self, target, position, velocity=None, tilt=None, faults=()):
        self._seen = np.where(np.isfinite(position), position, self._seen)
        return super().tick(target, position, velocity, tilt, faults)

    def _stop(self, position, velocity):
        super()._stop(self._seen, velocity)


class WithoutDeadlines(Supervisor):
    def missed_deadline(self):
        pass


class WithoutEmergencyStop(Supervisor):
    def trip(self, reason):
        if reason != 'e-stop':
            super().trip(reason)


class WithoutPoseCheck(Supervisor):
    def activate(self, position):
        super().activate(np.nan_to_num(position))


class WithoutFaults(Supervisor):
    def tick(self, target, position, velocity=None, tilt=None, faults=()):
        return super().tick(target, position, velocity, tilt)


class WithoutTilt(Supervisor):
    def tick(self, target, position, velocity=None, tilt=None, faults=()):
        return super().tick(target, position, velocity, None, faults)


class WithoutSpeed(Supervisor):
    def _too_fast(self, velocity):
        return []


class WithoutTargetCheck(Supervisor):
    def _wrong_target(self, target):
        return []


class WithoutMeasurementCheck(Supervisor):
    def tick(self, target, position, velocity=None, tilt=None, faults=()):
        return super().tick(target, np.nan_to_num(position), velocity, tilt, faults)


@pytest.mark.parametrize('kind', [
    kind for name, kind in sorted(globals().items()) if name.startswith('Without')])
def test_the_judge_finds_out_when_a_rule_is_missing(kind):
    rng = np.random.default_rng(0)
    with pytest.raises((Violation, ValueError, TypeError)):
        for _ in range(3000):
            live(kind, rng.bytes(LIFE))


def test_random_lives_see_every_mode():
    rng = np.random.default_rng(1)
    modes = {live(Supervisor, rng.bytes(LIFE)).mode for _ in range(300)}
    assert modes == set(Mode)
    assert dataclasses.asdict(SETTINGS)['max_tilt'] > 0.0 and np.isfinite(LIMITS.low).all()

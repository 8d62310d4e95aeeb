"""Random lives of a safety supervisor, and a judge that knows only what it must never do."""

import math

import numpy as np

from asyncppo_ros.errors import RobotError
from asyncppo_ros.robot.limits import Limits
from asyncppo_ros.robot.safety import Mode, SafetySettings

NAN, INF = math.nan, math.inf
DT = 0.1
INTERFACES = ('position', 'velocity', 'effort')
SETTINGS = SafetySettings(ramp_s=0.3, start_speed=2.0, max_deadline_misses=2, max_tilt=1.0,
                          damping=0.5)
LIMITS = Limits(('a', 'b'), low=np.array([-1.0, -0.5]), high=np.array([0.5, 2.0]),
                rate=np.array([3.0, INF]), speed=np.array([5.0, INF]),
                effort=np.array([INF, INF]))
START = np.array([0.2, 1.5])
# What a control step may bring: first what is fine, so that a life lasts a while.
GOOD_TARGETS = [np.array(target) for target in (
    [0.0, 0.0], [0.4, 1.9], [-0.9, -0.4], [9.0, -9.0], [1e300, -1e300], [0.2, 1.0])]
BAD_TARGETS = [np.array(target) for target in (
    [0.0, NAN], [INF, 0.0], [-INF, 0.0], [0.0])] + [None]
GOOD_POSITIONS = [np.array(position) for position in (
    [0.0, 0.0], [0.3, 1.5], [-0.8, -0.3], [-7.0, 8.0], [0.5, 2.0], [0.0, -0.1])]
BAD_POSITIONS = [np.array(position) for position in ([NAN, 0.0], [0.0, INF])]
GOOD_VELOCITIES = [np.array(velocity) for velocity in (
    [0.0, 0.0], [1.0, -2.0], [-4.9, 30.0], [NAN, 1.0], [NAN, NAN], [-1.0, 1e300])] + [None]
BAD_VELOCITIES = [np.array(velocity) for velocity in ([5.1, 0.0], [0.0, -INF], [1e300, NAN])]
GOOD_TILTS, BAD_TILTS = [None, 0.0, 0.99], [1.01, NAN, INF]
GOOD_FAULTS, BAD_FAULTS = [()], [('stale',), ('frozen', 'stale')]
TABLES = [(GOOD_TARGETS, BAD_TARGETS), (GOOD_POSITIONS, BAD_POSITIONS),
          (GOOD_VELOCITIES, BAD_VELOCITIES), (GOOD_TILTS, BAD_TILTS), (GOOD_FAULTS, BAD_FAULTS)]
EVENT = 5  # bytes of one
LIFE = 1 + 16 * EVENT  # bytes of the events of one life, after one of the interface


class Violation(AssertionError):
    """The supervisor did what it must never do."""


def demand(holds, text, *values):
    if not holds:
        raise Violation(text.format(*values))


class Judge:
    """Follows a life by the rules alone, and looks at every command."""

    def __init__(self, supervisor, interface):
        self.supervisor, self.interface = supervisor, interface
        self.active = self.obeys = self.tripped = False
        self.command = self.held = None
        self.misses = 0

    def begin(self, method, position, *more, obeys):
        allowed = not self.tripped and np.isfinite(position).all() and (
            obeys or self.interface == 'position' and not (self.active and self.obeys))
        if obeys and self.active and self.obeys and not self.tripped:
            allowed = None  # already active: nothing happens, and nothing is refused
        try:
            method(position, *more)
            demand(allowed is not False, '{} was allowed', method)
        except RobotError:
            demand(not allowed, '{} was refused', method)
        if not allowed:
            return
        if not self.active:
            self.command = (self.within(position) if self.interface == 'position'
                            else np.zeros(2))
        self.active, self.obeys, self.misses = True, obeys, 0

    def trip(self):
        if not self.tripped:
            self.tripped, self.held = True, None

    def miss(self):
        if self.active and not self.tripped:
            self.misses += 1
            if self.misses >= SETTINGS.max_deadline_misses:
                self.trip()

    def end(self):
        self.active = False

    def reset(self):
        if self.tripped:
            self.active = self.tripped = False

    def tick(self, target, position, velocity, tilt, faults):
        command = self.supervisor.tick(target, position, velocity, tilt, faults)
        if not self.active:
            demand(command is None, 'a command while inactive')
            return
        if self.must_trip(target, position, velocity, tilt, faults):
            self.trip()
        demand((self.supervisor.mode is Mode.TRIPPED) == self.tripped,
               'mode {}, tripped should be {}', self.supervisor.mode, self.tripped)
        demand(command is not None and np.isfinite(command).all(), 'command {}', command)
        demand((command >= LIMITS.low).all() and (command <= LIMITS.high).all(),
               'command {} beyond the limits', command)
        step = LIMITS.rate * DT
        if self.tripped and self.interface != 'position':
            stopped = np.zeros(2)
            if self.interface == 'effort' and velocity is not None:
                stopped = self.within(-0.5 * np.where(np.isfinite(velocity), velocity, 0.0))
            demand((command == stopped).all(), 'trip action {}, not {}', command, stopped)
        else:
            change = np.abs(command - self.command)
            demand((change <= step + 1e-12).all(), 'a jump of {}', change)
        if self.tripped and self.interface == 'position':
            if self.held is None:
                self.held = self.within(np.where(np.isfinite(position), position, self.command))
            way = np.minimum(np.maximum(self.held - self.command, -step), step)
            demand((np.abs(command - self.command - way) <= 1e-12).all(),
                   'trip action {}, from {} to {}', command, self.command, self.held)
        self.command = command

    def must_trip(self, target, position, velocity, tilt, faults):
        speed = np.abs(velocity) if velocity is not None else np.zeros(2)
        return bool(
            faults or not np.isfinite(position).all()
            or tilt is not None and not tilt <= SETTINGS.max_tilt
            or (speed > LIMITS.speed).any() or (speed == INF).any()
            or self.obeys and (target is None or target.shape != (2,)
                               or not np.isfinite(target).all()))

    @staticmethod
    def within(values):
        return np.minimum(np.maximum(values, LIMITS.low), LIMITS.high)


def brought(number, tables):
    """Pick from a good or a bad list; one number of 24 is bad."""
    values = tables[number % 24 == 23]
    return values[number // 24 % len(values)]


def live(kind, data):
    """Let a supervisor of a class live through events: bytes of any number and value."""
    interface = INTERFACES[data[0] % 3] if data else 'position'
    supervisor = kind(LIMITS, interface, DT, SETTINGS)
    judge = Judge(supervisor, interface)
    if data[:1] > bytes([64]):
        judge.begin(supervisor.activate, GOOD_POSITIONS[data[0] % len(GOOD_POSITIONS)],
                    obeys=True)
    for at in range(1, len(data) - EVENT + 1, EVENT):
        event, *numbers = data[at:at + EVENT]
        event %= 16
        position = brought(numbers[1], TABLES[1])
        if event < 9:
            judge.tick(brought(numbers[0], TABLES[0]), position, brought(numbers[2], TABLES[2]),
                       brought(numbers[3], TABLES[3]), brought(sum(numbers), TABLES[4]))
        elif event < 11:
            judge.begin(supervisor.activate, position, obeys=True)
        elif event == 11:
            judge.begin(supervisor.go_to_start, position, START, obeys=False)
        elif event == 12:
            if numbers[0] % 2:
                supervisor.deactivate()
                judge.end()
        elif event == 13:
            supervisor.reset_trip()
            judge.reset()
        elif event == 14:
            if numbers[0] % 2:
                supervisor.trip('e-stop')
                judge.trip()
        elif numbers[0] % 3:
            supervisor.missed_deadline()
            judge.miss()
        else:
            supervisor.met_deadline()
            judge.misses = 0
    return supervisor

"""The control loop of the policy node: a thread that alone commands the robot."""

from collections.abc import Callable
import contextlib
import itertools
import queue
import threading
import time
import traceback

import numpy as np

from asyncppo_ros.nodes.policy_pace import Pace
from asyncppo_ros.nodes.policy_timing import Takeovers, Timing
from asyncppo_ros.nodes.robot_link import RobotLink
from asyncppo_ros.robot.measured import MeasuredState
from asyncppo_ros.robot.pilot import Pilot
from asyncppo_ros.robot.safety import Mode, Supervisor

# The reason of a stop that nobody need be told of.
DEACTIVATED = 'deactivated'
# A robot that is let go gets its last command at least this often ...
LAST_COMMANDS = 5
# ... and for at most so long after it would stand still [s].
LAST_S = 1.0
# How long others wait for this thread [s].
ANSWER_S = 2.0
# A thread that was not seen alive for this time, and what a state may be old, hangs [s].
HUNG_S = 0.5
# While nothing is commanded the thread looks up this often [s].
IDLE_S = 1.0
# A robot that waits for a command, in a simulation that stands still, gets the last one again.
AGAIN_S = 0.5


class ControlLoop:
    """
    Observation to command, at the rate the policy was trained for.

    The thread owns `Supervisor` and `Pilot`; others post what is to be done with them (`ask`).

    Parameters
    ----------
    pilot : Pilot
    measured : MeasuredState
    link : RobotLink
    pace : Pace
        Says when a control step is due.
    outside : callable
        Gives, at a steady time [s], the faults that are not in the measured state.
    error : callable
        Takes one line, or a traceback, for people.

    Attributes
    ----------
    supervisor : Supervisor or None
        None until the limits of the robot are known; then always the same one.
    timing : Timing
    takeovers : Takeovers

    """

    def __init__(self, pilot: Pilot, measured: MeasuredState, link: RobotLink, pace: Pace,
                 outside: Callable[[float], list[str]], error: Callable[[str], None]) -> None:
        self.supervisor: Supervisor | None = None
        self.timing, self.takeovers = Timing(), Takeovers()
        self._pilot, self._measured, self._link, self._pace = pilot, measured, link, pace
        self._outside, self._error = outside, error
        self._requests: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._ended = False
        self._alive_at = time.monotonic()
        self._last: np.ndarray | None = None
        self._sent_at = 0.0
        self._told: set[str] = set()
        self._mode = Mode.INACTIVE
        self._thread = threading.Thread(target=self._run, name='control', daemon=True)
        if pace.waits_for_samples:
            link.on_arrival = self._wake.set
        self._thread.start()

    @property
    def mode(self) -> Mode:
        """What the supervisor does."""
        return self.supervisor.mode if self.supervisor is not None else Mode.INACTIVE

    @property
    def reasons(self) -> list[str]:
        """Why the supervisor tripped, the cause first."""
        return list(self.supervisor.reasons) if self.supervisor is not None else []

    def wake(self) -> None:
        """Let the thread look whether a control step is due; any thread."""
        self._wake.set()

    def activate(self) -> None:
        """
        Hand the robot to the policy, beginning where it stands.

        Raises
        ------
        RobotError
            Tripped, or the pose is not known.

        """
        def begin(supervisor: Supervisor) -> None:
            now = time.monotonic()
            self._begin()
            self._pilot.begin(self._measured.read(now))
            supervisor.activate(self._measured.moved(now)[0])
        self._ask(begin)

    def go_to_start(self) -> None:
        """
        Move the robot to the start pose of the policy, and hold it there.

        Raises
        ------
        RobotError
            Tripped, a policy is in command, or commands are not positions.

        """
        def begin(supervisor: Supervisor) -> None:
            supervisor.go_to_start(self._measured.moved(time.monotonic())[0],
                                   self._pilot.start_pose)
            self._begin()
        self._ask(begin)

    def trip(self, reason: str) -> None:
        """Stop the robot with a step of its own, at once; where it is not commanded, remember."""
        if self.supervisor is None:
            return
        self.supervisor.trip(reason)
        try:
            self._ask(lambda supervisor: self._pace.hurry())
        except TimeoutError:
            self._do_trip_action(self.supervisor)

    def stop_if_hung(self, now: float, patience: float) -> None:
        """
        Stop the robot from another thread where this one hangs, in a term of a user for example.

        Parameters
        ----------
        now : float
            Steady time [s].
        patience : float
            Beside `HUNG_S` [s].

        """
        supervisor = self.supervisor
        if supervisor is None or not supervisor.speaks:
            return
        silence = now - self._alive_at
        if silence > HUNG_S + patience:
            supervisor.trip(f'the control loop hangs for {silence:.1f} s')
            self._do_trip_action(supervisor)

    def stand_down(self) -> None:
        """
        Stop the robot, then say no more; a trip remains.

        What the robot hears last is the trip action of its interface.
        """
        if self.supervisor is None or self._ended:
            return
        try:
            self._ask(self._stand_down)
        except TimeoutError:
            # It must not have the last word.
            self._error('the control loop hangs; the robot is stopped without it')
            self._stand_down(self.supervisor)

    def close(self) -> None:
        """Stop the robot and end the thread."""
        self.stand_down()
        self._ended = True
        self._wake.set()
        self._thread.join(ANSWER_S)

    def _ask(self, body: Callable[[Supervisor], None]) -> None:
        """
        Have something done by the control thread, between two steps.

        Raises
        ------
        TimeoutError
            The thread does not answer.

        """
        supervisor, errors, done = self.supervisor, [], threading.Event()
        assert supervisor is not None

        def call() -> None:
            try:
                body(supervisor)
            except Exception as caught:  # noqa: BLE001 - raised again where it was asked for
                errors.append(caught)
            done.set()

        self._requests.put(call)
        self._wake.set()
        if not done.wait(ANSWER_S):
            raise TimeoutError('the control loop does not answer')
        if errors:
            raise errors[0]

    def _run(self) -> None:
        while not self._ended:
            # Cleared before what it may have announced is looked at, so nothing is overslept.
            self._wake.clear()
            self._alive_at = time.monotonic()
            with contextlib.suppress(queue.Empty):
                while True:
                    self._requests.get_nowait()()
            supervisor = self.supervisor
            if supervisor is None or not supervisor.speaks:
                self._wake.wait(IDLE_S)
                continue
            try:
                seconds = self._turn(supervisor)
            except Exception as error:  # noqa: BLE001 - whatever it is, the robot must be stopped
                self._stop_after(supervisor, error)
                seconds = 0.5 * self._pilot.control_dt
            if seconds > 0.0:
                self._wake.wait(seconds)

    def _turn(self, supervisor: Supervisor) -> float:
        """Do what is due; give the time until the next look [s]."""
        now = time.monotonic()
        seconds = self._pace.until_due(now)
        if seconds <= 0.0:
            self._step(supervisor, now)
        else:
            self._say_again(now)
        return seconds

    def _begin(self) -> None:
        self._alive_at = time.monotonic()
        self._told.clear()
        self._last = None
        self._pace.begin()
        self.timing.begin()

    def _step(self, supervisor: Supervisor, now: float) -> None:
        """Do one control step."""
        # This step was late by so much that the one before it was missed, too.
        late, missed = self._pace.step(now)
        if missed:
            supervisor.missed_deadline()
        else:
            supervisor.met_deadline()
        self._send_if_any(self._decide(supervisor, now))
        took = time.monotonic() - now
        self._tell_trip(supervisor)
        self.timing.add(took, self._measured.age(now), late, missed)

    def _decide(self, supervisor: Supervisor, now: float) -> np.ndarray | None:
        faults = [*self._measured.faults(now), *self._outside(now)]
        target = None
        if not faults and supervisor.mode in (Mode.RAMPING, Mode.RUNNING):
            target = self._pilot.target(self._measured.read(now))
            self.takeovers.used(self._pilot.identity, now)
        position, velocity = self._measured.moved(now)
        return supervisor.tick(target, position, velocity, self._measured.tilt(now), faults)

    def _send_if_any(self, command: np.ndarray | None) -> None:
        if command is not None:
            self._link.publish(command)
            self._last, self._sent_at = command, time.monotonic()

    def _say_again(self, now: float) -> None:
        """Repeat the last command to a simulation that seems to wait for it."""
        if self._pace.waits_for_samples and self._last is not None \
                and now - self._sent_at > AGAIN_S:
            self._send_if_any(self._last)

    def _stop_after(self, supervisor: Supervisor, error: Exception) -> None:
        """Trip after an exception, and give the trip action in the same step."""
        line = traceback.format_exception_only(type(error), error)[-1].strip()
        if line not in self._told:
            self._told.add(line)
            self._error('EXCEPTION in the control loop:\n' + ''.join(traceback.format_exception(
                type(error), error, error.__traceback__)).rstrip())
        if supervisor.mode is not Mode.TRIPPED:
            supervisor.trip(f'exception in the control loop: {line}')
        with contextlib.suppress(Exception):
            self._do_trip_action(supervisor)

    def _do_trip_action(self, supervisor: Supervisor) -> None:
        """Do one step of the trip action; from any thread."""
        self._send_if_any(supervisor.tick(None, *self._measured.moved(time.monotonic())))
        self._tell_trip(supervisor)

    def _tell_trip(self, supervisor: Supervisor) -> None:
        mode = supervisor.mode
        if mode is Mode.TRIPPED and self._mode is not Mode.TRIPPED:
            self._error(f'TRIPPED: {"; ".join(supervisor.reasons)}; ~/reset_trip goes back to '
                        'inactive')
        self._mode = mode

    def _stand_down(self, supervisor: Supervisor) -> None:
        was_tripped = supervisor.mode is Mode.TRIPPED
        if supervisor.speaks:
            self._mode = Mode.TRIPPED
            supervisor.trip(DEACTIVATED)
            self._bring_to_rest(supervisor)
        supervisor.deactivate()
        if not was_tripped:
            supervisor.reset_trip()
        self._mode = supervisor.mode

    def _bring_to_rest(self, supervisor: Supervisor) -> None:
        """Do the trip action until the command does not change any more."""
        end = time.monotonic() + LAST_S
        for count in itertools.count(1):
            before, now = self._last, time.monotonic()
            position, velocity = self._measured.moved(now)
            self._send_if_any(supervisor.tick(None, position, velocity))
            rests = before is not None and np.array_equal(before, self._last)
            if count >= LAST_COMMANDS and (rests or now > end):
                break
            time.sleep(self._pilot.control_dt)
        # Nobody measures from here on: what a controller goes on to hold must not push.
        self._send_if_any(supervisor.tick(None, position, None))
        self._link.wait_until_received(LAST_S)

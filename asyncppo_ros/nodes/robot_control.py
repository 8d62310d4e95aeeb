"""One robot in the hands of an actor: commanded step by step, and kept safe between the steps."""

from collections.abc import Callable, Mapping
import contextlib
import threading
import time
from typing import Any

import numpy as np
from rclpy.node import Node
from std_srvs.srv import Trigger

from asyncppo_ros.config import Config
from asyncppo_ros.nodes.policy_deployment import sensor_settings
from asyncppo_ros.nodes.policy_estop import EmergencyStop
from asyncppo_ros.nodes.robot_clock import on_each_tick, pace_of, uses_sim_time
from asyncppo_ros.nodes.robot_limits import RobotLimits
from asyncppo_ros.nodes.robot_link import RobotLink
from asyncppo_ros.nodes.robot_readiness import check_watched, Readiness
from asyncppo_ros.robot.measured import MeasuredState
from asyncppo_ros.robot.needs import Needs
from asyncppo_ros.robot.safety import Mode, Supervisor
from asyncppo_ros.robot.state import RobotState
from asyncppo_ros.robot.topics import joint_names
from asyncppo_ros.simulation.environment import StepMissed

# A command that is given later than this share of a control step after the state it answers
# belongs to another step.
LATEST = 0.5
# The thread that waits looks up this often [s].
LOOK_S = 0.05
# How long a robot that is let go gets its last commands [s].
LAST_S = 1.0
# How long a simulation is waited for that was told to stop [s].
ANSWER_S = 0.5
# A simulation that stands still for so long has not heard the command [s].
STILL_S = 2.0


class RobotControl:
    """
    Gives commands under the safety supervisor, and waits for the states that follow.

    One thread makes control steps.  Where it does not come in time, because a permit or a policy
    is waited for, a second thread counts the steps that are missed and stops the robot; it also
    goes on with the trip action for as long as that takes.

    Parameters
    ----------
    node : Node
        Some other thread spins it.
    config : Config
    needs : Needs
        What the robot must tell.
    card : mapping
        Of the task, see `BatchedSimulation.describe`.

    Attributes
    ----------
    measured : MeasuredState
    idle : callable
        Called while it waits; True = give up.
    dt : float
        Period of a control step [s].
    interface : str
        What commands are.

    Raises
    ------
    UserError
        The settings or the URDF do not fit the task.

    """

    def __init__(self, node: Node, config: Config, needs: Needs,
                 card: Mapping[str, Any]) -> None:
        self.idle: Callable[[], bool] = lambda: False
        self._node = node
        action = card['action']
        self.dt, self.interface = float(action['control_dt']), str(action['interface'])
        check_watched(config, self.interface)
        names = joint_names(config.robot.joint_names, card['joints'])
        limits = RobotLimits(config, card, names, lambda: self._link.robot_urdf())
        self.measured = MeasuredState(needs, card['joints'], len(action['joints']), names,
                                      sensor_settings(config))
        self._link = RobotLink(node, config.robot, self.measured, needs,
                               [names[joint] for joint in action['joints']], self.interface)
        self._sim_time = uses_sim_time(node)
        self._wake = threading.Event()
        self._pace = pace_of(node, self.dt, self.measured, config.deploy.state_timeout_s)
        self._ticks = on_each_tick(node, self._wake.set)
        if self._pace.waits_for_samples:
            self._link.on_arrival = self._wake.set
        self._still_s = max(STILL_S, config.deploy.state_timeout_s)
        self._lock = threading.RLock()
        self._sent_at = self._ticked_at = 0.0
        self._last: np.ndarray | None = None
        self._stamp: float | None = None
        self._stamp_sent: float | None = None
        self.estop = EmergencyStop(node, config.deploy, self.stop)
        self._readiness = Readiness(node, config, limits, self.measured, self._link, self.estop)
        self._services = [node.create_service(Trigger, '~/estop', self._press),
                          node.create_service(Trigger, '~/reset_trip', self._release)]
        self._closing = threading.Event()
        self._guard = threading.Thread(target=self._keep_safe, name='guard', daemon=True)
        self._guard.start()

    def wait_until_usable(self, seconds: float) -> None:
        """
        Wait until everything that is needed was heard and nothing is wrong.

        Raises
        ------
        StepMissed
            It does not become so in time.
        UserError
            The URDF or the controller does not fit the task.

        """
        end = time.monotonic() + seconds
        while True:
            reasons = self._readiness.reasons()
            if not reasons:
                return
            if time.monotonic() > end:
                raise StepMissed(f'the robot cannot be used: {"; ".join(reasons)}')
            self._be_idle()

    def begin(self) -> None:
        """
        Obey from now on: the first control step is that of the state that is there.

        Raises
        ------
        StepMissed
            Something is wrong.

        """
        with self._lock:
            now = time.monotonic()
            faults = self._readiness.faults(now)
            if faults:
                raise StepMissed(faults[0])
            self._obedient().activate(self.measured.moved(now)[0])
            self._pace.begin()
            self._pace.step(now)
            self._note_tick(now)

    def send(self, target: np.ndarray) -> None:
        """
        Give the command of a control step.

        Parameters
        ----------
        target : float64 [A]
            In the unit of the interface; the supervisor holds it within the limits.

        Raises
        ------
        StepMissed
            The robot was stopped, or this comes too late; the robot is stopped then.

        """
        with self._lock:
            supervisor, now = self._obedient(), time.monotonic()
            late = now - self._ticked_at
            if supervisor.mode is Mode.INACTIVE:
                raise StepMissed('the robot is not commanded')
            if supervisor.mode is Mode.TRIPPED:
                raise StepMissed(supervisor.reasons[0])
            if not self._sim_time and late > LATEST * self.dt:
                self._stop(f'the command came {1e3 * late:.0f} ms after the state it answers: '
                           f'the control step is {1e3 * self.dt:g} ms')
            else:
                self._tick(target, now)
            if supervisor.mode is Mode.TRIPPED:
                raise StepMissed(supervisor.reasons[0])
            supervisor.met_deadline()

    def wait(self) -> None:
        """
        Wait until the control step is over and the state that followed is there.

        Raises
        ------
        StepMissed
            It did not come in time, or something is wrong; the robot is stopped then.

        """
        self.idle()
        self._wait_until_due()
        with self._lock:
            now = time.monotonic()
            late, missed = self._pace.step(now)
            faults = self._readiness.faults(now)
            if not faults:
                faults = self._no_news(now)
            if not faults and missed and not self._sim_time:
                faults = [f'the state was read {1e3 * late:.0f} ms late']
            if faults:
                self._stop(faults[0])
            if self._obedient().mode is Mode.TRIPPED:
                raise StepMissed(self._obedient().reasons[0])
            self._note_tick(now)

    def read(self) -> RobotState:
        """Give the newest of everything."""
        return self.measured.read(time.monotonic())

    def stop(self, reason: str) -> None:
        """Stop the robot, if it is commanded; any thread."""
        with self._lock:
            if self._supervisor is not None and self._supervisor.mode is not Mode.INACTIVE:
                self._stop(reason)

    def let_go(self) -> None:
        """Say no more, once the robot has what was said last."""
        with self._lock:
            supervisor = self._obedient()
            supervisor.deactivate()
            supervisor.reset_trip()
        if self._sim_time and self._last is not None:
            end = time.monotonic() + ANSWER_S
            while self.measured.newest_stamp() == self._stamp_sent and time.monotonic() < end:
                self._be_idle(0.2 * self.dt)

    def go_to(self, pose: np.ndarray, settle_s: float, seconds: float) -> None:
        """
        Move the joints slowly to a pose [A], and let them settle there.

        Raises
        ------
        StepMissed
            Something is wrong, or it takes longer than that.
        RobotError
            Commands are not positions.

        """
        with self._lock:
            now = time.monotonic()
            self._obedient().go_to_start(self.measured.moved(now)[0], pose)
            self._pace.begin()
            self._pace.step(now)
            self._note_tick(now)
        end, rest = now + seconds, round(settle_s / self.dt)
        while rest > 0:
            self._follow()
            rest -= self._obedient().at_start
            if self.idle():
                raise self._given_up()
            if time.monotonic() > end:
                self.stop(f'the start pose was not reached within {seconds:g} s')

    def wait_for_news(self, since: float, stamp: float | None, seconds: float) -> None:
        """
        Wait until all that is needed was heard again.

        Parameters
        ----------
        since : float
            Steady time: it must have come later [s].
        stamp : float or None
            In simulated time its stamps must be newer than this [s].

        Raises
        ------
        StepMissed
            It does not come in time.

        """
        end = time.monotonic() + seconds
        while True:
            now, newest = time.monotonic(), self.measured.newest_stamp()
            by_stamp = self._sim_time and stamp is not None and newest is not None
            if max(self.measured.ages(now).values(), default=0.0) < now - since \
                    and (not by_stamp or newest > stamp):  # type: ignore[operator]
                return
            if now > end:
                raise StepMissed(f'no state came within {seconds:g} s after the reset')
            self._be_idle(0.2 * self.dt)

    def close(self) -> None:
        """Stop the robot and let go of it."""
        self.stop('the actor ends')
        end = time.monotonic() + LAST_S
        while self._supervisor is not None and self._supervisor.speaks \
                and time.monotonic() < end:
            before = self._last
            time.sleep(2.0 * self.dt)
            # A second look: the guard has given the trip action meanwhile.
            if self._last is not before and before is not None \
                    and np.array_equal(self._last, before):
                break
        self._closing.set()
        self._guard.join(2.0)
        self._link.wait_until_received(LAST_S)
        if self._supervisor is not None:
            self._supervisor.deactivate()
        if self._ticks is not None:
            self._ticks.unregister()
        self.estop.close()
        self._link.close()
        for service in self._services:
            self._node.destroy_service(service)

    @property
    def _supervisor(self) -> Supervisor | None:
        return self._readiness.supervisor

    def _obedient(self) -> Supervisor:
        if self._supervisor is None:
            raise StepMissed('the robot was never heard')
        return self._supervisor

    def _follow(self) -> None:
        """Make a control step of the way to a pose: one that is late only comes later."""
        with self._lock:
            self._tick(None, time.monotonic())
        self._wait_until_due()
        with self._lock:
            supervisor, now = self._obedient(), time.monotonic()
            _, missed = self._pace.step(now)
            if missed:
                supervisor.missed_deadline()
            else:
                supervisor.met_deadline()
            if supervisor.mode is Mode.TRIPPED:
                raise StepMissed(supervisor.reasons[0])
            self._note_tick(now)

    def _wait_until_due(self) -> None:
        while True:
            self._wake.clear()
            now = time.monotonic()
            seconds = self._pace.until_due(now)
            if seconds <= 0.0 or self._obedient().mode is Mode.TRIPPED:
                return
            # It is not told again: it might have heard, and then would make two steps.
            if self._sim_time and now - self._sent_at > self._still_s:
                return
            self._wake.wait(min(seconds, LOOK_S))
            if seconds > LOOK_S:
                self.idle()

    def _no_news(self, now: float) -> list[str]:
        """Say why what was measured is not what followed the last command; empty = it is."""
        stamp = self.measured.newest_stamp()
        if self._sim_time and stamp is not None and self._stamp is not None:
            steps = (stamp - self._stamp) / self.dt
            if steps > 1.5:
                return [f'the simulation went on by {steps:.0f} control steps at once']
            is_news = steps > 0.5
        else:
            is_news = max(self.measured.ages(now).values(), default=0.0) <= now - self._sent_at
        return [] if is_news else ['no state came since the command']

    def _note_tick(self, now: float) -> None:
        self._ticked_at, self._stamp = now, self.measured.newest_stamp()

    def _stop(self, reason: str) -> None:
        self._obedient().trip(reason)
        self._tick(None, time.monotonic())

    def _tick(self, target: np.ndarray | None, now: float) -> None:
        position, velocity = self.measured.moved(now)
        command = self._obedient().tick(target, position, velocity, self.measured.tilt(now),
                                        self._readiness.faults(now))
        if command is not None:
            self._publish(command, now)

    def _publish(self, command: np.ndarray, now: float) -> None:
        self._last, self._sent_at = command, now
        self._stamp_sent = self.measured.newest_stamp()
        self._link.publish(command)

    def _keep_safe(self) -> None:
        """Look after the robot while nobody makes control steps; runs in its own thread."""
        while not self._closing.wait(self.dt):
            supervisor = self._supervisor
            if supervisor is None or not supervisor.speaks:
                continue
            # The robot must be stopped whatever goes wrong: the next look tries again.
            with self._lock, contextlib.suppress(Exception):
                now = time.monotonic()
                if supervisor.mode is Mode.TRIPPED:
                    if not self._sim_time or self.measured.newest_stamp() != self._stamp_sent:
                        self._tick(None, now)
                elif not self._sim_time and now - self._sent_at > (1.0 + LATEST) * self.dt \
                        and now - self._ticked_at > (1.0 + LATEST) * self.dt:
                    supervisor.missed_deadline()
                    if supervisor.mode is Mode.TRIPPED:
                        self._tick(None, now)

    def _be_idle(self, seconds: float = LOOK_S) -> None:
        if self.idle():
            raise self._given_up()
        time.sleep(seconds)

    def _given_up(self) -> StepMissed:
        return StepMissed('stopped while the robot was waited for')

    def _press(self, _request: Any, response: Any) -> Any:
        self.estop.press('emergency stop by ~/estop')
        response.success, response.message = True, 'stopped; ~/reset_trip releases it'
        return response

    def _release(self, _request: Any, response: Any) -> Any:
        self.estop.reset()
        response.success, response.message = True, 'released; the next episode may begin'
        return response

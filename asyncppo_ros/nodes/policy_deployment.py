"""What exists of a policy on a robot between `configure` and `cleanup`, and whether it may act."""

from collections.abc import Callable
import time

import numpy as np
from rclpy.node import Node

from asyncppo_ros.config import Config, RobotConfig
from asyncppo_ros.errors import ConfigError, PolicyError, UserError
from asyncppo_ros.nodes.policy_estop import EmergencyStop
from asyncppo_ros.nodes.policy_live import known_scores, LivePolicies
from asyncppo_ros.nodes.policy_loop import ControlLoop
from asyncppo_ros.nodes.robot_clock import lacking_clock, on_each_tick, pace_of
from asyncppo_ros.nodes.robot_limits import RobotLimits
from asyncppo_ros.nodes.robot_link import is_unwatched, others_told, RobotLink
from asyncppo_ros.policy_files import policy_file
from asyncppo_ros.robot.artefact import read_artefact
from asyncppo_ros.robot.measured import MeasuredState, SensorSettings
from asyncppo_ros.robot.needs import Needs
from asyncppo_ros.robot.pilot import Pilot
from asyncppo_ros.robot.safety import Mode
from asyncppo_ros.robot.topics import command_topics, joint_names

# Commands of these types are velocities.
VELOCITY_TYPES = ('Twist', 'TwistStamped')
# States must come at least this often per control step.
LEAST_RATE = 0.5
# A state that is waited for in simulated time may stay out for this share of the timeout.
PATIENCE = 0.5
# Joints that a refusal names.
MOST_NAMED = 4


class Deployment:
    """
    A policy, the robot it is meant for, and the loop between them.

    Parameters
    ----------
    node : Node
        Its executor must not be in a callback for long.
    config : Config
    key : bytes or None
        Take only policies that are signed with it.
    tell, error : callable
        Take one line for people: of what happens, of what is wrong.

    Attributes
    ----------
    pilot, measured, link, loop, live, estop
        Its parts.
    path : Path
        The policy's file.

    Raises
    ------
    UserError
        The policy, the URDF or the settings are wrong, or do not fit each other.

    """

    def __init__(self, node: Node, config: Config, key: bytes | None,
                 tell: Callable[[str], None], error: Callable[[str], None]) -> None:
        self._node, self._config = node, config
        robot, deploy = config.robot, config.deploy
        if not deploy.policy:
            raise ConfigError('deploy.policy is empty: a policy file or the folder of a run is '
                              'needed')
        self.path = policy_file(deploy.policy)
        artefact = read_artefact(self.path, key)
        self._task = artefact.card['task']
        self.pilot = pilot = Pilot(artefact)
        needs, joints = pilot.needs, tuple(self._task['joints'])
        self._names = joint_names(robot.joint_names, joints)
        # Before anything is subscribed to: a file may not be readable.
        self._limits = RobotLimits(config, self._task, self._names,
                                   lambda: self.link.robot_urdf())
        self.measured = MeasuredState(
            needs, joints, len(pilot.joints), self._names, sensor_settings(config),
            velocity_commands(robot, needs))
        self._second_publisher: list[str] = []
        self.link = RobotLink(node, robot, self.measured, needs,
                              [self._names[joint] for joint in pilot.joints], pilot.interface)
        self.loop = ControlLoop(
            pilot, self.measured, self.link,
            pace_of(node, pilot.control_dt, self.measured, PATIENCE * deploy.state_timeout_s),
            self._outside, error)
        self.estop = EmergencyStop(node, deploy, self.loop.trip)
        self.live = LivePolicies(node, deploy, key, artefact, known_scores(self.path), pilot,
                                 self.loop.takeovers, tell)
        # A step in simulated time is due when the clock says so.
        self._ticks = on_each_tick(node, self.loop.wake)

    def refusals(self, to_start: bool = False) -> list[str]:
        """
        Say why the robot must not be commanded now, a line each; empty = it may.

        Parameters
        ----------
        to_start : bool
            It would be moved to the start pose, so it need not be there.

        """
        now = time.monotonic()
        reasons = [*self._tripped(), *lacking_clock(self._node), *self._limitless(),
                   *self._unheard(), *self.estop.faults(now), *self._unwatched()]
        missing = self.measured.missing()
        if missing:
            return [*reasons, *self._never_heard(missing)]
        reasons += [*self.measured.faults(now), *self._too_slow(), *self.look_for_others()]
        tilt, highest = self.measured.tilt(now), self._config.deploy.max_tilt
        if tilt is not None and highest and tilt > highest:
            reasons.append(f'the base is tilted by {tilt:.2f} rad (deploy.max_tilt = {highest:g})')
        if not to_start:
            reasons += [*self._away_from_start(now), *self._untried()]
        return reasons

    @property
    def latched(self) -> str:
        """Why the robot must not move until people reset it; '' = it may."""
        return self.estop.reason or (self.loop.reasons[0]
                                     if self.loop.mode is Mode.TRIPPED else '')

    def watch(self) -> None:
        """Look now and then for what the control loop does not see."""
        if self.loop.mode is not Mode.INACTIVE:
            self.look_for_others()
            self.loop.stop_if_hung(time.monotonic(), self._config.deploy.state_timeout_s
                                   + 2.0 * self.pilot.control_dt)

    def look_for_others(self) -> list[str]:
        """Look whether another node commands the robot, too, and have that trip the loop."""
        self._second_publisher = others_told(self.link, self._config)
        return self._second_publisher

    def reset_trip(self) -> None:
        """Release the emergency stop and forget a trip; the robot is let go before."""
        self.loop.stand_down()
        self.estop.reset()
        if self.loop.supervisor is not None:
            self.loop.supervisor.reset_trip()

    def close(self) -> None:
        """Stop the robot, and end."""
        self.loop.close()
        self.live.close()
        self.link.close()
        self.estop.close()
        if self._ticks is not None:
            self._ticks.unregister()

    def _outside(self, now: float) -> list[str]:
        return [*self.estop.faults(now), *self._second_publisher]

    def _tripped(self) -> list[str]:
        if self.loop.mode is not Mode.TRIPPED or self.estop.reason:
            return []
        return [f'tripped: {self.loop.reasons[0]}; ~/reset_trip first']

    def _limitless(self) -> list[str]:
        """Make the safety supervisor, once the limits of the robot are known."""
        try:
            lacking = self._limits.lacking()
            if not lacking and self.loop.supervisor is None:
                self.loop.supervisor = self._limits.supervisor(self._config.deploy.ramp_s)
        except UserError as error:
            return [str(error)]
        return lacking

    def _unheard(self) -> list[str]:
        """Say whether the controller is there and moves the joints of the policy."""
        reasons = []
        if self._config.robot.output == 'forward_command':
            try:
                if self.link.controller_order() is None:
                    reasons.append(f'{self.link.controller} does not say its joints: is it '
                                   'loaded? else give robot.joint_order')
            except ConfigError as error:
                reasons.append(str(error))
        if not self.link.listeners():
            reasons.append(f'nobody listens on {self.link.topic}')
        return reasons

    def _unwatched(self) -> list[str]:
        interface = self.pilot.interface
        if not is_unwatched(self._config, interface):
            return []
        return [f'{interface} through a forward_command_controller, which holds the last command '
                'for ever when this node dies, needs deploy.allow_unwatched; see docs/safety.md']

    def _never_heard(self, missing: list[str]) -> list[str]:
        named = ', '.join(missing[:MOST_NAMED])
        more = f' and {len(missing) - MOST_NAMED} more' if len(missing) > MOST_NAMED else ''
        others = f'; the robot has {", ".join(self.measured.extra)}' if self.measured.extra else ''
        return [f'never heard: {named}{more}{others}']

    def _too_slow(self) -> list[str]:
        least = LEAST_RATE / self.pilot.control_dt
        return [f'{topic} comes at {rate:.1f} Hz, the policy acts at '
                f'{1.0 / self.pilot.control_dt:g} Hz and needs {least:g}'
                for topic, rate in self.link.rates().items() if rate < least]

    def _away_from_start(self, now: float) -> list[str]:
        tolerance = self._config.deploy.start_tolerance
        position, _ = self.measured.moved(now)
        away = np.abs(position - self.pilot.start_pose)
        far = [f'{joint} at {value:.2f}, start {start:.2f}'
               for joint, value, start, distance in zip(
                   self.pilot.joints, position, self.pilot.start_pose, away)
               # One that is not known was told already.
               if distance > tolerance]
        if not far:
            return []
        return [f'not near the start pose (deploy.start_tolerance = {tolerance:g}): '
                f'{"; ".join(far[:MOST_NAMED])}; ~/go_to_start moves it there']

    def _untried(self) -> list[str]:
        try:
            self.pilot.warm_up()
        except PolicyError as error:
            return [str(error)]
        return []


def velocity_commands(robot: RobotConfig, needs: Needs) -> list[str]:
    """Name the commands that are velocities: where nobody gives them they are 0."""
    sizes = {name: need.size for name, need in needs.commands.items()}
    return [name for name, source in command_topics(robot.command_topics, sizes).items()
            if source.type in VELOCITY_TYPES]


def sensor_settings(config: Config) -> SensorSettings:
    """Give what makes a sample of a sensor wrong."""
    deploy = config.deploy
    return SensorSettings(
        state_timeout_s=deploy.state_timeout_s, clock_tolerance_s=deploy.clock_tolerance_s,
        frozen_s=deploy.frozen_s, command_timeout_s=deploy.command_timeout_s,
        goal_timeout_s=deploy.goal_timeout_s, imu_rotation=config.robot.imu_rotation)

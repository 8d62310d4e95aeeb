"""Whether a robot can be commanded at all: what must be known of it, and what is wrong."""

from collections.abc import Mapping
import time
from typing import Any

from rclpy.node import Node

from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.nodes.policy_deployment import read_urdf
from asyncppo_ros.nodes.policy_estop import EmergencyStop
from asyncppo_ros.nodes.robot_link import RobotLink
from asyncppo_ros.robot.limits import tighter_of
from asyncppo_ros.robot.measured import MeasuredState
from asyncppo_ros.robot.safety import SafetySettings, Supervisor
from asyncppo_ros.robot.urdf import joint_limits, JointLimits


class Readiness:
    """
    Looks at a robot that an actor is to command, and makes its safety supervisor.

    Parameters
    ----------
    node : Node
    config : Config
    card : mapping
        Of the task.
    names : mapping from str to str
        The name on the robot of each joint of the task.
    measured : MeasuredState
    link : RobotLink
    estop : EmergencyStop

    Attributes
    ----------
    supervisor : Supervisor or None
        None until the limits of the robot are known.

    Raises
    ------
    UserError
        The URDF file or the settings are wrong.

    """

    def __init__(self, node: Node, config: Config, card: Mapping[str, Any],
                 names: Mapping[str, str], measured: MeasuredState, link: RobotLink,
                 estop: EmergencyStop) -> None:
        self.supervisor: Supervisor | None = None
        self._node, self._config, self._card, self._names = node, config, card, names
        self._measured, self._link, self._estop = measured, link, estop
        self._urdf = read_urdf(config.robot.urdf) if config.robot.urdf else None

    def reasons(self) -> list[str]:
        """
        Say why the robot cannot be commanded now; empty = it can.

        Raises
        ------
        UserError
            The URDF or the controller does not fit the task.

        """
        reasons = []
        sim_time = bool(self._node.get_parameter('use_sim_time').value)
        if sim_time and self._node.get_clock().now().nanoseconds == 0:
            reasons.append('use_sim_time is true, and nobody publishes /clock')
        if not self._supervise():
            reasons.append(f'no URDF came on {self._config.robot.description_topic}: give '
                           'robot.urdf, or set robot.description_topic to ""')
        if self._config.robot.output == 'forward_command' and not self._link.controller_order():
            reasons.append(f'{self._link.controller} does not say its joints')
        if not self._link.listeners():
            reasons.append(f'nobody listens on {self._link.topic}')
        others = self._link.other_publishers()
        if others and not self._config.deploy.allow_other_publishers:
            reasons.append(f'{", ".join(others)} publishes on {self._link.topic}, too '
                           '(deploy.allow_other_publishers)')
        missing = self._measured.missing()
        if missing:
            return [*reasons, f'never heard: {", ".join(missing)}']
        return [*reasons, *self.faults(time.monotonic())]

    def faults(self, now: float) -> list[str]:
        """Say what is wrong with what is measured, or that the robot must not move."""
        return [*self._measured.faults(now), *self._estop.faults(now)]

    def _supervise(self) -> bool:
        """Make the supervisor, once the limits of the robot are known; say whether they are."""
        if self.supervisor is not None:
            return True
        urdf = self._limits_of_robot()
        if urdf is None:
            return False
        deploy = self._config.deploy
        action = self._card['action']
        limits = tighter_of(action, self._card.get('controller') or {}, urdf, self._names,
                            deploy.rate_limit, deploy.max_speed)
        # Nothing is ramped in: the transitions would not be those of the actions.
        self.supervisor = Supervisor(
            limits, action['interface'], action['control_dt'],
            SafetySettings(0.0, deploy.start_speed, deploy.max_deadline_misses, deploy.max_tilt,
                           deploy.damping))
        return True

    def _limits_of_robot(self) -> dict[str, JointLimits] | None:
        if self._urdf is None:
            text = self._link.robot_urdf()
            if text is None and self._config.robot.description_topic:
                return None
            self._urdf = joint_limits(text) if text else {}
        return self._urdf


def check_watched(config: Config, interface: str) -> None:
    """
    Refuse a controller that would hold the last effort or velocity of a dead actor for ever.

    Raises
    ------
    ConfigError
        It is one, and it is not allowed.

    """
    if config.robot.output == 'forward_command' and interface != 'position' \
            and not config.deploy.allow_unwatched:
        raise ConfigError(f'robot.output = forward_command: {interface} commands are held for '
                          'ever when this process dies; needs deploy.allow_unwatched')

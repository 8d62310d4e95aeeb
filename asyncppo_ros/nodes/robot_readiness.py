"""Whether a robot can be commanded at all: what must be known of it, and what is wrong."""

import time

from rclpy.node import Node

from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.nodes.policy_estop import EmergencyStop
from asyncppo_ros.nodes.robot_clock import lacking_clock
from asyncppo_ros.nodes.robot_limits import RobotLimits
from asyncppo_ros.nodes.robot_link import is_unwatched, others_told, RobotLink
from asyncppo_ros.robot.measured import MeasuredState
from asyncppo_ros.robot.safety import Supervisor


class Readiness:
    """
    Looks at a robot that an actor is to command, and makes its safety supervisor.

    Parameters
    ----------
    node : Node
    config : Config
    limits : RobotLimits
    measured : MeasuredState
    link : RobotLink
    estop : EmergencyStop

    Attributes
    ----------
    supervisor : Supervisor or None
        None until the limits of the robot are known.

    """

    def __init__(self, node: Node, config: Config, limits: RobotLimits, measured: MeasuredState,
                 link: RobotLink, estop: EmergencyStop) -> None:
        self.supervisor: Supervisor | None = None
        self._node, self._config, self._limits = node, config, limits
        self._measured, self._link, self._estop = measured, link, estop

    def reasons(self) -> list[str]:
        """
        Say why the robot cannot be commanded now; empty = it can.

        Raises
        ------
        UserError
            The URDF or the controller does not fit the task.

        """
        lacking = self._limits.lacking()
        if not lacking and self.supervisor is None:
            # Nothing is ramped in: the transitions would not be those of the actions.
            self.supervisor = self._limits.supervisor(ramp_s=0.0)
        reasons = [*lacking_clock(self._node), *lacking]
        if self._config.robot.output == 'forward_command' and not self._link.controller_order():
            reasons.append(f'{self._link.controller} does not say its joints')
        if not self._link.listeners():
            reasons.append(f'nobody listens on {self._link.topic}')
        reasons += others_told(self._link, self._config)
        missing = self._measured.missing()
        if missing:
            return [*reasons, f'never heard: {", ".join(missing)}']
        return [*reasons, *self.faults(time.monotonic())]

    def faults(self, now: float) -> list[str]:
        """Say what is wrong with what is measured, or that the robot must not move."""
        return [*self._measured.faults(now), *self._estop.faults(now)]


def check_watched(config: Config, interface: str) -> None:
    """
    Refuse a controller that would hold the last effort or velocity of a dead actor for ever.

    Raises
    ------
    ConfigError
        It is one, and it is not allowed.

    """
    if is_unwatched(config, interface):
        raise ConfigError(f'robot.output = forward_command: {interface} commands are held for '
                          'ever when this process dies; needs deploy.allow_unwatched')

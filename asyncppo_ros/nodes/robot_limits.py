"""The limits of a robot: of the task that a policy was trained for, and of its URDF."""

from collections.abc import Callable, Mapping
import pathlib
from typing import Any

from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.robot.limits import Limits, tighter_of
from asyncppo_ros.robot.safety import SafetySettings, Supervisor
from asyncppo_ros.robot.urdf import joint_limits, JointLimits


class RobotLimits:
    """
    Known once the URDF is: that of the file `robot.urdf`, or of the topic.

    Parameters
    ----------
    config : Config
    card : mapping
        Of the task.
    names : mapping from str to str
        The name on the robot of each joint of the task.
    brought : callable
        Gives the URDF that the topic has brought, or None so far; see `RobotLink.robot_urdf`.

    Raises
    ------
    UserError
        The file cannot be read or is malformed.

    """

    def __init__(self, config: Config, card: Mapping[str, Any], names: Mapping[str, str],
                 brought: Callable[[], str | None]) -> None:
        self._config, self._card, self._names, self._brought = config, card, names, brought
        self._urdf = read_urdf(config.robot.urdf) if config.robot.urdf else None

    def lacking(self) -> list[str]:
        """
        Say that the URDF has not come, in a line; empty = the limits are known.

        Raises
        ------
        UserError
            It is malformed.

        """
        if self._known_urdf() is not None:
            return []
        return [f'no URDF came on {self._config.robot.description_topic}: give robot.urdf, or '
                'set robot.description_topic to "" where the limits in the policy shall do']

    def limits(self) -> Limits:
        """
        Give the tighter of the policy's and the URDF's; of the policy alone while that lacks.

        Raises
        ------
        UserError
            The URDF is malformed or does not fit the policy.

        """
        deploy = self._config.deploy
        return tighter_of(self._card['action'], self._card.get('controller') or {},
                          self._known_urdf() or {}, self._names, deploy.rate_limit,
                          deploy.max_speed)

    def supervisor(self, ramp_s: float) -> Supervisor:
        """
        Make the safety supervisor of these limits.

        Parameters
        ----------
        ramp_s : float
            [s]

        Raises
        ------
        UserError
            As `limits`.

        """
        deploy, action = self._config.deploy, self._card['action']
        return Supervisor(
            self.limits(), action['interface'], action['control_dt'],
            SafetySettings(ramp_s, deploy.start_speed, deploy.max_deadline_misses,
                           deploy.max_tilt, deploy.damping))

    def _known_urdf(self) -> dict[str, JointLimits] | None:
        """Give the limits in the URDF; none where there shall be no URDF, None where it lacks."""
        if self._urdf is None:
            text = self._brought()
            if text is None and self._config.robot.description_topic:
                return None
            self._urdf = joint_limits(text) if text else {}
        return self._urdf


def read_urdf(path: str) -> dict[str, JointLimits]:
    """
    Read the limits of a robot from a file.

    Raises
    ------
    UserError
        It cannot be read or is malformed.

    """
    try:
        text = pathlib.Path(path).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, 'strerror', None) or 'not a text'
        raise ConfigError(f'robot.urdf = {path}: {reason}') from None
    return joint_limits(text)

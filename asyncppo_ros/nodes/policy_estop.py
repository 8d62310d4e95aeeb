"""The emergency stop: a service, and a topic that must keep saying that all is well."""

from collections.abc import Callable
import time
from typing import Any

from rclpy.node import Node
from std_msgs.msg import Bool

from asyncppo_ros.config import DeployConfig
from asyncppo_ros.nodes.qos import SENSOR_QOS


class EmergencyStop:
    """
    Latched: once pressed it stays so until `reset`, whatever the topic says later.

    Parameters
    ----------
    node : Node
        Its executor delivers the topic.
    config : DeployConfig
    pressed : callable
        Called with the reason at once when the stop is pressed.

    Attributes
    ----------
    reason : str
        Why it is pressed; '' = it is not.

    """

    def __init__(self, node: Node, config: DeployConfig, pressed: Callable[[str], None]) -> None:
        self.reason = ''
        self._node = node
        self._topic, self._timeout = config.estop_topic, config.estop_timeout_s
        self._pressed = pressed
        self._heard_at = -float('inf')
        self._subscription: Any = None
        if self._topic:
            self._subscription = node.create_subscription(Bool, self._topic, self._take,
                                                          SENSOR_QOS)

    def press(self, reason: str) -> None:
        """Stop the robot and keep it stopped."""
        if not self.reason:
            self.reason = reason
        self._pressed(reason)

    def reset(self) -> None:
        """Release the stop; a topic that still says stop presses it again."""
        self.reason = ''

    def faults(self, now: float) -> list[str]:
        """Say why the robot must not move; empty = it may."""
        if self.reason:
            return [self.reason]
        if not self._topic or now - self._heard_at <= self._timeout:
            return []
        silence = 'nothing was ever heard' if self._heard_at == -float('inf') \
            else f'silent for {now - self._heard_at:.2f} s'
        return [f'emergency stop: {silence} on {self._topic}, deploy.estop_timeout_s = '
                f'{self._timeout:g}']

    def close(self) -> None:
        """Listen no more."""
        if self._subscription is not None:
            self._node.destroy_subscription(self._subscription)
            self._subscription = None

    def _take(self, message: Bool) -> None:
        self._heard_at = time.monotonic()
        if message.data and not self.reason:
            self.press(f'emergency stop on {self._topic}')

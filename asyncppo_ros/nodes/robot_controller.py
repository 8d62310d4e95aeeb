"""The joints of a forward_command_controller: its messages have numbers and no names."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from rcl_interfaces.srv import GetParameters
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.node import Node

from asyncppo_ros.errors import ConfigError

# A controller that has not said its joints is asked again after this time [s].
ASK_S = 0.5


class ControllerOrder:
    """
    Which joint each number of a command is for: from the settings, or from the controller itself.

    Parameters
    ----------
    node : Node
        Some thread must spin it.
    controller : str
        The name of the controller's node; its parameter ``joints`` is asked for until it answers.
    names : sequence of str
        The A joints of the policy, by their names on the robot.
    given : sequence of str
        ``robot.joint_order``; empty = the controller is asked.

    Attributes
    ----------
    order : int [A] or None
        The place in the policy of each joint of the controller; None = not known, or wrong.

    Raises
    ------
    ConfigError
        The joints that are given are not those of the policy, or there is none to be asked.

    """

    def __init__(self, node: Node, controller: str, names: Sequence[str],
                 given: Sequence[str]) -> None:
        self.order: np.ndarray | None = None
        self._node, self._controller, self._names = node, controller, tuple(names)
        self._where = 'robot.joint_order' if given else controller
        self._joints: tuple[str, ...] | None = None
        self._client: Any = None
        self._timer: Any = None
        if given:
            self._take(tuple(given))
            self._check(tuple(given))
            return
        if not controller:
            raise ConfigError('robot.output_topic: no controller could be asked for its joints '
                              'there; give robot.joint_order')
        self._client = node.create_client(GetParameters, f'{controller}/get_parameters')
        # Not on the ROS clock: it may stand still.
        self._timer = node.create_timer(ASK_S, self._ask,
                                        clock=Clock(clock_type=ClockType.STEADY_TIME))

    def joints(self) -> tuple[str, ...] | None:
        """
        Give the joints of the controller, in its order, or None so far.

        Raises
        ------
        ConfigError
            They are not those of the policy.

        """
        if self._joints is not None:
            self._check(self._joints)
        return self._joints

    def close(self) -> None:
        """Ask no more."""
        if self._timer is not None:
            self._node.destroy_timer(self._timer)
            self._node.destroy_client(self._client)
            self._timer = self._client = None

    def _ask(self) -> None:
        if self._joints is None and self._client.service_is_ready():
            request = GetParameters.Request(names=['joints'])
            self._client.call_async(request).add_done_callback(self._take_answer)

    def _take_answer(self, future: Any) -> None:
        answer = future.result()
        if answer is not None and answer.values and answer.values[0].string_array_value:
            self._take(tuple(answer.values[0].string_array_value))

    def _take(self, joints: tuple[str, ...]) -> None:
        if sorted(joints) == sorted(self._names):
            self.order = np.array([self._names.index(joint) for joint in joints])
        self._joints = joints

    def _check(self, joints: tuple[str, ...]) -> None:
        for joint in self._names:
            if joints.count(joint) != 1:
                raise ConfigError(f'{self._where} has the joints {", ".join(joints)}: the policy '
                                  f'moves {joint}, which must be there once')
        for joint in joints:
            if joint not in self._names:
                raise ConfigError(f'{self._where} has the joint {joint}, which the policy does '
                                  'not move; use a controller of its joints alone')

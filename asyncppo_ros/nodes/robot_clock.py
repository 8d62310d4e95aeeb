"""The clock that control steps on a robot are counted by."""

from collections.abc import Callable
from typing import Any

from rclpy.clock import JumpThreshold
from rclpy.duration import Duration
from rclpy.node import Node

from asyncppo_ros.nodes.policy_pace import Pace, SimulatedPace, SteadyPace
from asyncppo_ros.robot.measured import MeasuredState


def uses_sim_time(node: Node) -> bool:
    """Say whether a node lives by ``/clock``."""
    return bool(node.get_parameter('use_sim_time').value)


def lacking_clock(node: Node) -> list[str]:
    """Say that the clock a node lives by does not come, in a line; empty = there is one."""
    if uses_sim_time(node) and node.get_clock().now().nanoseconds == 0:
        return ['use_sim_time is true, and nobody publishes /clock']
    return []


def pace_of(node: Node, control_dt: float, measured: MeasuredState, patience: float) -> Pace:
    """
    Give what says when a control step is due.

    Parameters
    ----------
    node : Node
    control_dt : float
        [s]
    measured : MeasuredState
    patience : float
        In simulated time: how long a state is waited for; see `SimulatedPace` [s].

    """
    if not uses_sim_time(node):
        return SteadyPace(control_dt)
    clock = node.get_clock()
    return SimulatedPace(control_dt, lambda: clock.now().nanoseconds * 1e-9, measured, patience)


def on_each_tick(node: Node, call: Callable[[], None]) -> Any:
    """
    Have something called whenever simulated time goes on.

    Returns
    -------
    object or None
        Its `unregister` ends that; None = the node does not live by simulated time.

    """
    if not uses_sim_time(node):
        return None
    return node.get_clock().create_jump_callback(
        JumpThreshold(min_forward=Duration(nanoseconds=1), min_backward=Duration(nanoseconds=-1),
                      on_clock_change=True),
        post_callback=lambda jump: call())

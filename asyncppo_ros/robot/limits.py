"""What no command may go beyond: the tighter of the policy's card and the robot's URDF."""

from collections.abc import Mapping, Sequence
import dataclasses
import math
from typing import Any

import numpy as np

from asyncppo_ros.errors import RobotError
from asyncppo_ros.robot.urdf import JointLimits

# A joint may be measured so much faster than its limit before it is taken for out of control.
_SPEED_MARGIN = 1.2


@dataclasses.dataclass(frozen=True, eq=False)
class Limits:
    """
    Limits of the commands of all moved joints, each float64 [A].

    Attributes
    ----------
    joints : tuple of str
        By their names in the policy.
    low, high : [A]
        Of a command, in the unit of the interface.
    rate : [A]
        Largest change of a command per second; inf = any.
    speed : [A]
        A joint that is measured faster is stopped [rad/s] or [m/s]; inf = never.
    effort : [A]
        Largest absolute effort [N m] or [N]; inf = any.

    Raises
    ------
    RobotError
        A joint has no room between its limits, or a limit is NaN.

    """

    joints: tuple[str, ...]
    low: np.ndarray
    high: np.ndarray
    rate: np.ndarray
    speed: np.ndarray
    effort: np.ndarray

    def __post_init__(self) -> None:
        """Check what a safety supervisor relies on."""
        for joint, *values in zip(self.joints, self.low, self.high, self.rate, self.speed,
                                  self.effort):
            low, high, rate, speed, effort = values
            if not low < high:
                raise RobotError(f'joint {joint!r}: no command lies between its limits {low:g} '
                                 f'and {high:g}; compare the URDF with the policy')
            if not (rate > 0.0 and speed > 0.0 and effort > 0.0):
                raise RobotError(f'joint {joint!r}: rate = {rate:g}, speed = {speed:g}, effort = '
                                 f'{effort:g}: must be above 0')


def tighter_of(action_card: Mapping[str, Any], controller_card: Mapping[str, Any],
               urdf: Mapping[str, JointLimits], joint_names: Mapping[str, str],
               rate_limit: float = 0.0, max_speed: float = 0.0) -> Limits:
    """
    Give the limits of the commands of a policy on a robot.

        position: low, high = the tighter of the card and the URDF
        velocity: low, high = the tighter of the card and ± velocity of the URDF
        effort:   low, high = the tighter of the card and ± effort
        effort    = the smaller of `effort_limit` of the card and effort of the URDF
        rate      = the smaller of `rate_limit` of the card and of the settings
        speed     = `max_speed`, or 1.2 · velocity of the URDF

    Parameters
    ----------
    action_card, controller_card : mapping
        The entries ``action`` (see `ActionMap.card`) and ``controller`` of the task's card.
    urdf : mapping from str to JointLimits
        By the names on the robot; empty = there is no URDF.
    joint_names : mapping from str to str
        The name on the robot of each joint that has another one in the policy.
    rate_limit : float
        ``deploy.rate_limit``; 0 = none.
    max_speed : float
        ``deploy.max_speed``; 0 = from the URDF.

    Raises
    ------
    RobotError
        The URDF lacks a joint, or there is no room between the limits of one, or velocity or
        effort commands may not be 0, so that nothing would stop the robot.

    """
    joints, interface = tuple(action_card['joints']), action_card['interface']
    known = [_of_robot(urdf, joint, joint_names.get(joint, joint)) for joint in joints]
    effort = np.minimum(_numbers(controller_card.get('effort_limit'), joints, math.inf),
                        [limits.effort for limits in known])
    velocity = np.array([limits.velocity for limits in known])
    if interface == 'position':
        low = np.array([limits.low for limits in known])
        high = np.array([limits.high for limits in known])
    else:
        high = velocity if interface == 'velocity' else effort
        low = -high
    low = np.maximum(low, _numbers(action_card.get('low'), joints, -math.inf))
    high = np.minimum(high, _numbers(action_card.get('high'), joints, math.inf))
    rate = _numbers(action_card.get('rate_limit'), joints, math.inf)
    rate[rate == 0.0] = math.inf
    limits = Limits(joints, low, high, np.minimum(rate, rate_limit or math.inf),
                    np.full(len(joints), max_speed) if max_speed else _SPEED_MARGIN * velocity,
                    effort)
    _check_zero(limits, interface)
    return limits


def _check_zero(limits: Limits, interface: str) -> None:
    if interface == 'position':
        return
    for joint, low, high in zip(limits.joints, limits.low, limits.high):
        if not low <= 0.0 <= high:
            raise RobotError(f'joint {joint!r}: its {interface} commands lie between {low:g} and '
                             f'{high:g}: 0 must be among them, for it stops the robot')


def _of_robot(urdf: Mapping[str, JointLimits], joint: str, name: str) -> JointLimits:
    if not urdf:
        return JointLimits()
    if name not in urdf:
        other = '' if name == joint else f' (in the policy: {joint!r})'
        raise RobotError(f'URDF: has no moving joint {name!r}{other}; its joints: '
                         f'{", ".join(urdf)}; see robot.joint_names')
    return urdf[name]


def _numbers(entry: Sequence[float | None] | None, joints: Sequence[str],
             unlimited: float) -> np.ndarray:
    values = entry if entry is not None else [None] * len(joints)
    if len(values) != len(joints):
        raise RobotError(f'policy: {len(values)} limits for {len(joints)} joints in its card')
    return np.array([unlimited if value is None else value for value in values],
                    dtype=np.float64)

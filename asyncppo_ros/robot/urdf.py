"""Read the limits of joints from a URDF, with the standard library alone."""

import dataclasses
import math
from typing import NoReturn
from xml.parsers import expat

from asyncppo_ros.errors import RobotError

_MOVING = ('revolute', 'continuous', 'prismatic')


@dataclasses.dataclass(frozen=True)
class JointLimits:
    """
    Limits of one joint; infinite where there are none.

    Attributes
    ----------
    low, high : float
        Of the position [rad] or [m].
    velocity, effort : float
        Largest absolute values [rad/s] or [m/s], [N m] or [N].

    """

    low: float = -math.inf
    high: float = math.inf
    velocity: float = math.inf
    effort: float = math.inf


def joint_limits(text: str) -> dict[str, JointLimits]:
    """
    Give the limits of every revolute, continuous and prismatic joint, by its name.

    A ``velocity`` or ``effort`` of 0 is what exporters write where they know none: no limit.

    Parameters
    ----------
    text : str
        The URDF.

    Raises
    ------
    RobotError
        It is not a URDF, a number is wrong, or it declares entities, which a robot's
        description has no use for.

    """
    reader = _Reader()
    try:
        reader.parser.Parse(text, True)
    except expat.ExpatError as error:
        raise RobotError(f'URDF: {error}: not an XML text') from None
    return reader.limits


class _Reader:
    def __init__(self) -> None:
        self.limits: dict[str, JointLimits] = {}
        self._depth = 0
        # Of the joint that is being read: its name and type.
        self._joint: tuple[str, str] | None = None
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.EntityDeclHandler = self._refuse_entity

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if self._depth == 0 and tag != 'robot':
            raise RobotError(f'URDF: begins with <{tag}>, expected <robot>')
        # Deeper ones belong to transmissions and to ros2_control.
        if self._depth == 1 and tag == 'joint':
            self._begin_joint(attributes)
        elif self._depth == 2 and tag == 'limit' and self._joint is not None:
            name, kind = self._joint
            self.limits[name] = _limits(name, kind, attributes)
        self._depth += 1

    def _begin_joint(self, attributes: dict[str, str]) -> None:
        name, kind = attributes.get('name', ''), attributes.get('type', '')
        if not name:
            raise RobotError('URDF: a joint has no name')
        if kind not in _MOVING:
            return
        if name in self.limits:
            raise RobotError(f'URDF: joint {name!r} is there twice')
        self._joint = name, kind
        self.limits[name] = JointLimits()

    def _end(self, tag: str) -> None:
        self._depth -= 1
        if self._depth == 1:
            self._joint = None

    def _refuse_entity(self, name: str, *more: object) -> NoReturn:
        raise RobotError(f'URDF: declares the entity {name!r}: entities are refused')


def _limits(name: str, kind: str, attributes: dict[str, str]) -> JointLimits:
    def number(attribute: str) -> float:
        text = attributes.get(attribute, '0')
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if math.isnan(value):
            raise RobotError(f'URDF: joint {name!r}: {attribute} = {text!r}: must be a number (a '
                             'xacro file must be expanded first)')
        return value
    velocity, effort = abs(number('velocity')), abs(number('effort'))
    low, high = number('lower'), number('upper')
    if kind == 'continuous':
        low, high = -math.inf, math.inf
    elif low > high:
        raise RobotError(f'URDF: joint {name!r}: lower = {low:g} must not be above upper = '
                         f'{high:g}')
    return JointLimits(low, high, velocity or math.inf, effort or math.inf)

"""
Observation terms: pure numpy functions of a `RobotState`, the same in simulation and on a robot.

A term of one's own is a function with the decorator `term`::

    @term(size=1, unit='rad')
    def knee_difference(state, left, right):
        return (state.joint_position[:, state.columns((left,))]
                - state.joint_position[:, state.columns((right,))])

and is used as ``knee_difference(left='left_knee', right='right_knee')``.  It must be at the top
level of a module that the robot can import too: artefacts name it as ``my_pkg.terms:my_term``.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import importlib
import inspect
import json
from typing import Any

import numpy as np

from asyncppo_ros.errors import TaskError
from asyncppo_ros.robot.kinematics import Chain
from asyncppo_ros.robot.state import RobotState


@dataclasses.dataclass(frozen=True, eq=False)
class Term:
    """
    One part of an observation.

    Attributes
    ----------
    function : callable from RobotState to float64 [N, size]
        Pure: it changes nothing and remembers nothing.
    size : int
        Numbers per robot.
    unit : str
        Of those numbers, before `scale`.
    name : str
        For messages and the card.
    simulation_only : bool
        No robot can measure it; a policy that needs it is refused there.
    reference, parameters : str, mapping
        'module:function' and its arguments (JSON types), which make the term again.
    clip : float
        Limit of the absolute value, before `scale`; 0 = none.
    scale : float
        Factor.
    delay : int
        Age of the newest value that is given [control steps].
    history : int
        How many successive values are given, oldest first.
    noise : float
        Usual noise of the sensor: its standard deviation, in `unit`.  Training may add it.
    measured : bool
        By a sensor, with noise and delay; False for what a policy knows by itself.

    """

    function: Callable[[RobotState], np.ndarray]
    size: int
    unit: str = ''
    name: str = ''
    simulation_only: bool = False
    reference: str = ''
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    clip: float = 0.0
    scale: float = 1.0
    delay: int = 0
    history: int = 1
    noise: float = 0.0
    measured: bool = True

    def processed(self, **changes: Any) -> 'Term':
        """
        Give this term with another name, clip, scale, delay, history or noise.

        Raises
        ------
        TaskError
            A value is out of range.

        """
        changed = dataclasses.replace(self, **changes)
        for name, low in (('clip', 0.0), ('delay', 0), ('history', 1), ('noise', 0.0)):
            value = getattr(changed, name)
            if not value >= low:
                raise TaskError(f'observation term {self.name!r}: {name} = {value}: must be at '
                                f'least {low}')
        return changed

    def card(self) -> dict[str, Any]:
        """Give what makes the term again, in JSON types."""
        return {'term': self.reference, 'parameters': dict(self.parameters), 'name': self.name,
                'size': self.size, 'unit': self.unit, 'simulation_only': self.simulation_only,
                'clip': self.clip, 'scale': self.scale, 'delay': self.delay,
                'history': self.history}

    @classmethod
    def from_card(cls, entry: Mapping[str, Any]) -> 'Term':
        """
        Make the term again from its reference and parameters.

        Raises
        ------
        TaskError
            The reference is unknown, is not a term, or gives another size than the entry says.

        """
        reference = str(entry.get('term', ''))
        make = _find(reference)
        try:
            made = make(**entry.get('parameters', {}))
        except TypeError as error:
            raise TaskError(f'observation term {reference}: {error}') from error
        if 'size' in entry and made.size != entry['size']:
            raise TaskError(f'observation term {reference}: its size is {made.size} here and '
                            f'{entry["size"]} in the card')
        return made.processed(**{name: entry[name] for name in
                                 ('name', 'clip', 'scale', 'delay', 'history') if name in entry})


def factory(make: Callable[..., Term]) -> Callable[..., Term]:
    """Let a function that makes a `Term` note how it was called, so it can be made again."""
    signature = inspect.signature(make)

    @functools.wraps(make)
    def build(*arguments: Any, **parameters: Any) -> Term:
        bound = signature.bind(*arguments, **parameters)
        bound.apply_defaults()
        made = make(*bound.args, **bound.kwargs)
        return dataclasses.replace(made, name=made.name or make.__name__,
                                   reference=f'{make.__module__}:{make.__qualname__}',
                                   parameters=_plain(make.__name__, bound.arguments))

    build.makes_term = True  # type: ignore[attr-defined]
    return build


def term(size: int, unit: str = '', simulation_only: bool = False) -> Callable:
    """Turn ``function(state, **parameters) -> [N, size]`` into a maker of terms."""
    def decorate(function: Callable[..., np.ndarray]) -> Callable[..., Term]:
        @functools.wraps(function)
        def build(**parameters: Any) -> Term:
            return Term(functools.partial(function, **parameters), size, unit,
                        function.__name__, simulation_only,
                        f'{function.__module__}:{function.__qualname__}',
                        _plain(function.__name__, parameters))

        build.makes_term = True  # type: ignore[attr-defined]
        return build
    return decorate


@factory
def joint_position(joints: Sequence[str], offset: Sequence[float] = ()) -> Term:
    """Give joint positions minus `offset` (none = zeros) [rad] or [m]."""
    names, zero = tuple(joints), np.array(offset if len(offset) else [0.0] * len(joints))
    if len(zero) != len(names):
        raise TaskError(f'observation term joint_position: {len(names)} joints but {len(zero)} '
                        'offsets')
    return Term(lambda state: state.joint_position[:, state.columns(names)] - zero,
                len(names), 'rad|m', noise=0.01)


@factory
def joint_direction(joints: Sequence[str]) -> Term:
    """Give the cosines of joint angles, then their sines: no jump where an angle wraps."""
    names = tuple(joints)

    def function(state: RobotState) -> np.ndarray:
        angle = state.joint_position[:, state.columns(names)]
        return np.concatenate((np.cos(angle), np.sin(angle)), axis=1)
    return Term(function, 2 * len(names), noise=0.01)


@factory
def joint_velocity(joints: Sequence[str]) -> Term:
    """Give joint velocities [rad/s] or [m/s]."""
    names = tuple(joints)
    return Term(lambda state: state.joint_velocity[:, state.columns(names)],
                len(names), 'rad/s|m/s', noise=0.5)


@factory
def joint_effort(joints: Sequence[str]) -> Term:
    """Give joint efforts [N m] or [N]."""
    names = tuple(joints)
    return Term(lambda state: state.joint_effort[:, state.columns(names)], len(names), 'N m|N',
                noise=0.5)


@factory
def base_angular_velocity() -> Term:
    """Give the angular velocity of the base in its own frame [rad/s]."""
    return Term(lambda state: state.base_angular_velocity, 3, 'rad/s', noise=0.1)


@factory
def projected_gravity() -> Term:
    """Give the unit vector of gravity in the frame of the base."""
    return Term(lambda state: state.projected_gravity, 3, noise=0.02)


@factory
def command(name: str, size: int, unit: str = '') -> Term:
    """Give what people or the task ask for."""
    return Term(lambda state: state.commanded(name), size, unit, f'command {name}',
                measured=False)


@factory
def last_action(size: int) -> Term:
    """Give the policy's own last action in (-1, 1)."""
    return Term(lambda state: state.last_action, size, measured=False)


@factory
def tip_to_goal(chain: Chain | Mapping[str, Any], goal: str = 'goal',
                turned_with: str = '') -> Term:
    """
    Give the vector from the tip of a chain to a commanded point [m].

    In the base frame, or in the frame that turns with a joint: behind the first joint of an arm
    the way to the goal looks the same wherever the arm points.
    """
    arm = chain if isinstance(chain, Chain) else Chain.from_card(chain)
    if turned_with and turned_with not in arm.joints:
        raise TaskError(f'observation term tip_to_goal: turned_with = {turned_with}: must be one '
                        f'of {", ".join(arm.joints)}')

    def function(state: RobotState) -> np.ndarray:
        joints = state.joint_position[:, state.columns(arm.joints)]
        vector = state.commanded(goal) - arm.tip(joints)
        return arm.turned_with(turned_with, joints, vector) if turned_with else vector
    return Term(function, 3, 'm', noise=0.002)


def _find(reference: str) -> Callable[..., Term]:
    """Import 'module:function'; nothing but a maker of terms is ever called."""
    module_name, _, name = reference.partition(':')
    if not module_name or not name:
        raise TaskError(f'observation term {reference!r}: expected module:function')
    try:
        found = getattr(importlib.import_module(module_name), name, None)
    except ImportError as error:
        raise TaskError(f'observation term {reference}: cannot import {module_name}: '
                        f'{error}') from error
    if not getattr(found, 'makes_term', False):
        raise TaskError(f'observation term {reference}: {module_name} has no term {name!r}')
    return found  # type: ignore[return-value]


def _plain(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Turn parameters into JSON types, so that an artefact can carry them."""
    def convert(value: Any) -> Any:
        if isinstance(value, Chain):
            return value.card()
        if isinstance(value, np.ndarray | np.generic):
            return value.tolist()
        raise TypeError(f'{type(value).__name__} {value!r}')
    try:
        return json.loads(json.dumps(dict(parameters), default=convert))
    except (TypeError, ValueError) as error:
        raise TaskError(f'observation term {name!r}: the parameter of type {error} cannot be '
                        'written into an artefact; use numbers, text and lists') from error

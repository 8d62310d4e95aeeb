"""What actions are: joint commands from (-1, 1), in simulation and on a robot; or choices."""

from collections.abc import Mapping, Sequence
import math
from typing import Any

import numpy as np

from asyncppo_ros.errors import TaskError
from asyncppo_ros.robot.state import RobotState

INTERFACES = ('position', 'velocity', 'effort')
MODES = ('absolute', 'delta')
# The interface of an action that is one of several choices: no joint understands it.
DISCRETE = 'discrete'
Numbers = float | Sequence[float]


def choices_of(action: Mapping[str, Any]) -> int:
    """
    Give the number of choices of a discrete action; 0 = the action is continuous.

    Parameters
    ----------
    action : mapping
        The ``action`` entry of `Environment.describe` and of the card.  A discrete one says
        ``interface: discrete`` and ``choices``.

    """
    return int(action['choices']) if action.get('interface') == DISCRETE else 0


class ActionMap:
    """
    Joint commands from actions, with the limits that hold in training and on the robot.

        absolute:  target = offset + scale · action
        delta:     target = measured + offset + scale · action
        command  = clip(clip(target, low, high), previous ± rate_limit · control_dt)

    Parameters
    ----------
    joints : sequence of str
        In the order of the action's columns.
    control_dt : float
        Period of a control step [s].
    interface : str
        position [rad|m], velocity [rad/s|m/s] or effort [N m|N].
    mode : str
        absolute or delta; delta adds to the measured position or velocity.
    offset, scale, low, high : float or one float per joint
        In the unit of the interface.
    rate_limit : float or one float per joint
        Largest change of a command per second; 0 = none.

    Raises
    ------
    TaskError
        A value is not allowed.

    """

    def __init__(self, joints: Sequence[str], control_dt: float, interface: str = 'position',
                 mode: str = 'absolute', offset: Numbers = 0.0, scale: Numbers = 1.0,
                 low: Numbers = -math.inf, high: Numbers = math.inf,
                 rate_limit: Numbers = 0.0) -> None:
        self.joints = tuple(joints)
        self.control_dt = float(control_dt)
        self.interface = interface
        self.mode = mode
        self.offset = self._per_joint('offset', offset)
        self.scale = self._per_joint('scale', scale)
        self.low = self._per_joint('low', low)
        self.high = self._per_joint('high', high)
        self.rate_limit = self._per_joint('rate_limit', rate_limit)
        self._check()
        self._clips = bool(np.isfinite([self.low, self.high]).any())
        self._limits_rate = bool(self.rate_limit.any())
        # Then a command is the action itself.
        self._changes_nothing = (mode == 'absolute' and bool((self.scale == 1.0).all())
                                 and not (self.offset.any() or self._clips
                                          or self._limits_rate))
        self._largest_change = np.where(self.rate_limit > 0.0,
                                        self.rate_limit * self.control_dt, math.inf)
        self._previous = np.empty((0, self.size))

    @property
    def size(self) -> int:
        """Number of joints, A."""
        return len(self.joints)

    def command(self, action: np.ndarray, state: RobotState, out: np.ndarray) -> None:
        """
        Compute the command of every joint.

        Parameters
        ----------
        action : float [N, A]
            In (-1, 1).
        state : RobotState
            N robots, as measured before the command.
        out : float64 [N, A]
            Receives the commands, in the unit of the interface.

        """
        if self._changes_nothing:
            out[...] = action
            return
        np.multiply(action, self.scale, out=out)
        out += self.offset
        if self.mode == 'delta':
            out += self._measured(state)
        if self._clips:
            np.clip(out, self.low, self.high, out=out)
        if self._limits_rate:
            if len(self._previous) != len(out):
                self.reset(state, slice(None))
            np.clip(out, self._previous - self._largest_change,
                    self._previous + self._largest_change, out=out)
            self._previous[...] = out

    def action(self, command: np.ndarray, state: RobotState, out: np.ndarray) -> None:
        """
        Compute from which action in [-1, 1] a command may have come.

        Limits hide what the policy wanted beyond them: of a command at a limit the result is the
        smallest action that leads there.

        Parameters
        ----------
        command : float64 [N, A]
            In the unit of the interface.
        state : RobotState
            N robots, as measured before the command.
        out : float64 [N, A]
            Receives the actions; 0 where the scale is 0.

        """
        np.subtract(command, self.offset, out=out)
        if self.mode == 'delta':
            out -= self._measured(state)
        moves = self.scale != 0.0
        np.divide(out, self.scale, out=out, where=moves)
        out[:, ~moves] = 0.0
        np.clip(out, -1.0, 1.0, out=out)

    def reset(self, state: RobotState, rows: Sequence[int] | np.ndarray | slice) -> None:
        """
        Begin new episodes: the rate limit of these robots counts from where they are.

        Parameters
        ----------
        state : RobotState
            All N robots; a position command counts from the measured position, a velocity
            command from the measured velocity, an effort command from 0.
        rows : indices of robots
            Those that begin.

        """
        if not self._limits_rate:
            return
        if len(self._previous) != state.num_envs:
            self._previous = np.zeros((state.num_envs, self.size))
            rows = slice(None)
        if self.interface == 'effort':
            self._previous[rows] = 0.0
        else:
            self._previous[rows] = self._measured(state)[rows]

    def card(self) -> dict[str, Any]:
        """Give the whole table in JSON types; None where there is no limit."""
        def numbers(values: np.ndarray) -> list[float | None]:
            return [float(value) if math.isfinite(value) else None for value in values]
        return {'joints': list(self.joints), 'interface': self.interface, 'mode': self.mode,
                'offset': numbers(self.offset), 'scale': numbers(self.scale),
                'low': numbers(self.low), 'high': numbers(self.high),
                'rate_limit': numbers(self.rate_limit), 'control_dt': self.control_dt}

    @classmethod
    def from_card(cls, card: Mapping[str, Any]) -> 'ActionMap':
        """
        Make the map again from what `card` gave.

        Raises
        ------
        TaskError
            An entry is missing, unknown or not allowed.

        """
        values = dict(card)
        for name, unlimited in (('low', -math.inf), ('high', math.inf)):
            if name in values:
                values[name] = [unlimited if value is None else value for value in values[name]]
        try:
            return cls(**values)
        except TypeError as error:
            raise TaskError(f'action map: {error}') from error

    def _measured(self, state: RobotState) -> np.ndarray:
        columns = state.columns(self.joints)
        if self.interface == 'position':
            return state.joint_position[:, columns]
        return state.joint_velocity[:, columns]

    def _per_joint(self, name: str, value: Any) -> np.ndarray:
        numbers = np.array(value, dtype=np.float64)
        if numbers.shape not in ((), (len(self.joints),)):
            raise TaskError(f'action map: {name} has {numbers.size} numbers for '
                            f'{len(self.joints)} joints')
        if np.isnan(numbers).any() or (name not in ('low', 'high')
                                       and not np.isfinite(numbers).all()):
            raise TaskError(f'action map: {name} = {value}: must be finite')
        return np.broadcast_to(numbers, (len(self.joints),)).copy()

    def _check(self) -> None:
        if not self.joints:
            raise TaskError('action map: at least one joint is needed')
        if len(set(self.joints)) != len(self.joints):
            raise TaskError(f'action map: a joint is named twice in {", ".join(self.joints)}')
        for name, value, choices in (('interface', self.interface, INTERFACES),
                                     ('mode', self.mode, MODES)):
            if value not in choices:
                raise TaskError(f'action map: {name} = {value}: must be one of '
                                f'{", ".join(choices)}')
        if self.mode == 'delta' and self.interface == 'effort':
            raise TaskError('action map: mode = delta: needs the interface position or velocity')
        if not self.control_dt > 0.0:
            raise TaskError(f'action map: control_dt = {self.control_dt}: must be above 0 s')
        for joint, low, high in zip(self.joints, self.low, self.high):
            if not low < high:
                raise TaskError(f'action map: joint {joint}: low = {low} must be below '
                                f'high = {high}')
        if (self.rate_limit < 0.0).any():
            raise TaskError('action map: rate_limit must be at least 0')

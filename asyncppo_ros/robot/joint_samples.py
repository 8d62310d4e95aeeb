"""The newest sample of the joints of one robot."""

import collections
from collections.abc import Mapping, Sequence
import math
from typing import NamedTuple

import numpy as np

from asyncppo_ros.errors import RobotError
from asyncppo_ros.robot.needs import Needs, QUANTITIES
from asyncppo_ros.robot.samples import heard, NEVER, Refusal, Times, Watch

# Different orders of names that are remembered, and names of joints that nobody knows.
_MOST_LAYOUTS, _MOST_EXTRA = 64, 100
# Joints that a line names.
_MOST_NAMED = 3


class _Layout(NamedTuple):
    """Where the joints of a message lie: their places in it, and their columns."""

    places: np.ndarray
    columns: np.ndarray
    watch: Watch
    # Flat, in the table of all quantities and joints: what is needed of these joints.
    watched: np.ndarray


class JointSamples:
    """
    What was last heard of each quantity of each joint.

    Parameters
    ----------
    needs : Needs
    joints : tuple of str
        J columns.
    joint_names : mapping from str to str
        The name on the robot of each joint that has another one in the policy.

    Attributes
    ----------
    values : float64 [3, J]
        Position, velocity and effort; 0 = never heard.
    came, stamps : float64 [3, J]
        When each came, in steady time, and its stamp [s].
    needed : bool [3, J]
    extra : list of str
        Names on the robot that are no joint of the policy.

    """

    def __init__(self, needs: Needs, joints: tuple[str, ...],
                 joint_names: Mapping[str, str]) -> None:
        shape = (len(QUANTITIES), len(joints))
        self.values = np.zeros(shape)
        self.came = np.full(shape, NEVER)
        self.stamps = np.full(shape, NEVER)
        self.needed = np.array([[joint in getattr(needs, quantity) for joint in joints]
                                for quantity in QUANTITIES])
        self.extra: list[str] = []
        self._joints = joints
        self._column_of = _columns_by_robot_name(joints, joint_names)
        self._needed_index = np.flatnonzero(self.needed)
        self._layouts: dict[tuple[str, ...], _Layout] = {}
        self._watches: dict[tuple[int, ...], Watch] = {}

    def store(self, names: tuple[str, ...], told: Sequence[Sequence[float]],
              times: Times) -> None:
        """
        Keep a sample of some joints: position, velocity and effort, each of all or empty.

        Raises
        ------
        Refusal
            Something is wrong with it; then none of it is kept.

        """
        layout = self._layout_of(names)
        picked = [(row, self._picked(row, numbers, names, layout))
                  for row, numbers in enumerate(told) if len(numbers)]
        times.check('joint state')
        newest = [times.is_newest(self.stamps[row, layout.columns]) for row, _ in picked]
        if newest and len(layout.columns) and not any(fresh.any() for fresh in newest):
            raise Refusal('reordered', f'joint state of {times.stamp:.3f} s came after a newer '
                                       'one')
        for (row, numbers), fresh in zip(picked, newest):
            columns = layout.columns[fresh]
            known = np.isfinite(numbers[fresh])
            self.came[row, columns] = np.where(known, times.now, NEVER)
            self.stamps[row, columns] = times.stamp
            self.values[row, columns[known]] = numbers[fresh][known]
        if len(layout.watched):
            layout.watch.see(self.values.reshape(-1)[layout.watched].tobytes(), times)

    def oldest(self) -> float:
        """Give when that which is needed and was not heard for longest came; inf = no need."""
        if not len(self._needed_index):
            return math.inf
        return float(self.came.reshape(-1)[self._needed_index].min())

    def oldest_of_each(self) -> list[tuple[str, float]]:
        """Give the same of each joint that is needed, by its name in the policy."""
        oldest = np.where(self.needed, self.came, math.inf).min(axis=0).tolist()
        return [(joint, came) for joint, came in zip(self._joints, oldest) if came < math.inf]

    def needed_stamps(self) -> list[float]:
        """Give the stamps of all that is needed."""
        return self.stamps.reshape(-1)[self._needed_index].tolist()

    def missing(self) -> list[str]:
        """Name what is needed and was never heard."""
        return [f'{QUANTITIES[row]} of joint {self._joints[column]!r}'
                for row, column in np.argwhere(self.needed & (self.came == NEVER))]

    def known(self, now: float, timeout: float, frozen_s: float) -> np.ndarray:
        """Say what was heard of late by a sensor that is not frozen, bool [3, J]."""
        known = self.came >= now - timeout
        for columns, watch in self._watches.items():
            if watch.is_frozen(now, timeout, frozen_s):
                known[:, list(columns)] = False
        return known

    def faults(self, now: float, timeout: float, frozen_s: float) -> list[str]:
        """Say what is too old or frozen."""
        faults = [f'{watch.title}: the same numbers for {frozen_s:g} s (deploy.frozen_s)'
                  for watch in self._watches.values()
                  if watch.is_frozen(now, timeout, frozen_s)]
        if self.oldest() >= now - timeout:
            return faults
        stale = np.argwhere(self.needed & (self.came < now - timeout))
        named = ', '.join(f'{QUANTITIES[row]} of {self._joints[column]}'
                          for row, column in stale[:_MOST_NAMED])
        more = f' and {len(stale) - _MOST_NAMED} more' if len(stale) > _MOST_NAMED else ''
        age = now - float(min(self.came[row, column] for row, column in stale))
        return [f'joint state: {named}{more}: {heard(age)} (deploy.state_timeout_s = '
                f'{timeout:g})', *faults]

    def _picked(self, row: int, numbers: Sequence[float], names: tuple[str, ...],
                layout: _Layout) -> np.ndarray:
        """Give the numbers of one quantity in the order of the layout's columns."""
        values = np.asarray(numbers, dtype=np.float64)
        if len(values) != len(names):
            raise Refusal('lengths', f'joint state of {len(names)} joints has {len(values)} '
                                     f'numbers of {QUANTITIES[row]}')
        values = values[layout.places]
        wrong = ~np.isfinite(values)
        if wrong.any() and (wrong & self.needed[row, layout.columns]).any():
            place = int(np.argmax(wrong & self.needed[row, layout.columns]))
            raise Refusal('not finite', f'{QUANTITIES[row]} of joint '
                          f'{self._joints[layout.columns[place]]!r} is {values[place]}')
        return values

    def _layout_of(self, names: tuple[str, ...]) -> _Layout:
        found = self._layouts.get(names)
        if found is not None:
            return found
        twice = [name for name, count in collections.Counter(names).items() if count > 1]
        if twice:
            raise Refusal('joint twice', f'joint state names {twice[0]!r} twice')
        for name in names:
            if (name not in self._column_of and name not in self.extra
                    and len(self.extra) < _MOST_EXTRA):
                self.extra.append(name)
        places = [place for place, name in enumerate(names) if name in self._column_of]
        columns = np.array([self._column_of[names[place]] for place in places], dtype=int)
        if len(self._layouts) >= _MOST_LAYOUTS:
            self._layouts.clear()
        self._layouts[names] = layout = _Layout(np.array(places, dtype=int), columns,
                                                *self._watch_of(tuple(sorted(columns.tolist()))))
        return layout

    def _watch_of(self, columns: tuple[int, ...]) -> tuple[Watch, np.ndarray]:
        """Give the watch of a set of joints, whatever their order in messages."""
        if columns not in self._watches:
            if len(self._watches) >= _MOST_LAYOUTS:
                self._watches.clear()
                self._layouts.clear()
            title = ', '.join(self._joints[column] for column in columns[:_MOST_NAMED])
            more = ' …' if len(columns) > _MOST_NAMED else ''
            self._watches[columns] = Watch(f'joint state of {title}{more}')
        table = np.zeros(self.needed.shape, dtype=bool)
        table[:, list(columns)] = True
        return self._watches[columns], np.flatnonzero(table & self.needed)


def _columns_by_robot_name(joints: tuple[str, ...],
                           joint_names: Mapping[str, str]) -> dict[str, int]:
    for joint in joint_names:
        if joint not in joints:
            raise RobotError(f'robot.joint_names: {joint!r} is no joint of the policy; joints: '
                             f'{", ".join(joints)}')
    columns: dict[str, int] = {}
    for column, joint in enumerate(joints):
        name = joint_names.get(joint, joint)
        if name in columns:
            raise RobotError(f'robot.joint_names: {name!r} on the robot would be both '
                             f'{joints[columns[name]]!r} and {joint!r} of the policy')
        columns[name] = column
    return columns

"""What a policy must be told of a robot: found from its observation terms and its actions."""

from collections.abc import Callable, Iterable, Mapping
import dataclasses
from typing import Any, cast

import numpy as np

from asyncppo_ros.errors import ArtefactError, TaskError
from asyncppo_ros.robot.actions import ActionMap, DISCRETE
from asyncppo_ros.robot.observation import Observation
from asyncppo_ros.robot.state import RobotState, standing

QUANTITIES = ('position', 'velocity', 'effort')
_ENTRIES = ('control_dt', 'observation', 'action', 'joints', 'commands', 'start_pose')
_TOLD_BY_ORIENTATION = ('base_orientation', 'projected_gravity')
# Asking for these reads no number.
_SHAPE = ('shape', 'ndim', 'size', 'dtype')


@dataclasses.dataclass(frozen=True, eq=False)
class CommandNeed:
    """
    A command that a policy reads.

    Attributes
    ----------
    size : int
        Numbers.
    low, high : float64 [size] or None
        Between which it was asked for in training; None = no limits.

    """

    size: int
    low: np.ndarray | None
    high: np.ndarray | None


@dataclasses.dataclass(frozen=True, eq=False)
class Needs:
    """
    What a policy reads of a robot, by the policy's own names.

    Attributes
    ----------
    joints : tuple of str
        Every joint that is read or moved, in the order of the card.
    moved : tuple of str
        The joints of the actions, in their order.
    position, velocity, effort : frozenset of str
        Joints of which that must be known: a term reads it, or the action map, or the safety
        supervisor, which needs the position of every moved joint, and its velocity too where
        commands are velocities or efforts.
    orientation, angular_velocity : bool
        Whether those of the base must be known.
    commands : mapping from str to CommandNeed
        What people must ask for.
    by_term : mapping from str to str
        What each term reads, in words.

    """

    joints: tuple[str, ...]
    moved: tuple[str, ...]
    position: frozenset[str]
    velocity: frozenset[str]
    effort: frozenset[str]
    orientation: bool
    angular_velocity: bool
    commands: Mapping[str, CommandNeed]
    by_term: Mapping[str, str]


def needs_of(task_card: Mapping[str, Any],
             also: Mapping[str, Callable[[RobotState], Any]] | None = None) -> Needs:
    """
    Find what a policy needs, by calling each of its terms once with a state that takes notes.

    Parameters
    ----------
    task_card : mapping
        The ``task`` entry of an artefact's card, see `BatchedSimulation.describe`.
    also : mapping from str to callable, optional
        Further functions of the state, by what they are called: what they read is needed, too.

    Raises
    ------
    ArtefactError
        No robot can run the policy: a term exists only in simulation, the action is one of
        several choices, or the card is too old to say what is needed.

    """
    title = f'policy of task {task_card.get("task", "?")}'
    _check_deployable(task_card, title)
    names = tuple(task_card['joints'])
    try:
        terms = Observation.from_card(task_card['observation']).terms
        actions = ActionMap.from_card(task_card['action'])
        sizes = {name: int(entry['size']) for name, entry in task_card['commands'].items()}
        functions = [(term.name, f'observation term {term.name!r}', term.function)
                     for term in terms]
        functions += [(name, name, function) for name, function in (also or {}).items()]
        notes = [_notes_of(title_, function, names, actions.size, sizes)
                 for _, title_, function in functions]
    except TaskError as error:
        raise ArtefactError(f'{title}: {error}') from None
    for joint in actions.joints:
        if joint not in names:
            raise ArtefactError(f'{title}: action joint {joint!r} is none of its joints: '
                                f'{", ".join(names)}')
    read = {quantity: frozenset(names[column] for note in notes
                                for column in note.read[quantity])
            for quantity in QUANTITIES}
    moved = frozenset(actions.joints)
    position = read['position'] | moved
    velocity = read['velocity'] | (moved if actions.interface != 'position' else frozenset())
    touched = position | velocity | read['effort']
    asked = {name for note in notes for name in note.commands}
    return Needs(
        joints=tuple(joint for joint in names if joint in touched), moved=actions.joints,
        position=position, velocity=velocity, effort=read['effort'],
        orientation=any(note.attributes & {*_TOLD_BY_ORIENTATION} for note in notes),
        angular_velocity=any('base_angular_velocity' in note.attributes for note in notes),
        commands={name: _command_need(entry) for name, entry in task_card['commands'].items()
                  if name in asked},
        by_term=_unique((name, note.words(names))
                        for (name, _, _), note in zip(functions, notes)))


def _check_deployable(card: Mapping[str, Any], title: str) -> None:
    action = card.get('action') or {}
    if action.get('interface') == DISCRETE:
        raise ArtefactError(f'{title}: its action is one of {action.get("choices")} choices, '
                            'which no joint of a robot understands')
    # Before the terms are made: those of a simulation may need its libraries.
    for entry in card.get('observation', ()):
        if entry.get('simulation_only'):
            raise ArtefactError(f'{title}: its observation term {entry.get("name")!r} exists '
                                'only in simulation: no robot measures it')
    if card.get('simulation_only'):
        raise ArtefactError(f'{title}: its observation term {card["simulation_only"][0]!r} '
                            'exists only in simulation: no robot measures it')
    for entry in _ENTRIES:
        if entry not in card:
            raise ArtefactError(f'{title}: its card has no entry {entry!r}: it was not made for '
                                'robots, or by an older version of this package')


def _command_need(entry: Mapping[str, Any]) -> CommandNeed:
    low, high = (None if entry.get(side) is None else np.array(entry[side], dtype=np.float64)
                 for side in ('low', 'high'))
    return CommandNeed(int(entry['size']), low, high)


def _unique(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Give each name that comes again a number."""
    named: dict[str, str] = {}
    for name, words in pairs:
        number, key = 1, name
        while key in named:
            number += 1
            key = f'{name} ({number})'
        named[key] = words
    return named


def _notes_of(title: str, function: Callable[[RobotState], Any], joints: tuple[str, ...],
              action_size: int, commands: Mapping[str, int]) -> '_Notes':
    notes = _Notes(standing(joints, action_size, commands=commands))
    try:
        with np.errstate(all='ignore'):
            function(cast(RobotState, notes))
    except AttributeError as error:
        raise TaskError(f'{title} reads state.{error.name}, which no robot '
                        'measures') from error
    return notes


class _Notes:
    """Stands for the state of one robot and notes what is read of it."""

    def __init__(self, state: RobotState) -> None:
        self._state = state
        self.attributes: set[str] = set()
        self.commands: set[str] = set()
        self.read: dict[str, set[int]] = {quantity: set() for quantity in QUANTITIES}

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._state, name)
        self.attributes.add(name)
        if name == 'command':
            return _NotedCommands(value, self.commands)
        quantity = name.removeprefix('joint_')
        if quantity in QUANTITIES:
            return _NotedNumbers(value, self.read[quantity].update)
        return value

    def commanded(self, name: str) -> np.ndarray:
        """Give one command, as `RobotState.commanded`."""
        self.commands.add(name)
        return self._state.commanded(name)

    def words(self, joints: tuple[str, ...]) -> str:
        """Say what was read."""
        said = [f'{quantity} of {", ".join(joints[column] for column in sorted(columns))}'
                for quantity, columns in self.read.items() if columns]
        if self.attributes & {*_TOLD_BY_ORIENTATION}:
            said.append('orientation of the base')
        if 'base_angular_velocity' in self.attributes:
            said.append('angular velocity of the base')
        said += [f'command {name}' for name in sorted(self.commands)]
        return '; '.join(said) or 'nothing of the robot'


class _NotedCommands(dict):
    def __init__(self, commands: Mapping[str, np.ndarray], names: set[str]) -> None:
        super().__init__(commands)
        self._names = names

    def __getitem__(self, name: str) -> Any:
        self._names.add(name)
        return super().__getitem__(name)


class _NotedNumbers(np.lib.mixins.NDArrayOperatorsMixin):
    """An array [1, J] that notes which columns are read; whatever is no indexing reads all."""

    def __init__(self, values: np.ndarray, note: Callable[[list[int]], None]) -> None:
        self._values = values
        self._note = note
        self._numbers = np.arange(values.shape[1])[None]

    def __getitem__(self, key: Any) -> np.ndarray:
        self._note(np.ravel(self._numbers[key]).tolist())
        return self._values[key]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self._note(self._numbers[0].tolist())
        return np.array(self._values, dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **more: Any) -> Any:
        plain = [np.asarray(given) if isinstance(given, _NotedNumbers) else given
                 for given in inputs]
        return getattr(ufunc, method)(*plain, **more)

    def __getattr__(self, name: str) -> Any:
        if name not in _SHAPE:
            self._note(self._numbers[0].tolist())
        return getattr(self._values, name)

    def __len__(self) -> int:
        return len(self._values)

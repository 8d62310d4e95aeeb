"""The pilot: a policy, its observation and its actions, one control step at a time."""

import collections
from collections.abc import Mapping
import json
from typing import Any

import numpy as np

from asyncppo_ros.errors import ArtefactError, TaskError
from asyncppo_ros.robot.actions import ActionMap
from asyncppo_ros.robot.artefact import Artefact
from asyncppo_ros.robot.needs import needs_of
from asyncppo_ros.robot.numpy_policy import NumpyPolicy
from asyncppo_ros.robot.observation import Observation
from asyncppo_ros.robot.state import RobotState

# Entries of the task's card that policies which follow each other share.
_SHARED = ('control_dt', 'observation', 'action', 'joints', 'commands', 'controller')
# So many policies act together at most, while each takes over from those before.
_MOST_POLICIES = 4
_EVERY_ROW = slice(None)


class Pilot:
    """
    Gives a target for every joint from what is known of one robot.

    It does with a measured state what `BatchedSimulation` and the evaluation do with a
    simulated one: equal states give equal targets, bit for bit.

    Parameters
    ----------
    artefact : Artefact
        A checked policy.

    Attributes
    ----------
    card : mapping
        Of the policy in command.
    needs : Needs
        What it must be told.
    control_dt : float
        Period of a control step [s].
    joints : tuple of str
        The moved ones, in the order of the targets.
    interface : str
        What targets are: position, velocity or effort.
    start_pose : float64 [A]
        Where episodes began in training.
    observation, action_map : Observation, ActionMap
        Made from the card.
    policy : NumpyPolicy
        The newest one.

    Raises
    ------
    ArtefactError
        No robot can run the policy, or its parts do not fit each other.

    """

    def __init__(self, artefact: Artefact) -> None:
        task = artefact.card['task']
        self.needs = needs_of(task)
        self.card: Mapping[str, Any] = artefact.card
        self.policy = NumpyPolicy(artefact)
        self._mean = artefact.tensors['normalizer.mean']
        try:
            self.observation = Observation.from_card(task['observation'])
            self.action_map = ActionMap.from_card(task['action'])
        except TaskError as error:
            raise ArtefactError(f'policy of task {task["task"]}: {error}') from None
        self._check_sizes(self.policy)
        self.control_dt = self.action_map.control_dt
        self.joints = self.action_map.joints
        self.interface = self.action_map.interface
        self.start_pose = _start_pose(task, self.joints)
        self._row = np.zeros((1, self.observation.size), np.float32)
        self._last_action = np.zeros((1, self.action_map.size))
        self._target = np.zeros((1, self.action_map.size))
        self._is_first = True
        self._has_begun = False
        # Each policy that acts and its share of the action.
        self._acting: list[tuple[NumpyPolicy, float]] = [(self.policy, 1.0)]
        self._takeover: _Takeover | None = None
        self._next: collections.deque[_Takeover] = collections.deque(maxlen=1)

    @property
    def identity(self) -> tuple[int, int]:
        """Generation and policy_version of the policy in command."""
        return int(self.card['generation']), int(self.card['policy_version'])

    @property
    def run_id(self) -> int:
        """The run that made the policy."""
        return int(self.card['run_id'])

    @property
    def observation_row(self) -> np.ndarray:
        """What the policy was last shown, float32 [O], raw; a copy."""
        return self._row[0].copy()

    @property
    def last_action(self) -> np.ndarray:
        """The policy's own last action in (-1, 1), float64 [A]; a copy."""
        return self._last_action[0].copy()

    def begin(self, state: RobotState) -> None:
        """Begin an episode: no last action, and the rate limit counts from where the robot is."""
        self._last_action[...] = 0.0
        self.action_map.reset(state, _EVERY_ROW)
        self._is_first = self._has_begun = True

    def target(self, state: RobotState, out: np.ndarray | None = None) -> np.ndarray:
        """
        Make one control step.

        Parameters
        ----------
        state : RobotState
            One robot, as measured now; its `last_action` is written.
        out : float64 [A], optional
            Receives the target.

        Returns
        -------
        float64 [A]
            In the unit of the interface.

        Raises
        ------
        TaskError
            A term gave a number that is not finite.
        PolicyError
            A policy did.

        """
        if not self._has_begun:
            self.begin(state)
        self._take_next()
        state.last_action[...] = self._last_action
        if self._is_first:
            self.observation.reset(state, _EVERY_ROW, self._row)
            self._is_first = False
        else:
            self.observation.observe(state, self._row)
        # Also in the state: the action map is given what it would be given in simulation.
        state.last_action[...] = self._act()
        self._last_action[...] = state.last_action
        self.action_map.command(state.last_action, state, self._target)
        if out is None:
            return self._target[0].copy()
        out[...] = self._target[0]
        return out

    def swap(self, artefact: Artefact, steps: int = 0) -> None:
        """
        Let another policy take over from the next control step on; from any thread.

        Over `steps` control steps actions move from the old policy's to the new one's; the last
        action that both are told is the mixture.  A policy that comes while others still take
        over is mixed in the same way, up to four at once; of several that wait the newest is
        taken.

        Raises
        ------
        ArtefactError
            It reads, does or runs at something else than the present one: the entry is named.
        PolicyError
            It gives numbers that are not finite.

        """
        ours, theirs = self.card['task'], artefact.card['task']
        for entry in _SHARED:
            if _plain(ours.get(entry)) != _plain(theirs.get(entry)):
                raise ArtefactError(
                    f'policy of generation {artefact.card.get("generation")}, version '
                    f'{artefact.card.get("policy_version")}: its {entry} is not that of the '
                    'policy in command')
        policy = NumpyPolicy(artefact)
        self._check_sizes(policy)
        # Whatever it allocates is allocated here, in the thread that has time.
        _try_out(policy, artefact.tensors['normalizer.mean'])
        self._next.append(_Takeover(policy, artefact.card, max(int(steps), 0)))

    def warm_up(self) -> None:
        """
        Make one inference on the mean observation, so that the first control step is no slower.

        Raises
        ------
        PolicyError
            A number is not finite.

        """
        _try_out(self.policy, self._mean)

    def _act(self) -> np.ndarray:
        """Give the action of the policies in command, float32 or float64 [1, A]."""
        if self._takeover is None:
            return self.policy.act(self._row)
        self._shift_shares()
        action = np.zeros_like(self._last_action)
        for policy, share in self._acting:
            action += share * policy.act(self._row)
        return action

    def _take_next(self) -> None:
        """Let the policy that waits begin to take over."""
        if not self._next or len(self._acting) >= _MOST_POLICIES:
            return
        self._takeover = takeover = self._next.popleft()
        self.policy, self.card = takeover.policy, takeover.card
        self._acting.append((takeover.policy, 0.0))
        takeover.begin([share for _, share in self._acting[:-1]])

    def _shift_shares(self) -> None:
        """Move one control step from the old policies towards the new one."""
        takeover = self._takeover
        assert takeover is not None
        shares = takeover.advance()
        if shares[-1] < 1.0:
            self._acting = [(policy, share) for (policy, _), share in zip(self._acting, shares)]
        else:
            self._acting, self._takeover = [(takeover.policy, 1.0)], None

    def _check_sizes(self, policy: NumpyPolicy) -> None:
        for what, its, needed in (
                ('observation', policy.observation_size, self.observation.size),
                ('action', policy.action_size, self.action_map.size)):
            if its != needed:
                raise ArtefactError(f'architecture.{what}_size = {its}, but the {what} of the '
                                    f'task in its card has {needed} numbers')


class _Takeover:
    """A policy that takes over from those that act, a control step at a time."""

    def __init__(self, policy: NumpyPolicy, card: Mapping[str, Any], steps: int) -> None:
        self.policy = policy
        self.card = card
        self._steps = steps
        self._step = 0
        self._shares: list[float] = []

    def begin(self, shares: list[float]) -> None:
        """Note the shares of those that act."""
        self._shares = shares

    def advance(self) -> list[float]:
        """Give the shares of those that act and of the new policy in this control step."""
        self._step += 1
        mine = min(self._step / self._steps, 1.0) if self._steps else 1.0
        return [share * (1.0 - mine) for share in self._shares] + [mine]


def _try_out(policy: NumpyPolicy, mean: np.ndarray) -> None:
    policy.act(mean.astype(np.float32)[None])


def _start_pose(task: Mapping[str, Any], joints: tuple[str, ...]) -> np.ndarray:
    pose = task['start_pose']
    for joint in joints:
        if joint not in pose:
            raise ArtefactError(f'policy of task {task["task"]}: its start_pose lacks the joint '
                                f'{joint!r}')
    return np.array([pose[joint] for joint in joints], dtype=np.float64)


def _plain(entry: Any) -> str:
    """Give an entry as JSON, so that a tuple that was never written equals the list it became."""
    return json.dumps(entry, sort_keys=True)

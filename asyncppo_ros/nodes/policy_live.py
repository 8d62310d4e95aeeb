"""Policies that come while the robot runs: checked, taken over without a jump, taken back."""

from collections.abc import Callable, Mapping
import contextlib
import dataclasses
import hashlib
import json
import pathlib
import time
from typing import Any

from rclpy.node import Node
from std_msgs.msg import String, UInt8MultiArray

from asyncppo_ros.config import DeployConfig
from asyncppo_ros.errors import ArtefactError, PolicyError
from asyncppo_ros.nodes.policy_timing import Identity, Takeovers
from asyncppo_ros.nodes.qos import EVALUATION_TOPIC, LATCHED_QOS, POLICY_QOS, POLICY_TOPIC
from asyncppo_ros.robot.artefact import Artefact, parse_artefact
from asyncppo_ros.robot.pilot import Pilot

# So many policies can be gone back.
MOST_TAKEN = 8
# So many policies wait for their evaluation; of others only the newest is kept.
MOST_WAITING = 200
# Evaluations of the last so many policies are remembered.
MOST_SCORES = 1000


@dataclasses.dataclass(frozen=True, eq=False)
class Candidate:
    """A policy with its place in the order of its run, and what its bytes are known by."""

    artefact: Artefact
    mark: bytes = b''

    @property
    def identity(self) -> Identity:
        """Generation and policy_version."""
        card = self.artefact.card
        return int(card['generation']), int(card['policy_version'])

    @property
    def run_id(self) -> int:
        """The run that made it."""
        return int(self.artefact.card['run_id'])

    def __str__(self) -> str:
        return f'policy {self.identity[0]}.{self.identity[1]}'


class LivePolicies:
    """
    Which policy is in command: that of the file, newer ones of its run, or one gone back to.

    Parameters
    ----------
    node : Node
        Its executor delivers policies and evaluations; all methods are called there.
    config : DeployConfig
    key : bytes or None
        Refuse policies that are not signed with it.
    artefact : Artefact
        The policy that the node began with.
    scores : mapping from identity to float
        Evaluations that are known already.
    pilot : Pilot
        Takes the others, between two control steps.
    takeovers : Takeovers
        Is told when each was handed over.
    tell : callable
        Called after each change, and with each refusal, in one line.

    Attributes
    ----------
    refused, taken : int
        Live policies that failed a check, and those that took over.
    pinned : bool
        ~/rollback holds an older policy until ~/release.
    waiting : str
        Why the newest policy is not taken yet; '' where there is none.

    """

    def __init__(self, node: Node, config: DeployConfig, key: bytes | None, artefact: Artefact,
                 scores: Mapping[Identity, float], pilot: Pilot,
                 takeovers: Takeovers, tell: Callable[[str], None]) -> None:
        self._node, self._config, self._key, self._pilot = node, config, key, pilot
        self._takeovers = takeovers
        self._tell = tell
        self._steps = round(config.blend_s / pilot.control_dt)
        self._taken = [Candidate(artefact)]
        self._waiting: dict[Identity, Candidate] = {}
        self._refused: set[bytes] = set()
        self._scores = dict(scores)
        self.refused = self.taken = 0
        self.pinned = False
        self.waiting = ''
        self._subscriptions: list[Any] = []
        if config.live:
            self._subscriptions.append(node.create_subscription(
                UInt8MultiArray, POLICY_TOPIC, self._receive, POLICY_QOS))
        if config.live and config.live_gate:
            self._subscriptions.append(node.create_subscription(
                String, EVALUATION_TOPIC, self._evaluate, LATCHED_QOS))

    @property
    def current(self) -> Candidate:
        """The policy that was taken last."""
        return self._taken[-1]

    def rollback(self) -> str:
        """
        Go back to the policy before the present one and stay there until `release`.

        Returns
        -------
        str
            What was done, in words.

        Raises
        ------
        ArtefactError
            There is none before it.

        """
        if len(self._taken) < 2:
            raise ArtefactError(f'there is no policy before {self.current}')
        previous = self._taken[-2]
        self._pilot.swap(previous.artefact, self._steps)
        self._keep(self._taken.pop())
        self.pinned = True
        self.waiting = ''
        self._tell(f'went back to {previous}; newer ones wait for ~/release')
        return f'{previous} is in command until ~/release'

    def release(self) -> str:
        """Take the newest policy again; say what was done."""
        if not self.pinned:
            return f'nothing is held back; {self.current} is in command'
        self.pinned = False
        self._consider(time.monotonic())
        return self.waiting or f'{self.current} is in command'

    def close(self) -> None:
        """Listen no more."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._subscriptions = []

    def _receive(self, message: UInt8MultiArray) -> None:
        came = time.monotonic()
        label = message.layout.dim[0].label.encode() if message.layout.dim else b''
        # A repetition is not even copied.
        if label == b'asyncppo policy %d.%d' % max(self._waiting, default=self.current.identity):
            return
        data = bytes(message.data)
        mark = hashlib.sha256(data).digest()
        # The newest policy is published again and again: it is refused, told and counted once.
        if mark in self._refused:
            return
        try:
            candidate = Candidate(parse_artefact(data, self._key), mark)
        except ArtefactError as error:
            self._refuse(mark, f'{error}')
            return
        if candidate.run_id != self.current.run_id:
            self._refuse(mark, f'{candidate} is of run {candidate.run_id}, the one in command of '
                         f'run {self.current.run_id}')
        elif candidate.identity > self.current.identity:
            self._keep(candidate)
            self._consider(came)

    def _refuse(self, mark: bytes, reason: str) -> None:
        if len(self._refused) >= MOST_TAKEN:
            self._refused.clear()
        self._refused.add(mark)
        self.refused += 1
        self._tell(f'A LIVE POLICY WAS REFUSED: {reason}')

    def _evaluate(self, message: String) -> None:
        came = time.monotonic()
        try:
            row = json.loads(message.data)
            identity = int(row['generation']), int(row['policy_version'])
            run_id, score = int(row['run_id']), float(row['return_mean'])
        except (ValueError, TypeError, KeyError):
            return
        if run_id != self.current.run_id or score != score:
            return
        self._scores[identity] = score
        if len(self._scores) > MOST_SCORES:
            del self._scores[min(self._scores)]
        self._consider(came)

    def _keep(self, candidate: Candidate) -> None:
        self._waiting[candidate.identity] = candidate
        if len(self._waiting) > (MOST_WAITING if self._config.live_gate else 1):
            del self._waiting[min(self._waiting)]

    def _consider(self, came: float) -> None:
        """Take the newest policy that nothing speaks against; the news came at a steady time."""
        if self.pinned:
            return
        self._waiting = {identity: candidate for identity, candidate in self._waiting.items()
                         if identity > self.current.identity}
        self.waiting = ''
        for identity in sorted(self._waiting, reverse=True):
            objection = self._objection(self._waiting[identity])
            self.waiting = self.waiting or objection
            if not objection:
                self._take(self._waiting.pop(identity), came)
                break

    def _take(self, candidate: Candidate, came: float) -> None:
        try:
            self._pilot.swap(candidate.artefact, self._steps)
        except (ArtefactError, PolicyError) as error:
            self._refuse(candidate.mark, f'{error}')
            return
        self._takeovers.handed_over(candidate.identity, came, time.monotonic())
        self._taken = [*self._taken[-MOST_TAKEN + 1:], candidate]
        self.taken += 1
        self._tell(f'{candidate} takes over')

    def _objection(self, candidate: Candidate) -> str:
        """Say why a policy is not taken yet; '' = it is."""
        if not self._config.live_gate:
            return ''
        score, present = (self._scores.get(policy.identity)
                          for policy in (candidate, self.current))
        if score is None:
            return f'{candidate} waits for its evaluation'
        if present is None:
            return f'{candidate} waits for the evaluation of {self.current}'
        lowest = present - self._config.live_tolerance * abs(present)
        if score < lowest:
            return (f'{candidate} is held back: its return {score:.4g} is below {lowest:.4g}, '
                    f'that of {self.current} less deploy.live_tolerance')
        return ''


def known_scores(policy: pathlib.Path) -> dict[Identity, float]:
    """Read what a run's evaluator has said of its policies: `evaluations.jsonl` by the file."""
    for folder in (policy.parent, policy.parent.parent):
        file = folder / 'evaluations.jsonl'
        if not file.is_file():
            continue
        scores = {}
        for line in file.read_text(errors='replace').splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError):
                row = json.loads(line)
                identity = int(row['generation']), int(row['policy_version'])
                scores[identity] = float(row['return_mean'])
        return scores
    return {}

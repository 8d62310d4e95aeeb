"""
Compare a policy with what a robot tells: the node behind ``asyncppo check-deploy``.

It listens as the policy node does, with the same classes, and never sends a command.
"""

from collections.abc import Callable, Mapping
import dataclasses
import math
import time
from typing import Any

import numpy as np
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy

from asyncppo_ros.config import Config
from asyncppo_ros.errors import UserError
from asyncppo_ros.nodes.context import running
from asyncppo_ros.nodes.policy_deployment import LEAST_RATE
from asyncppo_ros.nodes.robot_clock import lacking_clock
from asyncppo_ros.nodes.robot_limits import RobotLimits
from asyncppo_ros.nodes.robot_link import is_unwatched
from asyncppo_ros.nodes.robot_listener import RobotListener, type_name
from asyncppo_ros.nodes.robot_messages import OUTPUT_TYPES
from asyncppo_ros.robot.artefact import Artefact
from asyncppo_ros.robot.limits import Limits
from asyncppo_ros.robot.numpy_policy import normalizer_arrays
from asyncppo_ros.robot.pilot import Pilot

NODE_NAME = 'check_deploy'
POLICY_NODE = 'policy_node'
# Further from the mean of training than this, in standard deviations, something is wrong.
MOST_Z = 5.0
# A topic that is slower than the policy by more than this is worth a note.
GOOD_RATE = 0.9
# A joint may be measured so far beyond the limits of its commands [rad] or [m].
LIMIT_MARGIN = 0.05


@dataclasses.dataclass
class Examination:
    """
    What was found.

    Attributes
    ----------
    joints, terms, topics : list of dict
        The rows of the tables; None where something is not known.
    mismatches : list of str
        Each in one line; empty = the policy fits.
    notes : list of str
        What to know, but no mismatch.

    """

    joints: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    terms: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    topics: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    mismatches: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Give all of it in JSON types; what is not finite as None."""
        def plain(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: plain(entry) for key, entry in value.items()}
            if isinstance(value, list):
                return [plain(entry) for entry in value]
            return None if isinstance(value, float) and not math.isfinite(value) else value
        return {'ok': not self.mismatches, **plain(dataclasses.asdict(self))}


def examine(artefact: Artefact, config: Config, seconds: float, namespace: str = '',
            use_sim_time: bool = False,
            stop: Callable[[], bool] = lambda: False) -> Examination:
    """
    Listen to a robot and compare.

    Parameters
    ----------
    artefact : Artefact
    config : Config
        Its `robot` and `deploy` are looked at.
    seconds : float
        How long is listened once everything was heard, or it was waited for in vain.
    namespace : str
    use_sim_time : bool
    stop : callable
        Says when to end early.

    Raises
    ------
    ArtefactError
        No robot can run the policy.
    ConfigError, RobotError
        The settings do not fit it.

    """
    pilot = Pilot(artefact)
    arguments = ['--ros-args', '-p', f'use_sim_time:={str(use_sim_time).lower()}']
    if namespace.strip('/'):
        arguments += ['-r', f'__ns:=/{namespace.strip("/")}']
    with running(lambda: Node(NODE_NAME), arguments) as node:
        heard = RobotListener(node, pilot, config)
        heard.listen(seconds, stop)
        found = _Comparison(node, artefact, pilot, heard, config).all()
        heard.link.close()
        return found


class _Comparison:
    """Every check, one after the other."""

    def __init__(self, node: Node, artefact: Artefact, pilot: Pilot, heard: RobotListener,
                 config: Config) -> None:
        self._node, self._artefact, self._pilot = node, artefact, pilot
        self._heard, self._config = heard, config
        self._task = artefact.card['task']
        self.found = Examination()
        self._wrong, self._note = self.found.mismatches.append, self.found.notes.append

    def all(self) -> Examination:
        """Fill in and give what was found."""
        self._check_topics()
        self._check_samples()
        self._check_base()
        self._check_joints()
        self._check_terms()
        self._check_output()
        return self.found

    def _check_topics(self) -> None:
        """See who publishes what, how often."""
        rates, ages = self._heard.link.rates(), self._heard.ages()
        needed = 1.0 / self._pilot.control_dt
        for topic, kind in self._heard.topics():
            publishers = self._node.get_publishers_info_by_topic(topic)
            rate = rates.get(topic)
            self._add_topic(topic, kind, 'in', publishers, rate, ages.get(topic))
            if topic not in rates:
                continue
            if not publishers:
                self._wrong(f'topic {topic}: nobody publishes it')
            elif rate and rate < GOOD_RATE * needed:
                say = self._wrong if rate < LEAST_RATE * needed else self._note
                say(f'topic {topic}: comes at {rate:.1f} Hz, the policy acts at {needed:.1f} Hz')

    def _check_samples(self) -> None:
        """See what is missing, refused, late or frozen."""
        measured = self._heard.measured
        missing = measured.missing()
        for name in missing:
            self._wrong(f'never heard: {name}')
        for cause, count in measured.refused.items():
            self._wrong(f'{count} samples refused: {cause}')
        if not missing:
            for fault in self._heard.faults.values():
                self._wrong(fault)
        for name, count in measured.held.items():
            self._note(f'command {name!r}: {count} times beyond the limits of the policy, and '
                       'held within them')
        if measured.extra:
            self._note(f'joints that the policy does not know: {", ".join(measured.extra)}')

    def _check_base(self) -> None:
        highest = self._config.deploy.max_tilt
        tilt = self._heard.measured.tilt(time.monotonic())
        if tilt is not None and highest and tilt > highest:
            self._wrong(f'the base is tilted by {tilt:.2f} rad (deploy.max_tilt = {highest:g}); '
                        'or see robot.imu_rotation')
        for line in lacking_clock(self._node):
            self._wrong(line)

    def _check_joints(self) -> None:
        """Set every joint beside its value, start pose and limits."""
        limits = self._limits()
        target = self._heard.first_command(limits) if limits is not None else None
        for joint, value in self._heard.values().items():
            name = self._heard.names[joint]
            topics = [topic for topic, names in self._heard.told.items() if name in names]
            row: dict[str, Any] = {
                'joint': joint, 'robot_joint': name, 'topics': topics,
                'value': value if topics else None,
                'start_pose': self._task['start_pose'].get(joint), 'low': None, 'high': None,
                'first_command': None}
            if joint in self._pilot.joints and limits is not None:
                index = self._pilot.joints.index(joint)
                row['low'], row['high'] = float(limits.low[index]), float(limits.high[index])
                row['first_command'] = None if target is None else float(target[index])
            self.found.joints.append(row)
            if topics:
                self._check_joint(row)

    def _check_joint(self, row: Mapping[str, Any]) -> None:
        value, start, joint = row['value'], row['start_pose'], row['joint']
        tolerance = self._config.deploy.start_tolerance
        if self._is_beyond(row):
            self._wrong(f'joint {joint}: is at {value:.3f}, outside of its limits '
                        f'{row["low"]:.3f} to {row["high"]:.3f}; in other units, or from another '
                        'zero?')
        elif start is not None and joint in self._pilot.joints and abs(value - start) > tolerance:
            self._wrong(f'joint {joint}: is at {value:.3f}, {abs(value - start):.3f} from the '
                        f'start pose {start:.3f} (deploy.start_tolerance = {tolerance:g}); the '
                        f'service {POLICY_NODE}/go_to_start moves it there')
        if len(row['topics']) > 1:
            self._note(f'joint {joint}: is told by {" and ".join(row["topics"])}')

    def _is_beyond(self, row: Mapping[str, Any]) -> bool:
        return (self._pilot.interface == 'position' and row['low'] is not None
                and not row['low'] - LIMIT_MARGIN <= row['value'] <= row['high'] + LIMIT_MARGIN)

    def _limits(self) -> Limits | None:
        try:
            limits = RobotLimits(self._config, self._task, self._heard.names,
                                 self._heard.link.robot_urdf)
            for line in limits.lacking():
                self._wrong(line)
            return limits.limits()
        except UserError as error:
            self._wrong(str(error))
            return None

    def _check_terms(self) -> None:
        """Set the range of every term beside what it was in training."""
        if not self._heard.observations:
            return
        tensors = self._artefact.tensors
        count = float(tensors['normalizer.count'][0])
        shift, scale = normalizer_arrays(tensors['normalizer.mean'],
                                         tensors['normalizer.variance'], count)
        rows = np.array(self._heard.observations)
        scores = (rows - shift) * scale
        first = 0
        for term in self._pilot.observation.terms:
            columns = slice(first, first + term.size * term.history)
            first = columns.stop
            sample, number = np.unravel_index(np.abs(scores[:, columns]).argmax(),
                                              scores[:, columns].shape)
            score = float(abs(scores[:, columns][sample, number]))
            name = _number_of(term.parameters, int(number) % term.size, term.size)
            self.found.terms.append({
                'term': term.name, 'unit': term.unit, 'size': term.size, 'history': term.history,
                'low': float(rows[:, columns].min()), 'high': float(rows[:, columns].max()),
                'worst_z': score if count else None, 'worst_number': name})
            if count and score > MOST_Z:
                self._wrong(f'observation term {term.name}: {name} is '
                            f'{rows[:, columns][sample, number]:.3g}, {score:.1f} standard '
                            f'deviations from the mean of training (|z| <= {MOST_Z:g})')

    def _check_output(self) -> None:
        """See who else commands the robot, who listens, and in which order."""
        robot, link = self._config.robot, self._heard.link
        topic = link.topic
        listeners = self._node.get_subscriptions_info_by_topic(topic)
        self._add_topic(topic, type_name(OUTPUT_TYPES[robot.output]), 'out', listeners)
        if not listeners:
            self._wrong(f'topic {topic}: nobody listens to commands')
        for info in listeners:
            if info.qos_profile.durability == DurabilityPolicy.TRANSIENT_LOCAL:
                self._wrong(f'topic {topic}: {_endpoint(info)} asks for latched commands and '
                            'would hear none')
        others = link.other_publishers()
        policy_node = f'{self._node.get_namespace().rstrip("/")}/{POLICY_NODE}'
        if policy_node in others:
            others.remove(policy_node)
        if others:
            say = self._note if self._config.deploy.allow_other_publishers else self._wrong
            say(f'topic {topic}: also published by {", ".join(others)}')
        if robot.output == 'forward_command':
            self._check_controller()

    def _check_controller(self) -> None:
        link, interface = self._heard.link, self._pilot.interface
        if is_unwatched(self._config, interface):
            self._wrong(f'{interface} commands through a forward_command_controller hold for ever '
                        'when the policy node dies: use a joint_trajectory_controller, or set '
                        'deploy.allow_unwatched')
        try:
            order = link.controller_order()
        except UserError as error:
            self._wrong(str(error))
            return
        if order is None:
            self._wrong(f'{link.controller}/get_parameters did not answer: the order of its '
                        'joints is not known; give robot.joint_order')
        else:
            self._note(f'order of {link.controller or "robot.joint_order"}: {", ".join(order)}')

    def _add_topic(self, topic: str, kind: str, direction: str, infos: list[Any],
                   rate: float | None = None, age: float | None = None) -> None:
        self.found.topics.append({'topic': topic, 'type': kind, 'direction': direction,
                                  'rate': rate, 'age': age,
                                  'others': [_endpoint(info) for info in infos]})
        for other in sorted({info.topic_type for info in infos} - {kind}):
            self._wrong(f'topic {topic}: carries {other}, expected {kind}')


def _number_of(parameters: Mapping[str, Any], index: int, size: int) -> str:
    """Name one number of a term: by its joint where there is one for each."""
    joints = parameters.get('joints', ())
    return joints[index] if len(joints) == size else f'number {index}'


def _endpoint(info: Any) -> str:
    qos = info.qos_profile
    return (f'{info.node_namespace.rstrip("/")}/{info.node_name} '
            f'({_word(qos.reliability)}, {_word(qos.durability)})')


def _word(policy: Any) -> str:
    return policy.name.lower().replace('_', ' ')

"""What the policy node tells of itself: readable topics, metrics, diagnostics."""

from collections.abc import Mapping, Sequence
import json
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from std_msgs.msg import Float64, String

from asyncppo_ros.nodes.policy_deployment import Deployment
from asyncppo_ros.nodes.policy_timing import NAMES
from asyncppo_ros.nodes.qos import LATCHED_QOS, NO_EVENTS
from asyncppo_ros.robot.safety import Mode

METRICS = (*NAMES, 'steps', 'missed_steps', 'clamped', 'rate_limited', 'refused_samples',
           'policy_version')


class Reports:
    """
    Publishers of a policy node, made at once so that rqt_plot finds the topics.

    Topics: ``~/state`` and ``~/policy_info`` (latched strings, the second one JSON),
    ``~/metrics/NAME``, ``/diagnostics``.

    Parameters
    ----------
    node : Node

    """

    def __init__(self, node: Node) -> None:
        self._node = node

        def publisher(kind: type, topic: str, qos: QoSProfile | int = 10) -> Publisher:
            return node.create_publisher(kind, topic, qos, event_callbacks=NO_EVENTS)
        self._state = publisher(String, '~/state', LATCHED_QOS)
        self._info = publisher(String, '~/policy_info', LATCHED_QOS)
        self._metrics = {name: publisher(Float64, f'~/metrics/{name}') for name in METRICS}
        self._diagnostics = publisher(DiagnosticArray, '/diagnostics')
        self._last_state = self._last_info = ''
        self._steps = 0

    def changes(self, phase: str, deployment: Deployment | None,
                refusals: Sequence[str]) -> None:
        """Publish what has changed of the state and of what is known of the policy."""
        state = state_of(phase, deployment)
        if state != self._last_state:
            self._last_state = state
            self._state.publish(String(data=state))
        info = json.dumps(info_of(phase, deployment, refusals))
        if info != self._last_info:
            self._last_info = info
            self._info.publish(String(data=info))

    def metrics(self, deployment: Deployment) -> None:
        """Publish how the control loop did since the last call."""
        values: dict[str, float] = dict(counts_of(deployment))
        done = deployment.loop.timing.steps
        new, self._steps = done - self._steps, done
        values.update(deployment.loop.timing.newest(new if new > 0 else 1))
        for name, value in values.items():
            if name in self._metrics and value - value == 0.0:
                self._metrics[name].publish(Float64(data=float(value)))

    def diagnostics(self, phase: str, deployment: Deployment | None,
                    refusals: Sequence[str]) -> None:
        """Publish the health of the node."""
        status = DiagnosticStatus(
            name=f'{self._node.get_fully_qualified_name().lstrip("/")}: policy',
            level=DiagnosticStatus.OK, message=state_of(phase, deployment))
        if deployment is not None and deployment.loop.mode is Mode.TRIPPED:
            status.level = DiagnosticStatus.ERROR
            status.message = f'tripped: {"; ".join(deployment.loop.reasons)}'
        elif refusals:
            status.level = DiagnosticStatus.WARN
            status.message = f'not activated: {"; ".join(refusals)}'
        if deployment is not None:
            status.hardware_id = str(deployment.pilot.card['task'].get('task', ''))
            values = {**counts_of(deployment), **deployment.loop.timing.percentiles(),
                      **deployment.loop.takeovers.percentiles(),
                      **{f'rate of {topic} [Hz]': rate
                         for topic, rate in deployment.link.rates().items()},
                      **{f'refused: {cause}': count
                         for cause, count in deployment.measured.refused.items()}}
            status.values = [KeyValue(key=name, value=f'{value:.6g}')
                             for name, value in values.items()]
        message = DiagnosticArray(status=[status])
        message.header.stamp = self._node.get_clock().now().to_msg()
        self._diagnostics.publish(message)


def state_of(phase: str, deployment: Deployment | None) -> str:
    """Give the state in one word: that of the supervisor, where there is one."""
    if deployment is None:
        return phase
    return deployment.loop.mode.value.replace(' ', '_')


def info_of(phase: str, deployment: Deployment | None,
            refusals: Sequence[str]) -> dict[str, Any]:
    """Say in JSON types which policy is in command, and of what."""
    info: dict[str, Any] = {'lifecycle': phase, 'state': state_of(phase, deployment),
                            'refusals': list(refusals)}
    if deployment is None:
        return info
    pilot, live = deployment.pilot, deployment.live
    card: Mapping[str, Any] = pilot.card
    return {**info, 'tripped': deployment.loop.reasons, 'task': card['task'].get('task'),
            'run_id': pilot.run_id, 'generation': pilot.identity[0],
            'policy_version': pilot.identity[1], 'env_steps': card.get('env_steps'),
            'hash': card.get('hash'), 'file': str(deployment.path),
            'control_dt': pilot.control_dt, 'interface': pilot.interface,
            'joints': list(pilot.joints), 'commands': deployment.link.topic,
            'next': list(live.current.identity), 'pinned': live.pinned,
            'waiting': live.waiting, 'live_taken': live.taken, 'live_refused': live.refused}


def counts_of(deployment: Deployment) -> dict[str, float]:
    """Count what happened since activation, and what was refused since the node began."""
    supervisor, timing = deployment.loop.supervisor, deployment.loop.timing
    return {'steps': timing.steps, 'missed_steps': timing.missed,
            'clamped': supervisor.clamped if supervisor is not None else 0,
            'rate_limited': supervisor.rate_limited if supervisor is not None else 0,
            'refused_samples': sum(deployment.measured.refused.values()),
            'policy_version': deployment.pilot.identity[1]}

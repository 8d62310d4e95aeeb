"""Learner node: chunks in, policies out; metrics, services and diagnostics on ROS 2."""

from collections.abc import Callable, Mapping
import math
import threading
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.node import Node
from std_msgs.msg import Float64
from std_srvs.srv import Trigger

from asyncppo_ros.acting.rollout import layout_of, sends_values
from asyncppo_ros.config import Config
from asyncppo_ros.launching import check_lag
from asyncppo_ros.learning.batcher import Batcher
from asyncppo_ros.learning.books import Books
from asyncppo_ros.learning.checkpoint import go_on, load_policy
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.learning.metrics import (
    JsonlWriter,
    LEARNER_METRICS,
    METRICS,
    TensorBoardWriter,
)
from asyncppo_ros.learning.training import Training
from asyncppo_ros.nodes.actor_states import quarantined
from asyncppo_ros.nodes.context import running, Spinner
from asyncppo_ros.nodes.parameters import read_config, TakesSettings
from asyncppo_ros.nodes.policy_topic import RosPolicyPublisher
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.robot.artefact import read_artefact
from asyncppo_ros.robot.signing import signing_key
from asyncppo_ros.run import create, Run
from asyncppo_ros.simulation.registry import make
from asyncppo_ros.transport.admission import LagLimits, Session
from asyncppo_ros.transport.flow import Flow, SilenceAlarm
from asyncppo_ros.transport.intake import Intake
from asyncppo_ros.transport.keys import learner_keys
from asyncppo_ros.transport.permits import PermitBook, UnpacedPermitBook
from asyncppo_ros.transport.receiver import ZmqChunkReceiver

# The learner looks for a signal, a service call and a due publication this often.
STEP_S = 0.1
LOG_S = 5.0
DIAGNOSTICS_S = 1.0
SERVICE_TIMEOUT_S = 10.0
# Without news from the actors for this long, /diagnostics warns.
SILENT_S = 10.0


class LearnerNode(TakesSettings, Node):
    """
    The ROS side of the learner; `learning.training.Training` does the work.

    Topics: ``policy`` and one ``~/metrics/NAME`` per metric.  Services: ``~/pause``,
    ``~/resume``, ``~/save_checkpoint``.  All publishers are made at once, so that rqt_plot
    finds the topics.
    """

    def __init__(self) -> None:
        super().__init__('learner')
        self.config: Config = read_config(self)
        check_lag(self.config)
        self.policy = RosPolicyPublisher(self)
        self._metrics = {name: self.create_publisher(Float64, f'~/metrics/{name}', 10)
                         for name in LEARNER_METRICS}
        self._diagnostics = self.create_publisher(DiagnosticArray, '/diagnostics', 10)
        self._row: Mapping[str, Any] = {}
        self._row_at = time.monotonic()
        self._last_warning = ''
        #: What fails at this time, by name, such as a full disk (`Training.outages`).
        self.outages: Mapping[str, str] = {}
        self.paused = False
        self._calls: list[tuple[str, threading.Event, Trigger.Response]] = []
        self._calls_lock = threading.Lock()
        for name in ('pause', 'resume', 'save_checkpoint'):
            self.create_service(Trigger, f'~/{name}', self._later(name))
        self.create_timer(DIAGNOSTICS_S, self._publish_diagnostics)

    def write(self, row: Mapping[str, Any]) -> None:
        """Publish a row of metrics: the node is a `MetricsWriter`."""
        self._row, self._row_at = row, time.monotonic()
        for name, value in row.items():
            if name in self._metrics and value == value and abs(value) != float('inf'):
                self._metrics[name].publish(Float64(data=float(value)))

    def close(self) -> None:
        """Nothing to close: the node outlives the training."""

    def warn(self, text: str) -> None:
        """Tell the user, in the log and on /diagnostics."""
        self._last_warning = text
        self.get_logger().warning(text)

    def serve_calls(self, actions: Mapping[str, Callable[[], str]]) -> None:
        """Carry out waiting service calls on the training thread."""
        with self._calls_lock:
            calls, self._calls = self._calls, []
        for name, finished, response in calls:
            response.message = actions[name]()
            response.success = True
            finished.set()

    def _later(self, name: str) -> Callable[[Trigger.Request, Trigger.Response],
                                            Trigger.Response]:
        def call(_request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
            finished = threading.Event()
            with self._calls_lock:
                self._calls.append((name, finished, response))
            if not finished.wait(SERVICE_TIMEOUT_S):
                return Trigger.Response(
                    success=False, message=f'the learner is busy; {name} follows later')
            return response
        return call

    def _publish_diagnostics(self) -> None:
        status = DiagnosticStatus(
            name=f'{self.get_fully_qualified_name().lstrip("/")}: training',
            hardware_id=self.config.task, level=DiagnosticStatus.OK, message='training')
        silent = time.monotonic() - self._row_at
        # Copied in one go: the training thread changes it.
        outages = list(self.outages.values())
        if outages:
            status.level, status.message = DiagnosticStatus.ERROR, '; '.join(outages)
        elif self.paused:
            status.message = 'paused'
        elif silent > SILENT_S:
            status.level = DiagnosticStatus.WARN
            status.message = f'no update for {silent:.0f} s: do the actors run?'
        elif self._last_warning:
            status.level = DiagnosticStatus.WARN
            status.message, self._last_warning = self._last_warning, ''
        status.values = [KeyValue(key=name, value=f'{value:.6g}')
                         for name, value in self._row.items() if name in METRICS]
        message = DiagnosticArray(status=[status, self._actors_status()])
        message.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(message)

    def _actors_status(self) -> DiagnosticStatus:
        given_up = quarantined(self.config.run_dir) if self.config.run_dir else []
        level = DiagnosticStatus.WARN if given_up else DiagnosticStatus.OK
        return DiagnosticStatus(
            name=f'{self.get_fully_qualified_name().lstrip("/")}: actors', level=level,
            hardware_id=self.config.task, message='; '.join(given_up) or 'none is quarantined')


def run(arguments: list[str], stop: StopRequest) -> int:
    """Run the learner node until its steps are done or it is stopped."""
    with running(LearnerNode, arguments) as node:
        spinner = Spinner(node.executor, 'rclpy')
        try:
            return _train(node, stop)
        finally:
            spinner.stop()


def _train(node: LearnerNode, stop: StopRequest) -> int:
    run_, config = _open(node.config, node.warn)
    environment = make(config.task, 1, config.seed, randomization=config.randomization,
                       privileged=config.policy.privileged_critic)
    layout = layout_of(environment, sends_values(config), config.transport.observation_dtype)
    task = environment.describe()
    environment.close()
    learner = Learner(config, task, layout.observation_size, layout.action_size,
                      run_.facts()['run_id'], layout.critic_size)
    learner.signing_key = signing_key(config.transport.keys, 'learner')
    extra = _begin(run_, config, learner)
    books = Books(run_.folder, extra.get('books'))
    settings, transport = config.learner, config.transport
    # What permits do not bound, memory must: as much as would be thrown away in any case.
    batcher = Batcher(settings.batch_size, settings.max_policy_lag,
                      capacity=math.inf if settings.pacing else
                      (settings.max_policy_lag + 2) * settings.batch_size)
    session = Session(learner.run_id, layout, str(run_.folder), transport.heartbeat_s,
                      transport.heartbeat_timeout_s, settings.batch_size,
                      LagLimits(settings.target_lag, settings.max_policy_lag,
                                settings.publish_updates), rings=transport.kind != 'zmq')
    book = PermitBook if settings.pacing else UnpacedPermitBook
    permits = book(settings.batch_size, settings.target_lag, learner.identity)
    intake = Intake(session, permits, batcher, books, node.warn)
    receiver = ZmqChunkReceiver(intake, transport.address, transport.allow_plain_text,
                                learner_keys(transport.keys))
    writers = [node, JsonlWriter(run_.metrics_file),
               TensorBoardWriter(run_.folder / 'tensorboard', purge_step=learner.env_steps)]
    training = Training(config, run_, learner, Flow(intake), node.policy, writers,
                        node.warn, extra.get('elapsed_s', 0.0))
    node.outages = training.outages
    node.get_logger().info(
        f'task {config.task}, run {run_.folder}, chunks at {receiver.address}, generation '
        f'{learner.generation}, {learner.env_steps} of {config.env_steps} env steps done')
    receiver.start()
    try:
        _loop(node, training, intake, stop)
    finally:
        training.publish_last()
        receiver.close()
        training.save()
        learner.close()
        for writer in writers:
            writer.close()
    how = 'all steps done' if training.done else 'stopped'
    node.get_logger().info(f'{how} after {learner.env_steps} env steps; policy: '
                           f'{run_.policy_file}')
    return 0


def _loop(node: LearnerNode, training: Training, intake: Intake, stop: StopRequest) -> None:
    def pause() -> str:
        node.paused = True
        intake.pause()
        return 'paused; ~/resume goes on'

    def resume() -> str:
        node.paused = False
        intake.resume()
        return 'training'

    def save() -> str:
        training.save()
        return f'checkpoint in {training.run.checkpoint}'

    actions = {'pause': pause, 'resume': resume, 'save_checkpoint': save}
    # A run that ends before its first batch leaves something to resume from, too.
    training.publish_if_due(force=True)
    training.save()
    alarm = SilenceAlarm(training.config.transport.policy_timeout_s, training.outages, node.warn)
    logged = time.monotonic()
    while not (stop() or training.done):
        node.serve_calls(actions)
        alarm.look(intake.policy_silence)
        if node.paused:
            stop.wait(STEP_S)
            continue
        training.step(STEP_S, stop)
        if training.row and time.monotonic() - logged > LOG_S:
            logged = time.monotonic()
            node.get_logger().info(_summary(training.row, training.config.env_steps))


def _open(config: Config, warn: Callable[[str], None]) -> tuple[Run, Config]:
    """Open the folder that the launcher made, or make it where the node was started alone."""
    if config.run_dir and Run(config.run_dir).is_run():
        run_ = Run(config.run_dir)
    else:
        run_, config = create(config, ['learner_node'])
        warn(f'made the run folder {run_.folder}')
    run_.lock()
    return run_, config


def _begin(run_: Run, config: Config, learner: Learner) -> dict[str, Any]:
    """Continue from the run's checkpoint, or begin from a policy, or from nothing."""
    init_from = run_.facts().get('init_from', '')
    if (run_.checkpoint / 'checkpoint.safetensors').is_file():
        return go_on(run_, config.env_steps, learner)
    if init_from:
        load_policy(read_artefact(init_from), learner)
    return {}


def _summary(row: Mapping[str, Any], total: int) -> str:
    success = row.get('success_rate', float('nan'))
    shown = '' if success != success else f', success {success:.0%}'
    return (f'{row["env_steps"]:,.0f} of {total:,} steps, {row["env_steps_per_s"]:,.0f}/s, return '
            f'{row.get("return_mean", float("nan")):.2f}{shown}, lag {row["policy_lag_mean"]:.1f} '
            f'(max {row["policy_lag_max"]:.0f}) versions, age {row["sample_age_mean"]:.0f} ms, '
            f'learner waits {row["learner_wait"]:.0%}')

"""Evaluator node: plays deterministic episodes with the newest policy, on a schedule."""

import json
import os
import time
from typing import Any

from rclpy.node import Node
from std_msgs.msg import Float64, String

from asyncppo_ros.acting.evaluation import evaluate, Interrupted
from asyncppo_ros.config import Config
from asyncppo_ros.errors import PolicyError
from asyncppo_ros.learning.jsonl import read_jsonl
from asyncppo_ros.learning.metrics import evaluation_row, EVALUATOR_METRICS, JsonlWriter
from asyncppo_ros.nodes.context import running
from asyncppo_ros.nodes.parameters import read_config, TakesSettings
from asyncppo_ros.nodes.policy_topic import RosPolicySubscriber
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.nodes.qos import LATCHED_QOS
from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.robot.numpy_policy import NumpyPolicy
from asyncppo_ros.robot.signing import signing_key
from asyncppo_ros.run import replace_file, Run
from asyncppo_ros.simulation.registry import make

WAIT_S = 0.1
# What ~/evaluation says of a policy, beside its run_id.
TOLD = ('generation', 'policy_version', 'return_mean', 'success', 'episodes')
BEST_POLICY = 'best_policy.safetensors'
# The evaluation must not take the cores from the actors.
NICENESS = 10


class EvaluatorNode(TakesSettings, Node):
    """
    Scores policies while they are trained, in a process of its own so that no update waits.

    Topics: ``policy`` in; ``~/metrics/evaluation_*`` and ``~/evaluation`` (latched JSON, for
    robots that take live policies) out.  Each evaluation becomes a line of
    ``evaluations.jsonl`` in the run's folder; the best policy is kept as
    ``best_policy.safetensors``.
    """

    def __init__(self, stop: StopRequest) -> None:
        super().__init__('evaluator')
        self.config: Config = read_config(self)
        self._stop = stop
        self._policy = RosPolicySubscriber(self, signing_key(self.config.transport.keys))
        self._metrics = {name: self.create_publisher(Float64, f'~/metrics/{name}', 10)
                         for name in EVALUATOR_METRICS}
        self._evaluation = self.create_publisher(String, '~/evaluation', LATCHED_QOS)
        self._best = -float('inf')

    def evaluate_until_stopped(self) -> None:
        """Evaluate the newest policy every so often."""
        settings = self.config.evaluation
        environment = make(self.config.task, settings.episodes, settings.seed)
        run_ = self._wait_for_run()
        if run_ is None:
            return
        self._policy.run_id = run_.facts()['run_id']
        self._best = self._best_before(run_)
        writer = JsonlWriter(run_.evaluations_file)
        done, due = None, 0.0
        while not self._stop():
            self.executor.spin_once(timeout_sec=WAIT_S)
            newest = self._policy.newest
            if newest is None or newest.identity == done or time.monotonic() < due:
                continue
            due = time.monotonic() + settings.every_seconds
            try:
                row = self._evaluate(newest, environment)
            except Interrupted:
                break
            except PolicyError as error:
                self.get_logger().warning(f'NOT EVALUATED: {error}')
                done = newest.identity
                continue
            done = newest.identity
            try:
                writer.write(row)
            except OSError as error:
                self.get_logger().warning(f'{run_.evaluations_file}: EVALUATION NOT WRITTEN: '
                                          f'{error.strerror}')
            self._publish(row)
            self._keep_best(run_, newest, row['return_mean'])
        writer.close()
        environment.close()

    def _evaluate(self, snapshot: PolicySnapshot, environment: Any) -> dict[str, Any]:
        score = evaluate(NumpyPolicy(snapshot.artefact), environment, self._stop)
        return {**snapshot.identity._asdict(), 'env_steps': snapshot.env_steps, **score}

    def _wait_for_run(self) -> Run | None:
        run_ = Run(self.config.run_dir)
        while not run_.is_run():
            if self._stop.wait(WAIT_S):
                return None
        return run_

    def _best_before(self, run_: Run) -> float:
        """Give the score of the best policy that an earlier evaluator of the run kept."""
        if not (run_.folder / BEST_POLICY).is_file():
            return -float('inf')
        return max((row['return_mean'] for row in read_jsonl(run_.evaluations_file)
                    if not (row.get('final') or 'milestone' in row)), default=-float('inf'))

    def _publish(self, row: dict[str, Any]) -> None:
        for name, value in evaluation_row(row).items():
            if name in self._metrics:
                self._metrics[name].publish(Float64(data=float(value)))
        told = {name: row.get(name) for name in TOLD}
        self._evaluation.publish(String(data=json.dumps({'run_id': self._policy.run_id, **told})))

    def _keep_best(self, run_: Run, snapshot: PolicySnapshot, score: float) -> None:
        if score <= self._best:
            return
        self._best = score
        path = run_.folder / BEST_POLICY
        try:
            replace_file(path, snapshot.data)
        except OSError as error:
            self.get_logger().warning(f'{path} not written: {error.strerror}')
        self.get_logger().info(f'best policy so far: {json.dumps(list(snapshot.identity))} '
                               f'with return {score:.2f}')


def run(arguments: list[str], stop: StopRequest) -> int:
    """Run the evaluator node until it is stopped."""
    os.nice(NICENESS)
    with running(lambda: EvaluatorNode(stop), arguments) as node:
        node.evaluate_until_stopped()
    return 0

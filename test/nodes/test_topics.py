"""What other ROS nodes see of a training: topics, QoS, services, diagnostics, parameters."""

import time

from harness import options, pids_of, rows_of, start, wait_for
import pytest

rclpy = pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
pytestmark = pytest.mark.nodes


@pytest.fixture(scope='module')
def training(tmp_path_factory):
    run = tmp_path_factory.mktemp('topics') / 'run'
    process = start('train', '--task', 'cartpole_swingup', '--env_steps', 10 ** 7, '--run_dir',
                    run, '--namespace', 'lab', *options())
    try:
        wait_for(lambda: len(rows_of(run / 'metrics.jsonl')) >= 3, 'update', process=process)
        wait_for(lambda: rows_of(run / 'evaluations.jsonl'), 'evaluation', process=process)
        yield run
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope='module')
def node():
    rclpy.init()
    node = rclpy.create_node('observer')
    yield node
    node.destroy_node()
    rclpy.try_shutdown()


def spin_until(node, condition, what, timeout=20.0):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        rclpy.spin_once(node, timeout_sec=0.1)
        found = condition()
        if found:
            return found
    raise AssertionError(f'no {what} within {timeout} s')


def test_a_late_joiner_gets_the_newest_policy(training, node):
    from std_msgs.msg import UInt8MultiArray

    from asyncppo_ros.nodes.policy_topic import POLICY_QOS
    from asyncppo_ros.policy.snapshot import PolicySnapshot
    heard = []
    node.create_subscription(UInt8MultiArray, '/lab/policy', heard.append, POLICY_QOS)
    spin_until(node, lambda: heard, 'policy')
    snapshot = PolicySnapshot.from_bytes(bytes(heard[0].data))
    assert snapshot.card['task']['task'] == 'cartpole_swingup'
    assert snapshot.identity.policy_version >= 2
    # The very bytes that lie in the run's folder once they are published.
    spin_until(node, lambda: (training / 'policy.safetensors').read_bytes()
               in [bytes(message.data) for message in heard], 'the same bytes on disk')


def test_policy_qos_is_the_documented_one(training, node):
    from rclpy.qos import DurabilityPolicy, ReliabilityPolicy
    # The publisher may be heard of before the name of its node.
    info = spin_until(node, lambda: [
        entry for entry in node.get_publishers_info_by_topic('/lab/policy')
        if entry.node_name == 'learner'], 'publisher')
    assert len(info) == len(node.get_publishers_info_by_topic('/lab/policy')) == 1
    assert info[0].topic_type == 'std_msgs/msg/UInt8MultiArray'
    assert info[0].qos_profile.reliability == ReliabilityPolicy.RELIABLE
    assert info[0].qos_profile.durability == DurabilityPolicy.TRANSIENT_LOCAL


def test_every_metric_is_a_topic_and_none_is_the_prefix(training, node):
    from std_msgs.msg import Float64

    from asyncppo_ros.learning.metrics import EVALUATOR_METRICS, LEARNER_METRICS

    def topics():
        return dict(node.get_topic_names_and_types())

    wanted = {f'/lab/learner/metrics/{LEARNER_METRICS[-1]}',
              f'/lab/evaluator/metrics/{EVALUATOR_METRICS[-1]}'}
    spin_until(node, lambda: wanted <= topics().keys(), 'topics')
    time.sleep(1.0)  # those of one node are discovered one after the other
    found = topics()
    for name in LEARNER_METRICS:
        assert found[f'/lab/learner/metrics/{name}'] == ['std_msgs/msg/Float64'], name
    for name in EVALUATOR_METRICS:
        assert found[f'/lab/evaluator/metrics/{name}'] == ['std_msgs/msg/Float64'], name
    assert '/lab/learner/metrics' not in found and '/lab/evaluator/metrics' not in found
    heard = []
    node.create_subscription(Float64, '/lab/learner/metrics/env_steps', heard.append, 10)
    spin_until(node, lambda: len(heard) >= 2, 'env_steps')
    assert heard[-1].data > heard[0].data > 0.0


def test_diagnostics_tell_how_it_goes(training, node):
    from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
    heard = []
    node.create_subscription(DiagnosticArray, '/diagnostics', heard.append, 10)
    status = spin_until(node, lambda: [message.status[0] for message in heard
                                       if message.status[0].values], 'diagnostics')[0]
    assert status.name == 'lab/learner: training' and status.hardware_id == 'cartpole_swingup'
    assert status.level == DiagnosticStatus.OK
    assert {'env_steps', 'policy_lag_max'} <= {value.key for value in status.values}


def test_robots_are_told_of_evaluations(training, node):
    import json

    from std_msgs.msg import String

    from asyncppo_ros.nodes.qos import EVALUATION_TOPIC, LATCHED_QOS
    heard = []
    node.create_subscription(String, f'/lab/{EVALUATION_TOPIC}', heard.append, LATCHED_QOS)
    told = json.loads(spin_until(node, lambda: heard, 'evaluation')[0].data)
    rows = rows_of(training / 'evaluations.jsonl')
    row = next(row for row in rows if row['policy_version'] == told['policy_version'])
    assert told['run_id'] == json.loads((training / 'run.json').read_text())['run_id']
    assert all(told[name] == row[name] for name in ('generation', 'return_mean', 'success'))


def call(node, name):
    from std_srvs.srv import Trigger
    client = node.create_client(Trigger, f'/lab/learner/{name}')
    assert client.wait_for_service(timeout_sec=10.0)
    future = client.call_async(Trigger.Request())
    spin_until(node, future.done, f'answer of {name}')
    return future.result()


def test_services_pause_resume_and_save(training, node):
    answer = call(node, 'pause')
    assert answer.success and 'paused' in answer.message
    count = len(rows_of(training / 'metrics.jsonl'))
    time.sleep(1.0)
    assert len(rows_of(training / 'metrics.jsonl')) == count
    before = (training / 'checkpoint' / 'checkpoint.safetensors').stat().st_mtime_ns
    answer = call(node, 'save_checkpoint')
    assert answer.success and str(training / 'checkpoint') in answer.message
    assert (training / 'checkpoint' / 'checkpoint.safetensors').stat().st_mtime_ns > before
    assert call(node, 'resume').success
    wait_for(lambda: len(rows_of(training / 'metrics.jsonl')) > count + 2, 'updates')


def test_settings_are_read_only_parameters(training, node):
    from rcl_interfaces.msg import Parameter, ParameterValue
    from rcl_interfaces.srv import DescribeParameters, GetParameters, SetParameters

    def ask(kind, name, request):
        client = node.create_client(kind, f'/lab/learner/{name}')
        assert client.wait_for_service(timeout_sec=10.0)
        future = client.call_async(request)
        spin_until(node, future.done, name)
        return future.result()

    name = 'learner.ppo.clip_ratio'
    values = ask(GetParameters, 'get_parameters', GetParameters.Request(names=[name])).values
    assert values[0].double_value == 0.2
    described = ask(DescribeParameters, 'describe_parameters',
                    DescribeParameters.Request(names=[name])).descriptors[0]
    assert described.read_only and 'ratio clip' in described.description
    refused = ask(SetParameters, 'set_parameters', SetParameters.Request(parameters=[
        Parameter(name=name, value=ParameterValue(type=3, double_value=0.3))])).results[0]
    assert not refused.successful


@pytest.mark.one_distro
def test_running_actors_accept_the_generation_of_a_restarted_learner(tmp_path):
    """The learner is killed and started again beside the actors, as a launch file would."""
    import signal
    import subprocess
    import sys

    from asyncppo_ros.config import Config
    from asyncppo_ros.learning.checkpoint import read_state
    from asyncppo_ros.run import create, resolve
    from asyncppo_ros.settings import parse_text
    pairs = options()
    given = {pairs[i][2:]: parse_text(Config, pairs[i][2:], pairs[i + 1])
             for i in range(0, len(pairs), 2)}
    run, _ = create(resolve({**given, 'task': 'cartpole_swingup', 'env_steps': 10 ** 7,
                             'run_dir': str(tmp_path / 'run'),
                             'learner.checkpoint_seconds': 1.0}))
    entry = [sys.executable, '-m', 'asyncppo_ros.nodes.main']
    file = ['--params-file', str(run.config_file)]

    def learner():
        return subprocess.Popen([*entry, 'learner', '--ros-args', *file, '-r', '__ns:=/restart'])

    first = learner()
    actors = subprocess.Popen([*entry, 'supervisor', *file, '--namespace', 'restart'])
    second = None
    try:
        wait_for(lambda: len(rows_of(run.metrics_file)) >= 10, 'update')
        wait_for(lambda: (run.checkpoint / 'checkpoint.safetensors').is_file(), 'checkpoint')
        wait_for(lambda: read_state(run.checkpoint)['env_steps'] > 0, 'checkpoint with steps')
        pids = pids_of(run.folder, 'actor')
        first.send_signal(signal.SIGKILL)
        first.wait()
        before = read_state(run.checkpoint)
        second = learner()
        rows = wait_for(lambda: [row for row in rows_of(run.metrics_file)
                                 if row['generation'] == before['generation'] + 1][2:], 'updates')
        assert rows[-1]['actors'] == 2 and pids_of(run.folder, 'actor') == pids
        assert rows[0]['env_steps'] > before['env_steps']
    finally:
        for process in (second, actors, first):
            if process is not None and process.poll() is None:
                process.terminate()
        codes = [process.wait(10) for process in (actors, second) if process is not None]
    assert codes == [0, 0]

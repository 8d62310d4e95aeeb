"""Large policies and signed ones over the topic, with default middleware settings."""

import contextlib
import json
from pathlib import Path
import subprocess
import sys
import time

import numpy as np
import pytest

from asyncppo_ros.policy.snapshot import PolicySnapshot

rclpy = pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
pytestmark = pytest.mark.nodes

SUBSCRIBER = Path(__file__).with_name('policy_subscriber.py')
KEY, OTHER_KEY = bytes(range(32)), bytes(32)


def make_policy(version, megabytes=0.01, key=None, run_id=1):
    weight = np.random.default_rng(version).normal(size=(int(megabytes * 2 ** 20 / 1024), 256))
    card = {'run_id': run_id, 'generation': 1, 'policy_version': version, 'gradient_steps': 0,
            'env_steps': 0, 'task': {'task': 'reach'}, 'architecture': {}}
    return PolicySnapshot.make(card, {'policy.0.weight': weight.astype(np.float32)}, key)


@contextlib.contextmanager
def spinning(node):
    """Spin a node in a thread, as the learner does."""
    from rclpy.executors import SingleThreadedExecutor

    from asyncppo_ros.nodes.context import Spinner
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    spinner = Spinner(executor, 'spinner')
    try:
        yield
    finally:
        spinner.stop()
        executor.shutdown()


@pytest.fixture
def node():
    rclpy.init()
    node = rclpy.create_node('learner')
    yield node
    node.destroy_node()
    rclpy.try_shutdown()


def start_subscriber(last):
    return subprocess.Popen([sys.executable, SUBSCRIBER, str(last)], stdout=subprocess.PIPE,
                            text=True)


def heard(subscriber):
    """Give what it heard until it ended: version, time [s], refused."""
    output, _ = subscriber.communicate(timeout=30)
    return [json.loads(line) for line in output.splitlines()[1:]]


def test_policies_of_2_mb_at_10_hz_arrive_and_a_late_joiner_gets_the_newest(node):
    from asyncppo_ros.nodes.policy_topic import RosPolicyPublisher, TOPIC
    policies = [make_policy(version, 2.0) for version in range(20)]
    publisher = RosPolicyPublisher(node)
    subscriber = start_subscriber(19)
    try:
        with spinning(node):
            deadline = time.monotonic() + 20.0
            while node.count_subscribers(TOPIC) == 0:
                assert time.monotonic() < deadline, 'no subscriber'
                time.sleep(0.05)
            for policy in policies:
                publisher.publish(policy.data, policy.identity)
                published = time.time()
                time.sleep(0.1)
            rows = heard(subscriber)
            late = start_subscriber(19)
            try:
                late_rows = heard(late)
            finally:
                late.kill()
    finally:
        subscriber.kill()
    versions = [version for version, _, _ in rows]
    assert versions == sorted(versions) and versions[-1] == 19
    # None need arrive but the newest; on an idle machine all do.
    assert len(versions) >= 5
    assert rows[-1][1] - published < 5.0
    assert [version for version, _, _ in late_rows] == [19]
    assert rows[-1][2] == late_rows[-1][2] == 0


def test_with_a_key_only_policies_signed_with_it_are_taken(node):
    from asyncppo_ros.nodes.policy_topic import RosPolicyPublisher, RosPolicySubscriber
    subscriber = RosPolicySubscriber(node, KEY)
    publisher = RosPolicyPublisher(node)
    plain = RosPolicySubscriber(node)

    def publish(policy, arrived):
        publisher.publish(policy.data, policy.identity)
        deadline = time.monotonic() + 20.0
        while not arrived():
            assert time.monotonic() < deadline, 'no policy'
            rclpy.spin_once(node, timeout_sec=0.05)

    publish(make_policy(1, key=KEY), lambda: subscriber.identity.policy_version == 1)
    publish(make_policy(2), lambda: subscriber.refused == 1)
    publish(make_policy(3, key=OTHER_KEY), lambda: subscriber.refused == 2)
    # What is refused leaves the good one in place, and whoever needs no key takes all.
    assert subscriber.identity.policy_version == 1 and plain.refused == 0
    publish(make_policy(4, key=KEY), lambda: subscriber.identity.policy_version == 4
            and plain.identity.policy_version == 4)
    assert subscriber.refused == 2 and plain.refused == 0

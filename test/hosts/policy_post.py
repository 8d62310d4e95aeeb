"""
One end of the policy topic, as a process of its own.

``policy_post.py send OTHERS`` publishes a policy, and again for newcomers, until it is killed.
``policy_post.py hear OTHERS SECONDS`` says within which time it came, and exits 1 when it did not.
So many others, participants of DDS as other processes are, were there before on the same host.
"""

import sys
import time

import numpy as np
import rclpy

from asyncppo_ros.chunk import Identity
from asyncppo_ros.nodes.policy_topic import RosPolicyPublisher, RosPolicySubscriber
from asyncppo_ros.policy.snapshot import PolicySnapshot

CARD = {'run_id': 1, 'generation': 1, 'policy_version': 7, 'gradient_steps': 0, 'env_steps': 0,
        'task': {'task': 'reach'}, 'architecture': {}}


def send(node):
    """Publish a policy of a quarter of a megabyte: hundreds of packets."""
    weight = np.arange(65536, dtype=np.float32).reshape(256, 256)
    publisher = RosPolicyPublisher(node)
    publisher.publish(PolicySnapshot.make(CARD, {'policy.0.weight': weight}).data, Identity(1, 7))
    rclpy.spin(node)


def hear(node, seconds):
    """Wait for the policy; give an exit code."""
    subscriber = RosPolicySubscriber(node)
    begun = time.monotonic()
    while subscriber.identity.policy_version != 7:
        if time.monotonic() - begun > seconds:
            print(f'nothing within {seconds:g} s')
            return 1
        rclpy.spin_once(node, timeout_sec=0.1)
    print(f'came within {time.monotonic() - begun:.1f} s')
    return 0


def main(role, others, seconds='inf'):
    """Give an exit code."""
    contexts = [rclpy.Context() for _ in range(int(others))]
    nodes = []
    for context in contexts:
        context.init()
        nodes.append(rclpy.create_node('other', context=context))
    rclpy.init()
    if role == 'send':
        send(rclpy.create_node('sender'))
    return hear(rclpy.create_node('hearer'), float(seconds))


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))

"""An actor's end of the policy topic, as a process of its own: a line for each new policy."""

import json
import sys
import time

import rclpy

from asyncppo_ros.nodes.policy_topic import RosPolicySubscriber


def main():
    """Print identity and time [s] of each policy until policy VERSION has come."""
    last = int(sys.argv[1])
    rclpy.init()
    node = rclpy.create_node('observer')
    subscriber = RosPolicySubscriber(node)
    print('ready', flush=True)
    version = -1
    while version < last:
        rclpy.spin_once(node, timeout_sec=0.1)
        if subscriber.identity.policy_version > version:
            version = subscriber.identity.policy_version
            print(json.dumps([version, time.time(), subscriber.refused]), flush=True)
    node.destroy_node()
    rclpy.try_shutdown()


if __name__ == '__main__':
    main()

"""What holds for every test: no cross-talk with other ROS 2 processes, one thread per library."""

import os

import pytest

# Set here, before any test imports rclpy or torch, and inherited by the nodes that tests start.
os.environ['ROS_DOMAIN_ID'] = str(os.getpid() % 102)
os.environ['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'
if os.environ.get('ROS_DISTRO') == 'humble':
    os.environ['ROS_LOCALHOST_ONLY'] = '1'  # its name for the same; later ones warn about it
os.environ['OMP_NUM_THREADS'] = '1'
os.environ.pop('MUJOCO_GL', None)


def pytest_addoption(parser):
    parser.addoption('--slow', action='store_true', help='run the tests marked slow, too')


def pytest_collection_modifyitems(config, items):
    if config.getoption('--slow'):
        return
    for item in items:
        if item.get_closest_marker('slow'):
            item.add_marker(pytest.mark.skip(reason='slow: runs with --slow'))

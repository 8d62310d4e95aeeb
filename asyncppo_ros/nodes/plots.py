"""
Open rqt with the plots of a training.

rqt_plot drops topics that it does not see at once, and discovery takes a while, so this process
waits for the topics before it becomes rqt.
"""

import argparse
import pathlib
import tempfile
import time

import rclpy
from rqt_gui.main import Main

from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.resources import find

WAIT_S = 30.0
SETTLE_S = 0.5


def run(arguments: list[str], stop: StopRequest) -> int:
    """Wait for the metrics of a run, then be rqt until its window is closed."""
    parser = argparse.ArgumentParser(prog='plots', description=__doc__)
    parser.add_argument('--namespace', default='asyncppo', help='ROS namespace of the run')
    namespace = parser.parse_args(arguments).namespace.strip('/')
    rclpy.init()
    node = rclpy.create_node('plots')
    topic = f'/{namespace}/learner/metrics/return_mean'
    deadline = time.monotonic() + WAIT_S
    while not node.count_publishers(topic):
        if stop.wait(0.1):
            return 0
        if time.monotonic() > deadline:
            node.get_logger().warning(f'{topic} does not exist after {WAIT_S:.0f} s: is a '
                                      f'training running in namespace {namespace}?')
            break
    stop.wait(SETTLE_S)
    with tempfile.TemporaryDirectory() as folder:
        text = find('config/asyncppo.perspective').read_text()
        perspective = pathlib.Path(folder) / 'asyncppo.perspective'
        perspective.write_text(text.replace('/asyncppo/', f'/{namespace}/'))
        return Main().main(['rqt_gui', '--force-discover', '--perspective-file',
                            str(perspective)])

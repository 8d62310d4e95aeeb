"""
Open rqt with the plots of a training.

rqt_plot drops topics that it does not see at once, and discovery takes a while, so this process
waits for the topics before it becomes rqt.
"""

import argparse
import contextlib
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time
from typing import Any

import rclpy
from rclpy.signals import SignalHandlerOptions

from asyncppo_ros.errors import MissingDependency
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.resources import find

WAIT_S = 60.0
SETTLE_S = 0.5
POLL_S = 0.1


def run(arguments: list[str], stop: StopRequest) -> int:
    """Wait for the metrics of a run, then be rqt until its window is closed."""
    parser = argparse.ArgumentParser(prog='plots', description=__doc__)
    parser.add_argument('--namespace', default='asyncppo', help='ROS namespace of the run')
    namespace = parser.parse_args(arguments).namespace.strip('/')
    prefix = f'/{namespace}/' if namespace else '/'
    rqt = _rqt()
    # rclpy's own handlers end its context under a running rqt.
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node('plots')
    try:
        if not _wait_for_topics(node, prefix, stop):
            return 0
        with tempfile.TemporaryDirectory() as folder:
            text = find('config/asyncppo.perspective').read_text()
            perspective = pathlib.Path(folder) / 'asyncppo.perspective'
            perspective.write_text(text.replace('/asyncppo/', prefix))
            threading.Thread(target=_close_when_stopped, daemon=True,
                             args=(stop, signal.getsignal(signal.SIGINT))).start()
            return rqt.main(['rqt_gui', '--force-discover', '--perspective-file',
                             str(perspective)])
    finally:
        # rqt may have ended the context already.
        with contextlib.suppress(Exception):
            node.destroy_node()
        rclpy.try_shutdown()


def _rqt() -> Any:
    """Import rqt, which only a ROS installation with a desktop has."""
    try:
        from rqt_gui.main import Main
        import rqt_plot  # noqa: F401 - without it rqt opens an empty window
    except ModuleNotFoundError as error:
        distro = os.environ.get('ROS_DISTRO', 'DISTRO')
        raise MissingDependency(
            f'{error.name} is missing from {sys.executable}: rqt comes from the ROS '
            f'installation, apt install ros-{distro}-rqt-plot; the training goes on without'
        ) from None
    return Main()


def _wait_for_topics(node: Any, prefix: str, stop: StopRequest) -> bool:
    """Give rqt_plot the topics it needs at its start; False when the end is asked for."""
    topic = f'{prefix}learner/metrics/return_mean'
    deadline = time.monotonic() + WAIT_S
    while not node.count_publishers(topic):
        if stop.wait(POLL_S):
            return False
        if time.monotonic() > deadline:
            node.get_logger().warning(f'{topic} does not exist after {WAIT_S:.0f} s: is a '
                                      f'training running in namespace {prefix}?')
            break
    return not stop.wait(SETTLE_S)


def _close_when_stopped(stop: StopRequest, ours: Any) -> None:
    """
    Close the window of rqt when the end is asked for.

    rqt has a handler of its own for SIGINT only; what came as SIGTERM, or before rqt had it, is
    passed on.
    """
    while not stop() or signal.getsignal(signal.SIGINT) == ours:
        time.sleep(POLL_S)
    os.kill(os.getpid(), signal.SIGINT)

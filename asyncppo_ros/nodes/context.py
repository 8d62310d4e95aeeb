"""rclpy around one node: started with our own signal handlers, taken down in every case."""

from collections.abc import Callable, Iterator
import contextlib
import threading
from typing import TypeVar

import rclpy
from rclpy.executors import Executor, ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

NodeT = TypeVar('NodeT', bound=Node)


@contextlib.contextmanager
def running(make: Callable[[], NodeT], arguments: list[str]) -> Iterator[NodeT]:
    """
    Make a node with an executor (``node.executor``); destroy both and rclpy's context at the end.

    Parameters
    ----------
    make : callable
        Gives the node, once rclpy is there.
    arguments : list of str
        The command line, with its ``--ros-args``.

    """
    # rclpy's own handlers would invalidate its context before the last message is sent.
    rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
    try:
        executor = SingleThreadedExecutor()
        try:
            node = make()
            executor.add_node(node)
            try:
                yield node
            finally:
                executor.remove_node(node)
                node.destroy_node()
        finally:
            # Before the context: since Kilted an executor that outlives it prints a traceback.
            executor.shutdown()
    finally:
        rclpy.try_shutdown()


class Spinner:
    """
    Spins an executor in a thread of its own until told to stop.

    Parameters
    ----------
    executor : Executor
    name : str
        Of the thread.

    """

    def __init__(self, executor: Executor, name: str) -> None:
        self._executor = executor
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._spin, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._thread.join(timeout=2.0)

    def _spin(self) -> None:
        with contextlib.suppress(ExternalShutdownException):
            while not self._stopping.is_set():
                self._executor.spin_once(timeout_sec=0.1)

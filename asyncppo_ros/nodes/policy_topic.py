"""The policy on a ROS 2 topic: a PolicyChannel whose newest message late joiners get."""

import array
import threading

from rclpy.node import Node
from std_msgs.msg import MultiArrayDimension, UInt8MultiArray

from asyncppo_ros.chunk import Identity
from asyncppo_ros.nodes.qos import POLICY_QOS, POLICY_TOPIC
from asyncppo_ros.transport.policy_channel import NewestPolicy

TOPIC = POLICY_TOPIC
# Some middleware loses latched byte arrays, so newcomers are also served by repetition.
REPEAT_S = 3.0
NEWCOMER_CHECK_S = 0.25


class RosPolicyPublisher:
    """
    Publishes policies, and the newest again for newcomers and every few seconds.

    Parameters
    ----------
    node : Node
        Must be spun by some thread for the repetition.

    """

    def __init__(self, node: Node) -> None:
        self._publisher = node.create_publisher(UInt8MultiArray, TOPIC, POLICY_QOS)
        self._message: UInt8MultiArray | None = None
        self._lock = threading.Lock()
        self._subscribers = 0
        self._ticks_since = 0
        self._timer = node.create_timer(NEWCOMER_CHECK_S, self._repeat)

    def publish(self, data: bytes, identity: Identity) -> None:
        """Publish the bytes of a snapshot."""
        message = UInt8MultiArray()
        message.layout.dim = [MultiArrayDimension(
            label=f'asyncppo policy {identity}', size=len(data), stride=len(data))]
        # From an array.array the copy is one memcpy; a list or numpy array takes milliseconds.
        content = array.array('B')
        content.frombytes(data)
        message.data = content
        with self._lock:
            self._message = message
            self._ticks_since = 0
            self._publisher.publish(message)

    def _repeat(self) -> None:
        with self._lock:
            count = self._publisher.get_subscription_count()
            newcomers = count > self._subscribers
            self._subscribers = count
            self._ticks_since += 1
            due = self._ticks_since * NEWCOMER_CHECK_S >= REPEAT_S
            if self._message is not None and (newcomers or due):
                self._ticks_since = 0
                self._publisher.publish(self._message)


class RosPolicySubscriber(NewestPolicy):
    """
    Keeps the newest valid policy of a run.

    Parameters
    ----------
    node : Node
        Its executor delivers the messages.
    key : bytes, optional
        Refuse policies that are not signed with it.

    """

    def __init__(self, node: Node, key: bytes | None = None) -> None:
        super().__init__(key, lambda text: node.get_logger().warning(
            f'topic {TOPIC}: {text}', throttle_duration_sec=5.0))
        self._node = node
        self._subscription = node.create_subscription(
            UInt8MultiArray, TOPIC, self._store, POLICY_QOS)

    def look(self) -> None:
        """Take in what has arrived, without waiting; not where another thread spins the node."""
        self._node.executor.spin_once(timeout_sec=0.0)

    def _store(self, message: UInt8MultiArray) -> None:
        known = self._newest
        label = message.layout.dim[0].label if message.layout.dim else ''
        # A repetition is not even copied.
        if known is None or label != f'asyncppo policy {known.identity}' \
                or memoryview(message.data) != memoryview(known.data):
            self.offer(bytes(message.data))

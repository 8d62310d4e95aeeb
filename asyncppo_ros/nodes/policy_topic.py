"""The policy on a ROS 2 topic: a PolicyChannel whose newest message late joiners get."""

import array
import threading

from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from std_msgs.msg import MultiArrayDimension, UInt8MultiArray

from asyncppo_ros.chunk import Identity, NO_POLICY
from asyncppo_ros.errors import ArtefactError
from asyncppo_ros.policy.snapshot import PolicySnapshot

TOPIC = 'policy'
# A late actor gets the newest policy, and only that one.
POLICY_QOS = QoSProfile(
    history=HistoryPolicy.KEEP_LAST, depth=1, reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL)
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


class RosPolicySubscriber:
    """
    Keeps the newest valid policy of a run.

    Parameters
    ----------
    node : Node
        Its executor delivers the messages.

    Attributes
    ----------
    run_id : int
        Policies of other runs are ignored; 0 accepts the first and stays with its run.
    refused : int
        Messages that failed a check.

    """

    def __init__(self, node: Node) -> None:
        self.run_id = 0
        self.refused = 0
        self._node = node
        self._newest: PolicySnapshot | None = None
        self._subscription = node.create_subscription(
            UInt8MultiArray, TOPIC, self._store, POLICY_QOS)

    @property
    def newest(self) -> PolicySnapshot | None:
        """The newest policy of the run, or None so far."""
        if self._newest is not None and self.run_id not in (0, self._newest.run_id):
            return None
        return self._newest

    @property
    def identity(self) -> Identity:
        """Of the newest policy."""
        newest = self.newest
        return NO_POLICY if newest is None else newest.identity

    def _store(self, message: UInt8MultiArray) -> None:
        label = message.layout.dim[0].label if message.layout.dim else ''
        known = self._newest
        if known is not None and label == f'asyncppo policy {known.identity}' \
                and len(message.data) == len(known.data) \
                and memoryview(message.data) == memoryview(known.data):
            return
        try:
            snapshot = PolicySnapshot.from_bytes(bytes(message.data))
        except ArtefactError as error:
            self.refused += 1
            self._node.get_logger().warning(
                f'a message on topic {TOPIC} was refused: {error}', throttle_duration_sec=5.0)
            return
        if self.run_id not in (0, snapshot.run_id):
            return
        if known is not None and snapshot.run_id == known.run_id \
                and snapshot.identity <= known.identity:
            return
        self._newest = snapshot

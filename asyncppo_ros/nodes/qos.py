"""Quality of service of every topic that has to do with a policy or a robot, once."""

from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

try:
    from rclpy.event_handler import PublisherEventCallbacks
except ImportError:  # Humble
    from rclpy.qos_event import PublisherEventCallbacks

# States: the newest wins, and a reader asks no more of a robot than it offers.
SENSOR_QOS = QoSProfile(
    history=HistoryPolicy.KEEP_LAST, depth=1, reliability=ReliabilityPolicy.BEST_EFFORT,
    durability=DurabilityPolicy.VOLATILE)
# Controllers listen reliably; a best-effort publisher would be silent to them.
COMMAND_QOS = QoSProfile(
    history=HistoryPolicy.KEEP_LAST, depth=1, reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.VOLATILE)
# Whoever comes late gets the newest, and only that one.
LATCHED_QOS = QoSProfile(
    history=HistoryPolicy.KEEP_LAST, depth=1, reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL)
POLICY_TOPIC = 'policy'
POLICY_QOS = LATCHED_QOS
# Evaluations of policies, as the evaluator of their run tells them.
EVALUATION_TOPIC = 'evaluator/evaluation'
# For publishers of what only people read.  rclpy looks through the events of all publishers
# whenever a message comes, so a dozen of them cost more than the messages do; a reader who asks
# for another quality is told on its own side.
NO_EVENTS = PublisherEventCallbacks(use_default_callbacks=False)

"""ROS 2 nodes: the only files that import rclpy."""

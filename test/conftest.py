"""What holds for every test: no cross-talk with other ROS 2 processes, one thread per library."""

import os

# Set here, before any test imports rclpy or torch, and inherited by the nodes that tests start.
os.environ['ROS_DOMAIN_ID'] = str(os.getpid() % 102)
os.environ['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'
if os.environ.get('ROS_DISTRO') == 'humble':
    os.environ['ROS_LOCALHOST_ONLY'] = '1'  # its name for the same; later ones warn about it
os.environ['OMP_NUM_THREADS'] = '1'
os.environ.pop('MUJOCO_GL', None)

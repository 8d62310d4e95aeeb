"""What runs on the robot and in simulation alike: numpy only."""

"""A term of a user that fails, or hangs, where the robot goes too far."""

import time

from asyncppo_ros.robot.terms import term


@term(size=1, unit='1/rad')
def brittle(state):
    """Fail where the first joint is beyond 1.5 rad, hang where it is beyond -1.5 rad."""
    if state.joint_position[0, 0] < -1.5:
        time.sleep(8.0)
    if state.joint_position[0, 0] > 1.5:
        raise ZeroDivisionError('a fault in a term of a user')
    return 0.0 * state.joint_position[:, :1]

"""How a robot is brought to the start of an episode: by itself, by a service, or by a person."""

from collections.abc import Callable
import select
import sys
import time
from typing import Any, Protocol

import numpy as np
from rclpy.node import Node
from std_srvs.srv import Trigger

from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.nodes.robot_control import LOOK_S, RobotControl
from asyncppo_ros.simulation.environment import StepMissed

# The joints come to rest within this time at the start pose [s].
SETTLE_S = 0.5
# A robot that is longer on its way to the start pose is held up [s].
WAY_S = 60.0
# A service that takes longer has failed [s].
SERVICE_S = 60.0
# The state that follows a reset comes within this time [s].
NEWS_S = 5.0
# Joints that are named.
MOST_NAMED = 4


class Reset(Protocol):
    """Brings a robot that nobody commands to a start; raises `StepMissed` where that fails."""

    def __call__(self) -> None:
        """Do it; it may take as long as people take."""


class StartPoseReset:
    """
    The joints go to the start pose, no faster than `deploy.start_speed`.

    Raises
    ------
    ConfigError
        Commands are not positions, which alone lead to a pose.

    """

    def __init__(self, control: RobotControl, start_pose: np.ndarray) -> None:
        if control.interface != 'position':
            raise ConfigError(f'actor.reset = start_pose: this task gives {control.interface} '
                              'commands, and only positions lead to a pose; use service or '
                              'prompt')
        self._control, self._start_pose = control, start_pose

    def __call__(self) -> None:
        """Go there, and settle."""
        self._control.go_to(self._start_pose, SETTLE_S, WAY_S)


class ServiceReset:
    """
    A service (std_srvs/Trigger) does it, such as that of a simulation.

    Raises
    ------
    ConfigError
        None is named.

    """

    def __init__(self, node: Node, control: RobotControl, name: str) -> None:
        if not name:
            raise ConfigError('actor.reset = service: robot.reset_service is empty; name it, for '
                              'example sim_robot/reset')
        self._control, self._name = control, name
        self._client = node.create_client(Trigger, name)

    def __call__(self) -> None:
        """Call it, and wait for the state that follows."""
        stamp = self._control.measured.newest_stamp()
        end = time.monotonic() + SERVICE_S
        self._wait(self._client.service_is_ready, end, 'is not there')
        future = self._client.call_async(Trigger.Request())
        self._wait(future.done, end, 'does not answer')
        answer: Any = future.result()
        if not answer.success:
            raise StepMissed(f'{self._name}: {answer.message}')
        self._control.wait_for_news(time.monotonic(), stamp, NEWS_S)

    def _wait(self, until: Callable[[], bool], end: float, what: str) -> None:
        while not until():
            if self._control.idle():
                raise StepMissed('stopped while the robot was reset')
            if time.monotonic() > end:
                raise StepMissed(f'service {self._name} {what}')
            time.sleep(0.1 * LOOK_S)


class PromptReset:
    """
    A person puts the robot to its start and presses Enter; joints that can then go to the pose.

    Raises
    ------
    ConfigError
        There is no terminal to ask at.

    """

    def __init__(self, control: RobotControl, start_pose: np.ndarray, joints: tuple[str, ...],
                 tolerance: float) -> None:
        if not sys.stdin.isatty():
            raise ConfigError('actor.reset = prompt: there is no terminal to ask at; start this '
                              'actor in one, or use start_pose or service')
        self._control, self._start_pose, self._joints = control, start_pose, joints
        self._tolerance = tolerance
        self._drive = StartPoseReset(control, start_pose) if control.interface == 'position' \
            else None

    def __call__(self) -> None:
        """Ask until it is done."""
        words = 'Put the robot to the start of an episode and press Enter.'
        while True:
            print(words, file=sys.stderr, flush=True)
            self._wait_for_enter()
            if self._drive is not None:
                return self._drive()
            position, _ = self._control.measured.moved(time.monotonic())
            far = [f'{joint} at {value:.2f}, start {start:.2f}' for joint, value, start
                   in zip(self._joints, position, self._start_pose)
                   if not abs(value - start) <= self._tolerance]
            if not far:
                return None
            words = f'Not near the start pose: {"; ".join(far[:MOST_NAMED])}. Again, and Enter.'

    def _wait_for_enter(self) -> None:
        while True:
            if self._control.idle():
                raise StepMissed('stopped while a person was waited for')
            if select.select([sys.stdin], [], [], LOOK_S)[0]:
                if not sys.stdin.readline():
                    raise ConfigError('actor.reset = prompt: the terminal was closed')
                return


def reset_for(config: Config, node: Node, control: RobotControl, start_pose: np.ndarray,
              joints: tuple[str, ...]) -> Reset:
    """
    Give the way that ``actor.reset`` names.

    Raises
    ------
    ConfigError
        It is not possible here.

    """
    if config.actor.reset == 'service':
        return ServiceReset(node, control, config.robot.reset_service)
    if config.actor.reset == 'prompt':
        return PromptReset(control, start_pose, joints, config.deploy.start_tolerance)
    return StartPoseReset(control, start_pose)

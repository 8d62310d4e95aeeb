"""A robot behind ROS 2 topics as an `Environment` of one: real transitions for training."""

from collections.abc import Callable
import contextlib
from typing import Any

import numpy as np
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter

from asyncppo_ros.config import Config
from asyncppo_ros.nodes.context import Spinner
from asyncppo_ros.nodes.robot_control import RobotControl
from asyncppo_ros.nodes.robot_reset import reset_for
from asyncppo_ros.simulation.environment import StepMissed, StepResult
from asyncppo_ros.simulation.robot_task import RobotTask

NAME = 'robot_environment'
# A robot that tells nothing is waited for so long before that is said [s].
USABLE_S = 10.0


class RobotEnvironment:
    """
    Makes control steps on a robot, at its rate, under the safety supervisor.

    What is late or missing raises `StepMissed`, and the robot is stopped until the next `reset`;
    so it is between two episodes.  What is asked for in an episode is drawn as in training, and
    reward and end come from the task, by what the robot tells.

    Parameters
    ----------
    config : Config
        Its robot, deploy and actor settings.
    use_sim_time : bool
        Control steps are counted by ``/clock``.

    Attributes
    ----------
    idle : callable
        Called while it waits; True = give up.
    needs_reset : bool
        See `Environment`.
    task, num_envs, observation_size, action_size, control_dt, critic_observation
        See `Environment`.

    Raises
    ------
    UserError
        The task needs what no robot measures, or settings or robot do not fit it.

    """

    num_envs = 1

    def __init__(self, config: Config, use_sim_time: bool = False) -> None:
        self._episodes = RobotTask(config.task, config.seed, config.policy.privileged_critic)
        episodes = self._episodes
        self.task = config.task
        self.observation_size, self.action_size = episodes.observation_size, episodes.action_size
        self.control_dt = episodes.control_dt
        self.critic_observation = episodes.critic_observation
        self.needs_reset = True
        # Its topics are those of the robot, not those of the run.
        self._node = Node(NAME, namespace=config.actor.robot_namespace or '/',
                          use_global_arguments=False, parameter_overrides=[
                              Parameter('use_sim_time', value=use_sim_time)])
        with contextlib.ExitStack() as undo:
            undo.callback(self._node.destroy_node)
            self._control = RobotControl(self._node, config, episodes.needs, episodes.card)
            undo.callback(self._control.close)
            self._reset = reset_for(config, self._node, self._control, episodes.start_pose,
                                    episodes.action_map.joints)
            undo.pop_all()
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self._node)
        self._spinner = Spinner(self._executor, NAME)
        self._command = np.zeros((1, self.action_size))

    @property
    def idle(self) -> Callable[[], bool]:
        """Called while it waits; True = give up."""
        return self._control.idle

    @idle.setter
    def idle(self, idle: Callable[[], bool]) -> None:
        self._control.idle = idle

    def reset(self, out: np.ndarray) -> None:
        """
        Bring the robot to a start, and begin an episode there; write float32 [1, O] to `out`.

        Raises
        ------
        StepMissed
            It did not come about: the robot does not tell all that is needed, is stopped, or
            could not be brought there.

        """
        control = self._control
        if not self.needs_reset:
            control.stop('a new episode begins')
        control.wait_until_usable(USABLE_S)
        control.let_go()
        self._reset()
        control.begin()
        self._episodes.begin(control.read(), out)
        self.needs_reset = False

    def step(self, action: np.ndarray, out: np.ndarray) -> StepResult:
        """
        Make one control step: give the command, and tell the state that follows it.

        See `Environment.step`.

        Raises
        ------
        StepMissed
            The state did not come in time, the action came too late, or the robot was stopped.

        """
        if self.needs_reset:
            raise StepMissed('only a reset goes on from here')
        try:
            self._episodes.command(action, self._command)
            self._control.send(self._command[0])
            self._control.wait()
        except StepMissed:
            self.needs_reset = True
            raise
        result = self._episodes.judge(self._control.read(), out)
        if result.terminated[0] or result.truncated[0]:
            self.needs_reset = True
            self._control.stop('the episode has ended')
        return result

    def describe(self) -> dict[str, Any]:
        """Give what the card of an artefact says of the task."""
        return self._episodes.card

    def close(self) -> None:
        """Stop the robot, and let go of it."""
        self._control.close()
        self._spinner.stop()
        self._executor.remove_node(self._node)
        self._node.destroy_node()
        self._executor.shutdown()

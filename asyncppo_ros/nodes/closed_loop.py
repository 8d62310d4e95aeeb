"""A policy node and a simulated robot as processes, and episodes played through their topics."""

from collections.abc import Iterator
import json
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from std_srvs.srv import Trigger

from asyncppo_ros.config import Config
from asyncppo_ros.errors import RunError, UserError
from asyncppo_ros.launching import node_command
from asyncppo_ros.nodes.process import child_environment, how_it_ended, StopRequest
from asyncppo_ros.nodes.qos import LATCHED_QOS, SENSOR_QOS
from asyncppo_ros.settings import write_yaml

# Until both nodes have imported what they need and found each other [s].
START_S = 120.0
# Activation is tried again for so long: inputs of the new episode may be on their way [s].
ACTIVATE_S = 30.0
RETRY_S = 0.1
# Without any news of an episode for so long, nothing will come any more [s].
STALL_S = 60.0
# Until a node has ended after SIGTERM [s].
END_S = 10.0
# The end of an episode is looked for so often [s]: no oftener, to leave the cores to the nodes.
LOOK_S = 0.01
# Lines of a node's output that are shown when it has failed.
SHOWN_LINES = 15


class Stopped(Exception):  # noqa: N818 - the user wants it so
    """The end was asked for."""


class ClosedLoop:
    """
    One policy in command of one simulated robot, in a namespace and with a clock of their own.

    Parameters
    ----------
    config : Config
        With ``deploy.policy`` and ``sim_robot.ask``; both nodes get it.
    folder : Path
        For the settings and the output of the nodes.
    namespace : str
    stop : StopRequest

    """

    def __init__(self, config: Config, folder: pathlib.Path, namespace: str,
                 stop: StopRequest) -> None:
        self._config, self._folder, self._stop = config, folder, stop
        self._namespace = namespace
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._state = ''
        self._info: dict[str, Any] = {}
        self._results: dict[int, dict[str, Any]] = {}
        self._stamp = (0, 0)
        self._heard = 0

    def __enter__(self) -> 'ClosedLoop':
        """Start the nodes and configure the policy."""
        rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
        try:
            self._node = rclpy.create_node('closed_loop', namespace=self._namespace)
            self._executor = SingleThreadedExecutor()
            self._executor.add_node(self._node)
            self._listen()
            self._start()
            self._wait(lambda: self._heard > 0, START_S, 'joint states of the robot')
            if not self._change(Transition.TRANSITION_CONFIGURE, START_S):
                raise UserError(self._refusal())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End the nodes."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._executor.shutdown()
        self._node.destroy_node()
        rclpy.try_shutdown()

    def episodes(self, count: int) -> Iterator[dict[str, Any]]:
        """
        Play episodes, one after the other.

        Yields
        ------
        dict
            What ``~/episode`` of the robot says (see `simulation.robot.EpisodeResult`), and
            ``tripped``: why the policy node stopped the robot in it; empty = it did not.

        Raises
        ------
        RunError
            A node has ended, or nothing happens any more.
        UserError
            The policy node refuses to take command; the text says why.
        Stopped
            The end was asked for.

        """
        for _ in range(count):
            yield self._episode()

    def _episode(self) -> dict[str, Any]:
        index = self._reset()
        deadline = time.monotonic() + ACTIVATE_S
        while not self._change(Transition.TRANSITION_ACTIVATE):
            if time.monotonic() > deadline:
                raise UserError(self._refusal())
            self._spin(RETRY_S)
        tripped = self._until_result(index)
        self._change(Transition.TRANSITION_DEACTIVATE)
        if tripped or self._state == 'tripped':
            self._call(self._reset_trip, Trigger.Request())
        return {**self._results[index], 'tripped': tripped}

    def _reset(self) -> int:
        """Begin the next episode; what the policy node then knows is of that episode."""
        before = self._stamp
        answer = self._call(self._reset_robot, Trigger.Request())
        heard = self._heard
        self._wait(lambda: self._stamp > before and self._heard >= heard + 3, STALL_S,
                   'joint states after a reset')
        return int(answer.message.split()[-1])

    def _until_result(self, index: int) -> list[str]:
        tripped: list[str] = []
        stamp, since = self._stamp, time.monotonic()
        while index not in self._results:
            self._spin(LOOK_S)
            tripped = self._info.get('tripped') or tripped
            if self._stamp != stamp:
                stamp, since = self._stamp, time.monotonic()
            if time.monotonic() > since + STALL_S:
                raise RunError(f'episode {index}: nothing has happened for {STALL_S:g} s; the '
                               f'policy node is {self._state}{self._outputs()}')
        return tripped

    def _listen(self) -> None:
        node = self._node
        self._subscriptions = [
            node.create_subscription(JointState, self._config.robot.joint_state_topics[0],
                                     self._take_states, SENSOR_QOS),
            node.create_subscription(String, 'sim_robot/episode', self._take_result, LATCHED_QOS),
            node.create_subscription(String, 'policy_node/state', self._take_state, LATCHED_QOS),
            node.create_subscription(String, 'policy_node/policy_info', self._take_info,
                                     LATCHED_QOS)]
        self._reset_robot = node.create_client(Trigger, 'sim_robot/reset')
        self._reset_trip = node.create_client(Trigger, 'policy_node/reset_trip')
        self._change_state = node.create_client(ChangeState, 'policy_node/change_state')

    def _start(self) -> None:
        settings = self._folder / 'config.yaml'
        write_yaml(self._config, settings)
        # A clock of their own: others on this host may have another.
        common = ['--ros-args', '--params-file', str(settings), '-r', f'__ns:=/{self._namespace}',
                  '-r', f'/clock:=/{self._namespace}/clock']
        sim_time = self._config.sim_robot.lockstep or self._config.sim_robot.publish_clock
        for name, more in (('sim_robot', []),
                           ('policy', ['-p', f'use_sim_time:={str(sim_time).lower()}'])):
            with (self._folder / f'{name}.log').open('wb') as output:
                self._processes[name] = subprocess.Popen(
                    node_command(sys.executable, name, [*common, *more]), stdout=output,
                    stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=child_environment())

    def _take_states(self, message: JointState) -> None:
        self._stamp = (message.header.stamp.sec, message.header.stamp.nanosec)
        self._heard += 1

    def _take_result(self, message: String) -> None:
        result = json.loads(message.data)
        self._results[result['index']] = result

    def _take_state(self, message: String) -> None:
        self._state = message.data

    def _take_info(self, message: String) -> None:
        self._info = json.loads(message.data)

    def _change(self, transition: int, timeout: float = STALL_S) -> bool:
        request = ChangeState.Request(transition=Transition(id=transition))
        return bool(self._call(self._change_state, request, timeout).success)

    def _call(self, client: Any, request: Any, timeout: float = STALL_S) -> Any:
        self._wait(client.service_is_ready, timeout, f'service {client.srv_name}')
        future = client.call_async(request)
        self._wait(future.done, timeout, f'answer of {client.srv_name}')
        return future.result()

    def _wait(self, condition: Any, timeout: float, what: str) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            self._spin(LOOK_S)
            if time.monotonic() > deadline:
                raise RunError(f'no {what} within {timeout:g} s{self._outputs()}')

    def _spin(self, seconds: float) -> None:
        """Take in what has come, and give the nodes time."""
        if self._stop():
            raise Stopped
        until = time.monotonic() + seconds
        for _ in range(20):
            self._executor.spin_once(timeout_sec=0.0)
        time.sleep(max(0.0, until - time.monotonic()))
        for name, process in self._processes.items():
            code = process.poll()
            if code is not None and not self._stop():
                raise RunError(f'the {name} node has ended ({how_it_ended(code)})'
                               f'{self._outputs()}')

    def _refusal(self) -> str:
        self._spin(5 * RETRY_S)
        reasons = self._info.get('refusals') or [f'it is {self._state}{self._outputs()}']
        return f'the policy node does not take command: {"; ".join(reasons)}'

    def _outputs(self) -> str:
        """Give the last lines that the nodes have said."""
        said = []
        for name in self._processes:
            lines = (self._folder / f'{name}.log').read_text(errors='replace').splitlines()
            said += [f'  {name}: {line}' for line in lines[-SHOWN_LINES:]]
        return '\n'.join(['; the nodes said last:', *said]) if said else ''

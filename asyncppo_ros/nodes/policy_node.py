"""
Policy node: a policy in command of a robot, with everything that keeps that safe.

It runs with rclpy, numpy and PyYAML alone.
"""

from collections.abc import Callable
import functools
import re
import traceback
from typing import Any, TypeVar

from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from std_srvs.srv import Trigger

from asyncppo_ros.config import Config
from asyncppo_ros.errors import RobotError, UserError
from asyncppo_ros.nodes.context import running
from asyncppo_ros.nodes.parameters import read_config, TakesSettings
from asyncppo_ros.nodes.policy_deployment import Deployment
from asyncppo_ros.nodes.policy_reports import Reports
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.robot.signing import signing_key

# Also how often the end is looked for, at least.
REPORT_S = 0.2
WATCH_S = 0.5
DIAGNOSTICS_S = 1.0
AUTOSTART_S = 1.0


NodeT = TypeVar('NodeT', bound=LifecycleNode)
Transition = Callable[[NodeT, LifecycleState], TransitionCallbackReturn]


def _fault_told(callback: Transition) -> Transition:
    """Tell the traceback of a transition that fails: rclpy keeps it to itself."""
    @functools.wraps(callback)
    def told(node: NodeT, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            return callback(node, state)
        except Exception:  # noqa: BLE001 - what follows is `on_error`
            node.get_logger().error(traceback.format_exc().rstrip())
            return TransitionCallbackReturn.ERROR
    return told


class PolicyNode(TakesSettings, LifecycleNode):
    """
    The lifecycle of a `Deployment`, and its services.

    Inactive means that no command is sent, ever, but where ~/go_to_start asks for it; tripped
    means that nothing but the trip action is.

    Services: ``~/go_to_start``, ``~/estop``, ``~/reset_trip``, ``~/rollback``, ``~/release``.
    Topics: those of the robot; ``policy`` in, where policies may change while they run;
    ``~/state``, ``~/policy_info``, ``~/metrics/NAME`` and ``/diagnostics`` out.

    Parameters
    ----------
    **options
        Of `rclpy.node.Node`.

    """

    def __init__(self, **options: Any) -> None:
        super().__init__('policy_node', **options)
        self.config: Config = read_config(self)
        self._key = signing_key(self.config.transport.keys)
        self._deployment: Deployment | None = None
        self._phase = 'unconfigured'
        self._refusals: list[str] = []
        self._told = self._latched = ''
        self._autostart = self.config.deploy.autostart
        self._reports = Reports(self)
        for name, call in (('go_to_start', self._go_to_start), ('estop', self._estop),
                           ('reset_trip', self._reset_trip), ('rollback', self._rollback),
                           ('release', self._release)):
            self.create_service(Trigger, f'~/{name}', _answering(call))
        # Steady: the ROS clock may stand still.
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        for seconds, callback in ((REPORT_S, self._report), (WATCH_S, self._watch),
                                  (DIAGNOSTICS_S, self._diagnose)):
            self.create_timer(seconds, callback, clock=steady)
        if self._autostart:
            self.create_timer(AUTOSTART_S, self._start_by_itself, clock=steady)

    def spin_until_stopped(self, stop: StopRequest) -> None:
        """Serve until the end is asked for, then stop the robot."""
        try:
            while not stop():
                # The timers end each wait; one with a timeout makes a timer of its own.
                self.executor.spin_once()
        finally:
            # Also after a fault in a callback, which ends the process.
            if self._phase != 'finalized':
                self.trigger_shutdown()

    @_fault_told
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Read the policy and the URDF, and listen to the robot."""
        try:
            self._deployment = Deployment(self, self.config, self._key,
                                          self.get_logger().info, self.get_logger().error)
        except UserError as error:
            return self._refused('not configured', [str(error)])
        if self._latched:
            self._deployment.estop.press(self._latched)
        return self._reached('inactive', f'configured: {self._deployment.live.current} of task '
                             f'{self._deployment.pilot.card["task"]["task"]}')

    @_fault_told
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Hand the robot to the policy, where every check passes."""
        deployment = self._deployment
        assert deployment is not None
        refusals = deployment.refusals()
        if not refusals:
            try:
                deployment.loop.activate()
            except (RobotError, TimeoutError) as error:
                refusals = [str(error)]
        if refusals:
            return self._refused('not activated', refusals)
        self._autostart = False
        return self._reached('active', f'active: {deployment.live.current} commands '
                             f'{deployment.link.topic}')

    @_fault_told
    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop the robot, then say no more; a trip remains."""
        if self._deployment is not None:
            self._deployment.loop.stand_down()
        return self._reached('inactive', 'inactive')

    @_fault_told
    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Let go of robot and policy."""
        self._let_go()
        return self._reached('unconfigured', 'unconfigured')

    @_fault_told
    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop the robot for good."""
        self._let_go()
        return self._reached('finalized', 'finalized')

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop the robot after a fault of this program in a transition."""
        self._let_go()
        return self._reached('unconfigured', 'unconfigured')

    def _let_go(self) -> None:
        deployment, self._deployment = self._deployment, None
        self._autostart = False
        if deployment is not None:
            # What has tripped stays so, in whatever state of the lifecycle.
            self._latched = deployment.latched
            deployment.close()

    def _refused(self, what: str, reasons: list[str]) -> TransitionCallbackReturn:
        self._refusals = reasons
        text = f'{what}: {"; ".join(reasons)}'
        # An age or a rate is another one each time: that is no news.
        news = re.sub(r'[\d.]+', '#', text)
        if news != self._told or not self._autostart:
            self._told = news
            self.get_logger().error(text)
        self._report()
        return TransitionCallbackReturn.FAILURE

    def _reached(self, phase: str, text: str) -> TransitionCallbackReturn:
        self._phase, self._refusals, self._told = phase, [], ''
        self.get_logger().info(text)
        self._report()
        return TransitionCallbackReturn.SUCCESS

    def _go_to_start(self) -> str:
        deployment = self._configured()
        if self._phase == 'active':
            raise RobotError('the policy is in command; deactivate it first')
        refusals = deployment.refusals(to_start=True)
        if refusals:
            raise RobotError('; '.join(refusals))
        deployment.loop.go_to_start()
        return ('moving to the start pose, which is then held until activation; ~/estop, then '
                '~/reset_trip, ends that')

    def _estop(self) -> str:
        reason = 'emergency stop by ~/estop'
        if self._deployment is None:
            self._latched = reason
        else:
            self._deployment.estop.press(reason)
        self._report()
        return 'stopped; ~/reset_trip goes back to inactive'

    def _reset_trip(self) -> str:
        deployment, self._autostart = self._deployment, False
        latched = self._latched if deployment is None else deployment.latched
        self._latched = ''
        if not latched:
            return 'nothing has tripped'
        if self._phase == 'active':
            self.trigger_deactivate()
        if deployment is not None:
            deployment.reset_trip()
        self._report()
        return f'{self._phase}; activate when all is well'

    def _rollback(self) -> str:
        return self._configured().live.rollback()

    def _release(self) -> str:
        return self._configured().live.release()

    def _configured(self) -> Deployment:
        if self._deployment is None:
            raise RobotError(f'the node is {self._phase}; configure it first')
        return self._deployment

    def _start_by_itself(self) -> None:
        """Try again each second; no more after a success, nor once people have taken over."""
        if not self._autostart:
            return
        if self._phase == 'unconfigured':
            self.trigger_configure()
        elif self._phase == 'inactive':
            self.trigger_activate()

    def _watch(self) -> None:
        if self._deployment is not None:
            self._deployment.watch()

    def _report(self) -> None:
        self._reports.changes(self._phase, self._deployment, self._refusals)
        if self._deployment is not None:
            self._reports.metrics(self._deployment)

    def _diagnose(self) -> None:
        self._reports.diagnostics(self._phase, self._deployment, self._refusals)


def _answering(call: Callable[[], str]) -> Callable[[Trigger.Request, Trigger.Response],
                                                    Trigger.Response]:
    def answer(_request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        try:
            response.message, response.success = call(), True
        except (UserError, TimeoutError) as error:
            response.message, response.success = str(error), False
        return response
    return answer


def run(arguments: list[str], stop: StopRequest) -> int:
    """Run the policy node until it is stopped; the robot is stopped first."""
    with running(PolicyNode, arguments) as node:
        node.spin_until_stopped(stop)
    return 0

"""
What every process of a run has in common: signals, its parent, clear errors.

Importing this module imports nothing heavy: handlers must be in place before torch and rclpy
are imported, which takes seconds.
"""

from collections.abc import Callable, Iterator, MutableMapping
import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import traceback
from types import FrameType

from asyncppo_ros.errors import MissingDependency, UserError

PARENT_VARIABLE = 'ASYNCPPO_PARENT'
# Names the pipe through which the supervisor sees that an actor is not hung.
HEARTBEAT_VARIABLE = 'ASYNCPPO_HEARTBEAT_FD'
HEARTBEAT_S = 0.5
PR_SET_PDEATHSIG = 1
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HINTS = {
    'torch': 'pip install torch, or `make setup`',
    'mujoco': 'pip install mujoco, or `make setup`',
    'gymnasium': 'pip install gymnasium, or `make setup`',
    'zmq': 'pip install pyzmq, or apt install python3-zmq',
    'safetensors': 'pip install safetensors, or `make setup`',
    'matplotlib': 'pip install matplotlib, or `make setup`',
    'optuna': 'pip install optuna, or `make setup`',
    'ray': 'pip install "asyncppo_ros[ray]"',
    'onnx': 'pip install "asyncppo_ros[onnx]", or `make setup`',
    'onnxruntime': 'pip install "asyncppo_ros[onnx]", or `make setup`',
    'rclpy': 'source /opt/ros/DISTRO/setup.bash, or pip install "asyncppo_ros[ros-jazzy]"; '
             'without ROS, `asyncppo train-local` trains in one process',
}


@contextlib.contextmanager
def signals_held_back() -> Iterator[None]:
    """
    Start a child inside: it gets `STOP_SIGNALS` once it has handlers, not before.

    The blocked mask is inherited, and `StopRequest.install` of the child lifts it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class StopRequest:
    """
    SIGINT, SIGTERM and SIGHUP as a flag that loops look at.

    rclpy's own handlers would invalidate its context before the last message is sent, so the
    nodes use these instead.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        #: While only libraries are loaded there is nothing to end in good order.
        self.loading = False

    def install(self) -> 'StopRequest':
        """Take over `STOP_SIGNALS`; main thread only."""
        for number in STOP_SIGNALS:
            # A process started by nohup ignores the end of its terminal, and so do we.  SIGINT is
            # taken over even so: a shell ignores it for what runs in the background.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._handle)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        return self

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self._event.set()
        if self.loading:
            os._exit(0)

    def set(self) -> None:
        """Ask for the end from within."""
        self._event.set()

    def __call__(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleep until the end is asked for or the time is over; say whether it is asked for."""
        return self._event.wait(seconds)


def die_with_parent(number: signal.Signals = signal.SIGTERM) -> None:
    """
    Ask the kernel for a signal when the process that started this one dies.

    Only where that process asked for it (`PARENT_VARIABLE`): a node started by hand in the
    background must outlive its shell.
    """
    parent = os.environ.get(PARENT_VARIABLE)
    if not parent or sys.platform != 'linux':
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number)
    # The parent may have died before the line above.
    if os.getppid() != int(parent):
        os.kill(os.getpid(), number)


class SupervisorHeartbeat:
    """Writes a byte now and then where the supervisor asked for it (`HEARTBEAT_VARIABLE`)."""

    def __init__(self) -> None:
        self._descriptor = int(os.environ.get(HEARTBEAT_VARIABLE, '-1'))
        self._last = 0.0

    def beat(self) -> None:
        """Show that this process goes on; call it often."""
        now = time.monotonic()
        if self._descriptor < 0 or now - self._last < HEARTBEAT_S:
            return
        self._last = now
        try:
            os.write(self._descriptor, b'.')
        except BlockingIOError:
            pass  # the pipe is full of unread signs of life: that is one as well
        except OSError:
            self._descriptor = -1


def child_environment() -> dict[str, str]:
    """
    Give the environment for processes of a run.

    One thread each (processes must not fight for cores), discovery on this host unless the
    user asked for more, no graphics, and the wish to die with this process.
    """
    environment = dict(os.environ)
    compute_in_one_thread(environment)
    stay_on_this_host(environment)
    environment['PYTHONUNBUFFERED'] = '1'
    # A run draws nothing; left to itself MuJoCo looks for GLFW with a process of its own, which
    # would outlive one that is ended while it loads.
    environment.setdefault('MUJOCO_GL', 'disable')
    environment[PARENT_VARIABLE] = str(os.getpid())
    return environment


def compute_in_one_thread(environment: MutableMapping[str, str]) -> None:
    """Let numpy have one thread, unless the user has said otherwise; before it is imported."""
    for name in ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS'):
        environment.setdefault(name, '1')


def stay_on_this_host(environment: MutableMapping[str, str]) -> None:
    """
    Keep ROS discovery on this host unless the user has said how far it goes.

    With peers that were named it goes to them, and no further: so it needs no multicast, and
    Fast DDS looks for 32 processes on each of them, where it would find the first four.
    """
    told = {'ROS_AUTOMATIC_DISCOVERY_RANGE', 'ROS_DISCOVERY_SERVER', 'ROS_LOCALHOST_ONLY'}
    if told & set(environment):
        return
    # Humble knows neither ranges nor peers.
    if environment.get('ROS_DISTRO') == 'humble' and 'ROS_STATIC_PEERS' in environment:
        return
    environment['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'
    if environment.get('ROS_DISTRO') == 'humble':
        environment['ROS_LOCALHOST_ONLY'] = '1'


def how_it_ended(code: int) -> str:
    """Say an exit code of `subprocess` in words: ``exit code 1``, ``signal SIGKILL``."""
    return f'signal {signal.Signals(-code).name}' if code < 0 else f'exit code {code}'


def guarded(body: Callable[[], int | None], program: str) -> int:
    """
    Run the body of a process and turn what goes wrong into an exit code.

    Returns
    -------
    int
        What the body returned (None = 0); 2 after a mistake of the user, told in one line;
        1 after a fault of the program, told with its traceback.

    """
    try:
        return body() or 0
    except UserError as error:
        print(f'{program}: {error}', file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        missing = missing_dependency(error)
        if missing is None:
            traceback.print_exc()
            return 1
        print(f'{program}: {missing}', file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0
    except Exception:  # noqa: BLE001 - the last line of defence: told in full
        traceback.print_exc()
        return 1


def missing_dependency(error: ModuleNotFoundError) -> MissingDependency | None:
    """Say which library is missing from which interpreter, and the fix."""
    name = (error.name or '').partition('.')[0]
    if name.endswith('_msgs') or name.endswith('_srvs') or name == 'rcl_interfaces':
        name = 'rclpy'
    if name not in HINTS:
        return None
    return MissingDependency(f'{error.name} is missing from {sys.executable}: {HINTS[name]}')

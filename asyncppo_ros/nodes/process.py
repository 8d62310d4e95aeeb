"""
What every process of a run has in common: signals, its parent, clear errors.

Importing this module imports nothing heavy: handlers must be in place before torch and rclpy
are imported, which takes seconds.
"""

import atexit
from collections.abc import Callable, Iterator, MutableMapping
import contextlib
import ctypes
import gc
import os
import queue
import signal
import sys
import time
import traceback
from types import FrameType
from typing import NoReturn

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
        self._asked = False
        # Its `put` may interrupt itself.  A lock that a handler takes may be held by what it
        # interrupted, which then never goes on.
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._loading = False

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
        self.set()
        if self._loading:
            os._exit(0)

    @property
    def loading(self) -> bool:
        """
        Whether libraries are loaded, and there is nothing to end in good order.

        While it is so a request ends the process at once, with exit code 0; one that came
        before does so when this is set.
        """
        return self._loading

    @loading.setter
    def loading(self, value: bool) -> None:
        self._loading = value
        if value and self._asked:
            os._exit(0)

    def set(self) -> None:
        """Ask for the end from within."""
        self._asked = True
        self._wakes.put(None)

    def __call__(self) -> bool:
        return self._asked

    def wait(self, seconds: float) -> bool:
        """Sleep until the end is asked for or the time is over; say whether it is asked for."""
        if not self._asked:
            with contextlib.suppress(queue.Empty):
                self._wakes.get(timeout=max(0.0, seconds))
                self._wakes.put(None)  # for other threads that wait
        return self._asked


class LaunchInterrupt:
    """
    Ctrl-C in the process of ``ros2 launch``, of which launch files are a part.

    launch hears of it through `signal.set_wakeup_fd`, and leaves Python's own handler in place:
    its KeyboardInterrupt breaks off whatever runs at that moment.  A process that launch was
    about to start is then lost to it, so that it waits in vain for its end, and what breaks off
    in a callback of a weak reference is told with a traceback.  So this handler notes a Ctrl-C,
    and raises only where a launch file waits for something (`raised`).
    """

    def __init__(self) -> None:
        self._noted = False
        self._raises = False

    def install(self) -> None:
        """Take the place of Python's own handler; others are left alone."""
        self._noted = False
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._handle)
            # While it is taken apart the interpreter has no handlers, and would die of another.
            atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self._noted = True
        if self._raises:
            # Once: a second one must not break off what the first has set going.
            self._raises = False
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """
        Break off what is done inside.

        Raises
        ------
        KeyboardInterrupt
            At a Ctrl-C, also one that came before or comes at the end; launch goes on from there.

        """
        self._raises = True
        try:
            self.check()
            yield
        finally:
            self._raises = False
        self.check()

    def check(self) -> None:
        """
        End a launch file before it has started something.

        Raises
        ------
        KeyboardInterrupt
            There was a Ctrl-C.

        """
        if self._noted:
            raise KeyboardInterrupt


#: There is one terminal, however many launch files are included in one another.
launch_interrupt = LaunchInterrupt()


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


def leave(code: int) -> NoReturn:
    """
    End this process with an exit code as the last thing that its program does.

    Threads and `atexit` have their turn as always; the interpreter is then not taken apart.
    With torch that takes a second of a core, in which there are no handlers any more, so that a
    Ctrl-C, or the SIGTERM of one who has waited, turns a good end into a bad one.
    """
    global _exit_code
    _exit_code = code
    # What holds on to rclpy's nodes in a circle goes here: an end without it would leave the
    # shared memory of DDS behind.
    gc.collect()
    sys.exit(code)


_exit_code: int | None = None


def _end_at_once() -> None:
    if _exit_code is None:
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return  # Python itself says what is wrong with them
    ctypes.CDLL(None).fflush(None)  # what libraries have printed
    os._exit(_exit_code)


# What is registered first is called last.
atexit.register(_end_at_once)


def missing_dependency(error: ModuleNotFoundError) -> MissingDependency | None:
    """Say which library is missing from which interpreter, and the fix."""
    name = (error.name or '').partition('.')[0]
    if name.endswith('_msgs') or name.endswith('_srvs') or name == 'rcl_interfaces':
        name = 'rclpy'
    if name not in HINTS:
        return None
    return MissingDependency(f'{error.name} is missing from {sys.executable}: {HINTS[name]}')

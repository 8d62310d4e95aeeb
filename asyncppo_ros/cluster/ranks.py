"""
Ranks: the processes that make the gradient steps of one learner together.

Rank 0 is the learner.  It starts the others on its host, or they are started by others and meet
it as torch.distributed has it: ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT`` are
set, by hand or by torchrun.  Rank 0 alone says what is done next; see `data_parallel`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any, TypeVar
import weakref

import torch
from torch import Tensor
import torch.distributed as dist

from asyncppo_ros.cluster.socket_bytes import open_sockets, SocketBytes
from asyncppo_ros.errors import ConfigError, RankError
from asyncppo_ros.nodes.process import child_environment, how_it_ended, signals_held_back

# All ranks are there after this time [s], or it is an error ...
MEETING_S = 120.0
# ... and each answers within this [s], while one that waits for orders waits as long as it takes.
ANSWER_S = 120.0
PATIENCE = datetime.timedelta(days=30)
# At the end a process gets this time to end by itself [s].
LEAVE_S = 2.0
POLL_S = 0.05
# An order is its kind and these numbers.
ORDER_SIZE = 8
LEAVE = 0.0

ResultT = TypeVar('ResultT')
# With the log of each.
Processes = Sequence[tuple[subprocess.Popen, pathlib.Path | None]]


def outside(environment: Mapping[str, str] = os.environ) -> int:
    """Give how many ranks others have started, or 0 where nothing is said of any."""
    names = ('RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT')
    return int(environment['WORLD_SIZE']) if all(map(environment.get, names)) else 0


class Ranks:
    """
    All ranks of a learner, as one of them sees them.

    Parameters
    ----------
    store : Store
        Where they meet.
    rank, size : int
    device : torch.device
        Of the networks of this rank.
    processes : sequence of (Popen, Path or None)
        Ranks 1, 2 … where this rank has started them, with their logs.
    folder : Path, optional
        Is removed at the end.

    Attributes
    ----------
    rank, size, device
    gradients : ProcessGroup
        Through which nothing but gradients goes: by NCCL between GPUs, else by gloo.
    processes : list of Popen
        Ranks 1, 2 … where this rank has started them.
    sent : SocketBytes
        What this rank has sent through it; nothing where that does not go through sockets.

    """

    def __init__(self, store: dist.Store, rank: int, size: int, device: torch.device,
                 processes: Processes = (),
                 folder: pathlib.Path | None = None) -> None:
        self.rank, self.size, self.device = rank, size, device
        self.processes = [process for process, _ in processes]
        self._processes = list(processes)
        self._lost = False
        # Logs lie in RUN/logs.
        self._run = next((log.parent.parent for _, log in processes if log), 'RUN')
        self._end = weakref.finalize(self, _end, self._processes, folder)
        if dist.is_initialized():
            raise RankError('learner.ranks: this process has a learner of several ranks already')
        try:
            dist.init_process_group('gloo', store=store, rank=rank, world_size=size,
                                    timeout=PATIENCE)
            before = open_sockets()
            self.gradients = dist.new_group(
                backend='nccl' if device.type == 'cuda' else 'gloo',
                timeout=datetime.timedelta(seconds=ANSWER_S))
            self.sent = SocketBytes(open_sockets() - before)
        except RuntimeError as error:
            self._end()
            raise RankError(f'learner.ranks = {size}: {self._why(error)}') from None
        # GPUs need not wait for a copy to the host.
        self._bulk = self.gradients if device.type == 'cuda' else dist.group.WORLD

    def order(self, kind: float, *numbers: float) -> None:
        """Tell all other ranks what is done next; rank 0 alone."""
        order = torch.zeros(ORDER_SIZE, dtype=torch.float64)
        order[:1 + len(numbers)] = torch.tensor((kind, *numbers), dtype=torch.float64)
        self.told(lambda: _answered(dist.broadcast(order, 0, async_op=True)))

    def hear(self) -> list[float]:
        """Wait for rank 0 to say what is done next: its kind and the numbers."""
        order = torch.zeros(ORDER_SIZE, dtype=torch.float64)
        self.told(lambda: dist.broadcast(order, 0))
        return order.tolist()

    def order_with(self, kind: float, facts: Mapping[str, Any]) -> None:
        """Tell them facts, JSON types, whose size [bytes] is the number of the order."""
        data = torch.frombuffer(bytearray(json.dumps(facts).encode()), dtype=torch.uint8)
        self.order(kind, len(data))
        self.told(lambda: _answered(dist.broadcast(data, 0, async_op=True)))

    def hear_facts(self, size: int) -> dict[str, Any]:
        """Receive the facts of an order, of so many bytes."""
        data = torch.zeros(size, dtype=torch.uint8)
        dist.broadcast(data, 0)
        return json.loads(bytes(data.tolist()))

    def share(self, tensor: Tensor) -> None:
        """Make a tensor of every rank what it is at rank 0."""
        self.told(lambda: self._answered(dist.broadcast(tensor, 0, self._bulk, async_op=True)))

    def send(self, tensors: Sequence[Tensor]) -> None:
        """Send a tensor to each of the other ranks, in their order."""
        def send() -> None:
            for work in [dist.isend(tensor, rank, self._bulk)
                         for rank, tensor in enumerate(tensors, start=1) if tensor.numel()]:
                self._answered(work)
        self.told(send)

    def receive(self, tensor: Tensor) -> None:
        """Receive it from rank 0."""
        if tensor.numel():
            self.told(lambda: dist.recv(tensor, 0, self._bulk))

    def told(self, exchange: Callable[[], ResultT]) -> ResultT:
        """
        Do something together with the others.

        Raises
        ------
        RankError
            One of them is gone or does not answer.

        """
        try:
            return exchange()
        except RuntimeError as error:
            self._lost = True
            raise RankError(f'{self._why(error)}; the update was undone, nothing that was learned '
                            f'before it is lost: continue with --resume {self._run}') from None

    def close(self) -> None:
        """Let all other ranks end, and end those that do not."""
        if not self._end.alive:
            return
        if self.rank == 0 and not self._lost:
            with contextlib.suppress(RankError):
                self.order(LEAVE)
                _wait(self._processes)
        # One that is lost, or waits for the others, is not waited for.
        self._end()
        self.sent.close()
        dist.destroy_process_group()

    def _answered(self, work: dist.Work | None) -> None:
        """Wait for what goes the way of large tensors; a GPU waits instead of this thread."""
        if self.device.type != 'cuda':
            _answered(work)
        elif work is not None:
            work.wait()

    def _why(self, error: RuntimeError) -> str:
        """Say which rank is lost, and of what."""
        for rank, (process, log) in enumerate(self._processes, start=1):
            # The connection of a process that dies is closed a moment before it has died.
            with contextlib.suppress(subprocess.TimeoutExpired):
                return (f'rank {rank} of the learner ended with '
                        f'{how_it_ended(process.wait(0.5))}' + (f' (log: {log})' if log else ''))
        return f'a rank of the learner was lost ({str(error).splitlines()[0]})'


def started(size: int, device: torch.device, logs: str = '') -> Ranks:
    """
    Start ranks 1, 2 … on this host, and meet them; this process is rank 0.

    Parameters
    ----------
    size : int
        Ranks, this one included.
    device : torch.device
        Of the networks: a CPU, or a GPU for each rank.
    logs : str
        Folder that takes a log of each; empty = they write to where this process does.

    Raises
    ------
    ConfigError
        See `check_gpus`.
    RankError
        They did not come.

    """
    check_gpus(size, device)
    folder = pathlib.Path(tempfile.mkdtemp(prefix='asyncppo_ranks_'))
    meeting = folder / 'meeting'
    processes: list[tuple[subprocess.Popen, pathlib.Path | None]] = []
    try:
        if logs:
            pathlib.Path(logs).mkdir(parents=True, exist_ok=True)
        for rank in range(1, size):
            log = pathlib.Path(logs) / f'rank{rank}.log' if logs else None
            processes.append((_start(rank, size, meeting, log), log))
        store = dist.FileStore(str(meeting), size)
        _same_kind(store, device)
        _wait_for(processes, store)
    except BaseException:
        _end(processes, folder)
        raise
    with on_this_host():
        return Ranks(store, 0, size, device, processes, folder)


def check_gpus(size: int, device: torch.device) -> None:
    """
    Refuse more ranks on this host than it has GPUs for, where they are to use GPUs.

    Raises
    ------
    ConfigError
        There are fewer.

    """
    if device.type == 'cuda' and torch.cuda.device_count() < size:
        raise ConfigError(f'learner.ranks = {size}: each rank needs a GPU of its own, and torch '
                          f'finds {torch.cuda.device_count()}; or use learner.device = cpu')


def met(device: torch.device | None = None) -> Ranks:
    """
    Meet the ranks that others have started, as the environment says.

    Parameters
    ----------
    device : torch.device, optional
        Of the networks of rank 0, which all others follow.

    Raises
    ------
    RankError
        Not all of them came.

    """
    address = f'{os.environ["MASTER_ADDR"]}:{os.environ["MASTER_PORT"]}'
    limit = datetime.timedelta(seconds=MEETING_S)
    try:
        store, rank, size = next(dist.rendezvous('env://', timeout=limit))
        kind = _same_kind(store, device)
    except (RuntimeError, ValueError) as error:
        raise RankError(f'MASTER_ADDR, MASTER_PORT = {address}: the ranks did not meet within '
                        f'{MEETING_S:g} s ({str(error).splitlines()[0]})') from None
    return Ranks(store, rank, size, device or _own_device(kind, os.environ.get('LOCAL_RANK', '0')))


def joined(meeting: str, rank: int, size: int) -> Ranks:
    """Meet rank 0, which has started this process with these arguments (`started`)."""
    store = dist.FileStore(meeting, size)
    store.set(f'here{rank}', '1')
    with on_this_host():
        return Ranks(store, rank, size, _own_device(_same_kind(store), str(rank)))


def _same_kind(store: dist.Store, device: torch.device | None = None) -> str:
    """Let all ranks know on what kind of device rank 0 has its networks, and give it."""
    if device is not None:
        store.set('device', device.type)
    return store.get('device').decode()


def _own_device(kind: str, index: str) -> torch.device:
    """Give the device of another rank than 0, and make it that of the process."""
    if kind != 'cuda':
        return torch.device(kind)
    torch.cuda.set_device(int(index))
    return torch.device(f'cuda:{index}')


@contextlib.contextmanager
def on_this_host() -> Iterator[None]:
    """Let gloo take the loopback interface alone, unless the user has named another."""
    if sys.platform != 'linux' or 'GLOO_SOCKET_IFNAME' in os.environ:
        yield
        return
    os.environ['GLOO_SOCKET_IFNAME'] = 'lo'
    try:
        yield
    finally:
        del os.environ['GLOO_SOCKET_IFNAME']


def _start(rank: int, size: int, meeting: pathlib.Path,
           log: pathlib.Path | None) -> subprocess.Popen:
    command = [sys.executable, '-m', 'asyncppo_ros.tools.cli', 'rank', '--meeting', str(meeting),
               '--rank', str(rank), '--ranks', str(size)]
    # A session of its own: Ctrl-C reaches rank 0 alone, which then lets the others end.
    with contextlib.ExitStack() as stack:
        stack.enter_context(signals_held_back())
        output = None if log is None else stack.enter_context(open(log, 'ab'))
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                start_new_session=True, env=child_environment())


def _wait_for(processes: Processes,
              store: dist.Store) -> None:
    """Wait until all processes are there, so that what follows does not block for long."""
    deadline = time.monotonic() + MEETING_S
    keys = [f'here{rank}' for rank in range(1, len(processes) + 1)]
    while not store.check(keys):
        for rank, (process, log) in enumerate(processes, start=1):
            code = process.poll()
            if code is not None:
                raise RankError(f'rank {rank} of the learner ended with {how_it_ended(code)} as '
                                'soon as it was started' + (f' (log: {log})' if log else ''))
        if time.monotonic() > deadline:
            raise RankError(f'learner.ranks = {len(processes) + 1}: not all of them were there '
                            f'after {MEETING_S:g} s')
        time.sleep(POLL_S)


def _answered(work: dist.Work | None) -> None:
    if work is not None:
        work.wait(datetime.timedelta(seconds=ANSWER_S))


def _wait(processes: Processes) -> None:
    """Wait a while for processes that were told to end."""
    deadline = time.monotonic() + LEAVE_S
    for process, _ in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))


def _end(processes: Processes, folder: pathlib.Path | None) -> None:
    """Kill what has not ended, and remove where they met."""
    for process, _ in processes:
        process.kill()
        process.wait()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)

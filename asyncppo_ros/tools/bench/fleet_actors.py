"""Actors that simulate nothing, many in one process, for `asyncppo bench fleet`."""

from collections.abc import Callable, Sequence
import dataclasses
import multiprocessing
from multiprocessing.connection import Connection
import select
import signal
import time

import numpy as np
import zmq

from asyncppo_ros.chunk import Chunk, INTEGERS, Layout
from asyncppo_ros.tools.made_up_chunks import made_up_chunk
from asyncppo_ros.transport.codec import encode_chunk, payload_of
from asyncppo_ros.transport.keys import actor_keys
from asyncppo_ros.transport.messages import hello
from asyncppo_ros.transport.payload import packed_chunk
from asyncppo_ros.transport.sender import ZmqChunkSender

# Whoever heard nothing is looked after this often: hellos and heartbeats.
_SWEEP_S = 0.25
_TICK_S = 0.02
_PROCESSES = multiprocessing.get_context('forkserver')


@dataclasses.dataclass(frozen=True)
class Shape:
    """What every actor sends: chunks of T × N of a layout."""

    layout: Layout
    steps: int
    num_envs: int

    @property
    def transitions(self) -> int:
        """Transitions of a chunk."""
        return self.steps * self.num_envs

    def wire_bytes(self) -> int:
        """Give the bytes of header and payload of a chunk."""
        return sum(len(frame) for frame in encode_chunk(self.packed(), self.layout))

    def packed(self) -> Chunk:
        """Give such a chunk, in one piece of memory as a rollout has it."""
        made = made_up_chunk(self.layout, self.steps, self.num_envs, np.random.default_rng(0))
        payload, plan = payload_of(made, self.layout)
        return packed_chunk([0] * len(INTEGERS), np.frombuffer(payload, np.uint8), plan)


class FakeActor:
    """
    All that an actor does with its learner, and a chunk as soon as it may begin one.

    Parameters
    ----------
    sender : ZmqChunkSender
    chunk : Chunk
        That is sent again and again, with other numbers.
    layout : Layout

    Attributes
    ----------
    is_over : bool
        It said goodbye.

    """

    def __init__(self, sender: ZmqChunkSender, chunk: Chunk, layout: Layout) -> None:
        self.is_over = False
        self._sender = sender
        payload, self._plan = payload_of(chunk, layout)
        self._memory = np.frombuffer(payload, np.uint8)
        self._transitions = chunk.transitions
        self._idle_since = time.monotonic_ns()

    @property
    def descriptor(self) -> int:
        """Tells that something has arrived."""
        return self._sender.descriptor

    def work(self) -> None:
        """Handle what has arrived, and send what is permitted."""
        if self.is_over:
            return
        sender = self._sender
        sender.poll()
        while (minimum := sender.permit_for(sender.next_sequence)) is not None \
                and sender.newest >= minimum:
            now = time.monotonic_ns()
            sender.waited_ns += now - self._idle_since
            integers = dict.fromkeys(INTEGERS, 0) | {
                'run_id': sender.run_id, **sender.source._asdict(),
                'sequence': sender.next_sequence, **sender.newest._asdict()}
            sender.ledger.stepped(self._transitions)
            sender.send(packed_chunk(integers.values(), self._memory, self._plan))
            self._idle_since = time.monotonic_ns()
            # What came meanwhile is told once, and may have been told while this was sent.
            sender.poll()
        if sender.stopped:
            self.close()

    def close(self) -> None:
        """Say goodbye."""
        self.is_over = True
        self._sender.close()


class FakeActors:
    """
    Some actors of one process, served by one thread.

    Parameters
    ----------
    address : str
        Of the learner.
    numbers : sequence of int
        Their `actor_id`.
    shape : Shape
    keys : str
        Folder to encrypt with; '' = plain text.

    """

    def __init__(self, address: str, numbers: Sequence[int], shape: Shape, keys: str) -> None:
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 8 * len(numbers) + 64)
        chunk = shape.packed()
        self._actors = [
            FakeActor(ZmqChunkSender(
                address, hello(number, shape.layout, shape.num_envs, shape.steps),
                actor_keys(keys), 'zmq', context=self._context), chunk, shape.layout)
            for number in numbers]

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Work until the learner ends the run, or `should_stop`."""
        by_descriptor = {actor.descriptor: actor for actor in self._actors}
        sweep_at = 0.0
        with select.epoll() as poll:
            for descriptor in by_descriptor:
                poll.register(descriptor, select.EPOLLIN | select.EPOLLET)
            while not all(actor.is_over for actor in self._actors):
                ready = [by_descriptor[number] for number, _ in poll.poll(_TICK_S)]
                if time.monotonic() >= sweep_at:
                    if should_stop():
                        break
                    ready, sweep_at = self._actors, time.monotonic() + _SWEEP_S
                for actor in ready:
                    actor.work()

    def close(self) -> None:
        """Let all that are left say goodbye."""
        for actor in self._actors:
            if not actor.is_over:
                actor.close()
        self._context.term()


class ActorProcesses:
    """
    Processes that wait to become actors, so that none has to start while the clock runs.

    Parameters
    ----------
    count : int

    """

    def __init__(self, count: int) -> None:
        _PROCESSES.set_forkserver_preload([__name__])
        pairs = [_PROCESSES.Pipe() for _ in range(count)]
        self._pipes = [near for near, _ in pairs]
        self._processes = [_PROCESSES.Process(target=_serve, args=(far,), daemon=True)
                           for _, far in pairs]
        for process in self._processes:
            process.start()

    def __enter__(self) -> 'ActorProcesses':
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    def start(self, address: str, count: int, shape: Shape, keys: str) -> None:
        """Let so many actors, shared out among the processes, work for a learner."""
        for index, pipe in enumerate(self._pipes):
            numbers = range(index, count, len(self._pipes))
            if numbers:
                pipe.send((address, numbers, shape, keys))

    def is_alive(self) -> bool:
        """Whether all processes are."""
        return all(process.is_alive() for process in self._processes)


def _serve(pipe: Connection) -> None:
    # Ctrl-C is for the bench, which ends its processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        actors = FakeActors(*pipe.recv())
        actors.run(pipe.poll)
        actors.close()

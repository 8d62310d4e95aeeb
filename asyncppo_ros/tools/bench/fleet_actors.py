"""Actors that simulate nothing, many in one process, for `asyncppo bench fleet`."""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import multiprocessing
from multiprocessing.connection import Connection
import operator
import os
import select
import signal
import struct
import time
from typing import Any
import zlib

import numpy as np
import zmq

from asyncppo_ros.chunk import Chunk, INTEGERS, Layout
from asyncppo_ros.tools.made_up_chunks import made_up_chunk
from asyncppo_ros.tools.stopwatch import cpu_seconds
from asyncppo_ros.transport.codec import encode_chunk, header_of, payload_of
from asyncppo_ros.transport.keys import actor_keys
from asyncppo_ros.transport.messages import ChunkNotice, encode, hello
from asyncppo_ros.transport.payload import packed_chunk, packing_of
from asyncppo_ros.transport.sender import ZmqChunkSender

# Whoever heard nothing is looked after this often: for hellos, and then for heartbeats.
_HELLO_S, _SWEEP_S = 0.25, 1.0
_TICK_S = 0.02
# On hosts of their own they would not push the learner off its core.
_NICENESS = 10
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


class ReadyPayload:
    """
    The payload of a chunk as it travels, made once for all that are sent.

    To copy and to sum up the same bytes for each chunk would take the cores on which the learner
    runs, and what is to be seen is the learner.

    Parameters
    ----------
    chunk : Chunk
    layout : Layout

    Attributes
    ----------
    frame : zmq.Frame
        Any number of sockets send it without a copy.

    """

    def __init__(self, chunk: Chunk, layout: Layout) -> None:
        _, payload = encode_chunk(chunk, layout)
        self.frame = zmq.Frame(bytes(payload))
        self._layout = layout
        self._length = len(payload)
        # A CRC that goes on from c is that of the payload alone, and for each byte of c a term.
        self._crc = zlib.crc32(payload)
        bits = [zlib.crc32(payload, 1 << bit) ^ self._crc for bit in range(32)]
        self._terms = [[functools.reduce(operator.xor, (
            bits[8 * place + bit] for bit in range(8) if value >> bit & 1), 0)
            for value in range(256)] for place in range(4)]

    def header(self, chunk: Chunk) -> bytes:
        """Give the header of a chunk that has this payload."""
        packing = packing_of(chunk)
        assert packing is not None
        header = header_of(chunk, self._layout, packing[1], self._length)
        crc = self._crc
        for terms, value in zip(self._terms, zlib.crc32(header).to_bytes(4, 'little')):
            crc ^= terms[value]
        return header + struct.pack('<I', crc)


class ReadySender(ZmqChunkSender):
    """
    A sender over sockets whose chunks all have one payload.

    Parameters
    ----------
    payload : ReadyPayload
    others
        See `ZmqChunkSender`.

    """

    def __init__(self, payload: ReadyPayload, *others: Any, **named: Any) -> None:
        super().__init__(*others, **named)
        self._payload = payload

    def _handed_over(self, chunk: Chunk, notice: ChunkNotice) -> bool:
        return self._transmit([*encode(notice), self._payload.header(chunk), self._payload.frame])


class FakeActor:
    """
    All that an actor does with its learner, and a chunk as soon as it may begin one.

    Parameters
    ----------
    sender : ZmqChunkSender
    chunk : Chunk
        That is sent again and again, with other numbers.

    Attributes
    ----------
    is_over : bool
        It said goodbye.

    """

    def __init__(self, sender: ZmqChunkSender, chunk: Chunk) -> None:
        self.is_over = False
        self._sender = sender
        self._fields = vars(chunk)
        self._transitions = chunk.transitions
        self._idle_since = time.monotonic_ns()

    @property
    def welcomed(self) -> bool:
        """Whether the learner has taken it in."""
        return self._sender.welcomed

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
            sender.ledger.stepped(self._transitions)
            sender.send(self._chunk(sender))
            self._idle_since = time.monotonic_ns()
            # What came meanwhile is told once, and may have been told while this was sent.
            sender.poll()
        if sender.stopped:
            self.close()

    def _chunk(self, sender: ZmqChunkSender) -> Chunk:
        chunk = object.__new__(Chunk)
        object.__setattr__(chunk, '__dict__', {
            **self._fields, 'run_id': sender.run_id, 'actor_id': sender.source.actor_id,
            'incarnation': sender.source.incarnation, 'sequence': sender.next_sequence,
            'generation': sender.newest.generation,
            'policy_version': sender.newest.policy_version})
        return chunk

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
        payload = ReadyPayload(chunk, shape.layout)
        self._actors = [
            FakeActor(ReadySender(
                payload, address, hello(number, shape.layout, shape.num_envs, shape.steps),
                actor_keys(keys), 'zmq', context=self._context), chunk)
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
                    are_in = all(actor.welcomed for actor in self._actors)
                    ready = self._actors
                    sweep_at = time.monotonic() + (_SWEEP_S if are_in else _HELLO_S)
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

    def cpu_s(self) -> float:
        """Give the CPU time of all of them so far [s]."""
        return sum(cpu_seconds(process.pid) for process in self._processes
                   if process.pid is not None)

    def is_alive(self) -> bool:
        """Whether all processes are."""
        return all(process.is_alive() for process in self._processes)


def _serve(pipe: Connection) -> None:
    # Ctrl-C is for the bench, which ends its processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    while True:
        actors = FakeActors(*pipe.recv())
        actors.run(pipe.poll)
        actors.close()

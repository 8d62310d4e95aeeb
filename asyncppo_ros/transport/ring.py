"""
Chunks through memory that an actor and the learner of one host share.

::

    bytes    0 ...   magic, slots, bytes of a slot, token
            64       head: slots filled so far; written by the actor
           128       tail: slots taken so far; written by the learner
           192       bell: not 0 = the actor has asked the learner to look, and it has not yet
          4096 ...   slots: header and payload (`payload.py`); that of chunk i is i % slots

The memory has no name (memfd), so nothing is left of it however a process ends, and it lives for
as long as one of the two maps it: what a killed actor has filled can still be taken.  It cannot
change its size (seals), so no access can fail.

Nothing is believed here either: a slot is copied once, and the copy is checked.  Its header has a
CRC.  The checksum of its payload is the sum of its 64-bit words: no wire can flip bits, but a
slot could be overwritten while it is read, and a sum finds that in a sixth of the time of a CRC.

What waits is taken several slots at once, because Python costs more per call than per chunk.
"""

from collections.abc import Iterator
import fcntl
import mmap
import operator
import os
import secrets
import socket
import struct
import time
from typing import NamedTuple
import zlib

import numpy as np

from asyncppo_ros.chunk import Chunk, INTEGERS, Layout
from asyncppo_ros.errors import CodecError
from asyncppo_ros.transport.codec import (
    check_integers,
    checked_chunk,
    checked_chunks,
    checked_plan,
    MAX_INTEGER,
    payload_of,
)
from asyncppo_ros.transport.messages import ChunkNotice, Hello
from asyncppo_ros.transport.payload import (
    ChunkBuffer,
    packing_of,
    PayloadPlan,
    Sizes,
)

# Where nobody knows how many chunks may be under way; pages are taken when they are used.
SLOTS = 64
MIN_SLOTS = 4
MAX_SLOTS = 1024
NAME = 'asyncppo_ring'
_MAGIC = b'APPORng1'
_PAGE = 4096
# 64-bit words of the first page that change, each on a cache line of its own.
_HEAD, _TAIL, _BELL = 8, 16, 24
# Magic, slots, bytes of a slot, token.
_PREAMBLE = struct.Struct('<8sQQ32s')
# A header: place in the order of all, checksum of the payload; the notice, the integers; sizes,
# bytes of the payload, layout digest.  Its CRC follows, and zeros to the end of that word.
_HEADER = struct.Struct(f'<2Q4q{len(INTEGERS)}q4I2Q')
_HEADER_BYTES = _HEADER.size + 4
# The payload begins on a cache line.
_PAYLOAD = -(-_HEADER_BYTES // 64) * 64
# The same in words: where each part begins; the shape is all from the sizes to the digest.
_PLACE, _CHECKSUM, _NOTICE, _INTEGERS, _SHAPE = 0, 1, 2, 6, 6 + len(INTEGERS)
_CRC, _PAYLOAD_WORD = _HEADER.size // 8, _PAYLOAD // 8
_SHAPE_OF = struct.Struct(f'<{8 * _SHAPE}x{_CRC - _SHAPE}Q').unpack_from
_MAX_PLANS = 256
_WORD = np.dtype('<u8')
# Slots that are taken at once: chunks keep the memory of those with which they were taken, and
# more bytes than a cache near the processor holds cost time.
_MOST_TOGETHER = 16
_BYTES_TOGETHER = 1 << 20
_integers_of = operator.itemgetter(*INTEGERS)
# Processors with a weak memory order may show a slot late.
_LOOKS = 4
_LOOK_AGAIN_S = 50e-6
# Of <linux/fcntl.h>; Pythons that were built for an old C library do not name them.
_ADD_SEALS, _GET_SEALS, _SEAL_SHRINK, _SEAL_GROW = 1033, 1034, 2, 4
_CLOEXEC, _ALLOW_SEALING = 1, 2


class RingItem(NamedTuple):
    """
    What lay in a slot.

    Attributes
    ----------
    notice : ChunkNotice or None
        None where not even the header can be believed.
    chunk : Chunk or CodecError
        The error is why it is refused.

    """

    notice: ChunkNotice | None
    chunk: Chunk | CodecError

    def checked(self) -> Chunk:
        """
        Give the chunk.

        Raises
        ------
        CodecError
            It is refused.

        """
        if isinstance(self.chunk, CodecError):
            raise self.chunk
        return self.chunk


def slots_for(under_way: int, chunk_transitions: int) -> int:
    """Give the slots that hold whatever permits allow to be under way, and two more."""
    return min(max(-(-under_way // chunk_transitions) + 2, MIN_SLOTS), MAX_SLOTS)


class RingWriter:
    """
    The actor's end.

    Parameters
    ----------
    layout : Layout
    chunk_length, num_envs : int
        T and N of the largest chunk.
    slots : int

    Attributes
    ----------
    descriptor : int
        Under ``/proc/PID/fd`` the learner finds the memory.
    token : str
        What it begins with, so that the learner knows that it found the right memory.
    slots : int

    Raises
    ------
    OSError
        This platform does not have such memory, or there is not enough.

    """

    def __init__(self, layout: Layout, chunk_length: int, num_envs: int, slots: int) -> None:
        self.slots = slots
        self.token = secrets.token_hex(16)
        self._layout = layout
        self._capacity = ChunkBuffer.capacity(layout, chunk_length, num_envs)
        self._stride = _stride(self._capacity)
        self._head = 0
        self._digest = layout.digest()
        # That of each slot that was used before, and the one that is lent now.
        self._memories: dict[int, np.ndarray] = {}
        self._lent: np.ndarray | None = None
        self.descriptor = _make_memory(_PAGE + slots * self._stride)
        self._memory = mmap.mmap(self.descriptor, _PAGE + slots * self._stride)
        self._words = memoryview(self._memory).cast('Q')
        _PREAMBLE.pack_into(self._memory, 0, _MAGIC, slots, self._stride, self.token.encode())

    @property
    def taken(self) -> int:
        """Number of slots that the learner has taken; their memory may be used again."""
        return self._words[_TAIL]

    @property
    def filled(self) -> int:
        """Number of slots that were filled."""
        return self._head

    @property
    def has_room(self) -> bool:
        """Whether a slot is free."""
        return self._head - self._words[_TAIL] < self.slots

    def buffer(self) -> np.ndarray | None:
        """
        Lend the memory of the slot that is filled next, for a `ChunkBuffer`; None = all are full.

        Until the chunk that lies there is published, no other may be.
        """
        if not self.has_room:
            return None
        self._lent = self._next_memory()
        return self._lent

    def publish(self, chunk: Chunk, notice: ChunkNotice) -> bool:
        """
        Fill the next slot; a chunk that lies in it already is not copied.

        Returns
        -------
        published : bool
            False when all slots are full.

        Raises
        ------
        ValueError
            The chunk is not of the layout, or larger than a slot.

        """
        if not self.has_room:
            return False
        packing = packing_of(chunk)
        if packing is not None and packing[0] is self._lent:
            memory, plan = packing
        else:
            payload, plan = payload_of(chunk, self._layout)
            if plan.length > self._capacity:
                raise ValueError(f'chunk of {plan.length} bytes in a slot of {self._capacity}')
            memory = self._next_memory()
            memory[:plan.length] = payload
        self._lent = None
        header = _HEADER.pack(
            self._head, _checksum(memory, plan.length), notice.sequence, notice.transitions,
            notice.before, notice.transport_ns, *_integers_of(vars(chunk)), *plan.sizes,
            plan.length, self._digest)
        header += zlib.crc32(header).to_bytes(8, 'little')
        slot = _PAGE + self._head % self.slots * self._stride
        self._memory[slot:slot + len(header)] = header
        self._head += 1
        self._words[_HEAD] = self._head
        return True

    def bell_is_due(self) -> bool:
        """Say whether the learner must be told to look, and note that it is."""
        if self._words[_BELL]:
            return False
        self._words[_BELL] = 1
        return True

    def bell_failed(self) -> None:
        """Note that the learner could not be told."""
        self._words[_BELL] = 0

    def close(self) -> None:
        """Take the memory out of the learner's reach; chunks that lie in it keep it alive."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _next_memory(self) -> np.ndarray:
        number = self._head % self.slots
        memory = self._memories.get(number)
        if memory is None:
            memory = self._memories[number] = np.ndarray(
                self._capacity, np.uint8, self._memory,
                _PAGE + number * self._stride + _PAYLOAD)
        return memory


class RingReader:
    """
    The learner's end; `open_ring` makes it.

    Parameters
    ----------
    memory : mmap
    slots : int
    layout : Layout
    chunk_length, num_envs : int
        T and N of the largest chunk that is believed.

    """

    def __init__(self, memory: mmap.mmap, slots: int, layout: Layout, chunk_length: int,
                 num_envs: int) -> None:
        self.slots = slots
        self._layout = layout
        self._digest = layout.digest()
        self._max_transitions = chunk_length * num_envs
        self._capacity = ChunkBuffer.capacity(layout, chunk_length, num_envs)
        self._stride = _stride(self._capacity)
        self._memory = memory
        self._bytes = memoryview(memory)
        self._words = self._bytes.cast('Q')
        self._tail = self._words[_TAIL]
        self._looks = _LOOKS
        # What a header says of the shape of its chunk → its plan.
        self._plans: dict[tuple[int, ...], PayloadPlan] = {}
        # All slots, in words.
        self._slots = np.ndarray((slots, self._stride >> 3), _WORD, memory, _PAGE)
        self._most_together = min(_MOST_TOGETHER, _BYTES_TOGETHER // self._stride)
        # Slots before this one are taken one by one.
        self._careful_until = 0

    def drain(self) -> Iterator[RingItem]:
        """
        Take everything that was published before this call.

        Raises
        ------
        CodecError
            Cause `ring`: the actor's count is impossible.

        """
        head = self._words[_HEAD]
        if not 0 <= head - self._tail <= self.slots:
            raise CodecError('ring', f'{head - self._tail} filled slots of {self.slots}')
        self._looks = _LOOKS
        while self._tail < head:
            yield from self._take_several(head) or [self._take()]

    def silence_bell(self) -> None:
        """Ask for a bell when something is published from now on; `drain` once more after it."""
        self._words[_BELL] = 0

    def close(self) -> None:
        """Let go of the memory."""
        self._slots = self._slots[:0].copy()
        self._words.release()
        self._bytes.release()
        self._memory.close()

    def _take_several(self, head: int) -> list[RingItem]:
        """
        Take the next slots as far as they are alike and nothing is wrong with them.

        Whatever is new, damaged or alone is left to `_take`, which says what is wrong.
        """
        first = self._tail % self.slots
        most = min(head - self._tail, self.slots - first, self._most_together)
        if most < 2 or self._tail < self._careful_until:
            return []
        # Read once, as in `_take`: what is believed must not change after it was checked.
        headers = self._slots[first:first + most, :_CRC + 1].copy()
        columns = headers.T.tolist()
        plans = self._plans_of_alike(headers, columns)
        if len(plans) < 2:
            return []
        memory = self._payloads(first, columns[_CHECKSUM], plans)
        count = len(memory)
        if count < len(plans):
            self._careful_until = self._tail + len(plans)
        if not count:
            return []
        self._free(count)
        columns = [column[:count] for column in columns[_NOTICE:_SHAPE]]
        chunks = checked_chunks(columns[_INTEGERS - _NOTICE:], memory, plans[:count])
        return list(map(RingItem, map(ChunkNotice, *columns[:_INTEGERS - _NOTICE]), chunks))

    def _plans_of_alike(self, headers: np.ndarray, columns: list[list[int]]) -> list[PayloadPlan]:
        """Give the plans of the slots whose headers are right, up to the first other T or N."""
        if np.bitwise_or.reduce(headers[:, _NOTICE:_SHAPE], axis=None) >= MAX_INTEGER:
            return []
        data, size = headers.tobytes(), headers.shape[1] * 8
        crcs = [zlib.crc32(data[start:start + _HEADER.size])
                for start in range(0, len(data), size)]
        known = map(self._plans.get, zip(*columns[_SHAPE:_CRC]))
        sizes = columns[_SHAPE]
        plans: list[PayloadPlan] = []
        # The word that begins with the CRC is zero after it.
        for place, found, crc, word, plan, size in zip(
                range(self._tail, self._tail + len(sizes)), columns[_PLACE], crcs, columns[_CRC],
                known, sizes):
            if found != place or crc != word or plan is None or size != sizes[0]:
                break
            plans.append(plan)
        return plans

    def _payloads(self, first: int, checksums: list[int],
                  plans: list[PayloadPlan]) -> np.ndarray:
        """Copy payloads, as many as are right, into rows that are zero after them."""
        stop = plans[0].flags.stop >> 3
        longest = max(plan.length for plan in plans) >> 3
        slots = self._slots[first:first + len(plans)]
        memory = np.empty((len(plans), longest), _WORD)
        np.copyto(memory[:, :stop], slots[:, _PAYLOAD_WORD:_PAYLOAD_WORD + stop])
        if longest > stop:
            memory[:, stop:] = 0
            for row, plan in enumerate(plans):
                if plan.ends:
                    end = plan.length >> 3
                    memory[row, stop:end] = slots[
                        row, _PAYLOAD_WORD + stop:_PAYLOAD_WORD + end]
        found = np.add.reduce(memory, axis=1).tolist()
        places = slots[:, _PLACE].tolist()
        memory.setflags(write=False)
        for row, place in enumerate(range(self._tail, self._tail + len(plans))):
            if found[row] != checksums[row] or places[row] != place:
                return memory[:row]
        return memory

    def _take(self) -> RingItem:
        slot = _PAGE + self._tail % self.slots * self._stride
        notice = None
        try:
            header = self._header(slot)
            _, checksum, *numbers = _HEADER.unpack_from(header)
            integers = numbers[:_SHAPE - _NOTICE]
            check_integers(integers)
            notice = ChunkNotice(*integers[:4])
            # Most chunks are of one shape.
            plan = self._plans.get(_SHAPE_OF(header)) or self._new_plan(header)
            payload = self._payload(slot, plan.length, checksum)
        except CodecError as error:
            self._free()
            return RingItem(notice, error)
        self._free()
        try:
            return RingItem(notice, checked_chunk(integers[4:], payload, plan))
        except CodecError as error:
            return RingItem(notice, error)

    def _header(self, slot: int) -> bytes:
        while True:
            header = bytes(self._bytes[slot:slot + _HEADER_BYTES])
            if _is_right(header, self._tail):
                return header
            self._look_again('the header of a slot in shared memory is damaged')

    def _new_plan(self, header: bytes) -> PayloadPlan:
        *sizes, length, digest = _HEADER.unpack_from(header)[-6:]
        if digest != self._digest:
            raise CodecError('layout', f'chunk is not of {self._layout.task} as this learner '
                             'knows it')
        plan = checked_plan(Sizes(*sizes), self._layout, self._max_transitions)
        # One step of many environments has more bytes than many steps of one.
        if length != plan.length or length > self._capacity:
            raise CodecError('length', f'payload of {plan.length} bytes in a slot of '
                             f'{self._capacity}, header says {length}')
        if len(self._plans) >= _MAX_PLANS:
            self._plans.clear()
        self._plans[_SHAPE_OF(header)] = plan
        return plan

    def _payload(self, slot: int, length: int, checksum: int) -> bytes:
        start = slot + _PAYLOAD
        while True:
            payload = bytes(self._bytes[start:start + length])
            if checksum == _checksum(payload, length) and self._tail == self._words[slot >> 3]:
                return payload
            self._look_again('a slot in shared memory was changed while it was read')

    def _look_again(self, complaint: str) -> None:
        self._looks -= 1
        if self._looks < 0:
            raise CodecError('crc', complaint)
        time.sleep(_LOOK_AGAIN_S)

    def _free(self, count: int = 1) -> None:
        self._tail += count
        self._words[_TAIL] = self._tail


def _is_right(header: bytes, place: int) -> bool:
    return (header.startswith(place.to_bytes(8, 'little'))
            and header.endswith(zlib.crc32(header[:-4]).to_bytes(4, 'little')))


def open_ring(hello: Hello) -> RingReader | None:
    """
    Map the ring that an actor offers.

    Returns
    -------
    reader : RingReader or None
        None when there is none, or it is not within reach: of another host, container or user;
        or it is not what it should be.

    """
    if hello.ring_fd < 0 or hello.host != socket.gethostname():
        return None
    path = f'/proc/{hello.pid}/fd/{hello.ring_fd}'
    try:
        # In another container the same numbers mean something else, which is not to be opened.
        if not os.readlink(path).startswith(f'/memfd:{NAME}'):
            return None
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return _checked_ring(descriptor, hello)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _checked_ring(descriptor: int, hello: Hello) -> RingReader | None:
    seals = fcntl.fcntl(descriptor, _GET_SEALS)
    size = os.fstat(descriptor).st_size
    stride = _stride(ChunkBuffer.capacity(hello.layout, hello.chunk_length, hello.num_envs))
    slots = (size - _PAGE) // stride
    if not (seals & _SEAL_SHRINK and seals & _SEAL_GROW
            and 1 <= slots <= MAX_SLOTS and size == _PAGE + slots * stride):
        return None
    memory = mmap.mmap(descriptor, size)
    expected = _PREAMBLE.pack(_MAGIC, slots, stride, hello.ring_token.encode()[:32])
    if memory[:_PREAMBLE.size] != expected or len(hello.ring_token) != 32:
        memory.close()
        return None
    return RingReader(memory, slots, hello.layout, hello.chunk_length, hello.num_envs)


def _stride(capacity: int) -> int:
    return -(-(_PAYLOAD + capacity) // 64) * 64


def _checksum(memory: np.ndarray | bytes, length: int) -> int:
    return int(np.add.reduce(np.ndarray(length >> 3, _WORD, memory)))


def _make_memory(size: int) -> int:
    """Make memory of a size that is fixed for ever, and give its descriptor."""
    descriptor = _memfd()
    try:
        os.ftruncate(descriptor, size)
        fcntl.fcntl(descriptor, _ADD_SEALS, _SEAL_SHRINK | _SEAL_GROW)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _memfd() -> int:
    if hasattr(os, 'memfd_create'):
        return os.memfd_create(NAME, _CLOEXEC | _ALLOW_SEALING)
    import ctypes
    try:
        # Pythons that were built for an old C library run with a newer one.
        make = ctypes.CDLL(None, use_errno=True).memfd_create
    except AttributeError:
        raise OSError('this platform has no memory without a name (memfd)') from None
    descriptor: int = make(NAME.encode(), _CLOEXEC | _ALLOW_SEALING)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), 'memfd_create failed')
    return descriptor

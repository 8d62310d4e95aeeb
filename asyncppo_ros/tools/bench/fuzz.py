"""
``asyncppo bench fuzz``: damaged and forged messages against an independent reader.

Messages of every kind are made, damaged blindly (bits, bytes, lengths, frames, two messages
spliced) or forged with their checksums made right again (sizes, integers, flags, numbers that
are not finite, indices), and read twice: by the package, and by ``oracle.py``, which shares no
code with it.  What must hold for each message:

- nothing but `CodecError` is ever raised, with a cause;
- both readers agree whether it is valid, and on every number of it;
- a chunk that was damaged blindly is accepted only if no byte of it changed.

Targets: chunks as they come over sockets, control messages, slots of the shared-memory ring, and
a learner's whole intake, where another actor's next chunk must pass and its books balance.
"""

from collections import Counter
from collections.abc import Callable, Sequence
import dataclasses
import functools
import json
import mmap
import pathlib
import random
import struct
import sys
import time
from typing import Any, NamedTuple
import zlib

import numpy as np

from asyncppo_ros.chunk import ARRAYS, Chunk, Identity, INTEGERS, Layout
from asyncppo_ros.errors import CodecError, ConfigError
from asyncppo_ros.learning.batcher import Batcher
from asyncppo_ros.learning.books import Books
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.tools.arguments import Parser
from asyncppo_ros.tools.bench import oracle
from asyncppo_ros.tools.bench.results import report, row
from asyncppo_ros.transport import codec, messages
from asyncppo_ros.transport.admission import Session
from asyncppo_ros.transport.intake import Intake
from asyncppo_ros.transport.payload import ChunkBuffer
from asyncppo_ros.transport.permits import PermitBook
from asyncppo_ros.transport.ring import RingItem, RingReader, RingWriter

LAYOUTS = (Layout('reach', 3, 1, 2, 'joint_position,goal'),
           Layout('ant', 5, 2, 4, 'joint_position'),
           Layout('walk', 3, 1, 2, 'joint_position', critic_size=2, value_size=1),
           Layout('walk', 3, 1, 2, 'joint_position', critic_size=1,
                  observation_dtype='float16'),
           Layout('ant', 5, 2, 4, 'joint_position', observation_dtype='bfloat16'))
# How the oracle names them.
DTYPES = {'float32': 'f4', 'float16': 'f2', 'bfloat16': 'b2'}
# T and N: odd products leave pads between the arrays.
SIZES = ((1, 1), (2, 2), (3, 3), (4, 1))
MOST = 12
RUN_ID = 77
SLOTS = 4
# Of the ring: bytes before its slots, and which 64-bit word of them counts the filled slots.
PAGE, HEAD = 4096, 8
# Of one hundred messages, which target gets how many.
SHARES = {'chunk': 60, 'control': 24, 'ring': 10, 'intake': 6}
# Numbers at which arithmetic and comparisons go wrong.
INTERESTING = (0, 1, 2, 3, 7, 8, 127, 128, 255, 2 ** 16, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1,
               2 ** 53, 2 ** 62 - 1, 2 ** 62, 2 ** 63 - 1, 2 ** 63, 2 ** 64 - 1)
FLOATS = (float('nan'), float('inf'), float('-inf'), -0.0, 3.4e38, 1e-45, 1.0, -1.0, 0.5)
# Infinities, NaN, the largest and the smallest of float16 and of bfloat16.
HALVES = (0x7c00, 0xfc00, 0x7e00, 0x7bff, 0x0001, 0x7f80, 0xff80, 0x7fc0, 0x7f7f)
PROGRESS_S = 5.0
# Where the parts of a header lie that `forged` changes: offset, bytes.  The first is the length.
CHUNK_FIELDS = ((104, 8), (0, 4), (4, 4), (8, 8), *((16 + 8 * n, 8) for n in range(9)),
                *((88 + 4 * n, 4) for n in range(4)))
SLOT_FIELDS = ((136, 8), *((8 * n, 8) for n in range(15)), *((120 + 4 * n, 4) for n in range(4)),
               (144, 8))

Values = dict[str, Any]


class Difference(Exception):
    """The two readers disagree, or something else was raised than may be."""


class Case(NamedTuple):
    """
    A message and how it was made.

    Attributes
    ----------
    layout : Layout or None
        What its reader trains.
    blind : bool
        No checksum was made right after the damage.

    """

    target: str
    mutation: str
    frames: list[bytes]
    layout: Layout
    blind: bool


def main(arguments: list[str], stop: StopRequest) -> int:
    """Fuzz, and print the table or the JSON object; exit code 1 if a property failed."""
    parser = Parser(prog='asyncppo bench fuzz', description=__doc__, allow_abbrev=False)
    parser.add_argument('--messages', type=int, default=1_000_000, help='default 1,000,000')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--first', type=int, default=0,
                        help='number of the first message: repeats one that failed')
    parser.add_argument('--folder', default='.', help='takes the message that failed')
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    own = parser.parse_args(arguments)
    if own.messages < 1:
        raise ConfigError(f'--messages {own.messages}: must be at least 1')
    fuzzer = Fuzzer(own.seed)
    begun = time.monotonic()
    failure = run(fuzzer, own.first, own.messages, stop)
    seconds = time.monotonic() - begun
    done = sum(fuzzer.counts.values())
    print(f'{done:,} messages in {seconds:.0f} s', file=sys.stderr)
    if failure:
        path = pathlib.Path(own.folder) / f'fuzz-{own.seed}-{failure["number"]}.json'
        path.write_text(json.dumps(failure, indent=1) + '\n')
        print(f'asyncppo: FAILED at message {failure["number"]}: {failure["what"]}; it is in '
              f'{path}; repeat with --seed {own.seed} --first {failure["number"]} --messages 1',
              file=sys.stderr)
    if own.json:
        rows = [row('messages', [done], 'messages'),
                row('rate', [done / seconds], 'messages/s'),
                row('failed', [1 if failure else 0], 'messages')]
        settings = {'messages': own.messages, 'seed': own.seed, 'first': own.first}
        print(json.dumps(report(settings, rows, outcomes=outcomes(fuzzer.counts)), indent=1))
    else:
        print(table(fuzzer.counts))
    return 1 if failure else 0


def run(fuzzer: 'Fuzzer', first: int, count: int,
        should_stop: Callable[[], bool] = lambda: False) -> dict[str, Any] | None:
    """
    Try messages `first` ... `first + count - 1`.

    Returns
    -------
    failure : dict or None
        ``number``, ``what``, ``target``, ``mutation`` and ``frames`` (hex) of the first message
        for which a property does not hold.

    """
    told = time.monotonic()
    for number in range(first, first + count):
        case = fuzzer.case(number)
        try:
            fuzzer.check(case)
        except Difference as difference:
            return {'number': number, 'what': str(difference), 'target': case.target,
                    'mutation': case.mutation, 'frames': [frame.hex() for frame in case.frames]}
        if number % 256 == 0:
            if should_stop():
                break
            if time.monotonic() - told > PROGRESS_S:
                told = time.monotonic()
                print(f'{number - first:,} of {count:,} messages', file=sys.stderr)
    return None


class Fuzzer:
    """
    Makes messages by number and checks them.

    Parameters
    ----------
    seed : int

    Attributes
    ----------
    counts : Counter
        (target, mutation, outcome) → messages; the outcome is ``accepted`` or a cause.

    """

    def __init__(self, seed: int) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self._seed = seed
        self._chunks = {layout: [encoded(make_chunk(layout, steps, envs, number), layout)
                                 for number, (steps, envs) in enumerate(SIZES * 6)]
                        for layout in LAYOUTS}
        self._control = [messages.encode(message) for message in control_messages()]
        self._rings = {layout: RingTarget(layout) for layout in LAYOUTS}
        self._targets = [name for name, share in SHARES.items() for _ in range(share)]
        self._makers = {'chunk': self._chunk_case, 'control': self._control_case,
                        'ring': self._ring_case, 'intake': self._intake_case}
        self._checkers = {'chunk': self._check_chunk, 'control': self._check_control,
                          'ring': self._check_ring, 'intake': check_intake}

    def case(self, number: int) -> Case:
        """Make message `number` of this seed."""
        chance = random.Random(self._seed << 40 | number)
        return self._makers[chance.choice(self._targets)](chance.choice(LAYOUTS), chance)

    def check(self, case: Case) -> None:
        """
        Read a message twice, compare, and count the outcome.

        Raises
        ------
        Difference
            A property does not hold.

        """
        outcome = self._checkers[case.target](case)
        self.counts[case.target, case.mutation, outcome] += 1

    def _chunk_case(self, layout: Layout, chance: random.Random) -> Case:
        corpus = self._chunks[layout]
        original = chance.choice(corpus)
        if chance.random() < 0.5:
            others = self._chunks[chance.choice(LAYOUTS)]
            return Case('chunk', *damaged(original, others, chance), layout, True)
        name, header, payload = forged(original[0][:-4], original[1], CHUNK_FIELDS, chance)
        return Case('chunk', name, [header + crc_of(header + payload), payload], layout, False)

    def _control_case(self, layout: Layout, chance: random.Random) -> Case:
        original = chance.choice(self._control)
        if chance.random() < 0.5:
            return Case('control', *damaged(original, self._control, chance), layout, True)
        return Case('control', 'other value', other_value(original, chance), layout, False)

    def _ring_case(self, layout: Layout, chance: random.Random) -> Case:
        return self._rings[layout].case(chance)

    def _intake_case(self, layout: Layout, chance: random.Random) -> Case:
        # Chunks of 3 × 3, as both actors have announced.
        corpus = [announced(frames) for frames in self._chunks[layout][2::len(SIZES)]]
        corpus += [*self._control, messages.encode(messages.hello(1, layout, 3, 3))]
        return Case('intake', *damaged(chance.choice(corpus), corpus, chance), layout, True)

    def _check_chunk(self, case: Case) -> str:
        outcome = compared(
            lambda: as_lists(codec.decode_chunk(case.frames, case.layout, MOST)),
            lambda: oracle.read_chunk(case.frames, shape_of(case.layout), MOST))
        if outcome == 'accepted' and case.blind and case.frames not in self._chunks[case.layout]:
            raise Difference('a chunk that was damaged blindly is accepted')
        return outcome

    def _check_control(self, case: Case) -> str:
        return compared(lambda: as_message(messages.decode(case.frames)),
                        lambda: oracle.read_message(case.frames))

    def _check_ring(self, case: Case) -> str:
        return self._rings[case.layout].check(case)


def compared(read: Callable[[], Any], read_by_oracle: Callable[[], Any]) -> str:
    """
    Let both readers read.

    Returns
    -------
    outcome : str
        ``accepted``, or the cause of the refusal.

    Raises
    ------
    Difference
        They disagree, or the package's reader raised something unexpected.

    """
    try:
        wanted = read_by_oracle()
    except oracle.Invalid:
        wanted = None
    try:
        found = read()
    except CodecError as error:
        if wanted is not None:
            raise Difference(f'a valid message is refused: {error}') from None
        return error.cause
    except Exception as error:
        raise Difference(f'the reader raised {error!r}') from error
    if wanted is None:
        raise Difference('an invalid message is accepted')
    if found != wanted:
        raise Difference(f'other values are read: {found} where {wanted} was sent')
    return 'accepted'


def make_chunk(layout: Layout, steps: int, envs: int, seed: int) -> Chunk:
    """Make a chunk of random numbers; how many episodes end in it depends on the seed."""
    chance = np.random.default_rng(seed)
    buffer = ChunkBuffer(layout, steps, envs)
    for name in ('observation', 'critic_observation', 'action', 'behaviour_log_prob',
                 'behaviour_parameters', 'value', 'reward'):
        view = getattr(buffer, name)
        view[...] = chance.normal(size=view.shape)
    # No ends, some, or one at every step.
    ends = chance.random((steps, envs)) < (0.0, 0.3, 1.0)[seed % 3]
    buffer.truncated[...] = ends & (chance.random((steps, envs)) < 0.5)
    buffer.terminated[...] = ends & ~buffer.truncated
    index = np.argwhere(buffer.truncated).astype(np.int32)
    episodes = np.array([[chance.normal(), 1.0 + number, (1.0, 0.0, -1.0)[number % 3]]
                         for number in range(int(ends.sum()))], np.float32).reshape(-1, 3)
    integers = {name: int(chance.integers(0, 1000)) for name in INTEGERS} | {
        'run_id': RUN_ID, 'actor_id': 1, 'incarnation': 1, 'sequence': seed}
    final, final_critic, final_value = (
        chance.normal(size=(len(index), size)).astype(np.float32)
        for size in (layout.observation_size, layout.critic_size, layout.value_size))
    return buffer.finish(integers, final, index, episodes, None, final_critic, final_value)


def encoded(chunk: Chunk, layout: Layout) -> list[bytes]:
    """Give the frames of a chunk as they arrive."""
    return [bytes(frame) for frame in codec.encode_chunk(chunk, layout)]


def control_messages() -> list[messages.Message]:
    """Make one message of every kind."""
    return [messages.hello(3, LAYOUTS[0], 4, 5), messages.Welcome(1, 2, 3, 4, 5, 6, 'h', '/r'),
            messages.Welcome(2, 1, 1, 0, 500, 9000, 'host', '', True),
            messages.Refused('äöü "quoted" \\ text'), messages.PermitMessage(1, 2, 3, 4, 5, 6),
            messages.Heartbeat(1, 2, 3, 4, 5, 6, 7), messages.Pong(1, 2, 3, -1, -1),
            messages.News(1, 2), messages.Fetch(-1, -1), messages.Policy(1, 2, 3),
            messages.Bell(), messages.Who(), messages.Stop(), messages.Bye(1, 2, 3),
            messages.ChunkNotice(1, 2, 3, 4)]


def announced(frames: list[bytes]) -> list[bytes]:
    """Put before the frames of a chunk of 3 × 3 what goes before them."""
    sequence = int.from_bytes(frames[0][40:48], 'little')
    return [*messages.encode(messages.ChunkNotice(sequence, 9, 0, 0)), *frames]


def shape_of(layout: Layout) -> oracle.Shape:
    """Tell the oracle what is trained."""
    return oracle.Shape(layout.digest(), layout.observation_size, layout.action_size,
                        layout.parameters_size, layout.critic_size, layout.value_size,
                        DTYPES[layout.observation_dtype])


def as_lists(chunk: Chunk) -> Values:
    """Give a chunk in the form of the oracle."""
    return {**{name: getattr(chunk, name) for name in INTEGERS},
            **{name: getattr(chunk, name).ravel().tolist() for name, _, _ in ARRAYS}}


def as_message(message: messages.Message) -> tuple[bytes, Values]:
    """Give a small message in the form of the oracle."""
    return messages.encode(message)[0], vars(message)


# Damage without a plan

def damaged(original: list[bytes], others: Sequence[list[bytes]],
            chance: random.Random,
            names: Sequence[str] = ()) -> tuple[str, list[bytes]]:
    """Damage a message as wires, disks and strangers do; give the name of the damage, too."""
    name = chance.choice(names or tuple(_DAMAGES))
    return name, _DAMAGES[name](list(original), others, chance)


def _one_frame(change: Callable[[bytearray, random.Random], None]) -> Callable[..., list[bytes]]:
    def apply(frames: list[bytes], _others: Sequence[list[bytes]],
              chance: random.Random) -> list[bytes]:
        which = chance.randrange(len(frames))
        frame = bytearray(frames[which])
        change(frame, chance)
        frames[which] = bytes(frame)
        return frames
    return apply


def _flip_bits(frame: bytearray, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 3)):
        if frame:
            frame[chance.randrange(len(frame))] ^= 1 << chance.randrange(8)


def _overwrite(frame: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(frame) + 1)
    count = min(chance.randint(1, 64), len(frame) - start)
    frame[start:start + count] = chance.randbytes(count)


def _cut(frame: bytearray, chance: random.Random) -> None:
    del frame[chance.randrange(len(frame) + 1):]


def _extend(frame: bytearray, chance: random.Random) -> None:
    frame += chance.randbytes(chance.randint(1, 64))


def _repeat(frame: bytearray, chance: random.Random) -> None:
    start, target = chance.randrange(len(frame) + 1), chance.randrange(len(frame) + 1)
    piece = frame[start:start + 8]
    frame[target:target + len(piece)] = piece


def _random(frame: bytearray, chance: random.Random) -> None:
    frame[:] = chance.randbytes(chance.randint(0, 2 * len(frame) + 1))


def _swap(frames: list[bytes], _others: Any, _chance: random.Random) -> list[bytes]:
    return frames[::-1]


def _drop(frames: list[bytes], _others: Any, chance: random.Random) -> list[bytes]:
    del frames[chance.randrange(len(frames))]
    return frames


def _double(frames: list[bytes], _others: Any, chance: random.Random) -> list[bytes]:
    frames.insert(chance.randrange(len(frames) + 1), chance.choice(frames))
    return frames


def _splice(frames: list[bytes], others: Sequence[list[bytes]],
            chance: random.Random) -> list[bytes]:
    """Put the beginning of one message before the end of another, between or within frames."""
    other = chance.choice(others)
    which = chance.randrange(min(len(frames), len(other)))
    if chance.random() < 0.5:
        return frames[:which] + other[which:]
    place = chance.randrange(len(frames[which]) + 1)
    return [*frames[:which], frames[which][:place] + other[which][place:], *other[which + 1:]]


def _untouched(frames: list[bytes], _others: Any, _chance: random.Random) -> list[bytes]:
    return frames


_DAMAGES: dict[str, Callable[..., list[bytes]]] = {
    'flipped bits': _one_frame(_flip_bits), 'overwritten': _one_frame(_overwrite),
    'cut': _one_frame(_cut), 'extended': _one_frame(_extend), 'repeated': _one_frame(_repeat),
    'random': _one_frame(_random), 'frames swapped': _swap, 'frame missing': _drop,
    'frame doubled': _double, 'spliced': _splice, 'untouched': _untouched}

# A slot is one piece, of a size that is fixed.
SLOT_DAMAGES = ('flipped bits', 'overwritten', 'repeated', 'random', 'spliced', 'untouched')


# Forgery: what a sender says is wrong, and every checksum right

def forged(header: bytes, payload: bytes, fields: Sequence[tuple[int, int]],
           chance: random.Random) -> tuple[str, bytes, bytes]:
    """
    Change the meaning of a chunk.

    Returns
    -------
    name : str
        Of the change.
    header, payload : bytes
        Checksums are for the caller to make right.

    """
    name = chance.choice(('header field', 'float', 'half', 'flag', 'int32', 'bits', 'length'))
    head, body = bytearray(header), bytearray(payload)
    if name == 'header field':
        for _ in range(chance.randint(1, 2)):
            offset, size = chance.choice(fields)
            value = chance.choice(INTERESTING) if chance.random() < 0.7 \
                else int.from_bytes(head[offset:offset + size], 'little') + chance.randint(-2, 2)
            head[offset:offset + size] = (value % 256 ** size).to_bytes(size, 'little')
    elif name == 'length':
        body = body[:-8] if chance.random() < 0.5 else body + bytes(8)
        if chance.random() < 0.7:
            offset, size = fields[0]
            head[offset:offset + size] = len(body).to_bytes(size, 'little')
    else:
        _PAYLOAD_CHANGES[name](body, chance)
    return f'forged {name}', bytes(head), bytes(body)


def _any_float(payload: bytearray, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 2)):
        struct.pack_into('<f', payload, 4 * chance.randrange(len(payload) // 4),
                         chance.choice(FLOATS))


def _any_half(payload: bytearray, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 2)):
        struct.pack_into('<H', payload, 2 * chance.randrange(len(payload) // 2),
                         chance.choice(HALVES))


def _any_flag(payload: bytearray, chance: random.Random) -> None:
    # Flags lie behind most of the floats; where exactly differs from chunk to chunk.
    for _ in range(chance.randint(1, 3)):
        payload[chance.randrange(len(payload) // 2, len(payload))] = chance.choice((0, 1, 2, 255))


def _any_int(payload: bytearray, chance: random.Random) -> None:
    value = chance.choice((0, 1, 2, 3, -1, 2 ** 31 - 1, -2 ** 31))
    struct.pack_into('<i', payload, 4 * chance.randrange(len(payload) // 4), value)


_PAYLOAD_CHANGES: dict[str, Callable[[bytearray, random.Random], None]] = {
    'float': _any_float, 'half': _any_half, 'flag': _any_flag, 'int32': _any_int,
    'bits': _flip_bits}


def crc_of(data: bytes) -> bytes:
    """Give a CRC32 as it lies on the wire."""
    return zlib.crc32(data).to_bytes(4, 'little')


def other_value(original: list[bytes], chance: random.Random) -> list[bytes]:
    """Change, add, remove or rename a field of a control message."""
    values = json.loads(original[1])
    names = list(values)
    kind = chance.randrange(5)
    if kind == 0 or not names:
        values[chance.choice(('more', 'sequence', 'text', ''))] = 1
    elif kind == 1:
        del values[chance.choice(names)]
    else:
        values[chance.choice(names)] = chance.choice((
            -2, -1, 0, 1, 2 ** 62 - 1, 2 ** 62, 10 ** 40, 1.0, float('nan'), True, False, None,
            '', 'text', '\ud800', [], {}, [1]))
    body: Any = values
    if chance.random() < 0.05:
        body = chance.choice((None, 1, 'text', [values], []))
    return [original[0], json.dumps(body).encode(), *original[2:]]


class RingTarget:
    """
    A ring with both ends in this process; a slot between two good ones is tampered with.

    They are of the same shape, so that all three are read together as far as they can be.
    """

    def __init__(self, layout: Layout) -> None:
        steps, envs = 4, 3
        self._layout = layout
        self._writer = RingWriter(layout, steps, envs, SLOTS)
        self._memory = mmap.mmap(self._writer.descriptor, 0)
        self._words = memoryview(self._memory)[:PAGE].cast('Q')
        self._reader = RingReader(self._memory, SLOTS, layout, steps, envs)
        self._stride = (len(self._memory) - PAGE) // SLOTS
        self._place = 0
        self._slots = [self._filled(make_chunk(layout, *sizes, number))
                       for number, sizes in enumerate(SIZES * 6)]

    def case(self, chance: random.Random) -> Case:
        """Make the bytes of a slot, as if it were the first of all, and of its neighbours."""
        length, slot = chance.choice(self._slots)
        kind = chance.random()
        if kind < 0.05:
            count = chance.choice((-1, SLOTS + 1, 2 ** 63, 2 ** 64 - 1 - 2 ** 40))
            return Case('ring', 'forged count', [struct.pack('<Q', count % 2 ** 64)],
                        self._layout, False)
        if kind < 0.3:
            others = [[other] for _, other in self._slots]
            mutation, frames = damaged([slot], others, chance, SLOT_DAMAGES)
            return Case('ring', mutation, [b''.join(frames), slot], self._layout, True)
        name, head, body = forged(
            slot[:oracle.SLOT_HEADER.size],
            slot[oracle.SLOT_PAYLOAD:oracle.SLOT_PAYLOAD + length], SLOT_FIELDS, chance)
        checksum = sum(struct.unpack(f'<{len(body) // 8}Q', body)) % 2 ** 64
        head = head[:8] + checksum.to_bytes(8, 'little') + head[16:]
        other = (head + crc_of(head)).ljust(oracle.SLOT_PAYLOAD, b'\0') + body
        return Case('ring', name, [other, slot], self._layout, False)

    def check(self, case: Case) -> str:
        """Put the bytes into the next slots and let both readers read them."""
        if case.mutation == 'forged count':
            return self._check_count(*struct.unpack('<Q', case.frames[0]))
        tampered, good = (frame[:self._stride].ljust(self._stride, b'\0')
                          for frame in case.frames)
        first = self._place
        slots = [at_place(good, first), tampered, at_place(good, first + 2)]
        if tampered[:8] == bytes(8):
            slots[1] = at_place(tampered, first + 1)
        for slot in slots:
            start = self._start()
            self._memory[start:start + self._stride] = slot
            self._place += 1
        self._words[HEAD] = self._place
        items = list(self._reader.drain())
        wanted = [functools.partial(oracle.read_slot, slot, place, shape_of(self._layout), MOST)
                  for place, slot in enumerate(slots, first)]
        outcomes = [compared(functools.partial(values_of, item), read)
                    for item, read in zip(items, wanted, strict=True)]
        if (outcomes[0], outcomes[2]) != ('accepted', 'accepted'):
            raise Difference('a good slot beside it is refused')
        return outcomes[1]

    def _check_count(self, more: int) -> str:
        self._words[HEAD] = (self._place + more) % 2 ** 64
        try:
            items = list(self._reader.drain())
        except CodecError as error:
            return error.cause
        finally:
            self._words[HEAD] = self._place
        raise Difference(f'{len(items)} slots are read though the count is impossible')

    def _filled(self, chunk: Chunk) -> tuple[int, bytes]:
        """Let the writer fill a slot; give the length of its payload, and it as the first."""
        start = self._start()
        self._writer.publish(chunk, messages.ChunkNotice(chunk.sequence, chunk.transitions, 0, 0))
        slot = self._memory[start:start + self._stride]
        for item in self._reader.drain():
            item.checked()
        self._place += 1
        offset, size = SLOT_FIELDS[0]
        return int.from_bytes(slot[offset:offset + size], 'little'), at_place(slot, 0)

    def _start(self) -> int:
        return PAGE + self._place % SLOTS * self._stride


def values_of(item: RingItem) -> Values:
    """Give what a reader found in a slot in the form of the oracle."""
    chunk = item.checked()
    if item.notice is None:
        raise Difference('a chunk without a notice')
    return {'notice': list(vars(item.notice).values()), **as_lists(chunk)}


def at_place(slot: bytes, place: int) -> bytes:
    """Give a slot as it would lie at another place; a header whose CRC is wrong stays wrong."""
    size = oracle.SLOT_HEADER.size
    head = place.to_bytes(8, 'little') + slot[8:size]
    right = crc_of(slot[:size]) == slot[size:size + 4]
    return head + (crc_of(head) if right else slot[size:size + 4]) + slot[size + 4:]


def check_intake(case: Case) -> str:
    """Send a message to a learner: it must not stumble, and another actor must not be hurt."""
    intake = Intake(Session(RUN_ID, case.layout), PermitBook(64, 1, Identity(1, 0)),
                    Batcher(1 << 40, 8), Books(), lambda text: None)
    intake.published(Identity(10 ** 6, 0))
    for number, peer in enumerate((b'one', b'two'), 1):
        intake.handle(peer, messages.encode(messages.hello(number, case.layout, 3, 3)))
    intake.handle(b'one', case.frames)
    refused, received = intake.refused(), intake.chunks_received
    good = make_good_chunk(case.layout)
    intake.handle(b'two', good)
    if 'internal' in refused:
        raise Difference('the intake stumbled over it')
    if intake.chunks_received != received + 1 or intake.refused() != refused:
        raise Difference("another actor's good chunk is refused afterwards")
    intake.handle(b'two', messages.encode(messages.Heartbeat(1, 9, 0)))
    # Those of the sender stand as it claims.
    complaints = [line for line in intake.write_books() if line.startswith('actor 2,')]
    if complaints:
        raise Difference(f"another actor's books do not balance: {complaints[0]}")
    return next(iter(refused), 'accepted')


@functools.lru_cache
def make_good_chunk(layout: Layout) -> list[bytes]:
    """Make the first chunk of actor 2, as it arrives."""
    chunk = dataclasses.replace(make_chunk(layout, 3, 3, 0), actor_id=2, sequence=0)
    return announced(encoded(chunk, layout))


def outcomes(counts: Counter[tuple[str, str, str]]) -> list[dict[str, Any]]:
    """Give the counts by target and mutation, with refusals by cause."""
    result: dict[tuple[str, str], dict[str, Any]] = {}
    for (target, mutation, outcome), count in sorted(counts.items()):
        entry = result.setdefault((target, mutation), {
            'target': target, 'mutation': mutation, 'accepted': 0, 'refused': {}})
        if outcome == 'accepted':
            entry['accepted'] = count
        else:
            entry['refused'][outcome] = count
    return list(result.values())


def table(counts: Counter[tuple[str, str, str]]) -> str:
    """Lay the outcomes out for a terminal."""
    lines = [f'{"target":<8} {"mutation":<20} {"accepted":>9} {"refused":>9}  by cause']
    for entry in outcomes(counts):
        causes = sorted(entry['refused'].items(), key=lambda item: -item[1])
        lines.append(f'{entry["target"]:<8} {entry["mutation"]:<20} {entry["accepted"]:>9,} '
                     f'{sum(entry["refused"].values()):>9,}  '
                     + ', '.join(f'{cause} {count:,}' for cause, count in causes))
    return '\n'.join(line.rstrip() for line in lines)

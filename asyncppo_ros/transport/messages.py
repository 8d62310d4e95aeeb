"""
The small messages between actors and the learner.

A message is ``[kind, body]``; `ChunkNotice` is followed by the two frames of the chunk, `Policy`
by the bytes of the policy.  Bodies are JSON objects whose fields, types and ranges are checked by
`decode`.

::

    actor → learner   HELLO  CHUNK  BELL (look into the ring)  HEARTBEAT  FETCH  BYE
    learner → actor   WELCOME  REFUSED  PERMIT  NEWS  POLICY  PONG  WHO (say hello again)  STOP
"""

from collections.abc import Sequence
import dataclasses
import json
import math
import operator
import os
import socket
from typing import Any

from asyncppo_ros.chunk import Identity, Layout
from asyncppo_ros.errors import CodecError
from asyncppo_ros.learning.ledger import Counters

PROTOCOL = 5
MAX_BODY = 65536
MAX_INTEGER = 2 ** 62


@dataclasses.dataclass(frozen=True)
class Hello:
    """
    An actor presents itself.

    Attributes
    ----------
    incarnation, run_id : int
        0 = asks for one, knows none; else those it had before the learner forgot it.
    next_sequence, before : int
        Of the first chunk the learner may expect, the oldest that is not acknowledged, and
        the transitions of all chunks before it.
    ring_fd : int
        File descriptor, in the actor's process, of its shared-memory ring; -1 = none.
    ring_token : str
        What the ring begins with, so that the learner knows that it found the right memory.
    target_lag, max_policy_lag : int
        Limits of this source alone [versions]; -1 = the learner's.
    weight : float
        Of its transitions in the loss, relative to those of others.

    """

    protocol: int
    package_version: str
    actor_id: int
    task: str
    observation_size: int
    action_size: int
    parameters_size: int
    terms: str
    critic_size: int
    value_size: int
    observation_dtype: str
    num_envs: int
    chunk_length: int
    host: str
    pid: int
    incarnation: int = 0
    run_id: int = 0
    next_sequence: int = 0
    before: int = 0
    ring_fd: int = -1
    ring_token: str = ''
    target_lag: int = -1
    max_policy_lag: int = -1
    weight: float = 1.0

    @property
    def layout(self) -> Layout:
        """What the actor simulates."""
        return Layout(self.task, self.observation_size, self.action_size, self.parameters_size,
                      self.terms, self.critic_size, self.value_size,
                      self.observation_dtype)


def hello(actor_id: int, layout: Layout, num_envs: int, chunk_length: int) -> Hello:
    """Make the first hello of this process."""
    from asyncppo_ros import __version__
    return Hello(PROTOCOL, __version__, actor_id, *layout, num_envs, chunk_length,
                 socket.gethostname(), os.getpid())


@dataclasses.dataclass(frozen=True)
class Welcome:
    """
    The learner takes an actor in.

    Attributes
    ----------
    next_sequence : int
        What the learner expects next: older chunks need not be sent again.
    run_dir : str
        For the actor's ledger, when the host is the same; '' = none.
    ring : bool
        The learner reads the actor's ring: chunks go there, not over the socket.

    """

    run_id: int
    generation: int
    incarnation: int
    next_sequence: int
    heartbeat_ms: int
    heartbeat_timeout_ms: int
    host: str
    run_dir: str
    ring: bool = False


@dataclasses.dataclass(frozen=True)
class Refused:
    """The learner does not take an actor in; `text` says why in words."""

    text: str


@dataclasses.dataclass(frozen=True)
class PermitMessage:
    """
    Chunks below `limit` may be begun, with policy (generation, version) or newer.

    `expected` acknowledges all chunks before it.  The newest policy is told with it, because a
    permit often comes with a publication, and hundreds of actors make a message of each.
    """

    limit: int
    generation: int
    version: int
    expected: int
    newest_generation: int
    newest_version: int

    @property
    def minimum(self) -> Identity:
        """The oldest policy to collect with."""
        return Identity(self.generation, self.version)

    @property
    def newest(self) -> Identity:
        """The newest that was published."""
        return Identity(self.newest_generation, self.newest_version)


@dataclasses.dataclass(frozen=True)
class Heartbeat(Counters):
    """
    A sign of life, with the actor's ledger as it stands.

    Attributes
    ----------
    sent_ns : int
        The actor's clock, for the round trip [ns].
    handed : int
        Chunks below this sequence were handed to the socket before this message.
    waited_ns: int
        Time this actor has waited for permits and policies so far [ns].
    policy_silent_ms : int
        For how long the policy channel has not brought what the learner has published [ms].
    missed_steps : int
        Control steps of this incarnation that did not come about; see `StepMissed`.

    """

    sent_ns: int = 0
    handed: int = 0
    waited_ns: int = 0
    policy_silent_ms: int = 0
    missed_steps: int = 0


@dataclasses.dataclass(frozen=True)
class Pong:
    """The answer to a heartbeat: its own numbers, and what the learner has."""

    sent_ns: int
    handed: int
    expected: int
    generation: int
    version: int


@dataclasses.dataclass(frozen=True)
class News:
    """A newer policy was published."""

    generation: int
    version: int


@dataclasses.dataclass(frozen=True)
class Fetch:
    """An actor asks for the newest policy, if it is newer than this one, which it has."""

    generation: int
    version: int


@dataclasses.dataclass(frozen=True)
class Policy:
    """The answer to `Fetch`; the bytes of the policy follow as a third frame."""

    generation: int
    version: int
    size: int


@dataclasses.dataclass(frozen=True)
class Bell:
    """There is something in the actor's ring."""


@dataclasses.dataclass(frozen=True)
class Who:
    """The learner does not know the sender."""


@dataclasses.dataclass(frozen=True)
class Stop:
    """The run is over."""


@dataclasses.dataclass(frozen=True)
class Bye(Counters):
    """An actor leaves; its final ledger."""


@dataclasses.dataclass(frozen=True)
class ChunkNotice:
    """
    Goes before each chunk: the actor's claim, apart from the chunk's own header.

    Attributes
    ----------
    sequence, transitions : int
        Of this chunk.
    before : int
        Transitions of all chunks of this incarnation before it.
    transport_ns : int
        Half a round trip as the actor measured it [ns].

    """

    sequence: int
    transitions: int
    before: int
    transport_ns: int


Message = (Hello | Welcome | Refused | PermitMessage | Heartbeat | Pong | Who | Stop | Bye
           | ChunkNotice | News | Fetch | Policy | Bell)
_KINDS: dict[bytes, type] = {
    b'HELLO': Hello, b'WELCOME': Welcome, b'REFUSED': Refused, b'PERMIT': PermitMessage,
    b'HEARTBEAT': Heartbeat, b'PONG': Pong, b'WHO': Who, b'STOP': Stop, b'BYE': Bye,
    b'CHUNK': ChunkNotice, b'NEWS': News, b'FETCH': Fetch, b'POLICY': Policy, b'BELL': Bell}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_FIELDS = {kind: {field.name: field.type for field in dataclasses.fields(kind)}
           for kind in _KINDS.values()}
# Nearly all that travels: notices of chunks, permits, heartbeats.
_OF_INTEGERS = {kind for kind, fields in _FIELDS.items() if set(fields.values()) == {int}}
# As `json.dumps` writes them, in a quarter of its time.
_TEMPLATES = {kind: '{' + ', '.join(f'"{name}": %d' for name in _FIELDS[kind]) + '}'
              for kind in _OF_INTEGERS}
_INTEGERS = {kind: operator.attrgetter(*_FIELDS[kind]) for kind in _OF_INTEGERS}


def encode(message: Any) -> list[bytes]:
    """Give the frames of a message."""
    kind = type(message)
    template = _TEMPLATES.get(kind)
    if template is None:
        return [_NAMES[kind], json.dumps(vars(message)).encode()]
    return [_NAMES[kind], (template % _INTEGERS[kind](message)).encode()]


def decode(frames: Sequence[bytes]) -> Message:
    """
    Check the first two frames of what arrived and give the message.

    Raises
    ------
    CodecError
        Cause `frames`, `kind`, `oversized` or `malformed`.

    """
    if len(frames) < 2:
        raise CodecError('frames', f'{len(frames)} frames where kind and body belong')
    kind = _KINDS.get(bytes(frames[0][:16]))
    if kind is None:
        raise CodecError('kind', f'unknown kind of message {bytes(frames[0][:16])!r}')
    if len(frames) > 2 and kind not in (ChunkNotice, Policy):
        raise CodecError('frames', f'{len(frames)} frames in {kind.__name__}')
    if len(frames[1]) > MAX_BODY:
        raise CodecError('oversized', f'{kind.__name__} of {len(frames[1])} bytes')
    try:
        # Of bytes json would first find out the encoding.
        values = json.loads(bytes(frames[1]).decode())
    except (ValueError, RecursionError):
        raise CodecError('malformed', f'{kind.__name__} is not JSON') from None
    if not _fits(kind, values):
        raise CodecError('malformed', f'{kind.__name__} with other fields, types or ranges')
    # The constructor of a frozen dataclass sets the fields one by one, and checks nothing.
    message: Message = object.__new__(kind)
    message.__dict__.update(values)
    return message


def _fits(kind: type, values: Any) -> bool:
    fields = _FIELDS[kind]
    if not isinstance(values, dict) or values.keys() != fields.keys():
        return False
    if kind in _OF_INTEGERS:
        found = values.values()
        return set(map(type, found)) == {int} and min(found) >= -1 and max(found) < MAX_INTEGER
    for name, value in values.items():
        if type(value) is not fields[name]:
            return False
        # -1 stands for "no policy yet".
        if isinstance(value, int) and not -1 <= value < MAX_INTEGER:
            return False
        # JSON as Python reads it has NaN and infinities.
        if isinstance(value, float) and not math.isfinite(value):
            return False
    return True

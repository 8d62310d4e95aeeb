"""Pure checks of who may send, and of what a chunk says of itself."""

import dataclasses
from typing import NamedTuple

from asyncppo_ros.chunk import Chunk, Identity, Layout, Source
from asyncppo_ros.errors import CodecError
from asyncppo_ros.transport.codec import MAX_ENVS, MAX_STEPS
from asyncppo_ros.transport.messages import ChunkNotice, Hello, MAX_BODY, PROTOCOL
from asyncppo_ros.transport.payload import ChunkBuffer

# Where no batch says how large a chunk may be.
MAX_TRANSITIONS = 1 << 20
# As the setting actor.weight has it.
MAX_WEIGHT = 1000.0


class LagLimits(NamedTuple):
    """The learner's settings of the same names, which the limits of a source must suit."""

    target_lag: int = 1
    max_policy_lag: int = 8
    publish_updates: int = 1


DEFAULT_LIMITS = LagLimits()


@dataclasses.dataclass(frozen=True)
class Session:
    """
    What a learner tells and demands of its actors.

    Attributes
    ----------
    run_id : int
        Above 0.
    layout : Layout
    run_dir : str
        Actors on this host keep their ledgers in its ``books`` folder; '' = in memory only.
    heartbeat_s, heartbeat_timeout_s : float
    max_transitions : int
        Largest chunk that an actor may come with: the batch holds one of each.
    limits : LagLimits
    rings : bool
        Read chunks from shared memory that actors of this host offer.

    """

    run_id: int
    layout: Layout
    run_dir: str = ''
    heartbeat_s: float = 0.5
    heartbeat_timeout_s: float = 10.0
    max_transitions: int = MAX_TRANSITIONS
    limits: LagLimits = DEFAULT_LIMITS
    rings: bool = True

    @property
    def largest_frame(self) -> int:
        """Bytes above which a frame is cut off unread: twice what any chunk can have."""
        return 2 * ChunkBuffer.capacity(self.layout, 1, self.max_transitions) + MAX_BODY


def why_refused(hello: Hello, run_id: int, layout: Layout,
                max_transitions: int = MAX_TRANSITIONS,
                limits: LagLimits = DEFAULT_LIMITS) -> str | None:
    """Say in words why an actor does not fit this learner; None = it fits."""
    if hello.protocol != PROTOCOL:
        return (f'protocol differs: the learner speaks {PROTOCOL}, this actor (asyncppo_ros '
                f'{hello.package_version}) {hello.protocol}; install the same version on both')
    if hello.run_id not in (0, run_id):
        return f'run differs: the learner trains run {run_id}, this actor is of {hello.run_id}'
    if hello.task != layout.task:
        return (f'task differs: the learner trains {layout.task}, this actor simulates '
                f'{hello.task}')
    for name, ours, theirs in zip(Layout._fields, layout, hello.layout):
        if ours != theirs:
            return (f'{name} of {layout.task} differs: the learner has {ours}, this actor '
                    f'{theirs}')
    if not (1 <= hello.num_envs <= MAX_ENVS and 1 <= hello.chunk_length <= MAX_STEPS):
        return (f'actor.num_envs = {hello.num_envs} and actor.chunk_length = '
                f'{hello.chunk_length} are not within [1, {MAX_STEPS}]')
    if hello.num_envs * hello.chunk_length > max_transitions:
        return (f'actor.num_envs {hello.num_envs} × actor.chunk_length {hello.chunk_length} = '
                f'{hello.num_envs * hello.chunk_length} transitions: more than '
                f"{max_transitions}, the learner's learner.batch_size")
    if hello.actor_id < 0 or hello.incarnation < 0 or hello.next_sequence < 0:
        return 'actor_id, incarnation and next_sequence must not be negative'
    if not 0.0 <= hello.weight <= MAX_WEIGHT:
        return f'actor.weight = {hello.weight}: must be within [0, {MAX_WEIGHT:g}]'
    return _why_limits_refused(hello, limits)


def _why_limits_refused(hello: Hello, limits: LagLimits) -> str | None:
    target = limits.target_lag if hello.target_lag < 0 else hello.target_lag
    most = limits.max_policy_lag if hello.max_policy_lag < 0 else hello.max_policy_lag
    if most < target:
        return (f'actor.max_policy_lag {most} is below actor.target_lag {target} (those of the '
                'learner where the actor has none)')
    if target < limits.publish_updates - 1:
        return (f'actor.target_lag = {target}: must be at least learner.publish_updates - 1 = '
                f'{limits.publish_updates - 1}, or this actor waits for a policy that is not '
                'published')
    return None


def check_chunk(chunk: Chunk, notice: ChunkNotice, source: Source, num_envs: int, run_id: int,
                newest: Identity) -> None:
    """
    Check what a chunk says of itself against what is known of its sender.

    Raises
    ------
    CodecError
        Cause `run`, `source`, `sequence`, `claim` or `future_policy`.

    """
    if chunk.run_id != run_id:
        raise CodecError('run', f'chunk of run {chunk.run_id}; this is run {run_id}')
    if chunk.source != source:
        raise CodecError('source', f'chunk of actor {chunk.actor_id}, incarnation '
                         f'{chunk.incarnation}')
    if chunk.sequence != notice.sequence:
        raise CodecError('sequence', f'chunk {chunk.sequence} announced as {notice.sequence}')
    if chunk.transitions != notice.transitions or chunk.reward.shape[1] != num_envs:
        raise CodecError('claim', f'chunk of {chunk.reward.shape} announced as '
                         f'{notice.transitions} transitions of {num_envs} environments')
    if chunk.identity > newest:
        raise CodecError('future_policy', f'collected with policy {chunk.identity}, which is '
                         f'newer than {newest}, the newest one')

"""Chunks and learners for the tests of the transport."""

import dataclasses

import numpy as np

from asyncppo_ros.chunk import Identity, INTEGERS, Layout
from asyncppo_ros.learning.batcher import Batcher
from asyncppo_ros.learning.books import Books
from asyncppo_ros.transport.admission import MAX_TRANSITIONS, Session
from asyncppo_ros.transport.intake import Intake
from asyncppo_ros.transport.payload import ChunkBuffer
from asyncppo_ros.transport.permits import PermitBook

LAYOUT = Layout('reach', 5, 2, 4, 'joint_position,goal')
# The same with everything that is optional.
FULL_LAYOUT = LAYOUT._replace(critic_size=3, value_size=1)
RUN_ID = 77
FIRST = Identity(1, 0)


def make_chunk(steps=4, num_envs=3, capacity=None, layout=LAYOUT, seed=0, **integers):
    """
    Make a chunk in a `ChunkBuffer`, every number of it different.

    Environment 0 is truncated at its first step, environment 1 terminated at the last.
    """
    random = np.random.default_rng(seed)
    buffer = ChunkBuffer(layout, capacity or steps, num_envs)
    for name in ('observation', 'critic_observation', 'action', 'behaviour_log_prob',
                 'behaviour_parameters', 'value', 'reward'):
        view = getattr(buffer, name)
        view[...] = random.normal(size=view.shape)
    buffer.terminated[...] = False
    buffer.truncated[...] = False
    buffer.truncated[0, 0] = True
    ends = 1
    if num_envs > 1:
        buffer.terminated[steps - 1, 1] = True
        ends = 2
    values = {name: 0 for name in INTEGERS} | {
        'run_id': RUN_ID, 'actor_id': 1, 'incarnation': 1, 'generation': 1,
        'collecting_ns': 5_000_000} | integers
    final, final_critic, final_value = (
        random.normal(size=(1, size)).astype(np.float32)
        for size in (layout.observation_size, layout.critic_size, layout.value_size))
    return buffer.finish(values, final, np.array([[0, 0]], np.int32),
                         np.array([[1.5, 7.0, 1.0], [-2.0, 9.0, -1.0]], np.float32)[:ends],
                         steps, final_critic, final_value)


def with_ends(chunk, index, episodes, seed=0):
    """Give the chunk with other truncated steps, [K, 2], and ended episodes, [E, 3]."""
    random = np.random.default_rng(seed)
    rows = {name: np.float32(random.normal(size=(len(index), getattr(chunk, name).shape[1])))
            for name in ('final_observation', 'final_critic_observation', 'final_value')}
    return dataclasses.replace(
        chunk, final_index=np.array(index, np.int32).reshape(-1, 2),
        episodes=np.array(episodes, np.float32).reshape(-1, 3), **rows)


def make_intake(batch_size=24, target_lag=1, run_dir='', state=None, warnings=None,
                identity=FIRST, publish=True, heartbeat_s=0.05, timeout_s=1.0, max_policy_lag=8,
                max_transitions=MAX_TRANSITIONS):
    """Make everything a learner has beside the socket."""
    warnings = [] if warnings is None else warnings
    intake = Intake(Session(RUN_ID, LAYOUT, str(run_dir), heartbeat_s, timeout_s,
                            max_transitions),
                    PermitBook(batch_size, target_lag, identity),
                    Batcher(batch_size, max_policy_lag), Books(run_dir or None, state),
                    warnings.append)
    if publish:
        intake.published(identity)
    return intake

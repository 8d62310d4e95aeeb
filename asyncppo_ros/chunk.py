"""
What an actor sends: up to T control steps of N environments under one policy.

Symbols: T steps, N environments, O observation size, C size of what only the critic sees, A
action size, P size of the distribution's parameters, V values of a row (0 or 1), K truncated
steps, E episodes that ended.

What a run has no use for has an axis of size 0: the critic's terms (C) and the actor's values (V).
"""

import dataclasses
import functools
from typing import NamedTuple

import numpy as np

# Float arrays start with this value: one that is left in a finished chunk was never written.
UNSET = -42.42
NO_SUCCESS = -1.0


class Identity(NamedTuple):
    """
    Which policy: ordered first by generation, then by version.

    `generation` grows whenever a learner starts or restores, `policy_version` with every
    `Learner.update`.  (-1, -1) is older than every policy.
    """

    generation: int
    policy_version: int

    def __str__(self) -> str:
        return f'{self.generation}.{self.policy_version}'


NO_POLICY = Identity(-1, -1)


class Source(NamedTuple):
    """Who sent a chunk: an actor and how often it had started by then."""

    actor_id: int
    incarnation: int


@dataclasses.dataclass(frozen=True, eq=False)
class Chunk:
    """
    Consecutive transitions of one actor under one policy.

    Attributes
    ----------
    run_id, actor_id, incarnation, sequence : int
        Who sent it.  `sequence` counts the chunks of one incarnation from 0.
    generation, policy_version, gradient_steps : int
        Of the behaviour policy, one for all steps.
    collecting_ns, waiting_ns : int
        Time spent collecting the chunk, and waiting in the actor before it was sent [ns].
    observation : float32 [T+1, N, O]
        Raw; row T is what followed the last action.  Where an episode ended after step t,
        row t+1 is the first observation of the next one, which row T may not know yet: then it
        is the last of the old one.
    critic_observation : float32 [T+1, N, C]
        Raw terms that only the critic sees, beside `observation`.
    action : float32 [T, N, A]
        As the distribution sampled it: pre-tanh u of a tanh Gaussian, index of a categorical.
    behaviour_log_prob : float32 [T, N]
        Log density of `action` itself, made by the actor.
    behaviour_parameters : float32 [T, N, P]
        Of the distribution, for the exact KL.
    value : float32 [T+1, N, V]
        Of each row by the critic that came with the policy, in the unit of the return.
    reward : float32 [T, N]
        Unscaled.
    terminated, truncated : bool [T, N]
        A terminal state; an episode cut from outside.  A full chunk is neither.
    final_observation : float32 [K, O]
        The true last observation of each truncated (t, n).
    final_critic_observation : float32 [K, C]
    final_value : float32 [K, V]
        The same rows for the critic, and what it says of them.
    final_index : int32 [K, 2]
        Its t and n.
    episodes : float32 [E, 3]
        Return, length [control steps] and success (1, 0, -1 = the task has none) of each
        episode that ended.

    """

    run_id: int
    actor_id: int
    incarnation: int
    sequence: int
    generation: int
    policy_version: int
    gradient_steps: int
    collecting_ns: int
    waiting_ns: int
    observation: np.ndarray
    critic_observation: np.ndarray
    action: np.ndarray
    behaviour_log_prob: np.ndarray
    behaviour_parameters: np.ndarray
    value: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    final_observation: np.ndarray
    final_critic_observation: np.ndarray
    final_value: np.ndarray
    final_index: np.ndarray
    episodes: np.ndarray

    @property
    def identity(self) -> Identity:
        """Of the behaviour policy."""
        return Identity(self.generation, self.policy_version)

    @property
    def source(self) -> Source:
        """Who sent it."""
        return Source(self.actor_id, self.incarnation)

    @property
    def transitions(self) -> int:
        """Number of transitions, T × N."""
        return self.reward.size


# Every array of a chunk in the order of the wire: name, dtype, axes.
ARRAYS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ('observation', '<f4', ('T+1', 'N', 'O')),
    ('critic_observation', '<f4', ('T+1', 'N', 'C')),
    ('action', '<f4', ('T', 'N', 'A')),
    ('behaviour_log_prob', '<f4', ('T', 'N')),
    ('behaviour_parameters', '<f4', ('T', 'N', 'P')),
    ('value', '<f4', ('T+1', 'N', 'V')),
    ('reward', '<f4', ('T', 'N')),
    ('terminated', '|b1', ('T', 'N')),
    ('truncated', '|b1', ('T', 'N')),
    ('final_observation', '<f4', ('K', 'O')),
    ('final_critic_observation', '<f4', ('K', 'C')),
    ('final_value', '<f4', ('K', 'V')),
    ('final_index', '<i4', ('K', '2')),
    ('episodes', '<f4', ('E', '3')),
)
INTEGERS = ('run_id', 'actor_id', 'incarnation', 'sequence', 'generation', 'policy_version',
            'gradient_steps', 'collecting_ns', 'waiting_ns')


class Layout(NamedTuple):
    """
    The sizes that actor and learner must agree on.

    `task` is the name of the task; `terms` names the observation terms in order, those of the
    critic included, so that two tasks of equal sizes are still told apart.  `value_size` is 1
    where actors send values, else 0.  `observation_dtype` is what observations travel as between
    hosts; in memory they are float32.
    """

    task: str
    observation_size: int
    action_size: int
    parameters_size: int
    terms: str
    critic_size: int = 0
    value_size: int = 0
    observation_dtype: str = 'float32'

    @property
    def in_memory(self) -> 'Layout':
        """The same without what holds between hosts alone."""
        return self if self.observation_dtype == 'float32' else self._replace(
            observation_dtype='float32')

    def sizes(self) -> dict[str, int]:
        """Give O, A, P, C and V."""
        return {'O': self.observation_size, 'A': self.action_size, 'P': self.parameters_size,
                'C': self.critic_size, 'V': self.value_size}

    def digest(self) -> int:
        """Give a 64-bit hash of everything both sides must agree on."""
        return _digest(self)


@functools.lru_cache(maxsize=16)
def _digest(layout: Layout) -> int:
    import hashlib
    text = '|'.join(str(part) for part in (*layout, ARRAYS, INTEGERS))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], 'little') >> 1


def shapes(steps: int, num_envs: int, truncations: int, episodes: int,
           layout: Layout) -> dict[str, tuple[int, ...]]:
    """Give the shape of every array of a chunk."""
    size = {'T': steps, 'T+1': steps + 1, 'N': num_envs, 'K': truncations, 'E': episodes,
            '2': 2, '3': 3, **layout.sizes()}
    return {name: tuple(size[axis] for axis in axes) for name, _, axes in ARRAYS}

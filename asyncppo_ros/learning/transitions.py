"""The chunks of one update: as flat tensors, and with what is estimated of them."""

from collections.abc import Callable, Sequence
import dataclasses
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from asyncppo_ros.chunk import Chunk
from asyncppo_ros.learning.advantages import gae, next_values, vtrace


class Segment(NamedTuple):
    """
    A chunk and its observations as the networks take them.

    Attributes
    ----------
    chunk : Chunk
    lag : int
        Of its policy [versions].
    observation : float32 [T+1, N, O]
        Normalized.
    final_observation : float32 [K, O]
        Normalized.
    critic_observation : float32 [T+1, N, C]
        Normalized; what only the critic sees.
    final_critic_observation : float32 [K, C]
        Normalized.
    weight : float
        Of its transitions in the loss, relative to those of other chunks.

    """

    chunk: Chunk
    lag: int
    observation: Tensor
    final_observation: Tensor
    critic_observation: Tensor
    final_critic_observation: Tensor
    weight: float = 1.0


@dataclasses.dataclass(frozen=True, eq=False)
class Transitions:
    """
    M transitions of one update, on the learner's device.

    Attributes
    ----------
    observation : float32 [M, O]
        Normalized as the policy sees it.
    critic_observation : float32 [M, C]
        Normalized; what only the critic sees.
    action : float32 [M, A]
    behaviour_log_prob : float32 [M]
        Of the policy that acted.
    behaviour_parameters : float32 [M, P]
    lag : float32 [M]
        Of the policy that acted [versions].
    weight : float32 [M] or None
        In the loss; None = all are equal.

    """

    observation: Tensor
    critic_observation: Tensor
    action: Tensor
    behaviour_log_prob: Tensor
    behaviour_parameters: Tensor
    lag: Tensor
    weight: Tensor | None = None

    def __len__(self) -> int:
        return len(self.action)


class Estimates(NamedTuple):
    """
    What is estimated of M transitions, in the unit of the return.

    Attributes
    ----------
    advantage : float32 [M]
    value : float32 [M]
        V at the time of the estimate.
    value_target : float32 [M]

    """

    advantage: Tensor
    value: Tensor
    value_target: Tensor


def on_device(array: np.ndarray, device: torch.device) -> Tensor:
    """
    Give an array as a tensor where the networks are.

    A GPU copies from pinned memory while Python goes on.  The memory belongs to torch, which does
    not use it again before the copy is done; on a CPU the tensor is the array.
    """
    tensor = torch.from_numpy(array)
    if device.type == 'cuda':
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def raw_observations(chunks: Sequence[Chunk]) -> np.ndarray:
    """Give every observation that an action answered, float32 [M, O], in chunk order."""
    return np.concatenate([_flat(chunk.observation[:-1]) for chunk in chunks])


def raw_critic_observations(chunks: Sequence[Chunk]) -> np.ndarray:
    """Give the same rows of what only the critic sees, float32 [M, C]."""
    return np.concatenate([_flat(chunk.critic_observation[:-1]) for chunk in chunks])


def join(segments: Sequence[Segment]) -> Transitions:
    """Join the chunks of one update, at least one; they may differ in T and N."""
    device = segments[0].observation.device

    def joined(arrays: Sequence[np.ndarray]) -> Tensor:
        return on_device(np.concatenate([_flat(array) for array in arrays]), device)

    chunks = [segment.chunk for segment in segments]
    return Transitions(
        observation=torch.cat([segment.observation[:-1].flatten(0, 1) for segment in segments]),
        critic_observation=torch.cat([segment.critic_observation[:-1].flatten(0, 1)
                                      for segment in segments]),
        action=joined([chunk.action for chunk in chunks]),
        behaviour_log_prob=joined([chunk.behaviour_log_prob for chunk in chunks]),
        behaviour_parameters=joined([chunk.behaviour_parameters for chunk in chunks]),
        lag=joined([np.full(segment.chunk.reward.shape, segment.lag, np.float32)
                    for segment in segments]),
        weight=_weights(segments, joined))


def _weights(segments: Sequence[Segment],
             joined: Callable[[Sequence[np.ndarray]], Tensor]) -> Tensor | None:
    weights = [segment.weight for segment in segments]
    # Equal weights cost nothing; zeros are not equal to ones: they are to teach nothing.
    if min(weights) == max(weights) > 0.0:
        return None
    return joined([np.full(segment.chunk.reward.shape, segment.weight, np.float32)
                   for segment in segments])


def estimate(segments: Sequence[Segment],
             value_of: Callable[[Tensor, Tensor], np.ndarray] | None,
             discount: float, gae_lambda: float,
             ratio_of: Callable[[Segment], np.ndarray] | None = None,
             max_ratio: float = 1.0) -> Estimates:
    """
    Estimate advantages and value targets from the values of a critic.

    Parameters
    ----------
    segments : sequence of Segment
        At least one.
    value_of : callable or None
        Normalized tensors [..., O] and [..., C] → float32 array [...] in the unit of the
        return; None = the values that the actors sent.
    discount, gae_lambda : float
        γ and λ.
    ratio_of : callable, optional
        Segment → float32 [T, N], current over behaviour policy: V-trace is used instead of GAE.
    max_ratio : float
        Of V-trace.

    """
    parts: list[tuple[np.ndarray, ...]] = []
    for segment in segments:
        chunk = segment.chunk
        value, final_value = _values(segment, value_of)
        following = next_values(value, chunk.terminated, final_value, chunk.final_index)
        steps = (chunk.reward, value[:-1], following, chunk.terminated | chunk.truncated)
        if ratio_of is None:
            advantage, target = gae(*steps, discount, gae_lambda)
        else:
            advantage, target = vtrace(*steps, ratio_of(segment), discount, gae_lambda, max_ratio)
        parts.append((_flat(advantage), _flat(value[:-1]), _flat(target)))
    device = segments[0].observation.device
    return Estimates(*(on_device(np.concatenate(pieces), device) for pieces in zip(*parts)))


def _values(segment: Segment, value_of: Callable[[Tensor, Tensor], np.ndarray] | None
            ) -> tuple[np.ndarray, np.ndarray]:
    if value_of is None:
        return segment.chunk.value[..., 0], segment.chunk.final_value[..., 0]
    return (value_of(segment.observation, segment.critic_observation),
            value_of(segment.final_observation, segment.final_critic_observation))


def _flat(array: np.ndarray) -> np.ndarray:
    return array.reshape(array.shape[0] * array.shape[1], *array.shape[2:])

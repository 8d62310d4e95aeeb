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

    """

    chunk: Chunk
    lag: int
    observation: Tensor
    final_observation: Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Transitions:
    """
    M transitions of one update, on the learner's device.

    Attributes
    ----------
    observation : float32 [M, O]
        Normalized as the policy sees it.
    action : float32 [M, A]
    behaviour_log_prob : float32 [M]
        Of the policy that acted.
    behaviour_parameters : float32 [M, P]
    lag : float32 [M]
        Of the policy that acted [versions].

    """

    observation: Tensor
    action: Tensor
    behaviour_log_prob: Tensor
    behaviour_parameters: Tensor
    lag: Tensor

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


def raw_observations(chunks: Sequence[Chunk]) -> np.ndarray:
    """Give every observation that an action answered, float32 [M, O], in chunk order."""
    size = chunks[0].observation.shape[-1]
    return np.concatenate([chunk.observation[:-1].reshape(-1, size) for chunk in chunks])


def join(segments: Sequence[Segment]) -> Transitions:
    """Join the chunks of one update, at least one; they may differ in T and N."""
    device = segments[0].observation.device

    def joined(arrays: Sequence[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.concatenate([_flat(array) for array in arrays])).to(device)

    chunks = [segment.chunk for segment in segments]
    return Transitions(
        observation=torch.cat([segment.observation[:-1].flatten(0, 1) for segment in segments]),
        action=joined([chunk.action for chunk in chunks]),
        behaviour_log_prob=joined([chunk.behaviour_log_prob for chunk in chunks]),
        behaviour_parameters=joined([chunk.behaviour_parameters for chunk in chunks]),
        lag=joined([np.full(segment.chunk.reward.shape, segment.lag, np.float32)
                    for segment in segments]))


def estimate(segments: Sequence[Segment], value_of: Callable[[Tensor], np.ndarray],
             discount: float, gae_lambda: float,
             ratio_of: Callable[[Segment], np.ndarray] | None = None,
             max_ratio: float = 1.0) -> Estimates:
    """
    Estimate advantages and value targets with a critic.

    Parameters
    ----------
    segments : sequence of Segment
        At least one.
    value_of : callable
        Normalized tensor [..., O] → float32 array [...] in the unit of the return.
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
        value = value_of(segment.observation)
        final_value = value_of(segment.final_observation)
        following = next_values(value, chunk.terminated, final_value, chunk.final_index)
        steps = (chunk.reward, value[:-1], following, chunk.terminated | chunk.truncated)
        if ratio_of is None:
            advantage, target = gae(*steps, discount, gae_lambda)
        else:
            advantage, target = vtrace(*steps, ratio_of(segment), discount, gae_lambda, max_ratio)
        parts.append((_flat(advantage), _flat(value[:-1]), _flat(target)))
    device = segments[0].observation.device
    return Estimates(*(torch.from_numpy(np.concatenate(pieces)).to(device)
                       for pieces in zip(*parts)))


def _flat(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1, *array.shape[2:])

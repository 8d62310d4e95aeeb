"""Transitions: the chunks of one update as flat tensors."""

from collections.abc import Callable, Sequence
import dataclasses

import numpy as np
import torch
from torch import Tensor

from asyncppo_ros.chunk import Chunk
from asyncppo_ros.learning.advantages import gae, next_values, vtrace


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
    advantage : float32 [M]
    value : float32 [M]
        V before the update, in the unit of the return.
    value_target : float32 [M]

    """

    observation: Tensor
    action: Tensor
    behaviour_log_prob: Tensor
    behaviour_parameters: Tensor
    advantage: Tensor
    value: Tensor
    value_target: Tensor

    def __len__(self) -> int:
        return len(self.action)


def raw_observations(chunks: Sequence[Chunk]) -> np.ndarray:
    """Give every observation that an action answered, float32 [M, O], in chunk order."""
    size = chunks[0].observation.shape[-1]
    return np.concatenate([chunk.observation[:-1].reshape(-1, size) for chunk in chunks])


def join(chunks: Sequence[Chunk], normalize: Callable[[np.ndarray], Tensor],
         value_of: Callable[[Tensor], np.ndarray], discount: float, gae_lambda: float,
         ratio_of: Callable[[Tensor, Chunk], np.ndarray] | None = None,
         max_ratio: float = 1.0) -> Transitions:
    """
    Join the chunks of one update and estimate their advantages with the current critic.

    Parameters
    ----------
    chunks : sequence of Chunk
        At least one; they may differ in T and N.
    normalize : callable
        float32 [..., O] raw → tensor [..., O] as the networks take it.
    value_of : callable
        Normalized tensor [..., O] → float32 array [...] in the unit of the return.
    discount, gae_lambda : float
        γ and λ.
    ratio_of : callable, optional
        Normalized tensor [T, N, O] and its chunk → float32 [T, N], current over behaviour policy:
        V-trace is used instead of GAE.
    max_ratio : float
        Of V-trace.

    """
    parts: dict[str, list] = {field.name: [] for field in dataclasses.fields(Transitions)}
    for chunk in chunks:
        observation = normalize(chunk.observation)
        value = value_of(observation)
        final_value = value_of(normalize(chunk.final_observation))
        following = next_values(value, chunk.terminated, final_value, chunk.final_index)
        steps = (chunk.reward, value[:-1], following, chunk.terminated | chunk.truncated)
        if ratio_of is None:
            advantage, target = gae(*steps, discount, gae_lambda)
        else:
            advantage, target = vtrace(*steps, ratio_of(observation[:-1], chunk), discount,
                                       gae_lambda, max_ratio)
        parts['observation'].append(observation[:-1].flatten(0, 1))
        parts['action'].append(_flat(chunk.action))
        parts['behaviour_log_prob'].append(_flat(chunk.behaviour_log_prob))
        parts['behaviour_parameters'].append(_flat(chunk.behaviour_parameters))
        parts['advantage'].append(_flat(advantage))
        parts['value'].append(_flat(value[:-1]))
        parts['value_target'].append(_flat(target))
    device = parts['observation'][0].device
    return Transitions(**{name: torch.cat(pieces).to(device) if name == 'observation'
                    else torch.from_numpy(np.concatenate(pieces)).to(device)
                    for name, pieces in parts.items()})


def _flat(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1, *array.shape[2:])

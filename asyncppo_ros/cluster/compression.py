"""
How the gradients of all ranks become one: their sum as it is, or compressed by torch's own hooks.

The hooks are those of ``torch.distributed.algorithms.ddp_comm_hooks``.  DistributedDataParallel,
for which they are made, would bind them to autograd; they ask no more of it than a bucket, and
here the bucket is the flat gradient, whoever has written it.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import powerSGD_hook, PowerSGDState
from torch.distributed.algorithms.ddp_comm_hooks.quantization_hooks import (
    quantization_pertensor_hook,
)

from asyncppo_ros.config import LearnerConfig

# The least with which PowerSGD remembers what it has left out.
FIRST_POWERSGD_STEP = 2
HOOKS: dict[str, Callable[..., Any]] = {
    'bf16': bf16_compress_hook, 'powersgd': powerSGD_hook,
    'quantized': quantization_pertensor_hook}


class Reduction(Protocol):
    """Makes the sum over all ranks of a gradient and some numbers, in place."""

    def reduce(self) -> None:
        """Replace the parts of this rank by the sums; every rank has to call it."""

    def forget(self) -> None:
        """Begin anew: what was remembered of earlier gradients is not so any more."""


def reduction_for(config: LearnerConfig, group: dist.ProcessGroup, whole: Tensor, size: int,
                  parameters: Sequence[Tensor]) -> Reduction:
    """
    Give what ``learner.gradient_compression`` asks for.

    Parameters
    ----------
    config : LearnerConfig
    group : ProcessGroup
        Of all ranks.
    whole : float [size + numbers]
        The gradient, then the numbers, which are never compressed.
    size : int
        Of the gradient.
    parameters : sequence of float tensors
        Whose gradient it is, for their shapes.

    """
    if config.gradient_compression == 'none':
        return Plain(group, whole)
    state: Any = group
    if config.gradient_compression == 'powersgd':
        state = PowerSGDState(
            group, matrix_approximation_rank=config.powersgd_rank,
            start_powerSGD_iter=max(FIRST_POWERSGD_STEP, config.powersgd_start),
            # Where all entries of a column are 0 it would be divided by 0.
            orthogonalization_epsilon=1e-8)
    return Compressed(group, Bucket(whole[:size], parameters), whole[size:],
                      HOOKS[config.gradient_compression], state)


class Plain:
    """One sum of everything; see `reduction_for`."""

    def __init__(self, group: dist.ProcessGroup, whole: Tensor) -> None:
        self._group = group
        self._whole = whole

    def reduce(self) -> None:
        """Make the sum."""
        dist.all_reduce(self._whole, group=self._group)

    def forget(self) -> None:
        """Do nothing: nothing is remembered."""


class Bucket:
    """
    The flat gradient, as a hook of torch asks for it (`torch.distributed.GradBucket`).

    Parameters
    ----------
    gradient : float [W]
    parameters : sequence of float tensors
        Of W numbers in all.

    """

    def __init__(self, gradient: Tensor, parameters: Sequence[Tensor]) -> None:
        self._gradient = gradient
        self._parameters = [parameter for parameter in parameters if parameter.numel()]
        sizes = [parameter.numel() for parameter in self._parameters]
        self._gradients = [part.view(parameter.shape) for part, parameter
                           in zip(gradient.split(sizes), self._parameters)]

    def index(self) -> int:
        """Give 0: there is one bucket."""
        return 0

    def is_last(self) -> bool:
        """Give True."""
        return True

    def buffer(self) -> Tensor:
        """Give [W]."""
        return self._gradient

    def gradients(self) -> list[Tensor]:
        """Give views of it, of the shapes of the parameters."""
        return self._gradients

    def parameters(self) -> list[Tensor]:
        """Give what these are the gradients of."""
        return self._parameters


class Compressed:
    """
    A gradient that goes through a hook of torch; the numbers go as they are.

    Parameters
    ----------
    group : ProcessGroup
    bucket : Bucket
    numbers : float [n]
    hook : callable
        Starts to replace the gradient by its mean over all ranks.
    state : PowerSGDState or ProcessGroup
        The hook's own.

    """

    def __init__(self, group: dist.ProcessGroup, bucket: Bucket, numbers: Tensor,
                 hook: Callable[..., Any], state: Any) -> None:
        self._group = group
        self._bucket = bucket
        self._numbers = numbers
        self._hook = hook
        self._state = state

    def reduce(self) -> None:
        """Make both sums."""
        gradient = self._bucket.buffer()
        # Integers have no NaN: that a gradient was not finite is told by the numbers.
        self._numbers += 0.0 * gradient.sum()
        torch.nan_to_num_(gradient, 0.0, 0.0, 0.0)
        counting = dist.all_reduce(self._numbers, group=self._group, async_op=True)
        mean = self._hook(self._state, self._bucket).wait()
        counting.wait()
        torch.mul(mean.view_as(gradient), float(self._group.size()), out=gradient)

    def forget(self) -> None:
        """Leave behind what PowerSGD has left out so far, and the matrices it goes on from."""
        if isinstance(self._state, PowerSGDState):
            for memory in (self._state.error_dict, self._state.p_memory_dict,
                           self._state.q_memory_dict):
                memory.clear()

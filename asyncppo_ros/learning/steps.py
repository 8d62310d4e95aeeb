"""Which way of making gradient steps a learner takes."""

from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from asyncppo_ros.config import LearnerConfig
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.learning.numpy_steps import NumpySteps
from asyncppo_ros.learning.samples import Samples, Scheduled
from asyncppo_ros.learning.torch_steps import TorchSteps
from asyncppo_ros.policy.distributions import TanhGaussian
from asyncppo_ros.policy.network import ActorCritic

Minibatch = TypeVar('Minibatch')
# Multiplications of weights in one forward pass of a minibatch, above which several threads of
# torch are worth more than fewer calls.
MOST_FOR_ONE_THREAD = 30_000_000


class Steps(Protocol[Minibatch]):
    """Makes gradient steps on a network with an optimizer."""

    def begin_update(self) -> None:
        """Take over parameters and the state of the optimizer as they are."""

    def minibatches(self, samples: Samples, order: Tensor) -> Iterator[Minibatch]:
        """Give the samples in an order, int64 [B] on the CPU, a minibatch at a time."""

    def step(self, minibatch: Minibatch, scheduled: Scheduled) -> Tensor:
        """Make one step of the optimizer and give its `STEP_NUMBERS`, [8]."""


def steps_for(config: LearnerConfig, network: ActorCritic,
              optimizer: torch.optim.Adam) -> Steps[Any]:
    """
    Give what makes the gradient steps, as `learner.gradients` has it.

    Raises
    ------
    ConfigError
        ``numpy`` was asked for, and there is no such derivative.

    """
    parameters = list(network.parameters())
    possible = (parameters[0].device.type == 'cpu'
                and isinstance(network.distribution, TanhGaussian)
                and config.ppo.objective != 'misread_dual_clip')
    if config.gradients == 'numpy' and not possible:
        raise ConfigError('learner.gradients = numpy: needs learner.device = cpu, a box of '
                          'actions, and the objective clipped or decoupled; use auto or torch')
    work = config.ppo.minibatch_size * sum(parameter.numel() for parameter in parameters)
    small = torch.get_num_threads() == 1 or work <= MOST_FOR_ONE_THREAD
    if possible and (config.gradients == 'numpy' or (config.gradients == 'auto' and small)):
        return NumpySteps(network, optimizer, config.ppo)
    return TorchSteps(network, optimizer, config.ppo)

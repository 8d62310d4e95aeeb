"""Which way of making gradient steps a learner takes."""

from collections.abc import Iterator
import os
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

    def measured(self) -> dict[str, float]:
        """Give metrics of its own, of all steps since the last call."""

    def close(self) -> None:
        """Give back what is held; no step follows."""


def steps_for(config: LearnerConfig, network: ActorCritic, optimizer: torch.optim.Adam,
              logs: str = '') -> Steps[Any]:
    """
    Give what makes the gradient steps, as `learner.gradients` and `learner.ranks` have it.

    Parameters
    ----------
    config : LearnerConfig
    network : ActorCritic
    optimizer : torch.optim.Adam
    logs : str
        Folder for the logs of other ranks; empty = they write to where this process does.

    Raises
    ------
    ConfigError
        ``numpy`` was asked for, and there is no such derivative; or the number of ranks is not
        that of those which are there.
    RankError
        The other ranks did not come.

    """
    steps = _own_steps(config, network, optimizer)
    if config.ranks == 1 and os.environ.get('WORLD_SIZE', '1') == '1':
        return steps
    from asyncppo_ros.cluster.data_parallel import ranked
    return ranked(steps, config, network, optimizer, logs)


def _own_steps(config: LearnerConfig, network: ActorCritic,
               optimizer: torch.optim.Adam) -> NumpySteps | TorchSteps:
    """Give what makes the gradient steps of this process."""
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

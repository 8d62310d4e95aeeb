"""
Data-parallel gradient steps: every rank takes its share of every minibatch.

Rank 0 is the learner, with all that a learner has: batches, normalizers, learning rate, order of
the samples, metrics, checkpoints.  The other ranks have the same network and optimizer, and know
nothing but what rank 0 orders:

::

    NETWORK      make a network like mine
    AGREE        take my parameters and, where they may differ, my moments of Adam
    SHARES       here are your samples of the minibatches of an epoch
    STEP         your part of the gradient; we add all parts, and all make the same step

A gradient is a weighted sum over the samples of a minibatch.  So the parts of all ranks add up to
the one that a single learner would find, whatever the sizes of their shares.
"""

from collections.abc import Iterator, Mapping
import dataclasses
import os
from typing import Any

import torch
from torch import Tensor

from asyncppo_ros.cluster.rank_steps import positions, RankSteps, Share, table_of, Widths
from asyncppo_ros.cluster.ranks import (
    check_gpus,
    joined,
    LEAVE,
    met,
    outside,
    Ranks,
    started,
)
from asyncppo_ros.config import LearnerConfig, PolicyConfig
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.learning.numpy_steps import NumpySteps
from asyncppo_ros.learning.samples import Samples, Scheduled
from asyncppo_ros.learning.torch_steps import TorchSteps
from asyncppo_ros.policy.distributions import Categorical, TanhGaussian
from asyncppo_ros.policy.network import ActorCritic, linear_layers
from asyncppo_ros.settings import build, to_dict

NETWORK, AGREE, SHARES, STEP = 1.0, 2.0, 3.0, 4.0


def ranked(steps: NumpySteps | TorchSteps, config: LearnerConfig, network: ActorCritic,
           optimizer: torch.optim.Adam, logs: str = '') -> 'RankedSteps | NumpySteps | TorchSteps':
    """
    Meet the other ranks, or start them, and give the steps that are made with them.

    Parameters
    ----------
    steps : NumpySteps or TorchSteps
        Of this rank, which is rank 0.
    config : LearnerConfig
    network : ActorCritic
    optimizer : torch.optim.Adam
    logs : str
        Folder for the logs of those that are started.

    Raises
    ------
    ConfigError, RankError
        See `check_ranks`, `ranks.started`, `ranks.met`.

    """
    device = network.log_std.device
    check_ranks(config, device)
    if config.ranks == 1:
        return steps
    ranks = met(device) if outside() else started(config.ranks, device, logs)
    return RankedSteps(ranks, steps, network, optimizer, config)


def check_ranks(config: LearnerConfig, device: torch.device,
                environment: Mapping[str, str] = os.environ) -> None:
    """
    Refuse what the ranks of a learner cannot do.

    Parameters
    ----------
    config : LearnerConfig
    device : torch.device
        Of the networks.
    environment : mapping from str to str
        Says how many ranks others have started.

    Raises
    ------
    ConfigError
        ``learner.ranks`` is not how many there are, or more than there are GPUs for, or there is
        no such compression on this device.

    """
    there = outside(environment)
    if there and there != config.ranks:
        raise ConfigError(f'learner.ranks = {config.ranks}: WORLD_SIZE = {there} says how many '
                          f'there are; set both the same, or unset WORLD_SIZE')
    if config.ranks == 1:
        return
    if config.gradient_compression == 'quantized' and device.type != 'cuda':
        # The hook takes the results of NCCL apart, which gloo gives in another form.
        raise ConfigError('learner.gradient_compression = quantized: needs learner.device = cuda; '
                          'on a CPU use none, bf16 or powersgd')
    if not there:
        check_gpus(config.ranks, device)


class RankedSteps:
    """
    Makes gradient steps together with other ranks: the `Steps` of rank 0.

    Parameters
    ----------
    ranks : Ranks
    steps : NumpySteps or TorchSteps
        Of this rank.
    network : ActorCritic
    optimizer : torch.optim.Adam
    config : LearnerConfig

    """

    def __init__(self, ranks: Ranks, steps: NumpySteps | TorchSteps, network: ActorCritic,
                 optimizer: torch.optim.Adam, config: LearnerConfig) -> None:
        way = 'numpy' if isinstance(steps, NumpySteps) else 'torch'
        ranks.order_with(NETWORK, _facts(network, optimizer,
                                         dataclasses.replace(config, gradients=way)))
        self._ranks = ranks
        self._own = RankSteps(ranks, steps, network, optimizer, config)
        self._minibatch_size = config.ppo.minibatch_size
        self._agreed = False
        self._moments_differ = True
        self._known: list[Tensor] = []
        self._sent = ranks.sent.sent()
        self._steps = 0

    def begin_update(self) -> None:
        """Take over parameters and the state of the optimizer as they are, on every rank."""
        # A state that was restored or put back lies in other memory, and what was known is
        # still held, so that its memory is not used again.
        places = [moment.data_ptr() for moment in self._own.moments()]
        self._moments_differ |= places != [moment.data_ptr() for moment in self._known]
        self._own.begin_update()
        self._known = self._own.moments()
        # The learner changes the last layer of its critic before the first step.
        self._agreed = False

    def minibatches(self, samples: Samples, order: Tensor) -> Iterator[Share]:
        """Give the samples in an order, int64 [B] on the CPU, and each rank its shares of them."""
        if not self._agreed:
            self._agree()
        table, widths = table_of(samples, order, self._minibatch_size)
        places = [positions(len(order), self._minibatch_size, rank, self._ranks.size)
                  for rank in range(self._ranks.size)]
        self._ranks.order(SHARES, len(order), *widths[:3], widths.weight)
        self._ranks.send([table[place] for place in places[1:]])
        self._own.take_shares(table[places[0]], widths, len(order))
        return self._own.shares

    def step(self, share: Share, scheduled: Scheduled) -> Tensor:
        """Make one step of the optimizer on every rank and give its `STEP_NUMBERS`, [8]."""
        self._ranks.order(STEP, *scheduled)
        self._steps += 1
        return self._own.step(share, scheduled)

    def measured(self) -> dict[str, float]:
        """Give what this rank has sent of gradients since the last call, where it is known."""
        steps, self._steps = self._steps, 0
        if not self._ranks.sent or not steps:
            return {}
        before, self._sent = self._sent, self._ranks.sent.sent()
        return {'gradient_bytes': (self._sent - before) / steps}

    def close(self) -> None:
        """Let the other ranks end."""
        self._ranks.close()

    def _agree(self) -> None:
        """Make all ranks equal to this one; moments only where they may have changed."""
        count = self._own.count()
        self._ranks.order(AGREE, self._moments_differ, count)
        self._own.agree(self._moments_differ, count)
        self._agreed, self._moments_differ = True, False


def take_part(meeting: str, rank: str, ranks: str) -> None:
    """
    Be another rank than 0, until rank 0 ends.

    Parameters
    ----------
    meeting, rank, ranks : str
        What rank 0 said where it has started this process; empty = the environment says it.

    Raises
    ------
    RankError
        Rank 0 did not come, or is gone.

    """
    all_ranks = joined(meeting, int(rank), int(ranks)) if meeting else met()
    try:
        serve(all_ranks)
    finally:
        all_ranks.close()


def serve(ranks: Ranks) -> None:
    """
    Do what rank 0 orders until it says that this is the end.

    Raises
    ------
    RankError
        Rank 0 or another one is gone.

    """
    own: RankSteps | None = None
    while True:
        kind, *numbers = ranks.hear()
        if kind == LEAVE:
            return
        if kind == NETWORK:
            own = _made(ranks, ranks.hear_facts(int(numbers[0])))
            continue
        assert own is not None, 'no network was ordered'
        if kind == AGREE:
            own.agree(bool(numbers[0]), int(numbers[1]))
        elif kind == SHARES:
            count, observation, critic, action, weight = map(int, numbers[:5])
            widths = Widths(observation, critic, action, weight=weight)
            own.receive_shares(widths, count)
        elif kind == STEP:
            own.step(next(own.shares), Scheduled(*numbers[:3]))


def _facts(network: ActorCritic, optimizer: torch.optim.Adam,
           config: LearnerConfig) -> dict[str, Any]:
    """Give all that another rank needs to make the same network and optimizer, JSON types."""
    inputs = [linear_layers(part)[0].in_features for part in (network.policy, network.critic)]
    outputs = linear_layers(network.policy)[-1].out_features
    group = optimizer.param_groups[0]
    return {'policy': to_dict(network.config), 'learner': to_dict(config),
            'observation_size': inputs[0], 'critic_size': inputs[1] - inputs[0],
            'outputs': outputs, 'categorical': isinstance(network.distribution, Categorical),
            'adam': {name: group[name] for name in ('lr', 'betas', 'eps', 'fused')},
            'dtype': str(network.log_std.dtype).removeprefix('torch.'),
            'threads': torch.get_num_threads()}


def _made(ranks: Ranks, facts: Mapping[str, Any]) -> RankSteps:
    """Make the network of rank 0, its optimizer and its steps; it has other weights so far."""
    torch.set_num_threads(facts['threads'])
    config = build(LearnerConfig, facts['learner'])
    outputs = facts['outputs']
    network = ActorCritic(
        facts['observation_size'], outputs,
        Categorical(outputs) if facts['categorical'] else TanhGaussian(),
        build(PolicyConfig, facts['policy']), torch.Generator(), facts['critic_size'])
    network.to(ranks.device, getattr(torch, facts['dtype']))
    optimizer = torch.optim.Adam(network.parameters(), **facts['adam'])
    steps = NumpySteps if config.gradients == 'numpy' else TorchSteps
    return RankSteps(ranks, steps(network, optimizer, config.ppo), network, optimizer, config)

"""What each rank does of a gradient step: its part, the sum of all parts, and the step."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from asyncppo_ros.cluster.compression import reduction_for
from asyncppo_ros.cluster.ranks import Ranks
from asyncppo_ros.config import LearnerConfig
from asyncppo_ros.learning.samples import Samples, Scheduled, STEP_NUMBERS
from asyncppo_ros.policy.network import ActorCritic

# Of all numbers but the norm, which every rank finds by itself: whether it is a mean over the
# samples as they count in the loss, or over all alike.
NUMBERS = tuple(name for name in STEP_NUMBERS if name != 'gradient_norm')
OVER_ALL_ALIKE = ('approx_kl', 'clip_fraction', 'dual_clip_fraction')

MinibatchT = TypeVar('MinibatchT')


class DivisibleSteps(Protocol[MinibatchT]):
    """Gradient steps in two halves, between which gradients are added up."""

    def begin_update(self) -> None:
        """Take over parameters and the state of the optimizer as they are."""

    def minibatch_of(self, samples: Samples) -> MinibatchT:
        """Give samples as they lie as one minibatch."""

    def differentiate(self, minibatch: MinibatchT,
                      scheduled: Scheduled) -> tuple[float | Tensor, ...]:
        """Write the gradient of the loss, and give the `NUMBERS`."""

    def give_gradient(self, flat: Tensor) -> None:
        """Copy the gradient of the whole network to [W]."""

    def take_gradient(self, flat: Tensor) -> None:
        """Use [W] as the gradient."""

    def descend(self, step_size: float) -> float | Tensor:
        """Make one step along the gradient, and give its norm before it is scaled down."""


class Share(NamedTuple):
    """
    What a rank has of a minibatch.

    Attributes
    ----------
    minibatch : Any
        As the steps of the rank take it; None = it has no sample of this one.
    part : float []
        Weight of its samples in the loss, of that of the whole minibatch.
    parts : float [7]
        What each of its `NUMBERS` counts in those of the whole minibatch.

    """

    minibatch: Any
    part: Tensor
    parts: Tensor


class Widths(NamedTuple):
    """Columns of the fields of `Samples`; `weight` is 0 where all samples count the same."""

    observation: int
    critic_observation: int
    action: int
    reference: int = 1
    advantage: int = 1
    target: int = 1
    lag: int = 1
    weight: int = 0


class RankSteps:
    """
    What every rank does: its part of the gradient, the sum of all parts, and the step.

    Parameters
    ----------
    ranks : Ranks
    steps : NumpySteps or TorchSteps
    network : ActorCritic
    optimizer : torch.optim.Adam
    config : LearnerConfig

    Attributes
    ----------
    shares : iterator of Share
        Of this rank, that are still to come in this epoch.

    """

    def __init__(self, ranks: Ranks, steps: DivisibleSteps[Any], network: ActorCritic,
                 optimizer: torch.optim.Adam, config: LearnerConfig) -> None:
        self.shares: Iterator[Share] = iter(())
        self._ranks = ranks
        self._steps = steps
        self._optimizer = optimizer
        self._minibatch_size = config.ppo.minibatch_size
        self._parameters = list(network.parameters())
        size = sum(parameter.numel() for parameter in self._parameters)
        first = self._parameters[0]
        whole = torch.zeros(size + len(NUMBERS), dtype=first.dtype, device=first.device)
        self._gradient, self._numbers = whole[:size], whole[size:]
        self._alike = torch.tensor([name in OVER_ALL_ALIKE for name in NUMBERS],
                                   device=first.device)
        self._reduction = reduction_for(config, ranks.gradients, whole, size, self._parameters)

    def begin_update(self) -> None:
        """Take over parameters and the state of the optimizer as they are."""
        self._steps.begin_update()

    def moments(self) -> list[Tensor]:
        """Give the moments of Adam, none before its first step."""
        state = self._optimizer.state
        return [state[parameter][name] for name in ('exp_avg', 'exp_avg_sq')
                for parameter in self._parameters if name in state.get(parameter, {})]

    def count(self) -> int:
        """Give the steps that Adam has made."""
        slots = [slot for slot in self._optimizer.state.values() if 'step' in slot]
        return int(slots[0]['step']) if slots else 0

    @torch.no_grad()
    def agree(self, with_moments: bool, count: int) -> None:
        """
        Become equal to rank 0.

        Parameters
        ----------
        with_moments : bool
            Not the parameters alone.
        count : int
            Of the steps that Adam has made.

        """
        self._share(self._parameters)
        if not with_moments:
            return
        self._reduction.forget()
        moments = [] if self._ranks.rank else self.moments()
        # Where there are none yet, Adam would begin with zeros.
        moments = moments or [torch.zeros_like(parameter) for parameter
                              in (*self._parameters, *self._parameters)]
        self._share(moments)
        if self._ranks.rank:
            self._set_moments(moments, count)

    def receive_shares(self, widths: Widths, count: int) -> None:
        """Take samples for an epoch from rank 0; see `take_shares`."""
        rows = len(positions(count, self._minibatch_size, self._ranks.rank, self._ranks.size))
        table = self._numbers.new_empty((rows, sum(widths)))
        self._ranks.receive(table)
        self.take_shares(table, widths, count)

    def take_shares(self, table: Tensor, widths: Widths, count: int) -> None:
        """
        Take samples for an epoch.

        Parameters
        ----------
        table : float [rows, columns]
            Of this rank, minibatch after minibatch.
        widths : Widths
        count : int
            Samples of all ranks.

        """
        columns = [part.contiguous() for part in table.split(list(widths), 1)]
        fields = [*columns[:3], *(column[:, 0] for column in columns[3:7]),
                  columns[7][:, 0] if widths.weight else None]
        self.shares = self._divided(Samples(*fields), count)

    def step(self, share: Share, scheduled: Scheduled) -> Tensor:
        """Make one step of the optimizer and give its `STEP_NUMBERS`, [8]."""
        if share.minibatch is None:
            self._gradient.zero_()
            self._numbers.zero_()
        else:
            numbers = self._steps.differentiate(share.minibatch, scheduled)
            self._steps.give_gradient(self._gradient)
            self._gradient *= share.part
            torch.mul(torch.stack([torch.as_tensor(number, dtype=share.parts.dtype)
                                   for number in numbers]), share.parts, out=self._numbers)
        self._ranks.told(self._reduction.reduce)
        self._steps.take_gradient(self._gradient)
        norm = torch.as_tensor(self._steps.descend(scheduled.step_size)).reshape(1)
        return torch.cat((self._numbers[:-1], norm.to(self._numbers), self._numbers[-1:]))

    def _divided(self, samples: Samples, count: int) -> Iterator[Share]:
        """Give the shares of this rank, where the samples of all of them are these."""
        begin = 0
        for whole in _sizes(count, self._minibatch_size):
            size = len(_places(whole, self._ranks.rank, self._ranks.size))
            own = _rows(samples, begin, begin + size)
            begin += size
            alike = self._numbers.new_tensor(size / whole)
            part = alike if own.weight is None else own.weight.sum()
            yield Share(self._steps.minibatch_of(own) if size else None, part,
                        torch.where(self._alike, alike, part))

    def _share(self, tensors: Sequence[Tensor]) -> None:
        """Make tensors what they are at rank 0."""
        flat = torch.cat([tensor.detach().flatten() for tensor in tensors])
        self._ranks.share(flat)
        if self._ranks.rank:
            for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors])):
                tensor.copy_(part.view(tensor.shape))

    def _set_moments(self, moments: Sequence[Tensor], count: int) -> None:
        half = len(self._parameters)
        for parameter, first, second in zip(self._parameters, moments[:half], moments[half:]):
            self._optimizer.state[parameter] = {
                'step': torch.tensor(float(count), device=parameter.device),
                'exp_avg': first, 'exp_avg_sq': second}
        self._steps.begin_update()


def positions(count: int, minibatch_size: int, rank: int, ranks: int) -> np.ndarray:
    """
    Say which samples of an epoch a rank takes: of every minibatch its part.

    Returns
    -------
    int64 [n]
        Places in the order of the epoch.

    """
    places = [np.asarray(_places(size, rank, ranks)) + number * minibatch_size
              for number, size in enumerate(_sizes(count, minibatch_size))]
    return np.concatenate(places).astype(np.int64)


def table_of(samples: Samples, order: Tensor, minibatch_size: int) -> tuple[Tensor, Widths]:
    """
    Lay samples out for being sent, a row each, in an order, int64 [B] on the CPU.

    Their weights become those within the whole minibatch, whose sum is 1: no rank knows the
    samples of the others.

    Returns
    -------
    table : float [B, columns]
    widths : Widths

    """
    fields = [field.reshape(len(order), -1) for field in samples[:-1] if field is not None]
    place = order.to(samples.action.device)
    if samples.weight is not None:
        weight = torch.empty_like(samples.weight)
        tiny = torch.finfo(weight.dtype).tiny
        for part in place.split(minibatch_size):
            weight[part] = samples.weight[part] / samples.weight[part].sum().clamp(min=tiny)
        fields.append(weight[:, None])
    widths = Widths(*(field.shape[1] for field in fields))
    return torch.cat(fields, 1)[place], widths


def _rows(samples: Samples, begin: int, end: int) -> Samples:
    fields = {name: field[begin:end] for name, field in samples._asdict().items()
              if field is not None}
    return Samples(**fields)


def _sizes(count: int, minibatch_size: int) -> list[int]:
    """Give how many samples each minibatch of an epoch has."""
    return [min(minibatch_size, count - begin) for begin in range(0, count, minibatch_size)]


def _places(size: int, rank: int, ranks: int) -> range:
    """Give which samples of a minibatch a rank takes: as many as the others, or one more."""
    least, more = divmod(size, ranks)
    begin = rank * least + min(rank, more)
    return range(begin, begin + least + (rank < more))

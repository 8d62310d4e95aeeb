"""
Gradient steps written out by hand in numpy: for a Gaussian policy on a CPU.

With networks as small as those of robots, autograd is busy with calls, not with numbers: a step
that needs 0.3 ms for its matrices takes several times that.  Here stands the same derivative of
the same loss, checked against autograd by the tests.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from asyncppo_ros.config import PpoConfig
from asyncppo_ros.learning.losses import MAX_LOG_RATIO
from asyncppo_ros.learning.perceptron import Perceptron
from asyncppo_ros.learning.samples import Samples, Scheduled
from asyncppo_ros.policy.distributions import LOG_2PI
from asyncppo_ros.policy.network import ActorCritic, linear_layers

Array = npt.NDArray[np.floating]


class Arrays(NamedTuple):
    """`Samples` in numpy."""

    observation: Array
    critic_observation: Array
    action: Array
    reference: Array
    advantage: Array
    target: Array
    lag: Array
    weight: Array | None = None


class NumpySteps:
    """
    Makes gradient steps; parameters and moments of Adam become views of four flat arrays.

    Parameters
    ----------
    network : ActorCritic
        Is trained; a Gaussian policy, on the CPU.
    optimizer : torch.optim.Adam
        Of its parameters: its state is read and written, so that checkpoints are those of torch.
    ppo : PpoConfig

    """

    def __init__(self, network: ActorCritic, optimizer: torch.optim.Adam,
                 ppo: PpoConfig) -> None:
        self._policy_config = network.config
        self._ppo = ppo
        parameters = list(network.parameters())
        dtype = parameters[0].detach().numpy().dtype
        size = sum(parameter.numel() for parameter in parameters)
        #: float [W] of the whole network, as `network.parameters` orders it.
        self.gradient = np.zeros(size, dtype)
        gradients = dict(zip(map(id, parameters),
                             _views(torch.from_numpy(self.gradient), parameters)))
        self._adam = _FlatAdam(parameters, optimizer, self.gradient)
        self._policy, self._critic = (
            _perceptron(network, part, gradients) for part in (network.policy, network.critic))
        self._log_std = network.log_std.detach().numpy()
        self._log_std_gradient = gradients[id(network.log_std)].numpy()
        self._half = np.full(len(self._log_std), -0.5, dtype)
        self._uniform = np.empty(0, dtype)

    def begin_update(self) -> None:
        """Take over the state of the optimizer, which may have been loaded or put back."""
        self._adam.take_over()
        self._bound_log_std()

    def minibatches(self, samples: Samples, order: Tensor) -> Iterator[Arrays]:
        """Give the samples in an order, int64 [B], a minibatch at a time."""
        # Shuffled as a whole, so that each minibatch is a view.
        index, size = order.numpy(), self._ppo.minibatch_size
        arrays = [tensor.numpy().take(index, 0) for tensor in samples if tensor is not None]
        return (Arrays(*(array[begin:begin + size] for array in arrays))
                for begin in range(0, len(index), size))

    def minibatch_of(self, samples: Samples) -> Arrays:
        """Give samples as they lie as one minibatch."""
        return Arrays(**{name: tensor.numpy() for name, tensor in samples._asdict().items()
                         if tensor is not None})

    def step(self, samples: Arrays, scheduled: Scheduled) -> Tensor:
        """
        Make one step of Adam.

        Returns
        -------
        float64 [8]
            The `STEP_NUMBERS`.

        """
        *numbers, loss = self.differentiate(samples, scheduled)
        norm = self.descend(scheduled.step_size)
        return torch.tensor((*numbers, norm, loss), dtype=torch.float64)

    def differentiate(self, samples: Arrays, scheduled: Scheduled) -> tuple[float, ...]:
        """
        Write the gradient of the loss.

        Returns
        -------
        tuple of float [7]
            The `STEP_NUMBERS` without the norm of the gradient.

        """
        ppo = self._ppo
        weight = self._weights(samples)
        policy_loss, clipped, dual_clipped, kl = self._policy_gradient(
            samples, weight, scheduled.clip_ratio)
        value_loss = self._value_gradient(samples, weight)
        total = weight.sum()
        entropy = total * (self._log_std.sum() + len(self._log_std) * 0.5 * (1.0 + LOG_2PI))
        self._log_std_gradient -= scheduled.entropy_coefficient * total
        loss = (policy_loss + ppo.value_coefficient * value_loss
                - scheduled.entropy_coefficient * entropy)
        return policy_loss, value_loss, entropy, kl, clipped, dual_clipped, loss

    def descend(self, step_size: float) -> float:
        """Make one step along the gradient, and give its norm before it is scaled down."""
        norm = float(np.sqrt(np.dot(self.gradient, self.gradient)))
        # As `torch.nn.utils.clip_grad_norm_` has it.
        scale = self._ppo.max_gradient_norm / (norm + 1e-6)
        if scale < 1.0:
            self.gradient *= scale
        self._adam.step(step_size)
        self._bound_log_std()
        return norm

    def give_gradient(self, flat: Tensor) -> None:
        """Copy the gradient of the whole network to [W]."""
        flat.copy_(torch.from_numpy(self.gradient))

    def take_gradient(self, flat: Tensor) -> None:
        """Copy it back from [W]."""
        torch.from_numpy(self.gradient).copy_(flat)

    def measured(self) -> dict[str, float]:
        """Give no further metrics."""
        return {}

    def close(self) -> None:
        """Hold nothing."""

    def _policy_gradient(self, samples: Arrays, weight: Array,
                         clip_ratio: float) -> tuple[float, float, float, float]:
        """
        Write the gradients of the policy.

            ∂loss/∂log π = -w A ρ where the ratio is not bounded, else 0
            ∂log π/∂μ = (u - μ) / σ²,   ∂log π/∂log σ = ((u - μ) / σ)² - 1

        Returns
        -------
        policy_loss, clip_fraction, dual_clip_fraction, approx_kl : float

        """
        advantage = samples.advantage
        mean = self._policy.forward(samples.observation)
        inverse = np.exp(-self._log_std)
        noise = (samples.action - mean) * inverse
        square = noise * noise
        raw = (np.dot(square, self._half) - samples.reference
               - (self._log_std.sum() + len(self._log_std) * 0.5 * LOG_2PI))
        log_ratio = np.minimum(np.maximum(raw, -MAX_LOG_RATIO), MAX_LOG_RATIO)
        ratio = np.exp(log_ratio)
        low, high = ratio_bounds(self._ppo, advantage, samples.lag, clip_ratio)
        bounded = np.minimum(np.maximum(ratio, low), high)
        weighted = weight * advantage
        # Written so that a NaN stays one.
        slope = weighted * ratio * ((bounded == ratio) & (raw == log_ratio))
        np.dot(slope, 1.0 - square, out=self._log_std_gradient)
        noise *= inverse
        noise *= -slope[:, None]
        self._policy.backward(noise)
        count = len(ratio)
        above, below = ratio > high, ratio < low
        clipped = np.count_nonzero(above & (advantage > 0.0)) + np.count_nonzero(below)
        dual_clipped = np.count_nonzero(above & (advantage < 0.0))
        return (-float(np.dot(weighted, bounded)), clipped / count, dual_clipped / count,
                float((ratio - 1.0 - log_ratio).sum()) / count)

    def _value_gradient(self, samples: Arrays, weight: Array) -> float:
        """Write the gradients of the critic and give its loss."""
        inputs = samples.observation
        if samples.critic_observation.shape[-1]:
            inputs = np.concatenate((inputs, samples.critic_observation), axis=-1)
        error = self._critic.forward(inputs)[:, 0] - samples.target
        weighted = weight * error
        loss = 0.5 * float(np.dot(weighted, error))
        weighted *= self._ppo.value_coefficient
        self._critic.backward(weighted[:, None])
        return loss

    def _weights(self, samples: Arrays) -> Array:
        """Give what each sample counts in a mean, [B]; see `losses.weighted_mean`."""
        count = len(samples.action)
        if samples.weight is not None:
            weight = samples.weight
            return weight / max(weight.sum(), np.finfo(weight.dtype).tiny)
        if count != len(self._uniform):
            self._uniform = np.full(count, 1.0 / count, self.gradient.dtype)
        return self._uniform

    def _bound_log_std(self) -> None:
        """Do what `ActorCritic.bound_log_std` does."""
        np.maximum(self._log_std, self._policy_config.min_log_std, out=self._log_std)
        np.minimum(self._log_std, self._policy_config.max_log_std, out=self._log_std)


def ratio_bounds(ppo: PpoConfig, advantage: Array, lag: Array,
                 clip_ratio: float) -> tuple[Array, Array]:
    """
    Give between which ratios a sample has a gradient: the objective is A · clip(ρ, low, high).

    Parameters
    ----------
    ppo : PpoConfig
    advantage : float [B]
    lag : float [B]
        Of the policy that acted [versions].
    clip_ratio : float
        ε.

    Returns
    -------
    low, high : float [B]

    """
    cap: float | Array = ppo.dual_clip or np.inf
    if ppo.dual_clip and ppo.dual_clip_above_lag >= 0:
        cap = np.where(lag > ppo.dual_clip_above_lag, ppo.dual_clip, np.inf)
    dtype = advantage.dtype
    return (np.where(advantage < 0.0, 1.0 - clip_ratio, 0.0).astype(dtype, copy=False),
            np.where(advantage > 0.0, 1.0 + clip_ratio, cap).astype(dtype, copy=False))


class _FlatAdam:
    """Adam of torch, on one array instead of one for each parameter."""

    def __init__(self, parameters: list[torch.nn.Parameter], optimizer: torch.optim.Adam,
                 gradient: Array) -> None:
        self._parameters = parameters
        self._optimizer = optimizer
        self._gradient = gradient
        flat = torch.cat([parameter.detach().flatten() for parameter in parameters])
        for parameter, view in zip(parameters, _views(flat, parameters)):
            parameter.data = view
        self._values = flat.numpy()
        self._first, self._second, self._spare = (np.zeros_like(gradient) for _ in range(3))
        self._counts = np.zeros(len(parameters), np.float32)

    def take_over(self) -> None:
        """Let the moments be views of the flat arrays, with the numbers that they have."""
        state = self._optimizer.state
        for name, array in (('exp_avg', self._first), ('exp_avg_sq', self._second)):
            for parameter, view in zip(self._parameters,
                                       _views(torch.from_numpy(array), self._parameters)):
                slot = state[parameter]
                view.copy_(slot[name]) if name in slot else view.zero_()
                slot[name] = view
        for index, parameter in enumerate(self._parameters):
            slot, count = state[parameter], torch.from_numpy(self._counts)[index]
            count.copy_(slot['step']) if 'step' in slot else count.zero_()
            slot['step'] = count

    def step(self, step_size: float) -> None:
        """Make one step along the gradient."""
        group = self._optimizer.param_groups[0]
        first_decay, second_decay = group['betas']
        group['lr'] = step_size
        self._counts += 1.0
        steps = int(self._counts[0])
        spare = self._spare
        np.multiply(self._gradient, 1.0 - first_decay, out=spare)
        self._first *= first_decay
        self._first += spare
        np.multiply(self._gradient, self._gradient, out=spare)
        spare *= 1.0 - second_decay
        self._second *= second_decay
        self._second += spare
        np.sqrt(self._second, out=spare)
        spare *= (1.0 - second_decay ** steps) ** -0.5
        spare += group['eps']
        np.divide(self._first, spare, out=spare)
        spare *= step_size / (1.0 - first_decay ** steps)
        self._values -= spare


def _views(flat: Tensor, parameters: list[torch.nn.Parameter]) -> list[Tensor]:
    sizes = [parameter.numel() for parameter in parameters]
    return [part.view(parameter.shape)
            for part, parameter in zip(flat.split(sizes), parameters)]


def _perceptron(network: ActorCritic, part: torch.nn.Module,
                gradients: dict[int, Tensor]) -> Perceptron:
    layers = linear_layers(part)
    return Perceptron([layer.weight.detach().numpy() for layer in layers],
                      [layer.bias.detach().numpy() for layer in layers],
                      [gradients[id(layer.weight)].numpy() for layer in layers],
                      [gradients[id(layer.bias)].numpy() for layer in layers],
                      network.config.activation)

"""Gradient steps by torch's autograd: any distribution, any device."""

from collections.abc import Iterator

import torch
from torch import Tensor

from asyncppo_ros.config import PpoConfig
from asyncppo_ros.learning import losses
from asyncppo_ros.learning.samples import Samples, Scheduled
from asyncppo_ros.learning.transitions import on_device
from asyncppo_ros.policy.network import ActorCritic


class TorchSteps:
    """
    Makes gradient steps.

    Nothing is read from the device: a look at a number would let a GPU wait for Python.

    Parameters
    ----------
    network : ActorCritic
        Is trained.
    optimizer : torch.optim.Optimizer
        Of its parameters.
    ppo : PpoConfig

    """

    def __init__(self, network: ActorCritic, optimizer: torch.optim.Optimizer,
                 ppo: PpoConfig) -> None:
        self._network = network
        self._optimizer = optimizer
        self._ppo = ppo
        self._parameters = list(network.parameters())

    def begin_update(self) -> None:
        """Do nothing: whatever happened to the optimizer since the last update, it has."""

    def minibatches(self, samples: Samples, order: Tensor) -> Iterator[Samples]:
        """Give the samples in an order, int64 [B] on the CPU, a minibatch at a time."""
        # Shuffled as a whole, so that each minibatch is a view.
        order = on_device(order.numpy(), samples.action.device)
        pieces = [tensor[order].split(self._ppo.minibatch_size) for tensor in samples
                  if tensor is not None]
        return (Samples(*parts) for parts in zip(*pieces))

    def minibatch_of(self, samples: Samples) -> Samples:
        """Give samples as they lie as one minibatch."""
        return samples

    def step(self, samples: Samples, scheduled: Scheduled) -> Tensor:
        """
        Make one step of the optimizer.

        Returns
        -------
        float32 [8]
            The `STEP_NUMBERS`.

        """
        *numbers, loss = self.differentiate(samples, scheduled)
        norm = self.descend(scheduled.step_size)
        return torch.stack((*numbers, norm, loss))

    def differentiate(self, samples: Samples, scheduled: Scheduled) -> tuple[Tensor, ...]:
        """
        Write the gradient of the loss.

        Returns
        -------
        tuple of float32 []
            The `STEP_NUMBERS` without the norm of the gradient.

        """
        ppo, network = self._ppo, self._network
        parameters = network.parameters_of(samples.observation)
        log_prob = network.distribution.log_prob(parameters, samples.action)
        log_ratio = losses.log_ratio(log_prob, samples.reference)
        ratio = torch.exp(log_ratio)
        dual_clip = losses.dual_clip_by_lag(ppo.dual_clip, samples.lag, ppo.dual_clip_above_lag)
        policy_loss = -losses.weighted_mean(
            self.objective(ratio, samples.advantage, scheduled.clip_ratio, dual_clip),
            samples.weight)
        value = network.value(samples.observation, samples.critic_observation)
        value_loss = losses.weighted_mean(losses.value_loss(value, samples.target),
                                          samples.weight)
        coefficient = scheduled.entropy_coefficient
        # Without a weight it is a metric only.
        with torch.set_grad_enabled(coefficient != 0.0):
            entropy = losses.weighted_mean(network.distribution.entropy(parameters),
                                           samples.weight)
        loss = policy_loss + ppo.value_coefficient * value_loss - coefficient * entropy
        # As `zero_grad` of the optimizer, which takes as long as a layer.
        for parameter in self._parameters:
            parameter.grad = None
        loss.backward()
        with torch.no_grad():
            clip, dual = losses.clip_fractions(ratio, samples.advantage, scheduled.clip_ratio,
                                               dual_clip)
            return (policy_loss.detach(), value_loss.detach(), entropy.detach(),
                    losses.approx_kl(log_ratio), clip, dual, loss.detach())

    def descend(self, step_size: float) -> Tensor:
        """Make one step along the gradient, and give its norm before it is scaled down."""
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, self._ppo.max_gradient_norm)
        self._optimizer.param_groups[0]['lr'] = step_size
        self._optimizer.step()
        self._network.bound_log_std()
        return norm

    def give_gradient(self, flat: Tensor) -> None:
        """Copy the gradient of the whole network to [W]."""
        torch.cat([parameter.grad.flatten() for parameter in self._parameters
                   if parameter.grad is not None], out=flat)

    def take_gradient(self, flat: Tensor) -> None:
        """Use [W] as the gradient."""
        sizes = [parameter.numel() for parameter in self._parameters]
        for parameter, part in zip(self._parameters, flat.split(sizes)):
            parameter.grad = part.view(parameter.shape)

    def measured(self) -> dict[str, float]:
        """Give no further metrics."""
        return {}

    def close(self) -> None:
        """Hold nothing."""

    def objective(self, ratio: Tensor, advantage: Tensor, clip_ratio: float,
                  dual_clip: float | Tensor) -> Tensor:
        """Give the objective of the settings of every sample, [B] each → [B]."""
        if self._ppo.objective == 'misread_dual_clip':
            return losses.misread_dual_clip_objective(ratio, advantage, clip_ratio,
                                                      self._ppo.misread_clip)
        return losses.clipped_objective(ratio, advantage, clip_ratio, dual_clip)

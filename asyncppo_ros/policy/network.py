"""ActorCritic: normalized observation → parameters of the distribution, and value."""

import math

import numpy as np
import torch
from torch import nn, Tensor

from asyncppo_ros.config import PolicyConfig
from asyncppo_ros.policy.distributions import Distribution


class Tanh(nn.Module):
    """tanh of what nobody else needs any more: without gradients its memory is used again."""

    def forward(self, values: Tensor) -> Tensor:
        """Give tanh, of any shape."""
        if values.requires_grad or values.device.type != 'cpu':
            return torch.tanh(values)
        # On a CPU numpy takes a seventh of the time of torch.
        array = values.numpy()
        np.tanh(array, out=array)
        return values


ACTIVATIONS: dict[str, type[nn.Module]] = {'tanh': Tanh, 'elu': nn.ELU, 'relu': nn.ReLU}


class ActorCritic(nn.Module):
    """
    Two separate multi-layer perceptrons, and log σ of the action where it is a Gaussian.

    Parameters
    ----------
    observation_size, action_size : int
        O and A.
    distribution : Distribution
        Of the actions.
    config : PolicyConfig
        Widths, activation, bounds of log σ.
    generator : torch.Generator
        Source of the initial weights: orthogonal, gain √2, the last layer of the policy 0.01
        (so that the first policy is centred) and of the critic 1.
    critic_size : int
        C, the size of what only the critic sees.

    """

    def __init__(self, observation_size: int, action_size: int, distribution: Distribution,
                 config: PolicyConfig, generator: torch.Generator,
                 critic_size: int = 0) -> None:
        super().__init__()
        self.config = config
        self.distribution = distribution
        outputs = distribution.outputs(action_size)
        self.policy = _mlp([observation_size, *config.hidden_sizes, outputs],
                           config.activation, 0.01, generator)
        self.critic = _mlp([observation_size + critic_size, *config.critic_hidden_sizes, 1],
                           config.activation, 1.0, generator)
        self.log_std = nn.Parameter(
            torch.full((distribution.log_stds(action_size),), config.initial_log_std))

    def parameters_of(self, observation: Tensor) -> Tensor:
        """Give the parameters of the distribution, [..., O] → [..., P]."""
        head = self.policy(observation)
        log_std = self.clamped_log_std().expand(*head.shape[:-1], -1)
        return torch.cat((head, log_std), dim=-1)

    def value(self, observation: Tensor, critic_observation: Tensor | None = None) -> Tensor:
        """Give the (normalized) value, [..., O] and, where C > 0, [..., C] → [...]."""
        if critic_observation is not None and critic_observation.shape[-1]:
            observation = torch.cat((observation, critic_observation), dim=-1)
        return self.critic(observation).squeeze(-1)

    def clamped_log_std(self) -> Tensor:
        """Give log σ within its bounds, [A], or [0] where there is none."""
        return self.log_std.clamp(self.config.min_log_std, self.config.max_log_std)

    @torch.no_grad()
    def bound_log_std(self) -> None:
        """Put log σ back to its bounds: beyond them its gradient is 0, and it would stay there."""
        self.log_std.clamp_(self.config.min_log_std, self.config.max_log_std)

    @torch.no_grad()
    def policy_tensors(self) -> dict[str, np.ndarray]:
        """Give the tensors of the policy as an artefact names them, float32 copies."""
        tensors = {'distribution.log_std': _copied(self.clamped_log_std())}
        for index, layer in enumerate(linear_layers(self.policy)):
            tensors[f'policy.{index}.weight'] = _copied(layer.weight)
            tensors[f'policy.{index}.bias'] = _copied(layer.bias)
        return tensors

    @torch.no_grad()
    def critic_tensors(self) -> dict[str, np.ndarray]:
        """Give the tensors of the critic as an artefact names them, float32 copies."""
        tensors = {}
        for index, layer in enumerate(linear_layers(self.critic)):
            tensors[f'critic.{index}.weight'] = _copied(layer.weight)
            tensors[f'critic.{index}.bias'] = _copied(layer.bias)
        return tensors

    @torch.no_grad()
    def load_policy_tensors(self, tensors: dict[str, np.ndarray]) -> None:
        """Take the policy of an artefact; the shapes must fit."""
        self.log_std.copy_(torch.from_numpy(tensors['distribution.log_std'].copy()))
        for index, layer in enumerate(linear_layers(self.policy)):
            layer.weight.copy_(torch.from_numpy(tensors[f'policy.{index}.weight'].copy()))
            layer.bias.copy_(torch.from_numpy(tensors[f'policy.{index}.bias'].copy()))

    @torch.no_grad()
    def rescale_value(self, old_mean: float, old_std: float, new_mean: float,
                      new_std: float) -> None:
        """
        Keep every value V = mean + std · critic as it was while mean and std change.

        References
        ----------
        PopArt: van Hasselt et al. 2016, arXiv:1602.07714.

        """
        last = linear_layers(self.critic)[-1]
        last.weight.mul_(old_std / new_std)
        last.bias.mul_(old_std).add_(old_mean - new_mean).div_(new_std)


def linear_layers(module: nn.Module) -> list[nn.Linear]:
    return [layer for layer in module.modules() if isinstance(layer, nn.Linear)]


def _copied(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy().astype(np.float32, copy=True)


def _mlp(widths: list[int], activation: str, last_gain: float,
         generator: torch.Generator) -> nn.Sequential:
    layers: list[nn.Module] = []
    for index, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        layer = nn.Linear(inputs, outputs)
        is_last = index == len(widths) - 2
        nn.init.orthogonal_(layer.weight, last_gain if is_last else math.sqrt(2.0),
                            generator=generator)
        nn.init.zeros_(layer.bias)
        layers.append(layer)
        if not is_last:
            layers.append(ACTIVATIONS[activation]())
    return nn.Sequential(*layers)

"""
A PPO in a single file, as users of CleanRL run it; see `peer_script`.

Written after the published description of CleanRL's ``ppo_continuous_action`` (Huang et al. 2022,
Journal of Machine Learning Research 23(274)), with its hyper-parameters and its structure, in
plain torch around a vectorized environment of Gymnasium; none of its code is used.  Learning rate
3e-4, falling to 0 over the training; 2048 steps of each environment per update, 10 epochs of 32
minibatches, γ 0.99, λ 0.95, ratio and value clipped at 0.2, gradient norm at 0.5, networks of two
layers of 64 with tanh, orthogonal initialization, one standard deviation for all states; more
environments make larger minibatches.  Observations and rewards are normalized and clipped at 10,
here with one set of statistics for all environments, which costs less than one for each.
"""

import argparse
from collections.abc import Callable
import sys
from typing import Any

import numpy as np

NEEDS = ('torch', 'gymnasium', 'mujoco')
INSTALL = 'torch "gymnasium[mujoco]"'
VARIANTS = {'sync1': 1, 'sync8': 8}
RATE = ('sync1', 'sync8')
RETURN = ('sync1',)

SETTINGS: dict[str, Any] = {
    'learning_rate': 3e-4, 'num_steps': 2048, 'gamma': 0.99, 'gae_lambda': 0.95,
    'num_minibatches': 32, 'update_epochs': 10, 'clip_coef': 0.2, 'ent_coef': 0.0, 'vf_coef': 0.5,
    'max_grad_norm': 0.5, 'hidden': [64, 64]}


class Moments:
    """Running mean and variance over rows."""

    def __init__(self, *shape: int) -> None:
        self.mean, self.variance, self.count = np.zeros(shape), np.ones(shape), 1e-4

    def update(self, rows: np.ndarray) -> None:
        """Take rows, float [n, *shape], in."""
        count = self.count + len(rows)
        change = rows.mean(0) - self.mean
        spread = (self.variance * self.count + rows.var(0) * len(rows)
                  + change ** 2 * self.count * len(rows) / count)
        self.mean = self.mean + change * len(rows) / count
        self.variance, self.count = spread / count, count

    def scaled(self, rows: np.ndarray) -> np.ndarray:
        """Give rows with mean 0 and variance 1, clipped at 10."""
        return np.clip((rows - self.mean) / np.sqrt(self.variance + 1e-8), -10.0, 10.0)


def ppo(environments: Any, num_envs: int, steps_per_update: int, options: argparse.Namespace,
        progress: Any) -> Callable[[Any], Any]:
    """
    Train until it is enough.

    Parameters
    ----------
    environments : vectorized environment
        ``reset()`` and ``step(actions)`` as Gymnasium has them; resets by itself.
    num_envs, steps_per_update : int
        Steps of each environment.
    options : Namespace
    progress : Progress

    Returns
    -------
    act : callable

    """
    import torch
    from torch import nn

    def layer(inputs: int, outputs: int, gain: float = 2 ** 0.5) -> nn.Linear:
        result = nn.Linear(inputs, outputs)
        nn.init.orthogonal_(result.weight, gain)
        nn.init.zeros_(result.bias)
        return result

    def network(outputs: int, gain: float) -> nn.Sequential:
        return nn.Sequential(layer(size, 64), nn.Tanh(), layer(64, 64), nn.Tanh(),
                             layer(64, outputs, gain))

    def normal(observation: torch.Tensor) -> torch.distributions.Normal:
        mean = actor(observation)
        return torch.distributions.Normal(mean, log_std.expand_as(mean).exp())

    def act(observation: Any) -> Any:
        with torch.no_grad():
            scaled = torch.as_tensor(observations_seen.scaled(observation), dtype=torch.float32)
            return np.clip(actor(scaled).numpy(), low, high)

    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    rng = np.random.default_rng(options.seed)
    space = getattr(environments, 'single_action_space', environments.action_space)
    low, high = space.low, space.high
    size = int(np.prod(getattr(environments, 'single_observation_space',
                               environments.observation_space).shape))
    actions = int(np.prod(space.shape))
    actor, critic = network(actions, 0.01), network(1, 1.0)
    log_std = nn.Parameter(torch.zeros(actions))
    parameters = [*actor.parameters(), *critic.parameters(), log_std]
    optimizer = torch.optim.Adam(parameters, lr=SETTINGS['learning_rate'], eps=1e-5)
    gamma, gae_lambda = SETTINGS['gamma'], SETTINGS['gae_lambda']
    clip, batch = SETTINGS['clip_coef'], steps_per_update * num_envs
    minibatch = batch // SETTINGS['num_minibatches']

    observations_seen, returns_seen = Moments(size), Moments()
    discounted = np.zeros(num_envs)
    shape = (steps_per_update, num_envs)
    observation, action = torch.zeros(*shape, size), torch.zeros(*shape, actions)
    log_prob, reward, done, value = (torch.zeros(shape) for _ in range(4))

    def seen(raw: np.ndarray) -> torch.Tensor:
        observations_seen.update(raw)
        return torch.as_tensor(observations_seen.scaled(raw), dtype=torch.float32)

    following, ended = seen(environments.reset()[0]), torch.zeros(num_envs)
    env_steps, gradient_steps = 0, 0
    progress.begin()
    while True:
        if options.steps:
            optimizer.param_groups[0]['lr'] = SETTINGS['learning_rate'] * max(
                0.0, 1.0 - env_steps / options.steps)
        for step in range(steps_per_update):
            observation[step], done[step] = following, ended
            with torch.no_grad():
                distribution = normal(following)
                action[step] = distribution.sample()
                log_prob[step] = distribution.log_prob(action[step]).sum(-1)
                value[step] = critic(following)[:, 0]
            raw, gained, terminated, truncated, _ = environments.step(
                np.clip(action[step].numpy(), low, high))
            over = terminated | truncated
            discounted = discounted * gamma + gained
            returns_seen.update(discounted)
            discounted[over] = 0.0
            reward[step] = torch.as_tensor(np.clip(
                gained / np.sqrt(returns_seen.variance + 1e-8), -10.0, 10.0))
            following, ended = seen(raw), torch.as_tensor(over, dtype=torch.float32)
        env_steps += batch

        advantage, last = torch.zeros(shape), torch.zeros(num_envs)
        with torch.no_grad():
            next_value = critic(following)[:, 0]
        going_on = 1.0 - ended
        for step in reversed(range(steps_per_update)):
            error = reward[step] + gamma * next_value * going_on - value[step]
            advantage[step] = last = error + gamma * gae_lambda * going_on * last
            next_value, going_on = value[step], 1.0 - done[step]
        target = advantage + value

        flat = [tensor.reshape(batch, *tensor.shape[2:]) for tensor in (
            observation, action, log_prob, advantage, target, value)]
        for _ in range(SETTINGS['update_epochs']):
            order = torch.as_tensor(rng.permutation(batch))
            for begin in range(0, batch, minibatch):
                b_observation, b_action, b_log_prob, b_advantage, b_target, b_value = (
                    tensor[order[begin:begin + minibatch]] for tensor in flat)
                distribution = normal(b_observation)
                ratio = (distribution.log_prob(b_action).sum(-1) - b_log_prob).exp()
                b_advantage = ((b_advantage - b_advantage.mean())
                               / (b_advantage.std() + 1e-8))
                policy_loss = torch.max(-b_advantage * ratio, -b_advantage * ratio.clamp(
                    1.0 - clip, 1.0 + clip)).mean()
                new_value = critic(b_observation)[:, 0]
                clipped = b_value + (new_value - b_value).clamp(-clip, clip)
                value_loss = 0.5 * torch.max((new_value - b_target) ** 2,
                                             (clipped - b_target) ** 2).mean()
                loss = (policy_loss - SETTINGS['ent_coef'] * distribution.entropy().sum(-1).mean()
                        + SETTINGS['vf_coef'] * value_loss)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, SETTINGS['max_grad_norm'])
                optimizer.step()
                gradient_steps += 1
        if progress.update(env_steps, gradient_steps, act):
            return act


def train(options: argparse.Namespace, progress: Any) -> Any:
    """Train on environments of Gymnasium, one after another in this process."""
    import gymnasium
    from gymnasium.vector import AutoresetMode, SyncVectorEnv
    from peer_script import Trained

    num_envs = VARIANTS[options.variant]
    environments = SyncVectorEnv([lambda: gymnasium.make(options.task)] * num_envs,
                                 autoreset_mode=AutoresetMode.SAME_STEP)
    environments.reset(seed=options.seed)
    act = ppo(environments, num_envs, SETTINGS['num_steps'], options, progress)
    environments.close()
    return Trained(SETTINGS, ('torch', 'gymnasium', 'numpy', 'mujoco'), act)


if __name__ == '__main__':
    from peer_script import main
    sys.exit(main(sys.modules[__name__]))

"""
Train one policy with the PPO of Stable-Baselines3 and score it; stands alone.

Needs ``stable-baselines3`` and ``gymnasium[mujoco]`` and nothing of this package, so that the two
may live in different environments.  The result is one JSON object in a file.
"""

import argparse
from collections.abc import Callable
import json
import pathlib
import sys
import time
from typing import Any

import gymnasium
import numpy as np

# The values that rl-baselines3-zoo publishes as tuned for these tasks (rl_zoo3 2.9.2,
# rl_zoo3/hyperparams/ppo.yml, entries of the -v4 tasks; there are none for -v5).  All are trained
# with `normalize: true`, one environment, and the network of `TUNED_NETWORK`, if not said
# otherwise.
TUNED: dict[str, dict[str, Any]] = {
    'HalfCheetah-v5': {
        'n_steps': 512, 'batch_size': 64, 'gamma': 0.98, 'learning_rate': 2.0633e-05,
        'ent_coef': 0.000401762, 'clip_range': 0.1, 'n_epochs': 20, 'gae_lambda': 0.92,
        'max_grad_norm': 0.8, 'vf_coef': 0.58096},
    'Hopper-v5': {
        'n_steps': 512, 'batch_size': 32, 'gamma': 0.999, 'learning_rate': 9.80828e-05,
        'ent_coef': 0.00229519, 'clip_range': 0.2, 'n_epochs': 5, 'gae_lambda': 0.99,
        'max_grad_norm': 0.7, 'vf_coef': 0.835671},
    'Walker2d-v5': {
        'n_steps': 512, 'batch_size': 32, 'gamma': 0.99, 'learning_rate': 5.05041e-05,
        'ent_coef': 0.000585045, 'clip_range': 0.1, 'n_epochs': 20, 'gae_lambda': 0.95,
        'max_grad_norm': 1.0, 'vf_coef': 0.871923},
}
# Of Walker2d the zoo names none: what the package has by itself, 64-64 tanh.
TUNED_NETWORK = ('HalfCheetah-v5', 'Hopper-v5')
SETS = ('zoo', 'default')


def settings_of(task: str, which: str) -> dict[str, Any]:
    """
    Give the keyword arguments of PPO as JSON types.

    Parameters
    ----------
    task : str
        A key of `TUNED`.
    which : str
        ``zoo`` = tuned for the task; ``default`` = what Stable-Baselines3 does by itself.

    """
    if which == 'default':
        return {}
    network = {'log_std_init': -2, 'ortho_init': False, 'activation_fn': 'ReLU',
               'net_arch': {'pi': [256, 256], 'vf': [256, 256]}}
    return {**TUNED[task], 'policy_kwargs': network if task in TUNED_NETWORK else {}}


def train(task: str, which: str, seed: int, steps: int) -> tuple[Any, Any, dict[str, Any]]:
    """
    Train.

    Returns
    -------
    model : PPO
    environments : VecNormalize
        With the statistics of the observations.
    facts : dict
        ``env_steps``, ``gradient_steps``, ``wall_clock_s``, ``settings``.

    """
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize
    import torch
    torch.set_num_threads(1)
    settings = settings_of(task, which)
    arguments = dict(settings)
    if 'activation_fn' in arguments.get('policy_kwargs', {}):
        arguments['policy_kwargs'] = {**arguments['policy_kwargs'], 'activation_fn': getattr(
            torch.nn, arguments['policy_kwargs']['activation_fn'])}
    # As the zoo does it: the rewards are normalized with the discount of the learner.
    environments = VecNormalize(make_vec_env(task, n_envs=1, seed=seed),
                                gamma=settings.get('gamma', 0.99))
    model = PPO('MlpPolicy', environments, seed=seed, device='cpu', **arguments)
    begun = time.monotonic()
    model.learn(total_timesteps=steps)
    seconds = time.monotonic() - begun
    minibatches = -(-model.n_steps * model.n_envs // model.batch_size)
    return model, environments, {
        'env_steps': model.num_timesteps, 'gradient_steps': model._n_updates * minibatches,
        'wall_clock_s': seconds, 'settings': settings}


def play(act: Callable[[np.ndarray], np.ndarray], task: str, episodes: int,
         seed: int) -> list[float]:
    """
    Play whole episodes in Gymnasium's own environment.

    Parameters
    ----------
    act : callable
        Raw observation, float64 [O], to action within the bounds of the action space, [A].
    task : str
        Gymnasium id.
    episodes, seed : int
        Episode i is reset with seed + i.

    Returns
    -------
    list of float
        The return of each.

    """
    environment = gymnasium.make(task)
    returns = []
    for index in range(episodes):
        observation, _ = environment.reset(seed=seed + index)
        total, ended = 0.0, False
        while not ended:
            observation, reward, terminated, truncated, _ = environment.step(act(observation))
            total += float(reward)
            ended = terminated or truncated
        returns.append(total)
    environment.close()
    return returns


def main() -> int:
    """Train, play, write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--task', required=True, choices=list(TUNED))
    parser.add_argument('--set', required=True, choices=SETS)
    parser.add_argument('--seed', type=int, required=True)
    parser.add_argument('--steps', type=int, required=True)
    parser.add_argument('--episodes', type=int, required=True)
    parser.add_argument('--evaluation_seed', type=int, required=True)
    parser.add_argument('--out', type=pathlib.Path, required=True)
    own = parser.parse_args()
    model, environments, facts = train(own.task, own.set, own.seed, own.steps)
    # The statistics stay as they were when training ended.
    environments.training = False

    def act(observation: np.ndarray) -> np.ndarray:
        return model.predict(environments.normalize_obs(observation), deterministic=True)[0]

    returns = play(act, own.task, own.episodes, own.evaluation_seed)
    import stable_baselines3
    import torch
    result = {**facts, 'returns': returns, 'versions': {
        'python': sys.version.split()[0], 'stable-baselines3': stable_baselines3.__version__,
        'torch': torch.__version__, 'gymnasium': gymnasium.__version__, 'numpy': np.__version__}}
    partial = own.out.with_suffix('.part')
    partial.write_text(json.dumps(result))
    partial.replace(own.out)
    return 0


if __name__ == '__main__':
    sys.exit(main())

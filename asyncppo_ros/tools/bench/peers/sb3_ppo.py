"""
Train one policy with the PPO of Stable-Baselines3 and score it; see `peer_script`.

Observations and rewards are normalized (``VecNormalize``), torch has one thread.
"""

import argparse
import sys
from typing import Any

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

NEEDS = ('stable_baselines3', 'gymnasium', 'mujoco')
INSTALL = 'stable-baselines3 "gymnasium[mujoco]"'
# Two of one environment, as the zoo trains these tasks, and two of 8, which are its defaults with
# as many transitions in an update as with one: in one process, and in a process each.
VARIANTS = {'zoo': 1, 'default': 1, 'dummy8': 8, 'subproc8': 8}
RATE = ('dummy8', 'subproc8')
RETURN = ('zoo',)
STEPS_PER_UPDATE = 2048


def settings_of(task: str, which: str) -> dict[str, Any]:
    """
    Give the keyword arguments of PPO as JSON types.

    Parameters
    ----------
    task : str
        Of `TUNED`, where that is asked for.
    which : str
        ``zoo`` = tuned for the task; else what Stable-Baselines3 does by itself.

    """
    if which != 'zoo':
        num_envs = VARIANTS[which]
        return {} if num_envs == 1 else {'n_steps': STEPS_PER_UPDATE // num_envs}
    if task not in TUNED:
        sys.exit(f'--task {task}: tuned values are published for {", ".join(TUNED)}')
    network = {'log_std_init': -2, 'ortho_init': False, 'activation_fn': 'ReLU',
               'net_arch': {'pi': [256, 256], 'vf': [256, 256]}}
    return {**TUNED[task], 'policy_kwargs': network if task in TUNED_NETWORK else {}}


def train(options: argparse.Namespace, progress: Any) -> Any:
    """Train until it is enough."""
    from peer_script import Trained
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize
    import torch
    torch.set_num_threads(1)
    settings = settings_of(options.task, options.variant)
    arguments = dict(settings)
    if 'activation_fn' in arguments.get('policy_kwargs', {}):
        arguments['policy_kwargs'] = {**arguments['policy_kwargs'], 'activation_fn': getattr(
            torch.nn, arguments['policy_kwargs']['activation_fn'])}
    # As the zoo does it: the rewards are normalized with the discount of the learner.
    environments = VecNormalize(
        make_vec_env(options.task, n_envs=VARIANTS[options.variant], seed=options.seed,
                     vec_env_cls=SubprocVecEnv if options.variant == 'subproc8' else DummyVecEnv),
        gamma=settings.get('gamma', 0.99))
    model = PPO('MlpPolicy', environments, seed=options.seed, device='cpu', **arguments)
    minibatches = -(-model.n_steps * model.n_envs // model.batch_size)

    def act(observation: Any) -> Any:
        # Changes no statistics.
        return model.predict(environments.normalize_obs(observation), deterministic=True)[0]

    class Report(BaseCallback):
        """Reports each update when the next rollout begins."""

        enough = False

        def report(self) -> None:
            self.enough = progress.update(model.num_timesteps, model._n_updates * minibatches,
                                          act)

        def _on_training_start(self) -> None:
            progress.begin()

        def _on_rollout_start(self) -> None:
            if model.num_timesteps:
                self.report()

        def _on_step(self) -> bool:
            return not self.enough

    report = Report()
    # Nothing in these settings depends on how far the training is.
    model.learn(total_timesteps=options.steps or 10 ** 12, callback=report)
    if not report.enough:
        report.report()
    environments.training = False
    return Trained(settings, ('stable-baselines3', 'torch', 'gymnasium', 'numpy', 'mujoco'), act)


if __name__ == '__main__':
    from peer_script import main
    sys.exit(main(sys.modules[__name__]))

"""
Sample Factory's APPO with its own settings for MuJoCo, on the CPU; see `peer_script`.

Sample Factory is of a time before the -v5 tasks: it trains the -v4 task of the same name, whose
dynamics are the same.  Two rollout workers of 8 environments each, as many as its examples give
a worker; ``async`` collects while it learns, ``sync`` waits, which is the default of its
examples.  An update is an iteration of its learner, over 4 batches of 1024.
"""

import argparse
import sys
import tempfile
from typing import Any

NEEDS = ('sample_factory', 'sf_examples', 'torch', 'gymnasium', 'mujoco')
INSTALL = 'sample-factory "gymnasium[mujoco]==0.29.1" "numpy==1.26.4" "mujoco<3"'
VARIANTS = {'async': 16, 'sync': 16}
RATE = ('async', 'sync')
# Its policy lives in another process: it cannot be scored on the way.
RETURN: tuple[str, ...] = ()
WORKERS = 2


def make(name: str, *_: Any, render_mode: str | None = None, **__: Any) -> Any:
    """Make an environment; at the top, where the processes of the workers find it."""
    import gymnasium

    return gymnasium.make(name, render_mode=render_mode)


def train(options: argparse.Namespace, progress: Any) -> Any:
    """Train until it is enough."""
    from peer_script import Trained
    from sample_factory.algo.runners.runner import AlgoObserver
    from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
    from sample_factory.envs.env_utils import register_env
    from sample_factory.train import make_runner
    from sf_examples.mujoco.mujoco_params import mujoco_override_defaults

    task = options.task.replace('-v5', '-v4')
    folder = tempfile.TemporaryDirectory(prefix='sample-factory-')
    settings = {'num_workers': WORKERS,
                'num_envs_per_worker': VARIANTS[options.variant] // WORKERS,
                'async_rl': options.variant == 'async', 'device': 'cpu', 'seed': options.seed,
                'train_for_env_steps': options.steps or 10 ** 12}
    words = [f'--{name}={value}' for name, value in {
        'env': task, 'experiment': 'peer', 'train_dir': folder.name, **settings}.items()]

    register_env(task, make)
    parser, _ = parse_sf_args(argv=words)
    mujoco_override_defaults(task, parser)
    config, runner = make_runner(parse_full_cfg(parser, words))
    per_iteration = config.num_epochs * config.num_batches_per_epoch

    class Report(AlgoObserver):
        """Reports each iteration of the learner."""

        def on_start(self, runner: Any) -> None:
            progress.begin()

        def on_training_step(self, runner: Any, training_iteration_since_resume: int) -> None:
            env_steps = sum(runner.env_steps.values())
            if env_steps and not runner.stopped and progress.update(
                    env_steps, training_iteration_since_resume * per_iteration):
                # How its own runner ends.
                runner.cfg.train_for_env_steps = 0

    runner.register_observer(Report())
    runner.init()
    runner.run()
    folder.cleanup()
    return Trained({name: getattr(config, name) for name in (
        'num_workers', 'num_envs_per_worker', 'async_rl', 'rollout', 'batch_size', 'num_epochs',
        'num_batches_per_epoch', 'learning_rate', 'encoder_mlp_layers')},
        ('sample-factory', 'torch', 'gymnasium', 'numpy', 'mujoco'), None)


if __name__ == '__main__':
    from peer_script import main
    sys.exit(main(sys.modules[__name__]))

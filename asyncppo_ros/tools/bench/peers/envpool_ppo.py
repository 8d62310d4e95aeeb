"""
The PPO of `cleanrl_ppo` on environments of EnvPool; see `peer_script`.

EnvPool steps all environments of a call in threads of its own, one for each core that there is.
After the end of an episode it takes one more step to reset, whose transition is learned from
like any other.
"""

import argparse
import os
import sys
from typing import Any

NEEDS = ('envpool', 'torch', 'gymnasium', 'mujoco')
INSTALL = 'envpool torch "gymnasium[mujoco]"'
# As many transitions in an update as with 8 environments of Gymnasium.
VARIANTS = {'pool8': 8, 'pool64': 64}
RATE = ('pool8', 'pool64')
RETURN = ('pool8',)
STEPS_PER_UPDATE = 16384


def train(options: argparse.Namespace, progress: Any) -> Any:
    """Train until it is enough."""
    from cleanrl_ppo import ppo, SETTINGS
    import envpool
    from peer_script import Trained

    num_envs = VARIANTS[options.variant]
    environments = envpool.make_gymnasium(
        options.task, num_envs=num_envs, seed=options.seed,
        num_threads=len(os.sched_getaffinity(0)))
    steps_per_update = STEPS_PER_UPDATE // num_envs
    act = ppo(environments, num_envs, steps_per_update, options, progress)
    return Trained({**SETTINGS, 'num_steps': steps_per_update},
                   ('envpool', 'torch', 'gymnasium', 'numpy'), act)


if __name__ == '__main__':
    from peer_script import main
    sys.exit(main(sys.modules[__name__]))

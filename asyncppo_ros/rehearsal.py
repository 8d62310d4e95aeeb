"""
Rehearse how the learner of a run will go on, before anything of the run is changed.

``python -m asyncppo_ros.rehearsal RUN`` reads the settings from its standard input, as JSON, and
ends with 0, with 2 and one line for a user's mistake, or with 1 and a traceback for a fault.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import json
import os
import sys

from asyncppo_ros.config import Config
from asyncppo_ros.launching import check_keys, NEEDED, require
from asyncppo_ros.nodes.process import die_with_parent, guarded, StopRequest
from asyncppo_ros.run import Run
from asyncppo_ros.settings import build

# What `asyncppo train-local` needs.
NEEDED_LOCALLY = ('torch', 'mujoco', 'safetensors')


def rehearse(run: Run, config: Config, nodes: bool = True) -> None:
    """
    Begin as the learner will, and stop there; the run stays as it is.

    Parameters
    ----------
    run : Run
    config : Config
        The settings that it is to go on with.
    nodes : bool
        In nodes, with a socket; else in one process.

    Raises
    ------
    UserError
        The task, the checkpoint, the keys, the address, the device or the ranks do not fit.

    """
    from asyncppo_ros.acting.rollout import layout_of, sends_values
    from asyncppo_ros.cluster.data_parallel import check_ranks
    from asyncppo_ros.learning.checkpoint import go_on, load_checkpoint
    from asyncppo_ros.learning.learner import Learner
    from asyncppo_ros.simulation.registry import check, make
    environment = make(config.task, 1, config.seed, randomization=config.randomization,
                       privileged=config.policy.privileged_critic)
    check(environment)
    layout = layout_of(environment, sends_values(config), config.transport.observation_dtype)
    task = environment.describe()
    environment.close()
    ranks_there = _leave_ranks()
    alone = dataclasses.replace(config, learner=dataclasses.replace(config.learner, ranks=1))
    learner = Learner(alone, task, layout.observation_size, layout.action_size,
                      run.facts()['run_id'], layout.critic_size)
    check_ranks(config.learner, learner.device, ranks_there)
    if not nodes:
        load_checkpoint(run.checkpoint, learner)
        return
    go_on(run, config.env_steps, learner)
    check_keys(config.transport.keys)
    from asyncppo_ros.transport.zeromq import try_address
    try_address(config.transport.address, config.transport.allow_plain_text,
                bool(config.transport.keys))


def _leave_ranks() -> Mapping[str, str]:
    """Be no rank of those that others have started; give the environment as it was."""
    before = dict(os.environ)
    os.environ.pop('WORLD_SIZE', None)
    return before


def main(arguments: Sequence[str]) -> int:
    """Read the settings and rehearse; ``--local`` = in one process."""
    StopRequest().install()
    die_with_parent()
    folder, *options = arguments
    nodes = '--local' not in options

    def body() -> None:
        require(NEEDED if nodes else NEEDED_LOCALLY)
        rehearse(Run(folder), build(Config, json.loads(sys.stdin.read())), nodes)

    return guarded(body, 'check')


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))

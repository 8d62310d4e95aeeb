"""``asyncppo train-local``: the whole loop in this process, synchronous, no ROS, no socket."""

import functools
import sys
from typing import Any

from asyncppo_ros import injected_lag
from asyncppo_ros.learning.checkpoint import load_checkpoint, load_policy, save_checkpoint
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.learning.metrics import JsonlWriter, MetricsWriter, TensorBoardWriter
from asyncppo_ros.learning.milestones import Milestones
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.robot.artefact import read_artefact
from asyncppo_ros.run import replace_file
from asyncppo_ros.tools.arguments import split_settings
from asyncppo_ros.tools.auto import settled
from asyncppo_ros.tools.progress import Progress
from asyncppo_ros.tools.train import finish, open_run, parser_for, tell


def main(arguments: list[str], stop: StopRequest) -> int:
    """Train, show the progress, evaluate, and say where everything is."""
    own, given = split_settings(parser_for('train-local', __doc__), arguments)
    run, config = open_run(own, given, ['asyncppo', 'train-local', *arguments],
                           injected_lag.check, functools.partial(
                               settled, stop=stop, tell=tell, with_actors=False), nodes=False)
    run.lock()
    from asyncppo_ros.simulation.environment import critic_rows
    from asyncppo_ros.simulation.registry import make
    from asyncppo_ros.train_local import Dropped, train_local
    environment = make(config.task, 1, config.seed, randomization=config.randomization,
                       privileged=config.policy.privileged_critic)
    learner = Learner(config, environment.describe(), environment.observation_size,
                      environment.action_size, run.facts()['run_id'],
                      critic_rows(environment).shape[1])
    environment.close()
    elapsed, dropped = 0.0, Dropped()
    if own.resume:
        extra = load_checkpoint(run.checkpoint, learner)
        elapsed, dropped = extra['elapsed_s'], Dropped(*extra.get('dropped', ()))
    elif own.init_from:
        load_policy(read_artefact(own.init_from), learner)
    progress = Progress(config.env_steps)
    writers: list[MetricsWriter] = [
        JsonlWriter(run.metrics_file),
        TensorBoardWriter(run.folder / 'tensorboard', purge_step=learner.env_steps)]
    milestones = Milestones(run, config.learner.milestones)
    last = {'elapsed_s': elapsed, 'books': None, 'dropped': list(dropped)}

    def on_update(_learner: Learner, row: dict[str, Any]) -> bool:
        row['time_s'] += elapsed
        last.update(elapsed_s=row['time_s'], dropped=list(Dropped.of(row)))
        for writer in writers:
            writer.write(row)
        if milestones.due(learner.env_steps):
            milestones.keep(learner.mid_update_snapshot())
        progress.update(row)
        return stop()

    def on_refused(text: str) -> bool:
        print(text, file=sys.stderr)
        return stop()

    print(f'task {config.task}: {config.actor.num_envs} environments in one process, '
          f'{config.env_steps:,} env steps; run {run.folder}', file=sys.stderr)
    try:
        train_local(config, learner.run_id, on_update, learner, dropped, on_refused)
    finally:
        progress.close()
        for writer in writers:
            writer.close()
        save_checkpoint(run.checkpoint, learner, last)
        replace_file(run.policy_file, learner.snapshot().data)
        learner.close()
    if stop():
        print(f'stopped; continue with: asyncppo train-local --resume {run.folder}',
              file=sys.stderr)
        return 0
    return finish(run, config, stop)

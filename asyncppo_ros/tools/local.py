"""``asyncppo train-local``: the whole loop in this process, synchronous, no ROS, no socket."""

import sys

from asyncppo_ros.learning.checkpoint import load_checkpoint, load_policy, save_checkpoint
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.learning.metrics import JsonlWriter, MetricsWriter, TensorBoardWriter
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.robot.artefact import read_artefact
from asyncppo_ros.run import replace_file
from asyncppo_ros.tools.arguments import split_settings
from asyncppo_ros.tools.progress import Progress
from asyncppo_ros.tools.train import finish, open_run, parser_for


def main(arguments: list[str], stop: StopRequest) -> int:
    """Train, show the progress, evaluate, and say where everything is."""
    own, given = split_settings(parser_for('train-local', __doc__), arguments)
    run, config = open_run(own, given, ['asyncppo', 'train-local', *arguments])
    run.lock()
    from asyncppo_ros.simulation.registry import make
    from asyncppo_ros.train_local import train_local
    environment = make(config.task, 1, config.seed, randomization=config.randomization)
    learner = Learner(config, environment.describe(), environment.observation_size,
                      environment.action_size, run.facts()['run_id'])
    environment.close()
    elapsed = 0.0
    if own.resume:
        elapsed = load_checkpoint(run.checkpoint, learner)['elapsed_s']
    elif own.init_from:
        load_policy(read_artefact(own.init_from), learner)
    progress = Progress(config.env_steps)
    writers: list[MetricsWriter] = [
        JsonlWriter(run.metrics_file),
        TensorBoardWriter(run.folder / 'tensorboard', purge_step=learner.env_steps)]
    last = {'time_s': elapsed}

    def on_update(_learner: Learner, row: dict[str, float]) -> bool:
        row['time_s'] += elapsed
        last['time_s'] = row['time_s']
        for writer in writers:
            writer.write(row)
        progress.update(row)
        return stop()

    print(f'task {config.task}: {config.actor.num_envs} environments in one process, '
          f'{config.env_steps:,} env steps; run {run.folder}', file=sys.stderr)
    try:
        train_local(config, learner.run_id, on_update, learner)
    finally:
        progress.close()
        for writer in writers:
            writer.close()
        save_checkpoint(run.checkpoint, learner, {'elapsed_s': last['time_s'], 'books': None})
        replace_file(run.policy_file, learner.snapshot().data)
    if stop():
        print(f'stopped; continue with: asyncppo train-local --resume {run.folder}',
              file=sys.stderr)
        return 0
    return finish(run, config, stop)

"""
The whole loop in one process: synchronous, no ROS, no socket.

It is the baseline that every asynchronous run is compared with: the same task, settings, seeds,
rollout, learner; only that the actor waits while the learner learns, so that every sample is
fresh.  With one seed it gives the same metrics bit for bit, times apart.
"""

from collections.abc import Callable
import time

from asyncppo_ros.acting.rollout import environment_seed, Rollout, Stamp
from asyncppo_ros.chunk import Chunk
from asyncppo_ros.config import Config
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.learning.metrics import EpisodeWindow
from asyncppo_ros.simulation.registry import make


def train_local(config: Config, run_id: int = 1,
                on_update: Callable[[Learner, dict[str, float]], bool] | None = None,
                learner: Learner | None = None) -> Learner:
    """
    Learn a task.

    Parameters
    ----------
    config : Config
    run_id : int
        For the card of the policies.
    on_update : callable, optional
        Is given the learner and a row of metrics after each update; True ends the training.
    learner : Learner, optional
        To continue with instead of a new one.

    Returns
    -------
    Learner
        ``learner.snapshot()`` is the trained policy.

    """
    seed = environment_seed(config.seed, actor_id=0, incarnation=1)
    environment = make(config.task, config.actor.num_envs, seed,
                       random_episode_start=config.actor.random_episode_start,
                       randomization=config.randomization)
    rollout = Rollout(environment, config.actor.chunk_length, (config.seed, 0, 1))
    learner = learner or Learner(config, environment.describe(), environment.observation_size,
                                 environment.action_size, run_id)
    episodes = EpisodeWindow()
    snapshot = learner.snapshot()
    sequence, begun = 0, time.monotonic()
    while learner.env_steps < config.env_steps:
        chunks: list[Chunk] = []
        while sum(chunk.transitions for chunk in chunks) < config.learner.batch_size:
            chunks.append(rollout.collect(snapshot, Stamp(run_id, 0, 1, sequence)))
            episodes.add(chunks[-1].episodes)
            sequence += 1
        update_begun = time.monotonic()
        metrics = learner.update(chunks)
        snapshot = learner.snapshot()
        now = time.monotonic()
        row = {'env_steps': learner.env_steps, 'policy_version': learner.policy_version,
               'gradient_steps': learner.gradient_steps, 'generation': learner.generation,
               'time_s': now - begun, 'env_steps_per_s': learner.env_steps / (now - begun),
               **episodes.row(), **metrics, 'policy_lag_mean': 0.0, 'policy_lag_max': 0.0,
               'update_time': now - update_begun, 'policy_bytes': len(snapshot.data)}
        if on_update is not None and on_update(learner, row):
            break
    environment.close()
    return learner

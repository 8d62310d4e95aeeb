"""
Settle ``num_actors: auto`` and ``actor.num_envs: auto`` by a short measurement.

It is done once, before a run is made, so that the run records numbers.
"""

from collections.abc import Callable, Sequence
import sys

from asyncppo_ros.config import Config
from asyncppo_ros.errors import RunError
from asyncppo_ros.run import actors_by_cores
from asyncppo_ros.settings import build, to_dict
from asyncppo_ros.tools.stage_process import measure, Measured, Stopped
from asyncppo_ros.tools.throughput import best_num_envs, Cost, fewest_actors, MARGIN

# Of each measurement; a round of all comes before, in which memory is touched.
SECONDS = 0.4
# Numbers of environments that are tried: Python's share of a step shrinks with each ...
CANDIDATES = (8, 16, 32, 64, 128)
# ... and this where nothing can be measured.
USUAL_ENVS = 64


def settled(config: Config, python: str = sys.executable,
            stop: Callable[[], bool] = lambda: False,
            tell: Callable[[str], None] = lambda text: None,
            with_actors: bool = True) -> Config:
    """
    Replace `auto` by numbers.

    Parameters
    ----------
    config : Config
    python : str
        The interpreter of the processes that measure.
    stop : callable
        True ends it: what is easily known is taken.
    tell : callable
        Takes one line: what was chosen, and why.
    with_actors : bool
        Settle `num_actors`; without, there is one process and only `actor.num_envs` counts.

    """
    if config.actor.source == 'robot':
        # An actor has one robot.
        return _with(config, config.num_actors or 1, config.actor.num_envs or 1)
    candidates = envs_to_try(config)
    most = most_actors(config, min(candidates)) if with_actors else 1
    if (not with_actors or config.num_actors) and config.actor.num_envs:
        return config
    if most == 1 and len(candidates) == 1:
        tell(f'num_actors auto: 1; the cores or learner.batch_size = '
             f'{config.learner.batch_size} leave no choice')
        return _with(config, 1, candidates[0])
    try:
        measured = measure(config, candidates, [config.learner.batch_size], 1, SECONDS,
                           together=False, python=python, stop=stop)
    except RunError as error:
        num_envs = candidates[0] if len(candidates) == 1 else _usual(candidates)
        count = (config.num_actors or most_actors(config, num_envs)) if with_actors else 0
        if not isinstance(error, Stopped):
            tell(f'auto: {error}; {count} actors × {num_envs} environments by the number of '
                 'cores')
        return _with(config, count, num_envs)
    count, num_envs = choice(config, measured, with_actors)
    actor_s = _actor(measured, num_envs).wall_s
    learner_s = measured.learner[config.learner.batch_size].wall_s
    tell(f'auto: {count} actors × {num_envs} environments: an actor makes '
         f'{1.0 / actor_s:,.0f} env steps/s by itself, the learner takes {1.0 / learner_s:,.0f}')
    return _with(config, count if with_actors else 0, num_envs)


def envs_to_try(config: Config) -> list[int]:
    """Give the numbers of environments that are to be measured: one where it is given."""
    if config.actor.num_envs:
        return [config.actor.num_envs]
    room = config.learner.batch_size // (config.actor.chunk_length * max(1, config.num_actors))
    return [count for count in CANDIDATES if count <= room] or [max(1, room)]


def most_actors(config: Config, num_envs: int) -> int:
    """Say how many actors there is use for: as the cores and the batch allow."""
    chunk = num_envs * config.actor.chunk_length
    return min(max(1, config.learner.batch_size // chunk), actors_by_cores())


def choice(config: Config, measured: Measured, with_actors: bool = True) -> tuple[int, int]:
    """
    Choose by what was measured.

    Returns
    -------
    num_actors, num_envs : int
        Twice as many actors as would keep the learner busy, as far as the cores and the batch
        allow; the fewest environments that are as fast as any, to within 5 %.

    """
    learner_s = measured.learner[config.learner.batch_size].wall_s
    counts, rates = {}, {}
    for num_envs in measured.actor:
        actor_s = _actor(measured, num_envs).wall_s
        counts[num_envs] = (config.num_actors or fewest_actors(
            actor_s, learner_s, most_actors(config, num_envs))) if with_actors else 1
        # What is faster than any learner would ask for is fast enough.
        rates[num_envs] = min(counts[num_envs] / actor_s, MARGIN / learner_s)
    num_envs = best_num_envs(rates)
    return counts[num_envs], num_envs


def _actor(measured: Measured, num_envs: int) -> Cost:
    return measured.costs(num_envs, next(iter(measured.learner))).actor


def _usual(candidates: Sequence[int]) -> int:
    return max(count for count in candidates if count <= USUAL_ENVS)


def _with(config: Config, num_actors: int, num_envs: int) -> Config:
    return build(Config, {**to_dict(config), 'num_actors': num_actors,
                          'actor.num_envs': num_envs})

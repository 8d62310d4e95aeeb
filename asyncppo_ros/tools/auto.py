"""
Settle ``num_actors: auto`` and ``actor.num_envs: auto`` by a short measurement.

It is done once, before a run is made, so that the run records numbers.  ``num_actors`` itself
stays auto: ``actors_at_start`` is with how many it begins, and the supervisor goes on from there.
"""

from collections.abc import Callable, Sequence
import sys

from asyncppo_ros.config import Config
from asyncppo_ros.errors import RunError
from asyncppo_ros.run import actors_by_cores, most_actors
from asyncppo_ros.settings import build, to_dict
from asyncppo_ros.tools.stage_process import measure, Measured, Stopped
from asyncppo_ros.tools.throughput import best_num_envs, Cost, fewest_actors, MARGIN

# Of each measurement; a round of all comes before, in which memory is touched.
SECONDS = 0.4
# Numbers of environments that are tried: Python's share of a step shrinks with each ...
CANDIDATES = (8, 16, 32, 64, 128)
# ... and this where nothing can be measured.
USUAL_ENVS = 64
# An actor that sleeps most of the time leaves its core to others.  No run begins with more than
# 16 actors a core: whether those help is seen while it goes on.
LEAST_SHARE = 1.0 / 16.0


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
        return build(Config, {**to_dict(config), 'num_actors': config.num_actors or 1,
                              'actor.num_envs': config.actor.num_envs or 1})
    candidates = envs_to_try(config)
    most = most_actors(config, min(candidates)) if with_actors else 1
    counted = config.num_actors or config.actors_at_start
    if (not with_actors or counted) and config.actor.num_envs:
        return config
    if most == 1 and len(candidates) == 1:
        bound = 'max_actors' if config.max_actors == 1 else 'learner.batch_size'
        tell(f'num_actors auto: 1; {bound} = {to_dict(config)[bound]} leaves no choice')
        return _with(config, 1, candidates[0])
    try:
        measured = measure(config, candidates, [config.learner.batch_size], 1, SECONDS,
                           together=False, python=python, stop=stop)
    except RunError as error:
        num_envs = candidates[0] if len(candidates) == 1 else _usual(candidates)
        count = (config.num_actors or affordable(config, num_envs)) if with_actors else 0
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


def affordable(config: Config, num_envs: int, core_share: float = 1.0) -> int:
    """
    Say how many actors the cores and the batch allow.

    Parameters
    ----------
    config : Config
    num_envs : int
    core_share : float
        Of its time an actor has a core for so much; for the rest it sleeps or waits.

    """
    share = min(1.0, max(LEAST_SHARE, core_share))
    return min(most_actors(config, num_envs), int(actors_by_cores() / share))


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
        actor = _actor(measured, num_envs)
        counts[num_envs] = (config.num_actors or fewest_actors(
            actor.wall_s, learner_s, affordable(config, num_envs, actor.cpu_s / actor.wall_s))
        ) if with_actors else 1
        # What is faster than any learner would ask for is fast enough.
        rates[num_envs] = min(counts[num_envs] / actor.wall_s, MARGIN / learner_s)
    num_envs = best_num_envs(rates)
    return counts[num_envs], num_envs


def _actor(measured: Measured, num_envs: int) -> Cost:
    return measured.costs(num_envs, next(iter(measured.learner))).actor


def _usual(candidates: Sequence[int]) -> int:
    return max(count for count in candidates if count <= USUAL_ENVS)


def _with(config: Config, count: int, num_envs: int) -> Config:
    begun = {} if config.num_actors else {'actors_at_start': count}
    return build(Config, {**to_dict(config), **begun, 'actor.num_envs': num_envs})

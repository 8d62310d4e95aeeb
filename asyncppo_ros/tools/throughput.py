"""
What a training can reach, from what its stages cost.  Arithmetic only.

Actors and learner are a closed pipeline: each stage goes on while the others do, as far as there
are cores, and the slowest decides.  Three rates bound it:

    actors   n / a        n actors, each of which needs a seconds for a transition
    learner  1 / l        one learner, which needs l seconds for a transition
    cores    C / (A + L)  C cores, of which each transition takes A + L seconds of core time

a and l count also the time in which nothing is computed (a step that sleeps, a GPU that is waited
for); A and L do not.  Where actors wait for every update (target_lag 0), actors and learner take
turns: 1 / (a / n + l).

Processes that run at one time slow each other down, since they share caches, memory and perhaps
the threads of a core.  By how much is measured with one of each; a process meets it for the
share of its time in which another one runs.
"""

from collections.abc import Mapping
from typing import NamedTuple

STAGES = ('physics', 'inference', 'transport', 'learner')
# So many times as fast as the learner are actors to be: chunks come unevenly.
MARGIN = 2.0
# No stage is faster than this [s].
_LEAST_S = 1e-12
# Enough for the shares of time to settle.
_ITERATIONS = 50


class Cost(NamedTuple):
    """
    What one transition costs a stage.

    Attributes
    ----------
    wall_s : float
        Time that passes while it computes, sleeps or waits [s].
    cpu_s : float
        Time of a core [s].

    """

    wall_s: float
    cpu_s: float

    def __add__(self, other: object) -> 'Cost':
        assert isinstance(other, Cost)
        return Cost(self.wall_s + other.wall_s, self.cpu_s + other.cpu_s)

    def since(self, other: 'Cost') -> 'Cost':
        """Give the difference, which is not below 0."""
        return Cost(max(0.0, self.wall_s - other.wall_s), max(0.0, self.cpu_s - other.cpu_s))

    def times(self, factor: float) -> 'Cost':
        """Give the cost of so many transitions."""
        return Cost(self.wall_s * factor, self.cpu_s * factor)


NOTHING = Cost(0.0, 0.0)


class Costs(NamedTuple):
    """
    The cost of every stage, each measured while nothing else runs.

    Attributes
    ----------
    physics : Cost
        Steps of the environments: simulation, observation, reward, resets.
    inference : Cost
        Policy, exploration, log-probabilities.
    sending : Cost
        Chunks are written and sent, and permits looked for; in the actor.
    receiving : Cost
        Chunks are taken and checked; a thread of the learner's process.
    learner : Cost
        Updates and new policies.
    slow_actor, slow_learner : float
        How many times as long each takes while one of the other runs, ≥ 1.

    """

    physics: Cost
    inference: Cost
    sending: Cost
    receiving: Cost
    learner: Cost
    slow_actor: float = 1.0
    slow_learner: float = 1.0

    @property
    def actor(self) -> Cost:
        """All that an actor does."""
        return self.physics + self.inference + self.sending

    def stages(self) -> dict[str, Cost]:
        """Give the four `STAGES`."""
        return {'physics': self.physics, 'inference': self.inference,
                'transport': self.sending + self.receiving, 'learner': self.learner}


class Bounds(NamedTuple):
    """
    Env steps per second.

    Attributes
    ----------
    actors, learner, cores : float
        Of all actors if nothing held them up, of the learner likewise, and of the cores.
    rate : float
        Of the training.

    """

    actors: float
    learner: float
    cores: float
    rate: float

    @property
    def cores_limit(self) -> bool:
        """Whether all cores are busy before the actors or the learner are."""
        return self.cores < min(self.actors, self.learner)


def bounds(costs: Costs, num_actors: int, cores: float, takes_turns: bool = False) -> Bounds:
    """
    Give what holds a training.

    Parameters
    ----------
    costs : Costs
    num_actors : int
    cores : float
        That the processes may use together.
    takes_turns : bool
        The actors wait for every update.

    """
    found = _bounds(costs, num_actors, cores, takes_turns, 1.0, 1.0)
    for _ in range(_ITERATIONS):
        actor = min(1.0, found.rate * costs.actor.wall_s / num_actors)
        learner = min(1.0, found.rate * costs.learner.wall_s)
        beside_actor = min(1.0, learner + (num_actors - 1) * actor)
        beside_learner = min(1.0, num_actors * actor)
        if takes_turns:
            beside_actor, beside_learner = min(1.0, (num_actors - 1) * actor), 0.0
        fresh = _bounds(costs, num_actors, cores, takes_turns,
                        1.0 + (costs.slow_actor - 1.0) * beside_actor,
                        1.0 + (costs.slow_learner - 1.0) * beside_learner)
        # Half way, so that it does not swing.
        found = Bounds(*((old + new) / 2.0 for old, new in zip(found, fresh)))
    return found


def limiting_stage(costs: Costs, num_actors: int, cores: float,
                   takes_turns: bool = False) -> str:
    """
    Name the one of the `STAGES` that limits a training.

    Of an actor it is the stage that takes most of its time; where the cores are all busy, the
    one that takes most of theirs.
    """
    found = bounds(costs, num_actors, cores, takes_turns)
    if found.cores_limit:
        stages = costs.stages()
        return max(STAGES, key=lambda name: stages[name].cpu_s)
    if found.actors < found.learner:
        parts = {'physics': costs.physics, 'inference': costs.inference,
                 'transport': costs.sending}
        return max(parts, key=lambda name: parts[name].wall_s)
    return 'transport' if costs.receiving.wall_s > costs.learner.wall_s else 'learner'


def fewest_actors(actor_s: float, learner_s: float, most: int,
                  margin: float = MARGIN) -> int:
    """
    Say how many actors keep a learner busy.

    Parameters
    ----------
    actor_s, learner_s : float
        That a transition takes an actor, and the learner [s].
    most : int
        There is no use for more, or no room.
    margin : float
        So many times as fast as the learner are the actors to be together.

    """
    return max(1, min(most, -int(-margin * actor_s // learner_s)))


def best_num_envs(rates: Mapping[int, float], tolerance: float = 0.05) -> int:
    """Give the fewest environments an actor whose rate is the best but for `tolerance`."""
    best = max(rates.values())
    return min(num_envs for num_envs, rate in rates.items() if rate >= (1.0 - tolerance) * best)


def _bounds(costs: Costs, num_actors: int, cores: float, takes_turns: bool, slow_actor: float,
            slow_learner: float) -> Bounds:
    actor_s = slow_actor * costs.actor.wall_s
    learner_s = slow_learner * max(costs.learner.wall_s, costs.receiving.wall_s)
    core_s = (slow_actor * costs.actor.cpu_s
              + slow_learner * (costs.learner.cpu_s + costs.receiving.cpu_s))
    actors, learner = num_actors / max(actor_s, _LEAST_S), 1.0 / max(learner_s, _LEAST_S)
    allowed = cores / max(core_s, _LEAST_S)
    together = 1.0 / (1.0 / actors + 1.0 / learner) if takes_turns else min(actors, learner)
    return Bounds(actors, learner, allowed, min(together, allowed))

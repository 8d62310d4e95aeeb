"""
``num_actors: auto`` while a run goes on: looks at it, decides, starts and stops actors.

Between two changes it measures, over a window that begins once all actors collect: by the rows
that the learner writes into ``metrics.jsonl``, and by the load of this host.
"""

from collections.abc import Callable
import pathlib
import time
from typing import Any

from asyncppo_ros.config import Config
from asyncppo_ros.errors import RunError
from asyncppo_ros.learning.jsonl import Tail
from asyncppo_ros.nodes.actor_count import ActorCount, Change, Seen
from asyncppo_ros.nodes.actor_process import Actor
from asyncppo_ros.nodes.host_load import HostLoad
from asyncppo_ros.run import actors_by_cores, most_actors, Run

LOOK_S = 0.5
# After the last actor has joined or left the learner still has chunks of before.
WARM_UP_S = 2.0
WINDOW_S = 8.0
# Two updates, so that the slower one may tell of a pause.
MIN_ROWS = 3
# So long actors are waited for; then it is measured without them.
PATIENCE_S = 60.0


class LoadFollowing:
    """
    Lets the number of actors follow the load.

    Parameters
    ----------
    actors : list of Actor
        Of this host; it is added to.  The first so many of them are those that run.
    make : callable
        Makes another, given its place in the list.
    count : ActorCount
    metrics : Tail
        The learner's rows; what is there already is passed over.
    target_lag : int
        Of the learner [versions].
    say : callable
        Takes one line for people.
    load : HostLoad
    clock : callable
        Steady time [s].

    """

    def __init__(self, actors: list[Actor], make: Callable[[int], Actor], count: ActorCount,
                 metrics: Tail, target_lag: int, say: Callable[[str], None],
                 load: HostLoad | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._actors = actors
        self._make = make
        self._count = count
        self._metrics = metrics
        self._target_lag = target_lag
        self._say = say
        self._load = load or HostLoad()
        self._clock = clock
        self._others = 0
        self._rows: list[dict[str, Any]] = []
        self._look_at = float('-inf')
        self._fresh()
        self._wait(clock())

    @property
    def most(self) -> int:
        """Actors that there is room for."""
        return self._count.most

    @property
    def running(self) -> list[Actor]:
        """The actors that collect."""
        return [actor for actor in self._actors if not actor.retired]

    def look(self) -> None:
        """Do what is due; called often."""
        now = self._clock()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S
        rows = self._fresh()
        if any(actor.pid for actor in self._actors if actor.retired):
            self._wait(now)
        elif not self._all_run():
            self._count.forget()
            self._wait(now)
        elif self._begun is None:
            self._begin_when_all_collect(rows, now)
        else:
            self._rows += rows
            if _interrupted(self._rows):
                self._wait(now)
            elif now - self._begun >= WINDOW_S and len(self._rows) >= MIN_ROWS:
                self._decide(now)

    def _fresh(self) -> list[dict[str, Any]]:
        """Give the learner's new rows; what cannot be read must not end the actors."""
        try:
            return self._metrics.read()
        except (OSError, RunError):
            return []

    def _all_run(self) -> bool:
        """
        Say whether all actors are as they should be; else nothing is changed.

        One that has finished by itself was told so: the run ends.  One that was given up would
        be followed by others.
        """
        return all(actor.pid and not (actor.finished or actor.quarantined)
                   for actor in self.running)

    def _wait(self, now: float) -> None:
        """Measure once all actors collect."""
        self._begun: float | None = None
        self._warm_at: float | None = None
        self._patient_until = now + PATIENCE_S

    def _begin_when_all_collect(self, rows: list[dict[str, Any]], now: float) -> None:
        expected = self._others + len(self.running)
        if self._warm_at is None:
            if rows and (rows[-1]['actors'] >= expected or now >= self._patient_until):
                self._warm_at = now + WARM_UP_S
        elif rows and now >= self._warm_at:
            self._begin(rows[-1:], now)

    def _begin(self, rows: list[dict[str, Any]], now: float) -> None:
        self._begun, self._rows = now, rows
        self._load.begin([actor.pid for actor in self.running])

    def _decide(self, now: float) -> None:
        seen = self._seen()
        self._others = max(0, int(self._rows[-1]['actors']) - seen.actors)
        change = self._count.decide(seen, now)
        if change is None:
            self._begin(self._rows[-1:], now)
            return
        self._say(f'{seen.actors} -> {change.actors} actors: {change.reason}')
        self._apply(change, now)
        self._wait(now)

    def _seen(self) -> Seen:
        load, rows = self._load.end(), self._rows
        passed = [after['time_s'] - before['time_s'] for before, after in zip(rows, rows[1:])]
        whole = max(sum(passed), 1e-9)

        def mean(name: str) -> float:
            # What is not finite is null there.
            return sum((row[name] or 0.0) * each for row, each in zip(rows[1:], passed)) / whole

        rate = (rows[-1]['env_steps'] - rows[0]['env_steps']) / whole
        return Seen(len(self.running), rate, mean('learner_wait'), mean('actor_wait'),
                    mean('policy_lag_mean') > self._target_lag, load.free_cores,
                    load.used_cores, load.starved, load.room)

    def _apply(self, change: Change, now: float) -> None:
        """Send the last ones away, or take back those first that were sent away."""
        for actor in self._actors[change.actors:]:
            if not actor.retired:
                actor.retire(now)
        for actor in self._actors[:change.actors]:
            if actor.retired:
                actor.recall()
        self._actors += [self._make(index)
                         for index in range(len(self._actors), change.actors)]


def following(config: Config, actors: list[Actor], make: Callable[[int], Actor],
              say: Callable[[str], None]) -> LoadFollowing | None:
    """Follow the load where ``num_actors`` is auto, and the run and a choice are there."""
    if config.num_actors or config.actor.source == 'robot' or not config.run_dir \
            or not pathlib.Path(config.run_dir).is_dir():
        return None
    most = most_actors(config, config.actor.num_envs)
    if most == 1:
        return None
    return LoadFollowing(actors, make, ActorCount(most, actors_by_cores()),
                         Tail(Run(config.run_dir).metrics_file), config.learner.target_lag, say)


def _interrupted(rows: list[dict[str, Any]]) -> bool:
    """Say whether the learner was started anew, or paused: what it did between says nothing."""
    if len({row['generation'] for row in rows}) > 1:
        return True
    if len(rows) < MIN_ROWS:
        return False
    passed = [after['time_s'] - before['time_s'] for before, after in zip(rows, rows[1:])]
    return max(passed) > max(WINDOW_S, 3.0 * min(passed))

"""
How many actors a host should have: decided from what was seen of the last seconds.

No processes, no files and no clock of its own.  The waits and the cores say which way to go and
how far; the rate of consumed env steps, the only thing that counts, says whether to stay there.
So every change is a trial: what did not bring its part of what was hoped for is undone, and not
tried again for a time that doubles with each failure.
"""

from typing import NamedTuple

# The learner waits for a larger share of its time than this: it has use for more actors ...
LEARNER_WAITS = 0.15
# ... and with less than this it has none for more.
LEARNER_BUSY = 0.05
# Actors wait so much that more of them would wait as well ...
ACTORS_WAIT = 0.5
# ... and so much that fewer do.
ACTORS_IDLE = 0.6
# A core of which so much is free is worth a try, and so are actors that mostly sleep when they
# wait for nothing: many of them share a core, whoever else has use for it.
FREE_CORE = 0.25
MOSTLY = 0.5
# Of the time in which an actor could run it waits for a core: more would only wait longer ...
STARVED = 0.25
# ... and half of them would do.
HUNGRY = 0.5
# More than the actors' work takes, so that the learner need not wait for an uneven one.
MARGIN = 1.5
# What is hoped for must be so much to be worth a try, and so much of it must come.
LEAST_GAIN = 0.05
NEEDED_SHARE = 0.25
# Fewer actors may cost so much of the rate: less than that is noise.
MOST_LOSS = 0.05
# After a failure, and for the other direction after a success; doubles up to the longest [s].
FIRST_PAUSE_S = 60.0
LONGEST_PAUSE_S = 960.0


class Seen(NamedTuple):
    """
    What was seen of a time in which the number of actors did not change.

    Attributes
    ----------
    actors : int
        Of this host.
    rate : float
        Of transitions that reached updates [env steps/s].
    learner_wait, actor_wait : float
        Shares of time in which the learner waited for chunks, and actors for permits.
    late : bool
        The mean policy lag was above its target: chunks came too late.
    free_cores : float
        Of this host, unused by anyone.
    actor_cores : float
        Cores that one actor used.
    starved : float
        Share of time in which an actor could have run and had no core.
    room : int
        Further actors that the memory has room for.

    """

    actors: int
    rate: float
    learner_wait: float
    actor_wait: float
    late: bool
    free_cores: float
    actor_cores: float
    starved: float
    room: int

    @property
    def asleep(self) -> float:
        """Share of the time without waits in which an actor does not compute: its task sleeps."""
        asleep = max(0.0, 1.0 - self.actor_cores - self.starved - self.actor_wait)
        return asleep / max(asleep + self.actor_cores, 1e-9)


class Change(NamedTuple):
    """Another number of actors, and why in words."""

    actors: int
    reason: str


class _Trial(NamedTuple):
    before: Seen
    actors: int
    needed: float


class _Direction:
    """When there may be another try in a direction."""

    def __init__(self) -> None:
        self.not_before = float('-inf')
        self._pause = FIRST_PAUSE_S
        self._failed_at = float('-inf')
        self._plenty = float('inf')

    def open(self, now: float, free_cores: float = 0.0) -> bool:
        # Where others have left the machine what failed before may succeed.
        return now >= self.not_before or (now >= self._failed_at + FIRST_PAUSE_S
                                          and free_cores >= self._plenty)

    def failed(self, now: float, plenty: float) -> None:
        self._failed_at, self._plenty = now, plenty
        self.not_before = now + self._pause
        self._pause = min(LONGEST_PAUSE_S, 2.0 * self._pause)

    def succeeded(self) -> None:
        self._pause = FIRST_PAUSE_S

    def wait(self, now: float) -> None:
        self.not_before = max(self.not_before, now + FIRST_PAUSE_S)


class ActorCount:
    """
    Decides how many actors a host has.

    Parameters
    ----------
    most : int
        That the batch has room for.
    cores : int
        Actors that the host has a core for.

    """

    def __init__(self, most: int, cores: int) -> None:
        self.most = most
        self.cores = cores
        self._more = _Direction()
        self._fewer = _Direction()
        self._trial: _Trial | None = None

    def decide(self, seen: Seen, now: float) -> Change | None:
        """
        Say what to change after what was seen; None = nothing.

        Parameters
        ----------
        seen : Seen
        now : float
            Steady time [s].

        """
        return self._judged(seen, now) or self._with_fewer(seen, now) or self._with_more(seen, now)

    def forget(self) -> None:
        """Give up the trial at hand: something else has changed as well."""
        self._trial = None

    def _judged(self, seen: Seen, now: float) -> Change | None:
        """Undo the last change where it has not brought what it must."""
        trial, self._trial = self._trial, None
        if trial is None or trial.actors != seen.actors:
            return None
        before = trial.before
        tried, other = ((self._more, self._fewer) if trial.actors > before.actors
                        else (self._fewer, self._more))
        if seen.rate >= trial.needed:
            tried.succeeded()
            other.wait(now)
            return None
        free = max(seen.free_cores, before.free_cores)
        tried.failed(now, free + max(2.0 * FREE_CORE, 0.1 * self.cores))
        return Change(before.actors, f'the rate went from {before.rate:,.0f} to {seen.rate:,.0f} '
                      f'env steps/s, {trial.needed:,.0f} were needed')

    def _with_fewer(self, seen: Seen, now: float) -> Change | None:
        if seen.actors == 1 or not self._fewer.open(now):
            return None
        wanted, reason = seen.actors, ''
        if seen.learner_wait < LEARNER_BUSY and seen.actor_wait > ACTORS_IDLE:
            wanted = _up(MARGIN * (1.0 - seen.actor_wait) * seen.actors)
            reason = f'actors wait {seen.actor_wait:.0%} of the time, the learner does not'
        elif seen.actors > self.cores and (
                seen.late or (seen.starved > HUNGRY and seen.asleep < MOSTLY)):
            wanted = max(self.cores, seen.actors // 2)
            reason = (f'an actor waits {seen.starved:.0%} of the time for a core'
                      + (', chunks come too late' if seen.late else ''))
        if wanted >= seen.actors:
            return None
        return self._try(seen, wanted, (1.0 - MOST_LOSS) * seen.rate, reason)

    def _with_more(self, seen: Seen, now: float) -> Change | None:
        asleep, enough = seen.asleep > MOSTLY, seen.actors >= self.cores
        idle = seen.free_cores >= FREE_CORE and seen.starved < STARVED
        useful = (seen.learner_wait > LEARNER_WAITS and seen.actor_wait < ACTORS_WAIT
                  and not seen.late and (asleep or idle or not enough))
        if not useful or not self._more.open(now, seen.free_cores):
            return None
        hoped = min(2.0, 1.0 / max(1.0 - seen.learner_wait, LEARNER_BUSY))
        by_learner = _up(MARGIN * (1.0 - seen.actor_wait) * hoped * seen.actors)
        used = max(seen.actor_cores, 1e-3)
        by_cores = seen.actors + (seen.actors if asleep else max(1, int(seen.free_cores / used)))
        wanted = min(2 * seen.actors, by_learner, by_cores, self.most, seen.actors + seen.room)
        gain = min(wanted / seen.actors, hoped) - 1.0
        if gain < LEAST_GAIN:
            return None
        if not asleep and enough:
            # The cores let the rate grow by so much; what they did for others is not known.
            gain = min(gain, seen.free_cores / (seen.actors * used))
        why = (f'an actor sleeps {seen.asleep:.0%}' if asleep else
               f'{seen.free_cores:.1f} cores are free' if idle else
               f'there are fewer actors than the {self.cores} that have a core')
        return self._try(seen, wanted, (1.0 + NEEDED_SHARE * gain) * seen.rate,
                         f'the learner waits {seen.learner_wait:.0%} of the time, {why}')

    def _try(self, seen: Seen, wanted: int, needed: float, reason: str) -> Change:
        self._trial = _Trial(seen, wanted, needed)
        return Change(wanted, reason)


def _up(value: float) -> int:
    """Round up, but for what rounding errors add."""
    return max(1, -int(-(value - 1e-9) // 1))

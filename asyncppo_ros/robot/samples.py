"""What every sample of a sensor is checked by: its stamp, and whether it ever changes."""

import math
from typing import NamedTuple

import numpy as np

NEVER = -math.inf


class Refusal(Exception):  # noqa: N818 - a sample is at fault, not the program
    """
    A sample that is not stored.

    Attributes
    ----------
    cause : str
        The check that failed: a key of the counters.

    """

    def __init__(self, cause: str, text: str) -> None:
        super().__init__(text)
        self.cause = cause


class Times(NamedTuple):
    """
    When a sample was made and came [s].

    Attributes
    ----------
    stamp, clock : float
        Of the message and of the ROS clock now; a stamp of 0 says nothing.
    now : float
        Steady time.
    tolerance : float
        Largest difference of stamp and clock.

    """

    stamp: float
    clock: float
    now: float
    tolerance: float

    @property
    def is_stamped(self) -> bool:
        """Whether the stamp says when the sample was made."""
        return self.stamp != 0.0

    def check(self, what: str) -> None:
        """Refuse a sample whose stamp is far from the clock."""
        if self.is_stamped and not abs(self.stamp - self.clock) <= self.tolerance:
            raise Refusal('stamp', f'{what} is stamped {self.stamp - self.clock:+.3f} s from the '
                                   f'clock, deploy.clock_tolerance_s = {self.tolerance:g}')

    def is_newest(self, stamps: np.ndarray) -> np.ndarray:
        """Say against which earlier stamps this one is no step back, bool."""
        if not self.is_stamped:
            return np.ones(stamps.shape, dtype=bool)
        # One that is now far ahead of the clock is from before the clock was put back.
        return (stamps <= self.stamp) | (stamps > self.clock + self.tolerance)


class Watch:
    """Finds a sensor that makes new samples with always the same numbers."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._numbers = b''
        self._since = self._last = self._came = NEVER
        self._stamped = False

    def see(self, numbers: bytes, times: Times) -> None:
        """Compare a sample with the one before; one with the same stamp is a repetition."""
        made = times.stamp if times.is_stamped else times.now
        if (numbers != self._numbers or times.is_stamped != self._stamped
                or made < self._since):
            self._numbers, self._stamped, self._since = numbers, times.is_stamped, made
        self._last, self._came = made, times.now

    def is_frozen(self, now: float, timeout: float, frozen_s: float) -> bool:
        """Say whether the numbers have not changed for `frozen_s`, though samples come."""
        return (frozen_s > 0.0 and self._came >= now - timeout
                and self._last - self._since >= frozen_s)


def heard(age: float) -> str:
    """Say how long ago something was heard."""
    return 'never heard' if age == math.inf else f'not heard for {age:.3f} s'

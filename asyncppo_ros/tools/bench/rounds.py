"""Measurements in turn, round after round, so that all of them meet the same machine."""

from collections.abc import Callable, Mapping
import sys
from typing import TypeVar

from asyncppo_ros.nodes.process import StopRequest

MeasuredT = TypeVar('MeasuredT')


def interleaved(measures: Mapping[str, Callable[[], MeasuredT]], rounds: int,
                stop: StopRequest, warm_up: bool = True) -> dict[str, list[MeasuredT]]:
    """
    Make every measurement once a round; every other round the other way around.

    So a machine that slows down slows all of them down, and none always runs after the same
    other one.  A first round, in which memory is touched and caches are filled, does not count.

    Parameters
    ----------
    measures : mapping from str to callable
        Each measures once, for a moment, and gives what it measured.
    rounds : int
    stop : StopRequest
        Once it is set, what was measured in whole rounds is returned.
    warm_up : bool
        False = the first round counts: what is measured begins anew each time.

    Returns
    -------
    dict from str to list [rounds]

    """
    found: dict[str, list[MeasuredT]] = {name: [] for name in measures}
    for number in range(0 if warm_up else 1, rounds + 1):
        values = {}
        for name in list(measures)[::-1 if number % 2 else 1]:
            if stop():
                return found
            values[name] = measures[name]()
        if number:
            for name, value in values.items():
                found[name].append(value)
        print(f'round {number} of {rounds}' if number else 'warmed up', file=sys.stderr)
    return found

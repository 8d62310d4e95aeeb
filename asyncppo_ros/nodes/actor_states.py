"""
What the supervisors of a run tell of their actors, in files that the learner and people read.

``RUN/actors.json`` is that of the supervisor whose actors begin with number 0; one that begins
with K writes ``actors-K.json``, so that no two write the same file.
"""

from collections.abc import Callable, Sequence
import json
import os
import pathlib
import socket
from typing import Any

from asyncppo_ros.run import replace_file

# PENDING: a cluster has no room for it so far.
RUNNING, RESTARTING, PENDING = 'running', 'restarting', 'pending'
QUARANTINED, FINISHED = 'quarantined', 'finished'
# There is no use for it at this load; it may be started again.
STOPPED = 'stopped'


def states_file(run_dir: str | os.PathLike[str], first_actor_id: int) -> pathlib.Path:
    """Say where a supervisor writes."""
    name = f'actors-{first_actor_id}.json' if first_actor_id else 'actors.json'
    return pathlib.Path(run_dir) / name


def write_states(path: pathlib.Path, states: Sequence[dict[str, Any]]) -> None:
    """
    Write the states of a supervisor's actors, whole or not at all.

    Parameters
    ----------
    path : Path
        From `states_file`.
    states : sequence of dict
        ``actor_id``, ``state`` (running, restarting, pending, stopped, quarantined, finished),
        ``pid`` (0 = none), ``crashes`` in a row, ``reason`` of the last one; ``host`` where it
        may be another than the supervisor's.

    Raises
    ------
    OSError
        The disk is full or read-only.

    """
    content = {'host': socket.gethostname(), 'supervisor': os.getpid(), 'actors': list(states)}
    replace_file(path, (json.dumps(content, indent=1) + '\n').encode())


class StatesRecord:
    """
    The states of a supervisor's actors in the run's folder, written when one of them changes.

    On a host without that folder nothing is written.

    Parameters
    ----------
    run_dir : str
    first_actor_id : int
    states : callable
        Gives them as they are now, see `write_states`.
    say : callable
        Takes one line for people.

    """

    def __init__(self, run_dir: str, first_actor_id: int,
                 states: Callable[[], list[dict[str, Any]]], say: Callable[[str], None]) -> None:
        here = run_dir and pathlib.Path(run_dir).is_dir()
        self._path = states_file(run_dir, first_actor_id) if here else None
        self._states, self._say = states, say
        self._written: list[dict[str, Any]] = []
        self._told = False

    def update(self) -> None:
        """Write them where they have changed."""
        states = self._states()
        if self._path is None or states == self._written:
            return
        try:
            write_states(self._path, states)
        except OSError as error:
            # Tried again at every look; told once.
            if not self._told:
                self._say(f'{self._path} not written: {error.strerror}')
            self._told = True
            return
        self._written, self._told = states, False


def read_states(run_dir: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read the states of all actors of a run, in the order of their numbers."""
    states: list[dict[str, Any]] = []
    for path in sorted(pathlib.Path(run_dir).glob('actors*.json')):
        try:
            content = json.loads(path.read_text())
        except (OSError, ValueError):
            continue  # of no use now; it is written again with the next change
        states += [{'host': content['host'], **state} for state in content['actors']]
    return sorted(states, key=lambda state: state['actor_id'])


def quarantined(run_dir: str | os.PathLike[str]) -> list[str]:
    """Say in a line each which actors are not restarted any more, and why."""
    return [f'actor {state["actor_id"]} on {state["host"]} is quarantined: {state["reason"]}'
            for state in read_states(run_dir) if state['state'] == QUARANTINED]

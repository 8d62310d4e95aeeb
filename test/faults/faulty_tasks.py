"""Tasks that fail in one actor of a run, for the tests beside this file."""

import os
import pathlib
import sys

from asyncppo_ros.tools.bench.sleeping import Sleeping

VICTIM = ['--actor-id', '1']
HEALTHY_STEPS = 150


def in_victim():
    at = sys.argv.index(VICTIM[0]) if VICTIM[0] in sys.argv else -2
    return sys.argv[at:at + 2] == VICTIM


class Crashing(Sleeping):
    """Actor 1 crashes again and again."""

    steps = 0

    def reward(self, state, action):
        Crashing.steps += 1
        if in_victim() and Crashing.steps > HEALTHY_STEPS:
            raise RuntimeError('this actor always crashes')
        return super().reward(state, action)


class EndlessLoop(Sleeping):
    """Actor 1 falls into an endless loop, once."""

    steps = 0

    def reward(self, state, action):
        EndlessLoop.steps += 1
        marker = pathlib.Path(os.environ['ENDLESS_LOOP_MARKER'])
        if in_victim() and EndlessLoop.steps > HEALTHY_STEPS and not marker.exists():
            marker.touch()
            while True:
                pass
        return super().reward(state, action)

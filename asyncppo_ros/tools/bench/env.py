"""
``asyncppo bench env``: control steps per second of batched environments, one thread.

Ours is all that a control step is: actions applied, physics, observation, reward, termination,
reset.  The ceiling is a bare Python loop of `mj_step` over as many MjData, which goes through the
same states with the same commands (see `bare_physics`); for tasks that see contact forces also
with `mj_rnePostConstraint`, without which MuJoCo does not compute them.  Actions are random and
made beforehand.  Both do a tenth of a second of work in turn.  The ratio is the median over the
rounds of the ratio within a round, by wall-clock time; that by CPU time stands below it, which
others on the same cores disturb less.
"""

import json

import numpy as np

from asyncppo_ros.errors import ConfigError
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.tools.arguments import Parser
from asyncppo_ros.tools.bench.bare_physics import RecordedSimulation, Timer
from asyncppo_ros.tools.bench.beside_physics import (
    Case,
    measure,
    PLANAR,
    SPATIAL,
    summarize,
    text_of,
)
from asyncppo_ros.tools.bench.results import report, verdict

# Share of the ceiling that is asked for, by number of environments: of planar robots, and of
# those that see contact forces.
SHARES = {64: (0.95, 0.90), 16: (0.88, 0.85)}
NEEDED = {Case(task, count): share for count, shares in SHARES.items()
          for tasks, share in zip((PLANAR, SPATIAL), shares) for task in tasks}
NUM_ENVS = (16, 64)
# Actions come again after so many control steps, of which no state knows.
PREPARED = 64
# Work between two turns [s].
TURN_S = 0.1


def main(arguments: list[str], stop: StopRequest) -> int:
    """Measure, print the table or the JSON object, and compare with what is asked for."""
    parser = Parser(prog='asyncppo bench env', description=__doc__, allow_abbrev=False)
    parser.add_argument('--tasks', nargs='+', metavar='TASK', help='tasks with a MuJoCo model',
                        default=[*PLANAR, *SPATIAL, 'reach', 'quadruped_walk'])
    parser.add_argument('--num_envs', nargs='+', type=int, default=list(NUM_ENVS),
                        help=f'default {" ".join(map(str, NUM_ENVS))}')
    parser.add_argument('--rounds', type=int, default=15, help='default 15')
    parser.add_argument('--seconds', type=float, default=0.3,
                        help='CPU time of ours in each measurement, default 0.3')
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    own = parser.parse_args(arguments)
    if own.rounds < 1 or min(own.num_envs) < 1 or own.seconds <= 0.0:
        raise ConfigError(f'--rounds {own.rounds} --num_envs {" ".join(map(str, own.num_envs))} '
                          f'--seconds {own.seconds:g}: must be above 0')
    workers = {Case(task, count): Environments(task, count) for task in own.tasks
               for count in own.num_envs}
    found = measure(workers, own.rounds, own.seconds, stop)
    if found is None:
        return 0
    rows, checks = summarize(found, NEEDED)
    settings = {'tasks': own.tasks, 'num_envs': own.num_envs, 'rounds': own.rounds,
                'seconds': own.seconds}
    result = report(settings, rows, checks=checks,
                    command=['asyncppo', 'bench', 'env', *arguments])
    print(json.dumps(result, indent=1) if own.json else f'{text_of(rows)}\n\n{verdict(checks)}')
    return 0 if all(entry['passed'] for entry in checks) else 1


class Environments:
    """
    Environments that are given random actions.

    Parameters
    ----------
    task : str
    num_envs : int

    """

    def __init__(self, task: str, num_envs: int) -> None:
        self.simulation = RecordedSimulation(task, num_envs)
        self._out = np.empty((num_envs, self.simulation.observation_size), np.float32)
        self._actions = np.random.default_rng(0).uniform(
            -1.0, 1.0, (PREPARED, num_envs, self.simulation.action_size)).astype(np.float32)
        self.simulation.reset(self._out)

    def work(self, watch: Timer) -> None:
        """Make control steps for `TURN_S`."""
        end, steps = watch.cpu_s + TURN_S, 0
        while watch.cpu_s < end:
            self.simulation.step(self._actions[steps % PREPARED], self._out)
            steps += 1

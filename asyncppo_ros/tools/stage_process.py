"""
The stages of a training, each measured in a process of its own, as a training has it.

``python -m asyncppo_ros.tools.stage_process ROLE`` is an actor or a learner that measures itself
when it is asked: a line of JSON in, a line of JSON out.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

from asyncppo_ros.config import Config
from asyncppo_ros.errors import RunError
from asyncppo_ros.nodes.process import (
    child_environment,
    die_with_parent,
    guarded,
    signals_held_back,
    StopRequest,
)
from asyncppo_ros.settings import build, to_dict
from asyncppo_ros.tools.throughput import Cost, Costs

POLL_S = 0.05
# Imports, and simulations that are large, on a busy machine.
ANSWER_S = 300.0
_END_S = 2.0


class Stopped(RunError):
    """The end was asked for before all was measured."""


class StageProcess:
    """
    A process of one role.

    Parameters
    ----------
    role : str
        ``actor`` or ``learner``.
    config : Config
    python : str
        The interpreter.
    stop : callable
        True ends every wait.

    """

    def __init__(self, role: str, config: Config, python: str = sys.executable,
                 stop: Callable[[], bool] = lambda: False) -> None:
        self._role = role
        self._stop = stop
        self._told = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        with signals_held_back():
            self._process = subprocess.Popen(
                [python, '-m', 'asyncppo_ros.tools.stage_process', role],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._told,
                start_new_session=True, env=child_environment())
        assert self._process.stdout is not None
        self._output = self._process.stdout
        os.set_blocking(self._output.fileno(), False)
        self._line = b''
        self.send(settings=to_dict(config))

    def send(self, **request: Any) -> None:
        """Ask for something; `answer` gives it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b'\n')
            self._process.stdin.flush()
        except BrokenPipeError:
            raise RunError(self._why()) from None

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def ready(self) -> bool:
        """
        Say whether `answer` gives the answer at once.

        Raises
        ------
        RunError
            There will be none: the process ended; the text says why.

        """
        ended = self._process.poll() is not None
        self._line += self._output.read() or b''
        if ended and b'\n' not in self._line:
            raise RunError(self._why())
        return b'\n' in self._line

    def answer(self) -> Any:
        """
        Wait for the answer to what was asked last.

        Raises
        ------
        RunError
            The process ended, or took too long; the text says why.
        Stopped
            The end was asked for.

        """
        deadline = time.monotonic() + ANSWER_S
        while not self.ready():
            if self._stop():
                raise Stopped('stopped before all was measured')
            if time.monotonic() > deadline:
                raise RunError(f'the {self._role} took more than {ANSWER_S:g} s to measure itself')
            time.sleep(POLL_S)
        line, _, self._line = self._line.partition(b'\n')
        return json.loads(line)

    def ask(self, **request: Any) -> Any:
        """Ask for something and wait for it."""
        self.send(**request)
        return self.answer()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(0.0 if self._stop() else _END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()
        self._told.close()

    def _why(self) -> str:
        self._told.seek(0)
        lines = self._told.read().decode(errors='replace').strip().splitlines()
        return f'the {self._role} could not be measured: {(lines or ["it ended"])[-1]}'


class Measured(NamedTuple):
    """
    What was measured.

    Attributes
    ----------
    actor : dict from int to dict from str to Cost
        By number of environments; see `ActorStages.measure`.
    learner : dict from int to Cost
        By batch size.
    slow_actor, slow_learner : float
        See `Costs`.

    """

    actor: dict[int, dict[str, Cost]]
    learner: dict[int, Cost]
    slow_actor: float = 1.0
    slow_learner: float = 1.0

    def costs(self, num_envs: int, batch_size: int) -> Costs:
        """Give the costs with so many environments and such a batch."""
        return Costs(**self.actor[num_envs], learner=self.learner[batch_size],
                     slow_actor=self.slow_actor, slow_learner=self.slow_learner)


def measure(config: Config, num_envs: Sequence[int], batch_sizes: Sequence[int], rounds: int,
            seconds: float, together: bool = True, python: str = sys.executable,
            stop: Callable[[], bool] = lambda: False,
            tell: Callable[[str], None] = lambda text: None) -> Measured:
    """
    Measure an actor and a learner in turn, round after round, and both at once.

    Parameters
    ----------
    config : Config
    num_envs, batch_sizes : sequence of int
        Numbers of environments, and batches, to measure with; the first of each also for both
        at once.
    rounds : int
    seconds : float
        For each measurement.
    together : bool
        Measure both at once.
    python : str
        The interpreter of the processes.
    stop : callable
        True ends it.
    tell : callable
        Takes a line of progress.

    Raises
    ------
    RunError
        A process ended or hangs.
    Stopped
        `stop` was true.

    """
    learner = StageProcess('learner', config, python, stop)
    actor = StageProcess('actor', config, python, stop)
    try:
        # Both load at one time.
        actor.send(policy=learner.ask(snapshot=True))
        actor.answer()
        found = [_round(actor, learner, num_envs, batch_sizes, seconds, together, tell,
                        f'round {number} of {rounds}' if number else 'warming up')
                 for number in range(rounds + 1)][1:]
    finally:
        actor.close()
        learner.close()
    return _summary(found, together)


def _round(actor: StageProcess, learner: StageProcess, num_envs: Sequence[int],
           batch_sizes: Sequence[int], seconds: float, together: bool,
           tell: Callable[[str], None], title: str) -> dict[str, Any]:
    tell(title)
    found: dict[str, Any] = {
        'actor': {count: _costs(actor.ask(num_envs=count, seconds=seconds))
                  for count in num_envs},
        'learner': {size: Cost(*learner.ask(batch_size=size, seconds=seconds))
                    for size in batch_sizes}}
    if together:
        actor.send(num_envs=num_envs[0], seconds=seconds)
        learner.send(batch_size=batch_sizes[0], seconds=seconds)
        both = _costs(actor.answer())
        alone = found['actor'][num_envs[0]]
        found['slow_actor'] = _actor_s(both) / _actor_s(alone)
        found['slow_learner'] = (Cost(*learner.answer()).wall_s
                                 / found['learner'][batch_sizes[0]].wall_s)
    return found


def _summary(rounds: Sequence[Mapping[str, Any]], together: bool) -> Measured:
    first = rounds[0]
    actor = {count: {stage: _median([found['actor'][count][stage] for found in rounds])
                     for stage in stages} for count, stages in first['actor'].items()}
    learner = {size: _median([found['learner'][size] for found in rounds])
               for size in first['learner']}
    slow = [max(1.0, statistics.median(found[name] for found in rounds)) if together else 1.0
            for name in ('slow_actor', 'slow_learner')]
    return Measured(actor, learner, *slow)


def _median(costs: Sequence[Cost]) -> Cost:
    return Cost(*(statistics.median(values) for values in zip(*costs)))


def _costs(answer: Mapping[str, Sequence[float]]) -> dict[str, Cost]:
    return {stage: Cost(*values) for stage, values in answer.items()}


def _actor_s(stages: Mapping[str, Cost]) -> float:
    return sum(stages[name].wall_s for name in ('physics', 'inference', 'sending'))


def main(arguments: Sequence[str]) -> int:
    """Answer until there is nothing more to read."""
    StopRequest().install()
    die_with_parent()
    # What a task prints is not an answer.
    answers = os.fdopen(os.dup(1), 'w', buffering=1)
    os.dup2(2, 1)
    config = build(Config, json.loads(sys.stdin.readline())['settings'])
    role = {'actor': _actor, 'learner': _learner}[arguments[0]](config)
    for line in sys.stdin:
        answers.write(json.dumps(role(json.loads(line))) + '\n')
    return 0


def _actor(config: Config) -> Callable[[Mapping[str, Any]], Any]:
    from asyncppo_ros.policy.snapshot import PolicySnapshot
    from asyncppo_ros.tools.stages import ActorStages
    policies: list[PolicySnapshot] = []
    actors: dict[int, ActorStages] = {}

    def answer(request: Mapping[str, Any]) -> Any:
        if 'policy' in request:
            policies.append(PolicySnapshot.from_bytes(base64.b64decode(request['policy'])))
            return True
        count = request['num_envs']
        if count not in actors:
            actors[count] = ActorStages(config, policies[0], count)
        return actors[count].measure(request['seconds'])

    return answer


def _learner(config: Config) -> Callable[[Mapping[str, Any]], Any]:
    from asyncppo_ros.tools.stages import LearnerStage
    learner = LearnerStage(config)

    def answer(request: Mapping[str, Any]) -> Any:
        if 'snapshot' in request:
            return base64.b64encode(learner.snapshot().data).decode()
        return learner.measure(request['seconds'], request['batch_size'])

    return answer


if __name__ == '__main__':
    sys.exit(guarded(lambda: main(sys.argv[1:]), 'measuring'))

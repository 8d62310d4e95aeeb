"""
``asyncppo bench faults``: train for long while things die, and compare with an undisturbed run.

Every so often one fault, drawn at random, is injected.  A second run of as many env steps is left
alone.  Both policies then play the same deterministic episodes.  What was measured lies in
``--folder``, so an interrupted bench goes on with the second run.
"""

from collections import Counter
from collections.abc import Callable, Sequence
import contextlib
import json
import os
import pathlib
import resource
import signal
import sys
import time
from typing import Any

import numpy as np

from asyncppo_ros.acting.evaluation import play
from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.learning.jsonl import read_jsonl
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.robot.artefact import read_artefact
from asyncppo_ros.robot.numpy_policy import NumpyPolicy
from asyncppo_ros.run import replace_file, resolve, Run
from asyncppo_ros.settings import to_dict
from asyncppo_ros.simulation.registry import make
from asyncppo_ros.tools.arguments import Parser, split_settings
from asyncppo_ros.tools.bench.results import check, report, row, table, verdict
from asyncppo_ros.tools.bench.uncertainty import Estimate, mean_difference
from asyncppo_ros.tools.bench.watched import (
    median_rate,
    recovery_s,
    WatchedRun,
    without_place,
)
from asyncppo_ros.tools.jobs import final_score

# Nobody restarts by hand here: an actor is hit again and again, and comes back each time.
SETTINGS = {
    'task': 'cartpole_swingup', 'num_actors': 2, 'actor.max_crashes': 1000,
    'learner.checkpoint_seconds': 5.0, 'transport.heartbeat_s': 0.2,
    'transport.heartbeat_timeout_s': 2.0, 'evaluation.final_episodes': 1}
# A process that dies more often than `asyncppo train` forgives ends the run, as it should: each
# is left alone for this time, its `HEALTHY_S` and a start.
SPARED_S = 75.0
CALIBRATION_S = 40.0
# What is left of the rate with a fault every 20 s: to make the run last as long as asked.
EFFICIENCY = 0.7
LEARNER_STOP_S = 3.0
DISK_FULL_S = 5.0
WINDOW_S = 3.0
# Of the undisturbed rate, which counts as back after a fault.
RATE_SHARE = 0.9
# The final evaluation of `asyncppo train` and what else comes after the last step.
LAST_S = 30.0


def main(arguments: list[str], stop: StopRequest) -> int:
    """Run both trainings and print the table or the JSON object."""
    parser = Parser(prog='asyncppo bench faults', description=__doc__, allow_abbrev=False)
    parser.add_argument('--minutes', type=float, default=30.0,
                        help='about the length of the faulted run, default 30')
    parser.add_argument('--every', type=float, default=20.0, help='s between faults, default 20')
    parser.add_argument('--faults', nargs='+', default=list(FAULTS), choices=list(FAULTS))
    parser.add_argument('--episodes', type=int, default=200,
                        help='of the evaluation of each policy, default 200')
    parser.add_argument('--margin', type=float, default=0.02,
                        help='share of the return that two runs may differ by, default 0.02')
    parser.add_argument('--folder', default='runs/bench-faults', help='takes the runs')
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    own, given = split_settings(parser, arguments)
    if own.minutes <= 0.0 or own.every <= 0.0 or own.episodes < 2:
        raise ConfigError('--minutes and --every must be more than 0, --episodes at least 2')
    bench = FaultBench(own, given, stop)
    result = bench.run()
    if result is None:
        return 0
    result['command'] = ['asyncppo', 'bench', 'faults', *(
        word for word in arguments if word not in ('--folder', own.folder))]
    print(json.dumps(result, indent=1) if own.json
          else f'{table(result["rows"])}\n\n{verdict(result["checks"])}')
    return 0 if all(entry['passed'] for entry in result['checks']) else 1


class FaultBench:
    """The two runs of the bench in one folder."""

    def __init__(self, own: Any, given: dict[str, Any], stop: StopRequest) -> None:
        self._own = own
        self._given = given
        self._stop = stop
        self._folder = pathlib.Path(own.folder).absolute()
        self._record_file = self._folder / 'faults.json'

    def run(self) -> dict[str, Any] | None:
        """Give the result; None = asked to stop."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if not self._record_file.exists():
            rate = self._calibrate()
            record = None if self._stop() else self._faulted(rate)
            if record is None:
                return None
            replace_file(self._record_file, json.dumps(record, indent=1).encode())
        record = json.loads(self._record_file.read_text())
        undisturbed = self._undisturbed(record['env_steps'])
        if undisturbed is None:
            return None
        return result_of(record, undisturbed, self._own.episodes, self._own.margin)

    def _settings(self, env_steps: int) -> dict[str, Any]:
        return without_place(to_dict(resolve(
            {**SETTINGS, **self._given, 'env_steps': env_steps})))

    def _calibrate(self) -> float:
        """Measure the rate of a run that nobody disturbs [env steps/s]."""
        _say('measuring the rate of an undisturbed run …')
        watched = WatchedRun(self._folder / 'calibration', self._settings(10 ** 9))
        try:
            watched.need(lambda: len(watched.seen) > 5, 'updates', stop=self._stop)
            begun = time.monotonic()
            watched.watch(CALIBRATION_S, self._stop)
            if self._stop():
                return 0.0
            watched.end()
            return median_rate(watched.seen, begun, watched.seen[-1].at, WINDOW_S)
        finally:
            watched.kill()

    def _faulted(self, rate: float) -> dict[str, Any] | None:
        env_steps = int(rate * 60.0 * self._own.minutes * EFFICIENCY)
        _say(f'{rate:,.0f} env steps/s: both runs get {env_steps:,} env steps')
        settings = self._settings(env_steps)
        folder = self._folder / 'faulted'
        watched = WatchedRun(folder, settings)
        begun = time.monotonic()
        try:
            watched.need(lambda: watched.seen, 'an update', stop=self._stop)
            injector = Injector(watched, self._own.faults, int(settings['seed']), rate)
            while watched.process.poll() is None and not self._stop():
                if watched.watch(self._own.every, self._stop, lambda: _is_last(
                        watched, env_steps)) or watched.process.poll() is not None:
                    break
                if not self._stop():
                    injector.inject()
            if self._stop():
                return None
            _say('all steps are nearly done: no more faults')
            watched.watch(60.0 * self._own.minutes, self._stop,
                          until=lambda: watched.process.poll() is not None)
            if self._stop():
                return None
            watched.require_success()
        finally:
            watched.kill()
        return {'env_steps': env_steps, 'every_s': self._own.every, 'settings': settings,
                'undisturbed_rate': rate,
                'injected': injector.injected,
                **summary_of(watched.run, time.monotonic() - begun)}

    def _undisturbed(self, env_steps: int) -> dict[str, Any] | None:
        folder = self._folder / 'undisturbed'
        run = Run(folder)
        if final_score(run) is None:
            _say('the undisturbed run …')
            resume = (run.checkpoint / 'checkpoint.safetensors').is_file()
            watched = WatchedRun(folder, {} if resume else self._settings(env_steps), resume)
            try:
                while watched.process.poll() is None and not self._stop():
                    watched.watch(30.0, self._stop)
                    if watched.seen:
                        _say(f'{watched.seen[-1].row["env_steps"]:,} of {env_steps:,} env steps')
                if self._stop():
                    return None
                watched.require_success()
            finally:
                watched.kill()
        return summary_of(run, read_jsonl(run.metrics_file)[-1]['time_s'])


class Injector:
    """
    Draws faults and injects them.

    Attributes
    ----------
    injected : list of dict
        ``fault``, ``time_s`` since the start, ``recovery_s`` until the rate was back (None = not
        before the next one).

    """

    def __init__(self, watched: WatchedRun, faults: Sequence[str], seed: int,
                 rate: float) -> None:
        self.injected: list[dict[str, Any]] = []
        self._watched = watched
        self._faults = list(faults)
        self._rng = np.random.default_rng(seed)
        self._begun = time.monotonic()
        self._spared_until: dict[str, float] = {}
        self._over_at = 0.0
        self._needed = RATE_SHARE * rate

    def inject(self) -> None:
        """Inject one fault; the time that it lasts passes here."""
        self._note_recovery()
        now = time.monotonic()
        open_to = [name for name in self._faults if now >= self._spared_until.get(name, 0.0)]
        if not open_to:
            return
        name = str(self._rng.choice(open_to))
        if not FAULTS[name](self._watched, self._rng):
            return  # its victim was just being started
        if name in SPARED:
            self._spared_until[name] = now + SPARED_S
        self._over_at = time.monotonic()
        self.injected.append({'fault': name, 'time_s': round(now - self._begun, 1),
                              'recovery_s': None})
        _say(f'{now - self._begun:6.0f} s  {name}')

    def _note_recovery(self) -> None:
        """Say of the fault before how long the rate took to come back."""
        seen = self._watched.seen
        if self.injected and seen[-1].at > self._over_at + WINDOW_S:
            self.injected[-1]['recovery_s'] = recovery_s(seen, self._over_at, self._needed,
                                                         WINDOW_S)


def _kill_actor(watched: WatchedRun, rng: np.random.Generator) -> bool:
    return _signal(_some(watched.pids('actor'), rng), signal.SIGKILL)


def _stop_actor(watched: WatchedRun, rng: np.random.Generator) -> bool:
    """Left to the supervisor: it counts as hung, is killed and started again."""
    return _signal(_some(watched.pids('actor'), rng), signal.SIGSTOP)


def _kill_half(watched: WatchedRun, rng: np.random.Generator) -> bool:
    actors = watched.pids('actor')
    return _signal(_some(actors, rng, max(1, len(actors) // 2)), signal.SIGKILL)


def _kill_learner(watched: WatchedRun, _rng: np.random.Generator) -> bool:
    return _signal(watched.pids('learner'), signal.SIGKILL)


def _kill_evaluator(watched: WatchedRun, _rng: np.random.Generator) -> bool:
    return _signal(watched.pids('evaluator'), signal.SIGKILL)


def _kill_supervisor(watched: WatchedRun, _rng: np.random.Generator) -> bool:
    return _signal(watched.pids('supervisor'), signal.SIGKILL)


def _stop_learner(watched: WatchedRun, _rng: np.random.Generator) -> bool:
    learner = watched.pids('learner')
    if not _signal(learner, signal.SIGSTOP):
        return False
    try:
        watched.watch(LEARNER_STOP_S)
    finally:
        _signal(learner, signal.SIGCONT)
    return True


def _fill_disk(watched: WatchedRun, _rng: np.random.Generator) -> bool:
    """Let every write of the learner to a file fail for a while."""
    learner = watched.pids('learner')
    if not learner:
        return False
    _, hard = resource.prlimit(learner[0], resource.RLIMIT_FSIZE)
    resource.prlimit(learner[0], resource.RLIMIT_FSIZE, (0, hard))
    try:
        watched.watch(DISK_FULL_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(learner[0], resource.RLIMIT_FSIZE, (hard, hard))
    return True


FAULTS: dict[str, Callable[[WatchedRun, np.random.Generator], bool]] = {
    'kill_actor': _kill_actor, 'stop_actor': _stop_actor, 'kill_half': _kill_half,
    'kill_learner': _kill_learner, 'kill_evaluator': _kill_evaluator,
    'stop_learner': _stop_learner, 'full_disk': _fill_disk, 'kill_supervisor': _kill_supervisor}
SPARED = ('kill_learner', 'kill_evaluator', 'kill_supervisor')


def _some(pids: Sequence[int], rng: np.random.Generator, count: int = 1) -> list[int]:
    return [int(pid) for pid in rng.permutation(pids)[:count]]


def _signal(pids: Sequence[int], number: signal.Signals) -> bool:
    sent = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            sent += 1
    return sent > 0


def _is_last(watched: WatchedRun, env_steps: int) -> bool:
    """Say whether the training ends so soon that a fault could meet its end."""
    if len(watched.seen) < 2:
        return False
    row = watched.seen[-1].row
    return row['env_steps'] + LAST_S * row['env_steps_per_s'] >= env_steps


def summary_of(run: Run, seconds: float) -> dict[str, Any]:
    """Read what a finished run left."""
    rows = read_jsonl(run.metrics_file)
    books = json.loads((run.folder / 'books.json').read_text())
    return {'seconds': seconds, 'policy': str(run.policy_file),
            'policy_lag_max': max(entry['policy_lag_max'] for entry in rows),
            'max_policy_lag': run.config().learner.max_policy_lag,
            'generations': int(rows[-1]['generation']) + 1,
            'balanced': books['balanced'], 'totals': books['totals'],
            'incarnations': len(books['actors'])}


def returns_of(policy_file: str, episodes: int, seed: int) -> np.ndarray:
    """Give the returns of deterministic episodes, float64 [episodes]."""
    artefact = read_artefact(policy_file)
    environment = make(artefact.card['task']['task'], episodes, seed)
    try:
        return play(NumpyPolicy(artefact), environment)[:, 0].astype(np.float64)
    finally:
        environment.close()


def result_of(faulted: dict[str, Any], undisturbed: dict[str, Any], episodes: int,
              margin: float) -> dict[str, Any]:
    """Evaluate both policies and put everything together."""
    seed = Config().evaluation.seed
    first = returns_of(faulted['policy'], episodes, seed)
    # Other episodes: the interval is that of two independent samples.
    second = returns_of(undisturbed['policy'], episodes, seed + 1)
    difference = mean_difference(first, second)
    rows = [row('return, with faults', first.tolist(), 'return'),
            row('return, undisturbed', second.tolist(), 'return'),
            row('duration, with faults', [faulted['seconds'] / 60.0], 'min'),
            row('duration, undisturbed', [undisturbed['seconds'] / 60.0], 'min')]
    for name, count in sorted(counts_of(faulted['injected']).items()):
        rows.append(row(f'{name} injected', [count], 'faults'))
    back = [entry['recovery_s'] for entry in faulted['injected']
            if entry['recovery_s'] is not None]
    if back:
        rows.append(row('rate back to 90 %', back, 's'))
    rows.append(row('rate not back before the next fault',
                    [len(faulted['injected']) - len(back)], 'faults'))
    runs = {'faulted': {**faulted, 'returns': first.tolist()},
            'undisturbed': {**undisturbed, 'returns': second.tolist()}}
    for entry in runs.values():
        del entry['policy']
    settings = runs['faulted'].pop('settings')
    return report(settings, rows, checks=checks_of(faulted, undisturbed, difference,
                                                   margin * float(second.mean())),
                  difference={'value': difference.value, 'low': difference.low,
                              'high': difference.high}, episodes=episodes, runs=runs)


def counts_of(injected: Sequence[dict[str, Any]]) -> Counter[str]:
    """Count the faults by name."""
    return Counter(entry['fault'] for entry in injected)


def checks_of(faulted: dict[str, Any], undisturbed: dict[str, Any], difference: Estimate,
              margin: float) -> list[dict[str, Any]]:
    """
    Compare with what is asked for.

    The interval of `difference` is that over episodes; what two trainings differ by, with equal
    settings and other random numbers, comes on top and is the `margin` [return].
    """
    checks = [check('return with faults - undisturbed, lower end', difference.low,
                    f'>= {-margin:.4g}', difference.low >= -margin)]
    for name, entry in (('with faults', faulted), ('undisturbed', undisturbed)):
        checks += [
            check(f'{name}: largest policy lag', entry['policy_lag_max'],
                  f'<= {entry["max_policy_lag"]}',
                  entry['policy_lag_max'] <= entry['max_policy_lag']),
            check(f'{name}: books balance', float(entry['balanced']), '1', entry['balanced'])]
    kills = counts_of(faulted['injected'])['kill_learner']
    checks.append(check('learner restarts', faulted['generations'] - 1, f'>= {kills}',
                        faulted['generations'] - 1 >= kills))
    return checks


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

"""
What the scripts of all peers have in common; it lies beside them and needs no package.

A peer is one file, ``NAME_ALGORITHM.py``, which is run by the interpreter that has its package.
It imports nothing of this package, and what its own interpreter lacks only inside of functions,
so that others can read what it says of itself:

``NEEDS``
    Modules that its interpreter must have.
``INSTALL``
    What to give to ``pip install`` there.
``VARIANTS``
    Name of each way to train to its number of environments.
``RATE``, ``RETURN``
    Variants that are measured for speed, and for how long they take to a return.
``train(options, progress)``
    Trains until `Progress.update` says that it is enough, and gives what is left to say.

Every script has the options of `parser`.  After every update it prints one JSON object in a
line: ``env_steps``, ``gradient_steps``, ``seconds`` and, where it was evaluated, ``return_mean``.
The result is one JSON object in a file.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
import importlib.metadata
import json
import pathlib
import signal
import sys
import time
from typing import Any, NamedTuple

# Raw observation, float64 [O], to action within the bounds of the action space, [A].
Act = Callable[[Any], Any]


class Trained(NamedTuple):
    """
    What a training gives.

    Attributes
    ----------
    settings : mapping
        Hyper-parameters, as JSON types.
    packages : sequence of str
        Distributions whose versions matter.
    act : callable or None
        The policy without exploration; None = it cannot be scored.

    """

    settings: Mapping[str, Any]
    packages: Sequence[str]
    act: Act | None


class Progress:
    """
    What a training reports to, and who says when it is enough.

    Parameters
    ----------
    options : Namespace
        Of `parser`.

    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.entries: list[dict[str, Any]] = []
        self._options = options
        self._next_look = options.evaluate_every or float('inf')
        self._begun = time.monotonic()

    def begin(self) -> None:
        """Start the clock: what comes before is start-up."""
        self._begun = time.monotonic()

    def update(self, env_steps: int, gradient_steps: int, act: Act | None = None) -> bool:
        """
        Report after an update; evaluate where that is due, which takes none of the time.

        Parameters
        ----------
        env_steps, gradient_steps : int
            Since the start; transitions that the updates so far have learned from.
        act : callable, optional

        Returns
        -------
        bool
            It is enough.

        """
        options = self._options
        entry: dict[str, Any] = {'env_steps': int(env_steps),
                                 'gradient_steps': int(gradient_steps),
                                 'seconds': time.monotonic() - self._begun}
        if act is not None and env_steps >= self._next_look:
            self._next_look = (env_steps // options.evaluate_every + 1) * options.evaluate_every
            returns = play(act, options.task, options.look_episodes, options.evaluation_seed)
            entry['return_mean'] = sum(returns) / len(returns)
            self._begun = time.monotonic() - entry['seconds']
        self.entries.append(entry)
        print(json.dumps(entry), flush=True)
        return bool(options.steps and env_steps >= options.steps) or bool(
            options.seconds and entry['seconds'] - self.entries[0]['seconds'] >= options.seconds)

    def facts(self) -> dict[str, Any]:
        """Give the numbers of the result; ``steady`` is between the first update and the last."""
        first, last = self.entries[0], self.entries[-1]
        return {'env_steps': last['env_steps'], 'gradient_steps': last['gradient_steps'],
                'wall_clock_s': last['seconds'],
                'steady': {name: last[name] - first[name] for name in first
                           if name != 'return_mean'},
                'curve': [entry for entry in self.entries if 'return_mean' in entry]}


def play(act: Act, task: str, episodes: int, seed: int) -> list[float]:
    """
    Play whole episodes in Gymnasium's own environment.

    Parameters
    ----------
    act : callable
        Raw observation, float64 [O], to action within the bounds of the action space, [A].
    task : str
        Gymnasium id.
    episodes, seed : int
        Episode i is reset with seed + i.

    Returns
    -------
    list of float
        The return of each.

    """
    import gymnasium

    environment = gymnasium.make(task)
    returns = []
    for index in range(episodes):
        observation, _ = environment.reset(seed=seed + index)
        total, ended = 0.0, False
        while not ended:
            observation, reward, terminated, truncated, _ = environment.step(act(observation))
            total += float(reward)
            ended = terminated or truncated
        returns.append(total)
    environment.close()
    return returns


def parser(description: str | None, variants: Sequence[str]) -> argparse.ArgumentParser:
    """Give the options that every script has."""
    result = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument('--task', required=True, help='Gymnasium id')
    result.add_argument('--variant', required=True, choices=variants)
    result.add_argument('--seed', type=int, default=0)
    result.add_argument('--steps', type=int, default=0, help='env steps to train; 0 = no end')
    result.add_argument('--seconds', type=float, default=0.0,
                        help='to train after the first update; 0 = no end')
    result.add_argument('--evaluate_every', type=int, default=0, metavar='STEPS',
                        help='evaluate on the way; 0 = never')
    result.add_argument('--look_episodes', type=int, default=10,
                        help='of each evaluation on the way, default 10')
    result.add_argument('--episodes', type=int, default=0, help='of the last one; 0 = none')
    result.add_argument('--evaluation_seed', type=int, default=1_000_003)
    result.add_argument('--out', type=pathlib.Path, required=True, help='takes the result')
    return result


def main(script: Any) -> int:
    """
    Train, play, write the result.

    Parameters
    ----------
    script : module
        A peer, as the head of this file says what it is.

    """
    options = parser(script.__doc__, list(script.VARIANTS)).parse_args()
    if not (options.steps or options.seconds):
        sys.exit('--steps or --seconds is needed')
    # So that processes which the package has started are ended, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    progress = Progress(options)
    trained = script.train(options, progress)
    result = {**progress.facts(), 'num_envs': script.VARIANTS[options.variant],
              'settings': trained.settings, 'returns': [], 'versions': {
                  'python': sys.version.split()[0],
                  **{name: importlib.metadata.version(name) for name in trained.packages}}}
    if options.episodes and trained.act is not None:
        result['returns'] = play(trained.act, options.task, options.episodes,
                                 options.evaluation_seed)
    partial = options.out.with_suffix('.part')
    partial.write_text(json.dumps(result))
    partial.replace(options.out)
    return 0

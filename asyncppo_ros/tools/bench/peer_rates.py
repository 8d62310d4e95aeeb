"""Env steps per second in training: ours and peers in turn, round after round."""

from collections.abc import Callable, Mapping, Sequence
import json
import pathlib
import statistics
import sys
from typing import Any

from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError, RunError
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.run import num_actors, resolve, Run
from asyncppo_ros.settings import as_text, build, to_dict
from asyncppo_ros.tools.auto import settled
from asyncppo_ros.tools.bench.peer_jobs import OURS, Peer, PeerJob
from asyncppo_ros.tools.bench.results import check, row
from asyncppo_ros.tools.bench.uncertainty import paired_ratio
from asyncppo_ros.tools.bench.watched import WatchedRun, without_place
from asyncppo_ros.tools.jobs import run_jobs, tail_of

# How many times as fast as a peer, on the task that this was asked for; elsewhere faster.
NEEDED = {'sb3': 12.0, 'sample_factory': 5.0}
NEEDED_TASK = 'HalfCheetah-v5'
# After the first update of all actors.
WARM_UP_S = 3.0
# What a training told: env_steps_per_s, gradient_steps_per_env_step, num_envs.
Rate = dict[str, float]


def measure(task: str, peers: Sequence[Peer], given: Mapping[str, Any], folder: pathlib.Path,
            rounds: int, seconds: float, stop: StopRequest) -> list[dict[str, Rate]]:
    """
    Measure all once a round, every other round the other way around.

    A round that is whole in `folder`, and was of the same trainings, is not repeated.

    Parameters
    ----------
    task : str
    peers : sequence of Peer
    given : mapping
        Settings of ours, dotted names to values.
    folder : Path
    rounds : int
    seconds : float
        Of each training, after its start and its first update.
    stop : StopRequest

    Returns
    -------
    list of dict
        For each round, who to what it told.

    """
    # Neither the schedules nor the end of a training is what is measured.
    config = resolve({**given, 'task': task, 'env_steps': 10 ** 12})
    peer_measures = {
        f'{peer.name} {variant}': _of_peer(peer, variant, task, folder, seconds, stop)
        for peer in peers for variant in peer.chosen(peer.script.RATE)}
    # As JSON has it.
    asked = json.loads(json.dumps({'seconds': seconds, 'settings': without_place(to_dict(config)),
                                   'who': [OURS, *peer_measures]}))
    files = [folder / f'{task}-{number}.json' for number in range(rounds)]
    missing = [number for number, file in enumerate(files) if _kept(file, asked) is None]
    if missing:
        config = settled(config, stop=stop, tell=_tell)
        config = build(Config, {**to_dict(config), 'num_actors': num_actors(config)})
    measures: dict[str, Callable[[int], Rate]] = {
        OURS: lambda number: _of_ours(config, folder / f'{task}-{number}-{OURS}', seconds, stop),
        **peer_measures}
    for number in missing:
        values: dict[str, Rate] = {}
        for name in list(measures)[::-1 if number % 2 else 1]:
            values[name] = measures[name](number)
            # What was cut short is not looked at.
            if stop():
                return []
            _tell(f'{task} round {number + 1} of {rounds}, {name}: '
                  f'{values[name]["env_steps_per_s"]:,.0f} env steps/s')
        files[number].write_text(json.dumps({
            'asked': asked, 'found': {name: values[name] for name in measures}}))
    return [found for file in files if (found := _kept(file, asked)) is not None]


def _kept(path: pathlib.Path, asked: Mapping[str, Any]) -> dict[str, Rate] | None:
    if not path.is_file():
        return None
    known = json.loads(path.read_text())
    return known['found'] if known['asked'] == asked else None


def _of_ours(config: Config, folder: pathlib.Path, seconds: float, stop: StopRequest) -> Rate:
    """Train anew, as a user does; measure once all actors collect."""
    settings = {name: value for name, value in without_place(to_dict(config)).items()
                if as_text(value)}
    run = Run(_fresh(folder))
    watched = WatchedRun(run.folder, settings)
    try:
        watched.need_actors(config.num_actors, stop)
        watched.watch(WARM_UP_S, stop)
        begun = max(0, len(watched.seen) - 1)
        watched.watch(seconds, stop)
        rows = [seen.row for seen in watched.seen[begun:]]
        watched.end()
    finally:
        watched.kill()
    return {} if stop() else rate_of_rows(rows, config.num_actors * config.actor.num_envs)


def rate_of_rows(rows: Sequence[Mapping[str, Any]], num_envs: int) -> Rate:
    """Give the rate between the first and the last row, by the learner's clock."""
    if len(rows) < 2:
        raise ConfigError('--seconds: too short for two updates')
    steps, gradient_steps, seconds = (rows[-1][name] - rows[0][name] for name in (
        'env_steps', 'gradient_steps', 'time_s'))
    return {'env_steps_per_s': steps / seconds, 'num_envs': num_envs,
            'gradient_steps_per_env_step': gradient_steps / steps}


def _of_peer(peer: Peer, variant: str, task: str, folder: pathlib.Path, seconds: float,
             stop: StopRequest) -> Callable[[int], Rate]:
    def once(number: int) -> Rate:
        run = Run(_fresh(folder / f'{task}-{number}-{peer.name}-{variant}'))
        run.folder.mkdir(parents=True)
        job = PeerJob(run, peer.python, {'peer': peer.name, 'task': task, 'variant': variant,
                                         'seed': number, 'seconds': seconds})
        for ended in run_jobs(iter([job]), 1, stop):
            if ended.code != 0 and not stop():
                raise RunError(f'{run.folder}: the training by {peer.name} {variant} failed: '
                               f'{tail_of(job, 1)}')
        return {} if stop() else rate_of_result(job.found())
    return once


def rate_of_result(found: Mapping[str, Any]) -> Rate:
    """Give the rate between the first update of a peer and its last."""
    steady = found['steady']
    if not steady['env_steps']:
        raise ConfigError('--seconds: too short for two updates of a peer')
    return {'env_steps_per_s': steady['env_steps'] / steady['seconds'],
            'num_envs': found['num_envs'],
            'gradient_steps_per_env_step': steady['gradient_steps'] / steady['env_steps']}


def _fresh(folder: pathlib.Path) -> pathlib.Path:
    """Give a folder that is not there: what was begun before goes aside."""
    number = 1
    while folder.exists():
        number += 1
        folder = folder.with_name(f'{folder.name.partition("~")[0]}~{number}')
    return folder


def comparisons_of(task: str, rounds: Sequence[Mapping[str, Rate]]) -> list[dict[str, Any]]:
    """
    Compare ours with every variant, paired within the rounds.

    Returns
    -------
    list of dict
        ``ratio``: ours / the peer's env steps/s with its 95 % interval; ``counts``: it is the
        fastest variant of its package.

    """
    names = [name for name in rounds[0] if name != OURS]
    rates = {name: [entry[name]['env_steps_per_s'] for entry in rounds] for name in (OURS, *names)}
    found = []
    for name in names:
        package, _, variant = name.partition(' ')
        best = max((other for other in names if other.partition(' ')[0] == package),
                   key=lambda other: statistics.median(rates[other]))
        found.append({'task': task, 'peer': package, 'variant': variant,
                      'ratio': list(paired_ratio(rates[OURS], rates[name])),
                      'counts': best == name})
    return found


def checks_of(comparisons: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Compare with what was asked for: the fastest variant of each package counts."""
    checks = []
    for entry in comparisons:
        if entry['counts']:
            needed = NEEDED.get(entry['peer'], 1.0) if entry['task'] == NEEDED_TASK else 1.0
            exactly = needed > 1.0
            value = entry['ratio'][0]
            checks.append(check(
                f'{entry["task"]}: env steps/s over those of {entry["peer"]} {entry["variant"]}',
                value, f'{">=" if exactly else ">"} {needed:g}',
                value >= needed if exactly else value > needed))
    return checks


def rows_of(task: str, rounds: Sequence[Mapping[str, Rate]]) -> list[dict[str, Any]]:
    """Summarize over the rounds."""
    rows = []
    for name in rounds[0]:
        values = [entry[name] for entry in rounds]
        rows += [row(f'{task} {name}', [value['env_steps_per_s'] for value in values],
                     'env steps/s'),
                 row(f'{task} {name} gradient_steps',
                     [1000.0 * value['gradient_steps_per_env_step'] for value in values],
                     'per 1000 env steps'),
                 row(f'{task} {name} num_envs', [value['num_envs'] for value in values],
                     'environments')]
    return rows


def text_of(task: str, rounds: Sequence[Mapping[str, Rate]],
            comparisons: Sequence[Mapping[str, Any]]) -> str:
    """Give a Markdown table."""
    lines = [f'| {task} | environments | env steps/s in training (lowest, highest) | '
             'gradient steps per 1000 env steps | ours / it [95 %] |', '|' + '---|' * 5]
    ratios = {f'{entry["peer"]} {entry["variant"]}': entry['ratio'] for entry in comparisons}
    for name in rounds[0]:
        rates = [entry[name]['env_steps_per_s'] for entry in rounds]
        gradient_steps = statistics.median(
            1000.0 * entry[name]['gradient_steps_per_env_step'] for entry in rounds)
        value, low, high = ratios.get(name, (1.0, 1.0, 1.0))
        ratio = f'{value:.2f} [{low:.2f}, {high:.2f}]' if name in ratios else ''
        lines.append(f'| {name} | {rounds[0][name]["num_envs"]:g} | '
                     f'{statistics.median(rates):,.0f} ({min(rates):,.0f}, {max(rates):,.0f}) | '
                     f'{gradient_steps:.1f} | {ratio} |')
    return '\n'.join(lines)


def _tell(text: str) -> None:
    print(text, file=sys.stderr)

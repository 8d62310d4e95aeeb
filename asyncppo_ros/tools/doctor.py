"""
``asyncppo doctor``: which stage limits a training on this machine, and what to turn.

Measures what every stage of a training costs here, one actor and one learner in processes of
their own, alone and at once; names the stage that limits; and predicts what one more actor, more
environments, larger batches or a GPU would give.  For a run it also says what its metrics tell.
"""

from collections.abc import Mapping, Sequence
import functools
import json
import pathlib
import statistics
import sys
import textwrap
from typing import Any, NamedTuple

from asyncppo_ros.config import Config
from asyncppo_ros.cores import core_limit
from asyncppo_ros.errors import ConfigError, RunError
from asyncppo_ros.launching import check_task, NEEDED, require
from asyncppo_ros.learning.jsonl import read_jsonl
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.run import find_run, machine, num_actors, resolve, Run, versions
from asyncppo_ros.settings import build, to_dict
from asyncppo_ros.tools.arguments import Parser, settings_help, split_settings
from asyncppo_ros.tools.auto import envs_to_try, settled
from asyncppo_ros.tools.stage_process import measure, Measured, Stopped
from asyncppo_ros.tools.throughput import Bounds, bounds, Costs, limiting_stage, NOTHING, STAGES

# The first updates of a run are not as the others.
_WARM_UP_SHARE = 0.2
# Waits below this are no one's fault: actors and learner are a match.
_BUSY = 0.05
# Of what is told [columns].
_WIDTH = 100
_WHAT = {'physics': 'steps of the environments', 'inference': 'policy and exploration',
         'transport': 'chunks written, sent and taken', 'learner': 'updates and new policies'}
_TURN = {'physics': 'more cores for more actors (--num_actors), a larger physics step, or a '
                    'simpler model',
         'inference': 'more environments an actor (--actor.num_envs), or a smaller network '
                      '(--policy.hidden_sizes)',
         'transport': 'longer chunks (--actor.chunk_length), a smaller observation, or '
                      '--transport.kind shm',
         'learner': 'fewer epochs (--learner.ppo.epochs), larger minibatches '
                    '(--learner.ppo.minibatch_size), or a GPU'}


class Prediction(NamedTuple):
    """
    What a change is expected to give.

    Attributes
    ----------
    name : str
    settings : dict
        What it takes.
    bounds : Bounds
    limit : str
        The stage that then limits.

    """

    name: str
    settings: dict[str, int]
    bounds: Bounds
    limit: str


def main(arguments: list[str], stop: StopRequest) -> int:
    """Measure, and print the finding or the JSON object."""
    import argparse
    parser = Parser(prog='asyncppo doctor', description=__doc__, epilog=settings_help(),
                    usage='asyncppo doctor RUN [options]\n'
                    '       asyncppo doctor --task TASK [options]',
                    formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument('--config', action='append', default=[], metavar='FILE',
                        help='YAML file of settings; may be given again, later wins')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--seconds', type=float, default=1.0, help='of each measurement')
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    # Taken first, for behind an option it might be the value of a setting.
    folder = arguments[0] if arguments and not arguments[0].startswith('-') else ''
    own, given = split_settings(parser, arguments[1:] if folder else arguments)
    if own.rounds < 1 or not 0.0 < own.seconds <= 600.0:
        raise ConfigError(f'--rounds {own.rounds} --seconds {own.seconds}: at least 1 round, of '
                          'up to 600 s')
    config, run = _config_of(folder, given, own.config)
    require([name for name in NEEDED if name != 'rclpy'])
    check_task(config.task, config.seed)
    tell = functools.partial(print, file=sys.stderr)
    config = settled(config, stop=stop, tell=tell)
    try:
        measured = measure(config, *_to_measure(config), own.rounds, own.seconds, stop=stop,
                           tell=tell)
    except Stopped:
        return 0
    found = finding(config, measured, core_limit())
    if run is not None:
        found['run'] = seen_in(read_jsonl(run.metrics_file))
    found['command'] = ['asyncppo', 'doctor', *arguments]
    print(json.dumps(found, indent=1) if own.json else told(found))
    return 0


def _config_of(folder: str, given: Mapping[str, Any],
               files: Sequence[str]) -> tuple[Config, Run | None]:
    if not folder:
        if 'task' not in given and not files:
            raise ConfigError('asyncppo doctor: a run or --task is needed, for example '
                              '`asyncppo doctor runs/latest`')
        return resolve(given, files), None
    if not pathlib.Path(folder).exists():
        raise RunError(f'{folder}: no run there; runs lie under runs/, the newest is runs/latest. '
                       f'A task is named as `asyncppo doctor --task {folder}`')
    run = find_run(folder)
    return resolve({**given, 'run_dir': ''}, files, base=to_dict(run.config())), run


def _to_measure(config: Config) -> tuple[list[int], list[int]]:
    """Give the numbers of environments and the batches to measure: as set, and twice that."""
    num_envs, batch = config.actor.num_envs, config.learner.batch_size
    several = [num_envs, 2 * num_envs] if config.actor.source == 'simulation' else [num_envs]
    tried = envs_to_try(build(Config, {**to_dict(config), 'actor.num_envs': 0}))
    return list(dict.fromkeys([*several, *(count for count in tried if count <= 2 * num_envs)])), \
        [batch, 2 * batch]


def finding(config: Config, measured: Measured, cores: float) -> dict[str, Any]:
    """
    Work out what limits, what changes would give, and what to set.

    Returns
    -------
    dict
        ``machine, versions, settings, cores, stages, slow_actor, slow_learner, limit,
        all_cores_busy, turn, predictions, advice``.

    """
    num_envs, batch = config.actor.num_envs, config.learner.batch_size
    costs, count = measured.costs(num_envs, batch), num_actors(config)
    predictions = predicted(config, measured, cores)
    return {
        'machine': machine(), 'versions': versions(), 'settings': to_dict(config),
        'cores': cores, 'num_actors': count,
        'stages': {name: {'wall_s': cost.wall_s, 'cpu_s': cost.cpu_s,
                          'env_steps_per_s': 1.0 / max(cost.wall_s, 1e-12)}
                   for name, cost in costs.stages().items()},
        'slow_actor': costs.slow_actor, 'slow_learner': costs.slow_learner,
        'limit': predictions[0].limit, 'all_cores_busy': predictions[0].bounds.cores_limit,
        'turn': _TURN[predictions[0].limit],
        'predictions': [{'name': entry.name, 'settings': entry.settings,
                         'env_steps_per_s': entry.bounds.rate,
                         'gain': entry.bounds.rate / predictions[0].bounds.rate,
                         'limit': entry.limit, 'all_cores_busy': entry.bounds.cores_limit,
                         'bounds': entry.bounds._asdict()}
                        for entry in predictions],
        'advice': advice(config, predictions)}


def predicted(config: Config, measured: Measured, cores: float) -> list[Prediction]:
    """Predict the settings as they are, then each change of them."""
    num_envs, batch = config.actor.num_envs, config.learner.batch_size
    costs, count = measured.costs(num_envs, batch), num_actors(config)
    takes_turns = config.learner.target_lag == 0

    def entry(name: str, costs: Costs, count: int, num_envs: int = num_envs,
              batch: int = batch) -> Prediction:
        needed = count * num_envs * config.actor.chunk_length
        settings = {'num_actors': count, 'actor.num_envs': num_envs,
                    'learner.batch_size': max(batch, needed)}
        return Prediction(name, settings, bounds(costs, count, cores, takes_turns),
                          limiting_stage(costs, count, cores, takes_turns))

    found = [entry('as set', costs, count), entry('one more actor', costs, count + 1)]
    for other in measured.actor:
        if other != num_envs:
            name = ('twice the environments' if other == 2 * num_envs
                    else f'{other} environments')
            found.append(entry(name, measured.costs(other, batch), count, other))
    found += [entry('twice the batch', measured.costs(num_envs, other), count, batch=other)
              for other in measured.learner if other == 2 * batch]
    # The updates of a GPU may be as fast as they like, and take no core.
    gpu = costs._replace(learner=NOTHING, slow_actor=1.0)
    if config.learner.device != 'cuda':
        found.append(entry('a GPU, at most', gpu, count)._replace(
            settings={**found[0].settings}))
    return found


def advice(config: Config, predictions: Sequence[Prediction]) -> str:
    """
    Give the options of `asyncppo train` that are predicted to be fastest.

    A change is worth it from 5 % on, and only where it leaves the batch as it is: what larger
    batches do to learning is not measured here.
    """
    now = predictions[0]
    able = [entry for entry in predictions if 'GPU' not in entry.name
            and entry.settings['learner.batch_size'] == now.settings['learner.batch_size']]
    best = max(able, key=lambda entry: entry.bounds.rate)
    chosen = best if best.bounds.rate > (1.0 + _BUSY) * now.bounds.rate else now
    return (f'--task {config.task} --num_actors {chosen.settings["num_actors"]} '
            f'--actor.num_envs {chosen.settings["actor.num_envs"]} '
            f'--learner.batch_size {chosen.settings["learner.batch_size"]}')


def seen_in(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """
    Say what limited a run, by its metrics.

    Parameters
    ----------
    rows : sequence of mapping
        Of ``metrics.jsonl``; the first fifth is left out.

    Returns
    -------
    dict
        ``env_steps_per_s, actor_wait, learner_wait, actors, update_s, limit`` (actors, learner
        or both) and ``text``; without two rows only ``text``.

    """
    rows = [row for row in rows[int(_WARM_UP_SHARE * len(rows)):] if 'learner_wait' in row]
    rows = [row for row in rows if row['generation'] == rows[-1]['generation']]
    if len(rows) < 2:
        return {'text': 'it has too few updates to tell what limited it'}
    seconds = rows[-1]['time_s'] - rows[0]['time_s']
    rate = (rows[-1]['env_steps'] - rows[0]['env_steps']) / max(seconds, 1e-9)
    actor_wait, learner_wait, update_s, actors = (
        statistics.fmean(row.get(name, 0.0) for row in rows)
        for name in ('actor_wait', 'learner_wait', 'update_time', 'actors'))
    limit = ('both' if max(actor_wait, learner_wait) < _BUSY
             else 'actors' if learner_wait > actor_wait else 'learner')
    why = {'both': 'neither waited: actors and learner were a match, or the cores all busy',
           'actors': 'the learner waited for chunks: the actors limited it',
           'learner': 'the actors waited for permits and policies: the learner limited it'}
    return {'env_steps_per_s': rate, 'actor_wait': actor_wait, 'learner_wait': learner_wait,
            'actors': actors, 'update_s': update_s, 'limit': limit, 'text': why[limit]}


def told(found: Mapping[str, Any]) -> str:
    """Lay the finding out for a terminal."""
    lines = [f'{found["num_actors"]} actor{"s"[:found["num_actors"] > 1]} × '
             f'{found["settings"]["actor.num_envs"]} environments, '
             f'batch {found["settings"]["learner.batch_size"]:,}, on {found["cores"]:g} cores', '',
             'stage      µs a transition  core µs  env steps/s alone']
    lines += [f'{name:<9}  {1e6 * stage["wall_s"]:>15.2f}  {1e6 * stage["cpu_s"]:>7.2f}  '
              f'{stage["env_steps_per_s"]:>17,.0f}  {_WHAT[name]}'
              for name, stage in ((name, found['stages'][name]) for name in STAGES)]
    busy = 'All cores are busy, most of all with that.  ' if found['all_cores_busy'] else ''
    lines += ['', f'At once, an actor is {found["slow_actor"]:.2f} times and the learner '
              f'{found["slow_learner"]:.2f} times as slow.', '',
              *textwrap.wrap(f'{found["limit"]} limits it: {_WHAT[found["limit"]]}.  {busy}'
                             f'What helps: {found["turn"]}.', _WIDTH), '',
              'predicted               env steps/s   gain  then limited by    with']
    now = found['predictions'][0]['settings']
    for entry in found['predictions']:
        limit = entry['limit'] + (', cores' if entry['all_cores_busy'] else '')
        options = ' '.join(f'--{name} {value}' for name, value in entry['settings'].items()
                           if value != now[name])
        lines.append(f'{entry["name"]:<22}  {entry["env_steps_per_s"]:>11,.0f}  '
                     f'{entry["gain"]:>4.2f}×  {limit:<17}  {options}'.rstrip())
    if 'run' in found:
        lines += ['', *textwrap.wrap(_run_text(found['run']), _WIDTH)]
    return '\n'.join([*lines, '', f'asyncppo train {found["advice"]}'])


def _run_text(run: Mapping[str, Any]) -> str:
    if 'limit' not in run:
        return f'The run: {run["text"]}.'
    actors = f'{run["actors"]:.0f} actor{"s"[:run["actors"] > 1.5]}'
    return (f'The run made {run["env_steps_per_s"]:,.0f} env steps/s with {actors}; the learner '
            f'waited {run["learner_wait"]:.0%} of the time, the actors {run["actor_wait"]:.0%}; '
            f'an update took {run["update_s"]:.3g} s: {run["text"]}.')

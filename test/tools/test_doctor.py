"""`asyncppo doctor`: names the stage that limits, and predicts what changes give."""

import json
import pathlib

from harness import asyncppo
import pytest

from asyncppo_ros.config import Config
from asyncppo_ros.run import create
from asyncppo_ros.settings import as_text, build
from asyncppo_ros.tools.doctor import finding, seen_in, told
from asyncppo_ros.tools.stage_process import Measured
from asyncppo_ros.tools.stages import ActorStages, LearnerStage
from asyncppo_ros.tools.throughput import Cost, Costs, limiting_stage
from asyncppo_ros.transport.keys import make_keys

NUM_ENVS, CHUNK_LENGTH, BATCH = 32, 4, 256
SMALL = {'task': 'cartpole_swingup', 'num_actors': 1, 'actor.num_envs': NUM_ENVS,
         'actor.chunk_length': CHUNK_LENGTH, 'learner.batch_size': BATCH,
         'learner.ppo.minibatch_size': BATCH, 'learner.ppo.epochs': 1,
         'policy.hidden_sizes': (8,), 'policy.critic_hidden_sizes': (8,)}
MEASURE_S, MEASUREMENTS = 0.03, 8


def deep(_):
    """Many layers, one environment: numpy is called often for little, by the learner for all."""
    return {'policy.hidden_sizes': (8,) * 128, 'actor.num_envs': 1, 'actor.chunk_length': 256,
            'learner.batch_size': 256}


def wide(folder):
    """
    Chunks of several megabytes that are encrypted, of which the critic does little.

    Of one step each: the last state of a chunk is sent too, and no update reads it.
    """
    make_keys(folder / 'keys')
    return {'task': 'slow_tasks:WideObservation', 'policy.privileged_critic': True,
            'policy.normalize_observation': False, 'policy.critic_hidden_sizes': (1,),
            'learner.value_source': 'actor', 'transport.kind': 'zmq',
            'actor.chunk_length': 1, 'transport.keys': str(folder / 'keys')}


CASES = {'physics': lambda _: {'task': 'slow_tasks:SlowPhysics'}, 'inference': deep,
         'transport': wide,
         'learner': lambda _: {'learner.ppo.epochs': 100, 'learner.ppo.minibatch_size': 16}}
slow_stage = pytest.mark.parametrize('stage', CASES)


def measured_costs(**changed):
    """Measure all stages in this process, with settings that differ in what is given."""
    config = build(Config, {**SMALL, **changed})
    learner = LearnerStage(config)
    actor = ActorStages(config, learner.snapshot(), config.actor.num_envs)
    try:
        found = [{**actor.measure(MEASURE_S), 'learner': learner.measure(MEASURE_S)}
                 for _ in range(MEASUREMENTS)]
    finally:
        actor.close()
        learner.close()
    # What disturbs a measurement only adds to it, as does memory that is touched the first time.
    return Costs(**{name: min(each[name] for each in found) for name in found[0]})


@slow_stage
def test_the_slow_stage_is_named(stage, tmp_path):
    """All four as they are, nothing of them replaced."""
    costs = measured_costs(**CASES[stage](tmp_path))
    # What sleeps takes no core, so with few of them it is the others that limit.
    for cores in (64.0,) if stage == 'physics' else (1.0, 2.0, 64.0):
        assert limiting_stage(costs, 1, cores) == stage, (costs.stages(), cores)


@pytest.mark.slow
@slow_stage
def test_the_command_names_the_slow_stage(stage, tmp_path, monkeypatch):
    monkeypatch.setenv('PYTHONPATH', str(pathlib.Path(__file__).parent))
    settings = {**SMALL, **CASES[stage](tmp_path)}
    options = [str(text) for name, value in settings.items() for text in (
        f'--{name}', as_text(value))]
    result = asyncppo('doctor', *options, '--rounds', 2, '--seconds', 0.3, '--json', timeout=280)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found['limit'] == stage, found['stages']


@pytest.mark.parametrize('cores', [1.0, 64.0])
@pytest.mark.parametrize(('slow', 'num_actors', 'stage'), [
    ('physics', 1, 'physics'), ('inference', 1, 'inference'), ('sending', 1, 'transport'),
    # Four actors are fast enough together.
    ('receiving', 4, 'transport'), ('learner', 4, 'learner')])
def test_which_stage_limits(slow, num_actors, stage, cores):
    cost = {name: Cost(10e-6, 10e-6) for name in Costs._fields[:5]} | {slow: Cost(40e-6, 40e-6)}
    assert limiting_stage(Costs(**cost), num_actors, cores) == stage


def test_an_update_that_is_too_long_is_measured_in_part():
    """Ten times the epochs cost about ten times as much, though the time allows for few."""
    few, many = (LearnerStage(build(Config, {**SMALL, 'learner.ppo.epochs': epochs,
                                             'learner.ppo.minibatch_size': 16}))
                 for epochs in (10, 100))
    few.measure(MEASURE_S), many.measure(MEASURE_S)
    assert 3.0 < many.measure(MEASURE_S).cpu_s / few.measure(MEASURE_S).cpu_s < 30.0
    few.close(), many.close()


def made_up(physics=40.0, learner=20.0, batch=4096, num_envs=64):
    def actor(share):
        return {name: Cost(value * share * 1e-6, value * share * 1e-6) for name, value in (
            ('physics', physics), ('inference', 1.0), ('sending', 1.0), ('receiving', 0.5))}
    update = Cost(learner * 1e-6, learner * 1e-6)
    return Measured({num_envs: actor(1.0), 2 * num_envs: actor(0.9)},
                    {batch: update, 2 * batch: update}, 1.0, 1.0)


def config_of(**changed):
    return build(Config, {'task': 'HalfCheetah-v5', 'num_actors': 1, 'learner.batch_size': 4096,
                          **changed})


def test_what_changes_give():
    found = finding(config_of(), made_up(), cores=64.0)
    rates = {entry['name']: entry['env_steps_per_s'] for entry in found['predictions']}
    assert rates['as set'] == pytest.approx(1e6 / 42.0)
    # Then the learner limits.
    assert rates['one more actor'] == pytest.approx(2e6 / 42.0)
    assert rates['twice the environments'] == pytest.approx(1e6 / (0.9 * 42.0))
    assert rates['twice the batch'] == pytest.approx(rates['as set'])
    assert rates['a GPU, at most'] == pytest.approx(rates['as set'])
    assert found['limit'] == 'physics'
    assert found['advice'] == ('--task HalfCheetah-v5 --num_actors 2 --actor.num_envs 64 '
                               '--learner.batch_size 4096')
    text = told(found)
    assert 'physics limits it' in text and text.endswith(found['advice'])
    assert max(map(len, text.splitlines())) <= 100
    # Only what a change takes is told.
    more, = (line for line in text.splitlines() if line.startswith('one more actor'))
    assert more.split()[-2:] == ['--num_actors', '2']


def test_busy_cores_are_told():
    found = finding(config_of(num_actors=2), made_up(), cores=1.0)
    assert found['all_cores_busy'] and 'All cores are busy' in told(found)
    assert found['predictions'][1]['gain'] == pytest.approx(1.0)
    assert 'physics, cores' in told(found)
    assert not finding(config_of(), made_up(), cores=64.0)['all_cores_busy']


def test_a_change_that_needs_a_larger_batch_says_so_and_is_not_advised():
    found = finding(config_of(**{'learner.batch_size': 2048}), made_up(batch=2048), cores=64.0)
    more = found['predictions'][1]
    assert more['settings']['learner.batch_size'] == 4096 and more['gain'] > 1.5
    assert '--num_actors 1 --actor.num_envs 64' in found['advice']


def test_a_gpu_gives_what_the_actors_can():
    found = finding(config_of(), made_up(learner=400.0), cores=2.0)
    assert found['limit'] == 'learner'
    gpu = found['predictions'][-1]
    assert gpu['gain'] == pytest.approx(400.0 / 42.0, rel=0.01)


def row(at, actor_wait, learner_wait):
    return {'time_s': 10.0 + at, 'env_steps': 1500 * at, 'generation': 0, 'actors': 2,
            'actor_wait': actor_wait, 'learner_wait': learner_wait, 'update_time': 0.3}


@pytest.mark.parametrize(('actor_wait', 'learner_wait', 'limit'), [
    (0.4, 0.01, 'learner'), (0.01, 0.4, 'actors'), (0.01, 0.02, 'both')])
def test_a_run_tells_who_waited(actor_wait, learner_wait, limit):
    # The first updates are not as the others.
    rows = [row(0, 0.9, 0.9)] + [row(at, actor_wait, learner_wait) for at in range(1, 6)]
    found = seen_in(rows)
    assert found['limit'] == limit and found['env_steps_per_s'] == pytest.approx(1500.0)


def test_a_run_without_updates_tells_nothing():
    assert seen_in([]) == {'text': 'it has too few updates to tell what limited it'}
    text = told(finding(config_of(), made_up(), cores=64.0) | {'run': seen_in([])})
    assert 'The run: it has too few updates to tell what limited it.' in text


def test_the_command_measures_the_settings_of_a_run(tmp_path):
    run, _ = create(build(Config, {**SMALL, 'run_dir': str(tmp_path / 'run')}))
    run.metrics_file.write_text(''.join(
        json.dumps(row(at, 0.4, 0.01)) + '\n' for at in range(6)))
    result = asyncppo('doctor', run.folder, '--rounds', 1, '--seconds', 0.05, '--json',
                      timeout=280)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found['settings']['learner.batch_size'] == BATCH
    assert {'machine', 'versions', 'settings', 'predictions'} <= found.keys()
    assert found['run']['limit'] == 'learner'
    assert all(stage['wall_s'] > 0.0 for stage in found['stages'].values())
    assert found['limit'] in found['stages']
    names = [entry['name'] for entry in found['predictions']]
    assert names[:3] == ['as set', 'one more actor', 'twice the environments']
    assert all(entry['env_steps_per_s'] > 0.0 for entry in found['predictions'])
    assert found['slow_actor'] >= 1.0 and found['slow_learner'] >= 1.0


@pytest.mark.parametrize(('arguments', 'text'), [
    ((), 'a run or --task is needed'),
    (('reach',), 'reach: no run there; runs lie under runs/, the newest is runs/latest. A task is '
                 'named as `asyncppo doctor --task reach`'),
    (('--task', 'reach', '--rounds', '0'), '--rounds 0'),
    (('--task', 'nix'), "task 'nix' is unknown")])
def test_mistakes(arguments, text):
    result = asyncppo('doctor', *arguments, timeout=280)
    assert result.returncode == 2
    assert text in result.stderr and len(result.stderr.splitlines()) == 1

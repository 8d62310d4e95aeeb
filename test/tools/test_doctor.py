"""`asyncppo doctor`: names the stage that limits, and predicts what changes give."""

import json
import time

from harness import asyncppo
import pytest

from asyncppo_ros.config import Config
from asyncppo_ros.run import create
from asyncppo_ros.settings import build
from asyncppo_ros.tools.doctor import finding, seen_in, told
from asyncppo_ros.tools.stage_process import Measured
from asyncppo_ros.tools.stages import ActorStages, LearnerStage
from asyncppo_ros.tools.throughput import Cost, Costs, limiting_stage

NUM_ENVS, CHUNK_LENGTH, BATCH = 32, 4, 256
SMALL = {'task': 'cartpole_swingup', 'num_actors': 1, 'actor.num_envs': NUM_ENVS,
         'actor.chunk_length': CHUNK_LENGTH, 'learner.batch_size': BATCH,
         'learner.ppo.minibatch_size': BATCH, 'learner.ppo.epochs': 1,
         'policy.hidden_sizes': (8,), 'policy.critic_hidden_sizes': (8,)}
MEASURE_S = 0.05


class SlowSender:
    """A sender that takes its time for each chunk."""

    def __init__(self, sender):
        self._sender = sender

    def __getattr__(self, name):
        return getattr(self._sender, name)

    def send(self, chunk):
        time.sleep(0.1)
        self._sender.send(chunk)


def measured_costs(wrap_sender=lambda sender: sender, **changed):
    """Measure all stages in this process, with settings that differ in what is given."""
    config = build(Config, {**SMALL, **changed})
    learner = LearnerStage(config)
    actor = ActorStages(config, learner.snapshot(), NUM_ENVS, wrap_sender)
    try:
        # The first time memory is touched.
        actor.measure(MEASURE_S)
        return Costs(**actor.measure(MEASURE_S), learner=learner.measure(MEASURE_S))
    finally:
        actor.close()
        learner.close()


def assert_limits(costs, stage):
    """Check that a stage is named, and that it is named for good reason."""
    walls = {name: cost.wall_s for name, cost in costs.stages().items()}
    others = [wall for name, wall in walls.items() if name != stage]
    assert walls[stage] > 5.0 * max(others), walls
    for cores in (1.0, 2.0, 64.0):
        assert limiting_stage(costs, 1, cores) == stage


def test_slow_physics_is_named():
    costs = measured_costs(task='slow_tasks:SlowPhysics')
    walls = {name: cost.wall_s for name, cost in costs.stages().items()}
    assert walls['physics'] > 0.02 / NUM_ENVS
    # It sleeps, so it is the actors that limit, and not the cores.
    assert walls['physics'] > 5.0 * max(walls[name] for name in walls if name != 'physics')
    assert limiting_stage(costs, 1, 64.0) == 'physics'


def test_slow_inference_is_named():
    """On one processor a learner takes several times what inference does: here it has a GPU."""
    costs = measured_costs(**{'policy.hidden_sizes': (4096, 256) * 3})
    assert limiting_stage(costs, 1, 64.0) == 'learner'
    assert_limits(costs._replace(learner=Cost(1e-6, 1e-6)), 'inference')


def test_slow_transport_is_named():
    costs = measured_costs(SlowSender)
    walls = {name: cost.wall_s for name, cost in costs.stages().items()}
    assert walls['transport'] > 0.1 / (NUM_ENVS * CHUNK_LENGTH)
    assert walls['transport'] > 5.0 * max(walls[name] for name in walls if name != 'transport')
    assert limiting_stage(costs, 1, 64.0) == 'transport'


def test_a_slow_learner_is_named():
    costs = measured_costs(**{'learner.ppo.epochs': 100, 'learner.ppo.minibatch_size': 16})
    assert_limits(costs, 'learner')


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
    assert seen_in([]) == {'text': 'the run has too few updates to tell'}


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
    ((), 'a run or --task is needed'), (('nowhere',), 'no run there'),
    (('--task', 'reach', '--rounds', '0'), '--rounds 0'),
    (('--task', 'nix'), "task 'nix' is unknown")])
def test_mistakes(arguments, text):
    result = asyncppo('doctor', *arguments, timeout=280)
    assert result.returncode == 2
    assert text in result.stderr and len(result.stderr.splitlines()) == 1

"""`num_actors: auto` and `actor.num_envs: auto` become numbers before a run is made."""

import sys

import pytest

from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError, RunError
from asyncppo_ros.nodes import supervisor
from asyncppo_ros.run import actors_by_cores, check_source, num_actors, resume, Run
from asyncppo_ros.settings import build, parse_text, to_dict
from asyncppo_ros.tools import actors, auto, local
from asyncppo_ros.tools.stage_process import Measured, StageProcess, Stopped
from asyncppo_ros.tools.throughput import Cost


def counts(config):
    """Give what a run begins with: actors, where they are not pinned, and environments."""
    assert config.num_actors == 0
    return config.actors_at_start, config.actor.num_envs


def config_of(**changed):
    return build(Config, {'task': 'cartpole_swingup', 'learner.batch_size': 4096,
                          'actor.chunk_length': 16,
                          **{name.replace('__', '.'): value for name, value in changed.items()}})


def measured(learner, batch=4096, **actor):
    """Make up what was measured, in µs a transition; e16 = an actor with 16 environments."""
    def stages(wall):
        return {'physics': Cost(wall * 1e-6, wall * 1e-6), 'inference': Cost(0.0, 0.0),
                'sending': Cost(0.0, 0.0), 'receiving': Cost(0.0, 0.0)}
    return Measured({int(name[1:]): stages(wall) for name, wall in actor.items()},
                    {batch: Cost(learner * 1e-6, learner * 1e-6)})


@pytest.fixture
def cores(monkeypatch):
    def set_to(count):
        monkeypatch.setattr('asyncppo_ros.run.usable_cores', lambda: count)
    set_to(8)
    return set_to


@pytest.fixture
def finds(monkeypatch):
    """Let the measurement find what is given, and remember what was asked for."""
    asked = []

    def find(result):
        def measure(config, num_envs, batch_sizes, *rest, **more):
            asked.append((list(num_envs), list(batch_sizes)))
            if isinstance(result, Exception):
                raise result
            return result
        monkeypatch.setattr(auto, 'measure', measure)
        return asked
    return find


def test_auto_is_0_wherever_settings_come_from():
    for name in ('num_actors', 'actor.num_envs'):
        assert parse_text(Config, name, 'auto') == 0
        assert to_dict(build(Config, {name: 'auto'}))[name] == 0
        assert to_dict(build(Config, {name: 0}))[name] == 0


def test_as_many_actors_as_keep_the_learner_busy(cores, finds):
    asked = finds(measured(learner=20.0, e64=30.0))
    told = []
    found = auto.settled(config_of(actor__num_envs=64), tell=told.append)
    assert counts(found) == (3, 64)
    assert asked == [([64], [4096])]
    assert told == ['auto: 3 actors × 64 environments: an actor makes 33,333 env steps/s by '
                    'itself, the learner takes 50,000']


@pytest.mark.parametrize(('count', 'expected'), [(1, 1), (2, 2), (4, 3), (64, 4)])
def test_no_more_than_the_cores_and_the_batch_allow(cores, finds, count, expected):
    cores(count)
    # The batch of 4096 holds 4 chunks of 64 × 16.
    finds(measured(learner=1.0, e64=30.0))
    assert counts(auto.settled(config_of(actor__num_envs=64))) == (expected, 64)


def test_few_environments_where_more_are_no_faster(cores, finds):
    asked = finds(measured(learner=20.0, e8=60.0, e16=31.0, e32=30.0, e64=30.0, e128=30.0))
    found = auto.settled(config_of(actor__num_envs='auto', num_actors=2))
    assert (found.num_actors, found.actor.num_envs) == (2, 16)
    # Two chunks of each fit into the batch.
    assert asked[0][0] == [8, 16, 32, 64, 128]
    found = auto.settled(config_of(actor__num_envs='auto', num_actors=8))
    assert asked[1][0] == [8, 16, 32]


def test_both_are_found_together(cores, finds):
    cores(64)
    finds(measured(learner=2.0, e8=40.0, e16=31.0, e32=30.0, e64=30.0, e128=30.0))
    found = auto.settled(config_of(actor__num_envs='auto'))
    # The batch has room for 32 actors of 8, or 16 of 16: 0.8 and 0.52 transitions a µs.
    assert counts(found) == (32, 8)
    assert num_actors(found) == 32


def test_actors_that_sleep_leave_their_cores_to_others(cores, finds):
    cores(2)
    idle = measured(learner=20.0, batch=2048, e8=650.0)
    idle.actor[8]['physics'] = Cost(650e-6, 65e-6)
    finds(idle)
    # 65 would be twice as fast as the learner; the batch holds 16 chunks, the cores 20 actors.
    sleeping = {'actor__num_envs': 8, 'learner__batch_size': 2048}
    assert counts(auto.settled(config_of(**sleeping))) == (16, 8)
    assert counts(auto.settled(config_of(**sleeping, max_actors=12))) == (12, 8)
    idle.actor[8]['physics'] = Cost(650e-6, 300e-6)
    assert counts(auto.settled(config_of(**sleeping))) == (4, 8)


def test_auto_stays_auto_and_begins_with_what_was_found(tmp_path, cores, finds):
    asked = finds(measured(learner=20.0, e64=30.0))
    found = auto.settled(config_of(actor__num_envs=64))
    assert num_actors(found) == found.actors_at_start == 3 and len(asked) == 1
    # A run that goes on is not measured again, unless it has to be.
    assert auto.settled(found) == found and len(asked) == 1
    again = build(Config, {**to_dict(found), 'num_actors': 2})
    assert num_actors(auto.settled(again)) == 2 and len(asked) == 1
    again = build(Config, {**to_dict(found), 'actor.num_envs': 0})
    assert counts(auto.settled(again)) == (3, 64) and len(asked) == 2
    # Other settings may leave less room than there was.
    assert num_actors(build(Config, {**to_dict(found), 'learner.batch_size': 2048})) == 2
    assert num_actors(build(Config, {**to_dict(found), 'max_actors': 1})) == 1


@pytest.mark.parametrize(('changed', 'why'), [
    ({'learner__batch_size': 1024}, 'learner.batch_size = 1024'),
    ({'max_actors': 1}, 'max_actors = 1')])
def test_without_a_choice_nothing_is_measured(finds, changed, why):
    asked, told = finds(RunError('not to be called')), []
    found = auto.settled(config_of(actor__num_envs=64, **changed), tell=told.append)
    assert counts(found) == (1, 64) and asked == []
    assert told == [f'num_actors auto: 1; {why} leaves no choice']


def test_numbers_are_left_alone_and_nothing_is_measured(finds):
    asked = finds(RunError('not to be called'))
    config = config_of(num_actors=3, actor__num_envs=5)
    assert auto.settled(config) == config
    # In one process there is nothing to count.
    config = config_of(num_actors='auto', actor__num_envs=5)
    assert auto.settled(config, with_actors=False) == config
    assert asked == []


def test_a_robot_is_one(finds):
    asked = finds(RunError('not to be called'))
    found = auto.settled(config_of(actor__source='robot', actor__num_envs='auto'))
    assert (found.num_actors, found.actor.num_envs, asked) == (1, 1, [])


def test_what_cannot_be_measured_goes_by_the_cores(cores, finds):
    told = []
    finds(RunError('the actor could not be measured: ImportError: no such thing'))
    found = auto.settled(config_of(actor__num_envs='auto'), tell=told.append)
    assert counts(found) == (4, 64)
    assert 'no such thing' in told[0] and '4 actors × 64 environments' in told[0]
    # Who asks for the end needs no explanation.
    finds(Stopped('stopped'))
    assert auto.settled(config_of(actor__num_envs='auto'), tell=told.append) == found
    assert len(told) == 1


def test_a_process_on_its_own_needs_a_number():
    with pytest.raises(ConfigError, match='actor.num_envs = auto: is settled when a run is made'):
        check_source(config_of(actor__num_envs='auto'))


def test_a_run_records_the_numbers(tmp_path, cores, finds):
    finds(measured(learner=20.0, batch=512, e8=30.0, e16=15.0))
    command = ['--task', 'cartpole_swingup', '--run_dir', str(tmp_path / 'run'), '--env_steps',
               '512', '--actor.num_envs', 'auto', '--actor.chunk_length', '32',
               '--learner.batch_size', '512', '--learner.ppo.epochs', '1',
               '--evaluation.final_episodes', '1']
    assert local.main(command, lambda: False) == 0
    config = Run(tmp_path / 'run').config()
    # There are no actor processes.
    assert counts(config) == (0, 16)
    _, again = resume(tmp_path / 'run', {'actor.num_envs': 0}, settle=auto.settled)
    assert again.actor.num_envs == Run(tmp_path / 'run').config().actor.num_envs > 0


def test_a_process_that_ends_is_told_with_its_reason():
    process = StageProcess('actor', config_of(), python=sys.executable)
    try:
        with pytest.raises(RunError, match='the actor could not be measured: .*list index'):
            # It has no policy.
            process.ask(num_envs=8, seconds=0.1)
    finally:
        process.close()
    with pytest.raises(FileNotFoundError):
        StageProcess('actor', config_of(), python='/no/such/python')


def test_the_cores_leave_one_to_the_learner(cores):
    found = []
    for count in (1, 2, 3, 16):
        cores(count)
        found.append(actors_by_cores())
    assert found == [1, 2, 2, 15]


@pytest.mark.parametrize(('arguments', 'by_cores'), [
    ([], True), (['--num_actors', 'auto'], True), (['--num-actors', '3'], False),
    (['--num_actors', '3'], False)])
def test_another_host_goes_by_its_own_cores(tmp_path, monkeypatch, arguments, by_cores):
    """The settings of a run say how many actors the host of its learner has."""
    file = tmp_path / 'config.yaml'
    file.write_text('task: cartpole_swingup\nnum_actors: 2\n')
    started = []
    monkeypatch.setattr(supervisor, 'run', lambda given, stop: started.append(given) or 0)
    assert actors.main(['--config', str(file), *arguments], lambda: False) == 0
    assert ('--by-cores' in started[0]) == by_cores


def test_a_supervisor_goes_by_the_cores_where_it_is_told_to(tmp_path, monkeypatch, cores):
    file = tmp_path / 'config.yaml'
    started = []
    monkeypatch.setattr(supervisor, 'supervise', lambda found, *more: started.append(len(found)))
    for settled in ('num_actors: 2', 'actors_at_start: 2'):
        file.write_text(f'task: cartpole_swingup\n{settled}\nactor: {{num_envs: 4}}\n')
        for options in ([], ['--by-cores'], ['--by-cores', '--num-actors', '5']):
            supervisor.run(['--params-file', str(file), *options], lambda: False)
    assert started == 2 * [2, 7, 5]

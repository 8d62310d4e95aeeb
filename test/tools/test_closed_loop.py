"""``asyncppo eval --ros``: the same episodes through topics and in process."""

import json
import signal

from harness import asyncppo, end, start, wait_for
from made_policies import card_of, policy_bytes
import numpy as np
import pytest

from asyncppo_ros.errors import ConfigError
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.robot.artefact import read_artefact
from asyncppo_ros.simulation.registry import make
from asyncppo_ros.tools.closed_loop import config_of, differences, in_process, text_of
from asyncppo_ros.tools.evaluate import main, score_artefact, score_text

SEED = 11


@pytest.fixture(scope='module')
def policies(tmp_path_factory):
    """Write untrained policies of some tasks."""
    folder = tmp_path_factory.mktemp('policies')

    def write(task):
        path = folder / f'{task}.safetensors'
        path.write_bytes(policy_bytes(card_of(make(task, 1, 0)), seed=3))
        return path
    return write


@pytest.mark.parametrize('task, precision', [('reach', 1e-3), ('quadruped_walk', 0.05)])
def test_episodes_in_process_are_those_of_an_evaluation(policies, task, precision):
    """But for the rounding of products of one row, which a fall makes large."""
    artefact = read_artefact(policies(task))
    rows = in_process(artefact, range(6), SEED, lambda: False)
    score = score_artefact(artefact, 6, SEED)
    assert np.mean([row['return'] for row in rows]) == pytest.approx(
        score['return_mean'], rel=precision)
    assert np.mean([row['success'] for row in rows]) == score['success']
    lengths = [row['length'] for row in rows]
    for name, measure in score['measures'].items():
        assert np.average([row['measures'][name] for row in rows], weights=lengths) == \
            pytest.approx(measure['mean'], rel=precision)
    # Each by its number.
    assert in_process(artefact, [4, 1], SEED, lambda: False)[1]['index'] == 1


def episode(index, value, success, **measures):
    return {'index': index, 'return': value, 'length': 10, 'success': success,
            'measures': measures}


def test_pairs_are_compared():
    found = [episode(i, 10.0 + i, i % 4 != 0, error=0.3) for i in range(40)]
    expected = [episode(i, 9.0 + i, True, error=0.2) for i in range(40)]
    result = differences(found, expected)
    # The difference is the same in each pair, however much the pairs differ.
    assert result['return'] == pytest.approx((1.0, 1.0, 1.0))
    assert result['error'] == pytest.approx((0.1, 0.1, 0.1))
    value, low, high = result['success']
    assert value == -0.25 and low < -0.25 < high < 0.0
    without = [episode(i, 1.0, None) for i in range(4)]
    assert differences(without, without).keys() == {'return'}
    text = text_of({'mode': 'lockstep', 'difference': result, 'rows': found, 'tripped': 2,
                    'seconds': 3.0}, ['first', 'second'])
    assert 'through ROS topics, lockstep: first' in text and 'in process: second' in text
    assert 'the same 40 episodes' in text and 'success -25.0 points [' in text
    assert 'return +1.000 [+1.000, +1.000]' in text and '2 episodes were stopped' in text


@pytest.mark.parametrize('name', ['task', 'sim_robot.seed', 'sim_robot.lockstep', 'seed',
                                  'actor.num_envs', 'deploy.policy'])
def test_only_settings_of_robots_can_be_given(policies, name):
    with pytest.raises(ConfigError, match=f'--{name}: not with --ros'):
        config_of(read_artefact(policies('reach')), 'p', SEED, False, {name: 1})


def test_settings_of_the_nodes(policies):
    artefact = read_artefact(policies('reach'))
    config = config_of(artefact, 'p', SEED, False, {'sim_robot.mass': 1.15, 'deploy.ramp_s': 1.0})
    assert config.sim_robot.lockstep and config.sim_robot.ask and config.sim_robot.seed == SEED
    assert config.sim_robot.mass == 1.15 and config.deploy.ramp_s == 1.0
    assert config.task == 'reach' and config.deploy.policy.startswith('/')
    live = config_of(artefact, 'p', SEED, True, {})
    assert not live.sim_robot.lockstep
    assert live.deploy.state_timeout_s < config.deploy.state_timeout_s


@pytest.mark.parametrize('options, told', [
    (['--realtime'], '--realtime: only with --ros'),
    (['--picture', 'x.png'], '--picture: only with --ros'),
    (['--ros', '--picture', 'none/x.png'], '--picture none/x.png: the folder none does not exist'),
    (['--sim_robot.mass', '1.2'], 'unrecognized arguments: --sim_robot.mass 1.2'),
    (['--ros', '--randomized'], '--randomized: not with --ros'),
    (['--ros', '--seed', '-1'], 'sim_robot.seed = -1'),
    (['--ros', '--sim_robot.mass', '99'], 'sim_robot.mass = 99.0: must be in'),
    (['--ros', '--nix', '1'], 'nix: unknown setting'),
])
def test_a_mistake_is_told_in_one_line(policies, options, told):
    with pytest.raises(ConfigError) as error:
        main([str(policies('reach')), *options], StopRequest())
    assert told in str(error.value) and '\n' not in str(error.value)


@pytest.mark.nodes
@pytest.mark.one_distro
def test_reach_through_topics_is_reach_in_process(policies, tmp_path):
    pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
    ended = asyncppo('eval', policies('reach'), '--ros', '--episodes', 2, '--seed', SEED, '--json',
                     '--picture', tmp_path / 'episodes.png', timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / 'episodes.png').read_bytes().startswith(b'\x89PNG')
    result = json.loads(ended.stdout)
    assert result['mode'] == 'lockstep' and result['tripped'] == 0
    assert result['settings']['sim_robot.seed'] == SEED and 'mujoco' in result['versions']
    assert 'deploy.policy' not in result['settings'] and result['machine']['cores'] >= 1
    for row in result['rows']:
        assert row['ros']['index'] == row['in_process']['index']
        # The same episode; beside a limit of a joint the wanted action cannot be told.
        assert row['ros']['return'] == pytest.approx(row['in_process']['return'], abs=0.2)
        assert row['ros']['length'] == 75
        assert row['ros']['success'] == row['in_process']['success']
    assert [row['ros']['index'] for row in result['rows']] == [1, 2]
    assert abs(result['difference']['return'][0]) < 0.2
    assert result['ros']['task'] == 'reach'
    assert 'return' in score_text(result['ros'])


@pytest.mark.nodes
@pytest.mark.one_distro
def test_a_policy_that_no_robot_can_run_is_refused(policies):
    pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
    ended = asyncppo('eval', policies('Hopper-v5'), '--ros', '--episodes', 1, timeout=300)
    assert ended.returncode == 2, ended.stderr
    assert 'qpos' in ended.stderr and 'Traceback' not in ended.stderr


@pytest.mark.nodes
@pytest.mark.one_distro
def test_ctrl_c_ends_it_and_its_nodes(policies, tmp_path):
    pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
    from harness import processes_of
    process = start('eval', policies('reach'), '--ros', '--episodes', 1000, '--seed', SEED)
    name = f'eval_{process.pid}'
    wait_for(lambda: len(processes_of(name)) == 2, 'nodes', process=process)
    code, _, shown = end(process, signal.SIGINT, timeout=60.0)
    assert code == 0 and 'Traceback' not in shown, shown
    assert not processes_of(name)

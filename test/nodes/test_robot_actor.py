"""The real processes: an actor collects from a robot, and the books balance."""

import json
import subprocess
import sys
import time

from harness import asyncppo, free_address, options, rows_of, wait_for
import numpy as np
import pytest
from robots import collected, config_of, environment_of, sim_robot, STEPS

rclpy = pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
pytestmark = [pytest.mark.nodes, pytest.mark.one_distro]


@pytest.mark.parametrize('arguments, words', [
    (['--robot', 'nowhere.yaml'], 'config file nowhere.yaml: No such file'),
    (['--actor.source', 'robot'], 'actor.num_envs = 64: must be 1 where actor.source = robot'),
    (['--actor.source', 'robot', '--actor.num_envs', 1, '--num-actors', 2],
     '--num-actors 2: must be 1 where actor.source = robot'),
    (['--actor.source', 'robot', '--actor.num_envs', 1, '--task', 'quadruped_walk'],
     'before_step() reads state.fields, which no robot measures')])
def test_the_command_refuses_in_one_line(arguments, words):
    result = asyncppo('actors', '--address', free_address(), *arguments)
    assert result.returncode == 2
    assert words in result.stderr and 'Traceback' not in result.stderr


def collect(run, seconds, *robot_parameters, use_sim_time=True):
    """Train from one robot for a while; give what was printed, books and metrics."""
    from asyncppo_ros.config import Config
    from asyncppo_ros.run import create, resolve
    from asyncppo_ros.settings import parse_text
    pairs = options(learner__batch_size=128, learner__ppo__minibatch_size=64,
                    transport__address=free_address())
    given = {pairs[i][2:]: parse_text(Config, pairs[i][2:], pairs[i + 1])
             for i in range(0, len(pairs), 2)}
    made, _ = create(resolve({**given, 'task': 'reach', 'env_steps': 10 ** 7,
                              'run_dir': str(run)}))
    robot = run.parent / 'robot.yaml'
    robot.write_text(f"""/**:
  ros__parameters:
    use_sim_time: {str(use_sim_time).lower()}
    actor: {{reset: service, robot_namespace: collect, weight: 2.0}}
    robot: {{reset_service: sim_robot/reset}}
    deploy: {{state_timeout_s: 1.0, frozen_s: 0.0}}
""")
    entry = [sys.executable, '-m', 'asyncppo_ros.nodes.main']
    file = ['--params-file', str(made.config_file)]
    log = (run.parent / 'log').open('w+')
    processes = []
    with sim_robot('collect', *robot_parameters):
        try:
            for command in (
                    ['learner', '--ros-args', *file, '-r', '__ns:=/collecting'],
                    ['supervisor', *file, '--namespace', 'collecting', '--robot', str(robot)]):
                processes.append(subprocess.Popen([*entry, *command], stdout=log, stderr=log))
            wait_for(lambda: len(rows_of(made.metrics_file)) >= 3, 'update', timeout=120.0,
                     process=processes[1])
            time.sleep(seconds)
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait(90)
    log.seek(0)
    books = json.loads((made.folder / 'books.json').read_text())
    return log.read(), books, rows_of(made.metrics_file)


def test_an_actor_collects_from_a_robot_and_the_books_balance(tmp_path):
    printed, books, rows = collect(tmp_path / 'run', 3.0, 'sim_robot.lockstep:=true')
    assert 'Traceback' not in printed, printed
    assert books['balanced'] and books['totals']['consumed'] >= 3 * 128
    assert books['totals']['refused_by_check'] == 0
    assert [row['actor_id'] for row in books['actors']] == [0]
    # The last rows may be from after the actor has said goodbye.
    assert max(row['actors'] for row in rows) == 1
    assert max(row['policy_lag_max'] for row in rows) <= 8
    assert rows[-1]['missed_steps'] <= 3, printed


def test_transitions_are_those_of_the_simulation_within_the_noise_of_the_sensors():
    level = 0.3
    # Standard deviations of positions and velocities, as the terms say.
    noise = level * np.repeat([0.01, 0.5], 6)
    rclpy.init()
    try:
        with sim_robot('noisy', 'sim_robot.lockstep:=true', f'sim_robot.sensor_noise:={level}'), \
                environment_of(config_of('noisy')) as environment:
            chunks, (observations, *_) = collected(environment, 1)
    finally:
        rclpy.try_shutdown()
    told = np.stack([chunk.observation[:STEPS, 0] for chunk in chunks], axis=1)
    apart = ((told - observations)[:, :, :12] / noise).reshape(-1, 12)
    count = len(apart)
    # 75 normal numbers each: five standard errors of their mean and deviation.
    assert np.abs(apart.mean(0)).max() < 5.0 / count ** 0.5
    assert np.abs(apart.std(0) - 1.0).max() < 5.0 / (2.0 * count) ** 0.5
    assert np.abs(apart).max() < 5.5


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_five_minutes_in_real_time(tmp_path):
    printed, books, rows = collect(tmp_path / 'run', 300.0, 'sim_robot.sensor_noise:=0.1',
                                   use_sim_time=False)
    assert 'Traceback' not in printed, printed
    assert books['balanced']
    print(books['totals'], 'missed', rows[-1]['missed_steps'])
    # How many of the 25 control steps a second are in time is for the machine to say.
    totals = books['totals']
    assert totals['refused_by_check'] == totals['lost_in_crash'] == 0
    assert totals['consumed'] >= 3 * 128
    assert totals['produced'] <= 300 * 25 * 1.2

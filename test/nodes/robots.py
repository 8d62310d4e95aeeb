"""Start simulated robots for tests, and collect from them; of those with a clock one at a time."""

import contextlib
import signal
import subprocess
import sys

import numpy as np

from asyncppo_ros.config import ActorConfig, Config, DeployConfig, RobotConfig

SEED = 1_000_003
# Control steps of an episode of reach.
STEPS = 75
# A busy machine is no reason to miss a step in lockstep.
DEPLOY = DeployConfig(state_timeout_s=1.0, frozen_s=0.0)


@contextlib.contextmanager
def sim_robot(namespace, *parameters, task='reach'):
    given = [f'task:={task}', f'sim_robot.seed:={SEED}', *parameters]
    process = subprocess.Popen(
        [sys.executable, '-m', 'asyncppo_ros.nodes.main', 'sim_robot', '--ros-args', '-r',
         f'__ns:=/{namespace}', *(text for one in given for text in ('-p', one))])
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(20)


def config_of(namespace, reset='service', deploy=DEPLOY, task='reach', **robot):
    return Config(task=task, actor=ActorConfig(source='robot', num_envs=1, reset=reset,
                                               robot_namespace=namespace),
                  robot=RobotConfig(**{'reset_service': 'sim_robot/reset', **robot}),
                  deploy=deploy)


@contextlib.contextmanager
def environment_of(config, use_sim_time=True):
    from asyncppo_ros.nodes.robot_environment import RobotEnvironment
    environment = RobotEnvironment(config, use_sim_time)
    try:
        yield environment
    finally:
        environment.close()


def snapshot_of(environment):
    from asyncppo_ros.learning.learner import Learner
    return Learner(Config(), environment.describe(), environment.observation_size,
                   environment.action_size, run_id=1).snapshot()


def collected(environment, count):
    """Collect episodes of reach in lockstep; give their chunks and what `simulated` gives."""
    from asyncppo_ros.acting.rollout import Rollout, Stamp
    from asyncppo_ros.transport.codec import decode_chunk, encode_chunk
    rollout, snapshot = Rollout(environment, 100, seed=0), snapshot_of(environment)
    chunks, goals = [], []
    while len(chunks) < count:
        chunk = rollout.collect(snapshot, Stamp(1, 0, 1, len(chunks)))
        if chunk is not None:
            chunks.append(decode_chunk(encode_chunk(chunk, rollout.layout), rollout.layout, 999))
            goals.append(environment._episodes.state.command['goal'][0].copy())
    assert [chunk.reward.shape for chunk in chunks] == [(STEPS, 1)] * count
    # Each reset of the robot is its next episode, and the start itself is number 0.
    return chunks, simulated(chunks, goals, rollout.missed_steps + 1)


def simulated(chunks, goals, first):
    """
    Do what the chunks say in a simulation; give observations [T, E, O], rewards [T, E], the ends.

    Commands of reach are relative to the measured pose, so they are those of what the chunks say
    was measured.
    """
    from asyncppo_ros.simulation.registry import find_task
    from asyncppo_ros.simulation.simulation import BatchedSimulation
    task = find_task('reach')
    task.ask = lambda state, index, rng: state.command['goal'].__setitem__(
        index, goals[max(0, index - first)])
    simulation = BatchedSimulation(task, first + len(chunks), SEED)
    row = np.zeros((first + len(chunks), simulation.observation_size), np.float32)
    simulation.reset(row)
    action = np.zeros((first + len(chunks), 6), np.float32)
    scale = np.array(simulation.describe()['action']['scale'], np.float32)
    observations, rewards = [], []
    for step in range(STEPS):
        observations.append(row[first:].copy())
        for number, chunk in enumerate(chunks):
            off = chunk.observation[step, 0, :6] - row[first + number, :6]
            action[first + number] = np.tanh(chunk.action[step, 0]) + off / scale
        result = simulation.step(action, row)
        rewards.append(result.reward[first:].copy())
    return (np.array(observations), np.array(rewards), result.final_observation[first:],
            result.episodes[first:])

"""A task on a robot is the task of the simulation, or is refused by the name of what it reads."""

import dataclasses

import numpy as np
import pytest

from asyncppo_ros.errors import TaskError
from asyncppo_ros.robot.state import standing
from asyncppo_ros.simulation.registry import find_task
from asyncppo_ros.simulation.robot_task import RobotTask
from asyncppo_ros.simulation.simulation import BatchedSimulation


@pytest.mark.parametrize('name', ['reach', 'cartpole_swingup'])
def test_every_number_of_an_episode_is_that_of_the_simulation(name):
    robot, out = RobotTask(name, seed=3), np.zeros((2, 1, 99), np.float32)
    task = find_task(name)
    task.ask = lambda state, index, rng: [
        values.__setitem__(index, robot.state.command[command][0])
        for command, values in state.command.items()]
    simulation = BatchedSimulation(task, 1, seed=5, name=name)
    assert robot.card == simulation.describe()
    here, there = out[:, :, :robot.observation_size]
    rng, steps = np.random.default_rng(0), round(task.time_limit / task.control_dt)
    # What is asked for is drawn by the robot's episode, so the simulation goes second.
    measured = standing(simulation.state.joint_names, robot.action_size)
    robot.begin(measured, here)
    simulation.reset(there)
    for target in ('joint_position', 'joint_velocity', 'joint_effort'):
        getattr(robot.state, target)[...] = getattr(simulation.state, target)
    command = np.zeros((1, robot.action_size))
    for step in range(steps):
        action = rng.uniform(-1.0, 1.0, (1, robot.action_size)).astype(np.float32)
        robot.command(action, command)
        # An episode that ends is begun anew at once: its last state is looked at before.
        end, seen = simulation._end, []

        def look(*given, end=end, seen=seen):
            seen.append(dataclasses.replace(standing(simulation.state.joint_names, 1), **{
                field: getattr(simulation.state, field).copy()
                for field in ('joint_position', 'joint_velocity', 'joint_effort')}))
            return end(*given)

        simulation._end = look
        expected = simulation.step(action, there)
        simulation._end = end
        if step == 0:
            np.testing.assert_array_equal(command, simulation._command)
        found = robot.judge(seen[0], here)
        for field, one, other in zip(found._fields, found, expected):
            np.testing.assert_array_equal(one, other, f'{field} in step {step}')
        if step < steps - 1:
            np.testing.assert_array_equal(here, there)
    assert found.truncated[0] and len(found.episodes) == 1
    np.testing.assert_array_equal(found.final_observation, here)


@pytest.mark.parametrize('name, words', [
    ('quadruped_walk', r'before_step\(\) reads state.fields, which no robot measures'),
    ('Hopper-v5', "observation term '.*' exists only in simulation"),
    ('gymnasium:Pendulum-v1', 'have neither joints nor topics'),
    ('user_tasks:Nothing', 'user_tasks')])
def test_what_no_robot_measures_is_refused_by_name(name, words):
    with pytest.raises(TaskError, match=words) as caught:
        RobotTask(name, seed=0)
    assert '\n' not in str(caught.value)


class Reading:
    """Makes tasks of the arm of which one method reads one thing more."""

    def __init__(self, monkeypatch, method, attribute):
        kind = type(find_task('reach'))
        before = getattr(kind, method)

        def reads(task, state, *arguments):
            getattr(state, attribute)
            return before(task, state, *arguments)

        monkeypatch.setattr(kind, method, reads)


@pytest.mark.parametrize('method', ['before_step', 'reward', 'terminated', 'success'])
@pytest.mark.parametrize('attribute', ['qpos', 'previous_qvel', 'actuator_force', 'factors'])
def test_every_method_is_tried(monkeypatch, method, attribute):
    Reading(monkeypatch, method, attribute)
    with pytest.raises(TaskError, match=rf'{method}\(\) reads state.{attribute}, which no robot'):
        RobotTask('reach', seed=0)


@pytest.mark.parametrize('attribute', ['time', 'steps', 'control_dt', 'memory', 'last_action'])
def test_what_an_episode_knows_by_itself_may_be_read(monkeypatch, attribute):
    Reading(monkeypatch, 'reward', attribute)
    assert RobotTask('reach', seed=0).needs.commands == {}


def test_what_the_reward_reads_the_robot_must_tell(monkeypatch):
    assert not RobotTask('reach', seed=0).needs.effort
    kind = type(find_task('reach'))
    monkeypatch.setattr(kind, 'reward', lambda task, state, action: -state.joint_effort[:, 2] ** 2)
    assert RobotTask('reach', seed=0).needs.effort == {'elbow'}


def test_what_only_the_critic_sees_must_be_measured_too(monkeypatch):
    from asyncppo_ros.simulation.terms import mass_factor
    kind = type(find_task('reach'))
    monkeypatch.setattr(kind, 'critic_observation', lambda task: [mass_factor()])
    with pytest.raises(TaskError, match="'mass_factor', which no robot measures"):
        RobotTask('reach', seed=0, privileged=True)
    assert RobotTask('reach', seed=0).critic_observation.shape == (1, 0)


@pytest.mark.parametrize('reward', [np.nan, [1.0, 2.0], 'high'])
def test_a_reward_that_is_none_is_told(monkeypatch, reward):
    robot = RobotTask('reach', seed=0)
    out = np.zeros((1, robot.observation_size), np.float32)
    measured = standing(robot.card['joints'], 6)
    robot.begin(measured, out)
    monkeypatch.setattr(type(find_task('reach')), 'reward', lambda *given: np.atleast_1d(reward))
    with pytest.raises(TaskError, match=r'task reach: reward\(\) gave'):
        robot.judge(measured, out)

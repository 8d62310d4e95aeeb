"""Putting terms together: order, clip, scale, delay, history, and the check of every number."""

import json

import numpy as np
import pytest

from asyncppo_ros.errors import TaskError
from asyncppo_ros.robot import terms
from asyncppo_ros.robot.observation import Observation
from asyncppo_ros.robot.state import standing
from asyncppo_ros.robot.terms import Term


def robots(num_envs=2):
    """Give robots whose joint j of robot n stands at 10 n + j."""
    state = standing(('a', 'b'), action_size=1, num_envs=num_envs)
    state.joint_position[:] = 10.0 * np.arange(num_envs)[:, None] + [0.0, 1.0]
    return state


def observed(observation, state):
    """Give one observation."""
    out = np.full((state.num_envs, observation.size), np.nan, np.float32)
    observation.observe(state, out)
    return out.tolist()


def test_terms_stand_in_order():
    observation = Observation([terms.joint_position(['b']), terms.projected_gravity(),
                               terms.joint_position(['a'])])
    assert observation.size == 5
    assert observed(observation, robots()) == [[1, 0, 0, -1, 0], [11, 0, 0, -1, 10]]


def test_clip_comes_before_scale():
    observation = Observation([terms.joint_position(['a', 'b']).processed(clip=5.0, scale=10.0),
                               terms.joint_position(['b'])])
    assert observed(observation, robots()) == [[0, 10, 1], [50, 50, 11]]


def test_delay_and_history_begin_with_the_present_and_move_on():
    observation = Observation([terms.joint_position(['a']).processed(delay=1, history=2),
                               terms.joint_position(['b'])])
    state = robots()
    out = np.full((2, 3), np.nan, np.float32)
    observation.reset(state, slice(None), out)
    assert out.tolist() == [[0, 0, 1], [10, 10, 11]]
    for expected in ([0, 0, 2], [0, 1, 3], [1, 2, 4]):
        state.joint_position[:] += 1.0
        assert observed(observation, state)[0] == expected
    # The second robot begins anew at 50; the first one keeps its past.
    state.joint_position[1] = [50.0, 51.0]
    out[:] = -1.0
    observation.reset(state, np.array([1]), out)
    assert out.tolist() == [[-1, -1, -1], [50, 50, 51]]
    state.joint_position[:] += 1.0
    assert observed(observation, state) == [[2, 3, 5], [50, 50, 52]]


def test_reset_writes_no_other_row():
    out = np.full((2, 1), -1.0, np.float32)
    Observation([terms.joint_position(['a'])]).reset(robots(), [1], out)
    assert out.tolist() == [[-1], [10]]


def test_card_makes_the_same_observation():
    observation = Observation([terms.joint_position(['b'], offset=[0.5]).processed(scale=2.0),
                               terms.last_action(1)])
    again = Observation.from_card(json.loads(json.dumps(observation.card())))
    assert observed(again, robots()) == observed(observation, robots())


def test_wrong_shape_names_the_term():
    observation = Observation([Term(lambda state: np.zeros(2), 1, name='mine', reference='m:f')])
    with pytest.raises(TaskError) as error:
        observed(observation, robots())
    assert str(error.value) == (
        "observation term 'mine' (m:f) gave shape (2,), expected (2, 1): one row per "
        'environment, one column per number')


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
def test_not_finite_names_term_and_environment(value):
    state = robots(4)
    state.joint_velocity[2, 1] = value
    observation = Observation([terms.joint_position(['a']), terms.joint_velocity(['a', 'b'])])
    with pytest.raises(TaskError) as error:
        observed(observation, state)
    assert str(error.value) == (
        "observation term 'joint_velocity' (asyncppo_ros.robot.terms:joint_velocity) gave "
        f'{value} in environment 2, column 1')


def test_what_is_not_a_term():
    with pytest.raises(TaskError, match="observation: 'joint_position' is not a term"):
        Observation(['joint_position'])
    with pytest.raises(TaskError, match='at least one term is needed'):
        Observation([])

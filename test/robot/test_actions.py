"""Commands from actions, by hand."""

import json
import math

import numpy as np
import pytest

from asyncppo_ros.errors import TaskError
from asyncppo_ros.robot.actions import ActionMap
from asyncppo_ros.robot.state import standing


def robots(num_envs=1):
    """Give robots whose joints a and b stand at 1 and 2 and move at 3 and 4."""
    state = standing(('b', 'a'), action_size=2, num_envs=num_envs)
    state.joint_position[:] = [2.0, 1.0]
    state.joint_velocity[:] = [4.0, 3.0]
    return state


def commanded(action_map, action, state):
    """Give the commands of every robot."""
    action = np.atleast_2d(np.array(action))
    out = np.full(action.shape, np.nan)
    action_map.command(action, state, out)
    return out.tolist()


@pytest.mark.parametrize('settings, action, expected', [
    ({}, [0.5, -0.5], [0.5, -0.5]),
    ({'offset': [10.0, 20.0], 'scale': [2.0, 4.0]}, [0.5, -0.5], [11.0, 18.0]),
    ({'mode': 'delta', 'scale': 0.25}, [1.0, -1.0], [1.25, 1.75]),
    ({'mode': 'delta', 'interface': 'velocity'}, [0.5, 0.5], [3.5, 4.5]),
    ({'scale': 10.0, 'low': -2.0, 'high': [1.0, 3.0]}, [-0.9, 0.9], [-2.0, 3.0]),
])
def test_commands(settings, action, expected):
    assert commanded(ActionMap(['a', 'b'], 0.1, **settings), action, robots()) == [expected]


def test_rate_limit_counts_from_where_the_robot_is():
    action_map = ActionMap(['a', 'b'], 0.1, scale=10.0, rate_limit=[5.0, 0.0])
    state = robots()
    action_map.reset(state, slice(None))
    # Joint a moves by at most 5 · 0.1; joint b has no limit.
    assert commanded(action_map, [1.0, 1.0], state) == [[1.5, 10.0]]
    assert commanded(action_map, [1.0, -1.0], state) == [[2.0, -10.0]]
    assert commanded(action_map, [0.21, 0.0], state) == [[2.1, 0.0]]


def test_rate_limit_of_each_robot_begins_anew():
    action_map = ActionMap(['a', 'b'], 0.1, interface='effort', rate_limit=10.0, scale=100.0)
    state = robots(2)
    action_map.reset(state, slice(None))
    for expected in (1.0, 2.0):
        assert commanded(action_map, np.ones((2, 2)), state) == [[expected] * 2] * 2
    action_map.reset(state, np.array([1]))
    assert commanded(action_map, np.ones((2, 2)), state) == [[3.0, 3.0], [1.0, 1.0]]


def test_rate_limit_without_a_reset():
    action_map = ActionMap(['a', 'b'], 0.1, rate_limit=1.0)
    assert commanded(action_map, [0.0, 0.0], robots()) == [[0.9, 1.9]]


def test_card_makes_the_same_map():
    action_map = ActionMap(['a', 'b'], 0.02, mode='delta', offset=0.1, scale=[0.2, 0.3],
                           low=[-1.0, -math.inf], high=1.5, rate_limit=2.0)
    card = json.loads(json.dumps(action_map.card(), allow_nan=False))
    assert card['low'] == [-1.0, None]
    again = ActionMap.from_card(card)
    assert again.card() == action_map.card()
    assert commanded(again, [0.3, 0.9], robots()) == commanded(action_map, [0.3, 0.9], robots())


@pytest.mark.parametrize('settings, message', [
    ({'interface': 'torque'}, 'action map: interface = torque: must be one of position, '
                              'velocity, effort'),
    ({'mode': 'relative'}, 'action map: mode = relative: must be one of absolute, delta'),
    ({'mode': 'delta', 'interface': 'effort'},
     'action map: mode = delta: needs the interface position or velocity'),
    ({'scale': [1.0, 2.0, 3.0]}, 'action map: scale has 3 numbers for 2 joints'),
    ({'scale': math.nan}, 'action map: scale = nan: must be finite'),
    ({'low': 1.0, 'high': [2.0, 0.5]}, 'action map: joint b: low = 1.0 must be below high = 0.5'),
    ({'rate_limit': -1.0}, 'action map: rate_limit must be at least 0'),
    ({'control_dt': 0.0}, 'action map: control_dt = 0.0: must be above 0 s'),
    ({'joints': []}, 'action map: at least one joint is needed'),
    ({'joints': ['a', 'a']}, 'action map: a joint is named twice in a, a'),
])
def test_refused(settings, message):
    with pytest.raises(TaskError) as error:
        ActionMap(**{'joints': ['a', 'b'], 'control_dt': 0.1, **settings})
    assert str(error.value) == message


def test_bad_card():
    with pytest.raises(TaskError, match="unexpected keyword argument 'gain'"):
        ActionMap.from_card({'joints': ['a'], 'control_dt': 0.1, 'gain': 1.0})


@pytest.mark.parametrize('interface, mode', [('position', 'absolute'), ('position', 'delta'),
                                             ('velocity', 'delta'), ('effort', 'absolute')])
def test_the_action_of_a_command_is_found_again(interface, mode):
    joints = ('a', 'b', 'c')
    actions = ActionMap(joints, 0.02, interface=interface, mode=mode, offset=(0.1, -2.0, 0.0),
                        scale=(0.5, 3.0, 0.0))
    rng = np.random.default_rng(0)
    state = standing(joints, 3, 20)
    state.joint_position[...] = rng.normal(size=(20, 3))
    state.joint_velocity[...] = rng.normal(size=(20, 3))
    wanted = rng.uniform(-1.0, 1.0, (20, 3))
    command, found = np.empty((20, 3)), np.empty((20, 3))
    actions.command(wanted, state, command)
    actions.action(command, state, found)
    np.testing.assert_allclose(found[:, :2], wanted[:, :2], atol=1e-12)
    assert (found[:, 2] == 0.0).all()
    # Beyond what any action commands it is the nearest one.
    actions.action(command + 100.0, state, found)
    assert (found[:, :2] == 1.0).all()

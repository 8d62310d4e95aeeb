"""Observation terms: what they give, and that a card makes them again."""

import json

import numpy as np
import pytest

from asyncppo_ros.errors import TaskError
from asyncppo_ros.robot import terms
from asyncppo_ros.robot.kinematics import Chain, Link
from asyncppo_ros.robot.state import standing
from asyncppo_ros.robot.terms import Term

ARM = Chain([Link('b', (0.0, 0.0, 1.0), (1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0))], (0.5, 0.0, 0.0))


@terms.term(size=1, unit='rad')
def doubled(state, joint, gain=2.0):
    """Give a joint position times a gain."""
    return gain * state.joint_position[:, state.columns((joint,))]


def identifiable():
    """Give two robots in which every number is another one."""
    state = standing(('a', 'b', 'c'), action_size=2, num_envs=2, commands={'goal': 3})
    arrays = [state.joint_position, state.joint_velocity, state.joint_effort,
              state.base_angular_velocity, state.projected_gravity, state.last_action,
              state.command['goal']]
    for number, array in enumerate(arrays):
        array[...] = 100.0 * (number + 1) + np.arange(array.size).reshape(array.shape)
    return state


@pytest.mark.parametrize('term, expected', [
    (terms.joint_position(['c', 'a'], offset=[1.0, 2.0]), [[101.0, 98.0], [104.0, 101.0]]),
    (terms.joint_position(['b']), [[101.0], [104.0]]),
    (terms.joint_velocity(['b', 'c']), [[201.0, 202.0], [204.0, 205.0]]),
    (terms.joint_effort(['a']), [[300.0], [303.0]]),
    (terms.base_angular_velocity(), [[400.0, 401.0, 402.0], [403.0, 404.0, 405.0]]),
    (terms.projected_gravity(), [[500.0, 501.0, 502.0], [503.0, 504.0, 505.0]]),
    (terms.last_action(2), [[600.0, 601.0], [602.0, 603.0]]),
    (terms.command('goal', 3, 'm'), [[700.0, 701.0, 702.0], [703.0, 704.0, 705.0]]),
    (terms.joint_direction(['a']), [[np.cos(100.0), np.sin(100.0)],
                                    [np.cos(103.0), np.sin(103.0)]]),
    (terms.tip_to_goal(ARM), [[700.0 - 0.5 * np.cos(101.0), 701.0, 701.0 + 0.5 * np.sin(101.0)],
                              [703.0 - 0.5 * np.cos(104.0), 704.0, 704.0 + 0.5 * np.sin(104.0)]]),
    (doubled(joint='b'), [[202.0], [208.0]]),
    (doubled(joint='b', gain=3.0), [[303.0], [312.0]]),
])
def test_values_and_card(term, expected):
    state = identifiable()
    value = term.function(state)
    assert value.shape == (2, term.size)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    again = Term.from_card(json.loads(json.dumps(term.card())))
    np.testing.assert_array_equal(again.function(state), value)
    assert again.card() == term.card()
    only = Term.from_card({'term': term.reference, 'parameters': term.parameters})
    np.testing.assert_array_equal(only.function(state), value)


def test_processing_is_in_the_card():
    term = terms.joint_velocity(['a']).processed(scale=0.1, clip=5.0, delay=1, history=2,
                                                 name='slow')
    again = Term.from_card(term.card())
    assert (again.scale, again.clip, again.delay, again.history, again.name) == (
        0.1, 5.0, 1, 2, 'slow')


@pytest.mark.parametrize('entry, message', [
    ({'term': 'nowhere.terms:x'}, 'observation term nowhere.terms:x: cannot import '
                                  "nowhere.terms: No module named 'nowhere'"),
    ({'term': 'asyncppo_ros.robot.terms:nothing'},
     'observation term asyncppo_ros.robot.terms:nothing: asyncppo_ros.robot.terms has no term '
     "'nothing'"),
    # Nothing but a term is ever called, whatever an artefact says.
    ({'term': 'os:system', 'parameters': {'command': 'true'}},
     "observation term os:system: os has no term 'system'"),
    ({'term': 'terms'}, "observation term 'terms': expected module:function"),
    ({'term': 'asyncppo_ros.robot.terms:joint_velocity', 'parameters': {'joints': ['a']},
      'size': 2},
     'observation term asyncppo_ros.robot.terms:joint_velocity: its size is 1 here and 2 in the '
     'card'),
])
def test_bad_cards(entry, message):
    with pytest.raises(TaskError) as error:
        Term.from_card(entry)
    assert str(error.value) == message


def test_unknown_parameter_is_named():
    with pytest.raises(TaskError, match="unexpected keyword argument 'joint'"):
        Term.from_card({'term': 'asyncppo_ros.robot.terms:joint_velocity',
                        'parameters': {'joints': ['a'], 'joint': 'a'}})


def test_wrong_values():
    with pytest.raises(TaskError) as error:
        terms.joint_position(['a', 'b'], offset=[1.0])
    assert str(error.value) == 'observation term joint_position: 2 joints but 1 offsets'
    with pytest.raises(TaskError) as error:
        terms.joint_velocity(['a']).processed(delay=-1)
    assert str(error.value) == (
        "observation term 'joint_velocity': delay = -1: must be at least 0")
    with pytest.raises(TaskError, match="'doubled': the parameter of type object .* cannot be "
                                        'written into an artefact'):
        doubled(joint=object())

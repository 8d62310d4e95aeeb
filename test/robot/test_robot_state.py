"""The state of a robot: columns by name, gravity in the frame of the base."""

import numpy as np
import pytest

from asyncppo_ros.errors import TaskError
from asyncppo_ros.robot.state import contiguous, project_gravity, standing


def test_neighbouring_joints_are_a_view():
    state = standing(('a', 'b', 'c', 'd'), action_size=1, num_envs=2)
    state.joint_position[:] = np.arange(8.0).reshape(2, 4)
    picked = state.joint_position[:, state.columns(('b', 'c'))]
    assert picked.tolist() == [[1.0, 2.0], [5.0, 6.0]]
    assert picked.base is not None and np.shares_memory(picked, state.joint_position)


def test_joints_in_another_order_are_picked_by_name():
    state = standing(('a', 'b', 'c'), action_size=1)
    state.joint_position[:] = [[0.0, 1.0, 2.0]]
    assert state.joint_position[:, state.columns(('c', 'a'))].tolist() == [[2.0, 0.0]]


def test_missing_joint_is_named():
    state = standing(('a', 'b'), action_size=1)
    with pytest.raises(TaskError) as error:
        state.columns(('a', 'elbow'))
    assert str(error.value) == "joint 'elbow' does not exist; joints: a, b"


def test_missing_command_is_named():
    state = standing(('a',), action_size=1, commands={'goal': 3})
    with pytest.raises(TaskError) as error:
        state.commanded('speed')
    assert str(error.value) == "command 'speed' does not exist; commands: goal"


def test_contiguous():
    assert contiguous([3, 4, 5]) == slice(3, 6)
    assert contiguous([]) == slice(0, 0)
    assert contiguous([1, 0]).tolist() == [1, 0]


@pytest.mark.parametrize('quaternion, gravity', [
    ((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, -1.0)),
    ((0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0)),
    # Rolled by +90° about x: the body's y axis points up.
    ((0.5 ** 0.5, 0.5 ** 0.5, 0.0, 0.0), (0.0, -1.0, 0.0)),
    # Pitched by +90° about y: the body's x axis points down.
    ((0.5 ** 0.5, 0.0, 0.5 ** 0.5, 0.0), (1.0, 0.0, 0.0)),
    ((0.5 ** 0.5, 0.0, 0.0, 0.5 ** 0.5), (0.0, 0.0, -1.0)),
])
def test_projected_gravity(quaternion, gravity):
    out = np.empty((1, 3))
    project_gravity(np.array([quaternion]), out)
    np.testing.assert_allclose(out, [gravity], atol=1e-12)

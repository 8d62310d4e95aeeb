"""Forward kinematics, by hand."""

import json
import math

import numpy as np
import pytest

from asyncppo_ros.errors import TaskError
from asyncppo_ros.robot.kinematics import Chain, Link

UPRIGHT = (1.0, 0.0, 0.0, 0.0)
Y_AXIS, Z_AXIS = (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)


def planar():
    """Give two links of 1 m and 0.5 m along x that turn about z, 0.1 m above the base."""
    return Chain([Link('first', (0.0, 0.0, 0.1), UPRIGHT, Z_AXIS),
                  Link('second', (1.0, 0.0, 0.0), UPRIGHT, Z_AXIS)], (0.5, 0.0, 0.0))


@pytest.mark.parametrize('angles, tip', [
    ((0.0, 0.0), (1.5, 0.0, 0.1)),
    ((math.pi / 2, 0.0), (0.0, 1.5, 0.1)),
    ((0.0, math.pi / 2), (1.0, 0.5, 0.1)),
    ((math.pi / 2, -math.pi / 2), (0.5, 1.0, 0.1)),
])
def test_two_links_in_a_plane(angles, tip):
    np.testing.assert_allclose(planar().tip(np.array([angles])), [tip], atol=1e-12)


def test_rows_do_not_touch_each_other():
    angles = np.random.default_rng(0).uniform(-3.0, 3.0, (7, 2))
    together = planar().tip(angles)
    for row, one in zip(angles, together):
        np.testing.assert_allclose(planar().tip(row[None])[0], one, atol=1e-15)


def test_sliding_joint_turned_frame_and_zero():
    # The frame is turned by 90° about z, so the slide along its x moves along the base's y.
    quaternion = (0.5 ** 0.5, 0.0, 0.0, 0.5 ** 0.5)
    chain = Chain([Link('rail', (0.0, 0.0, 0.0), quaternion, (1.0, 0.0, 0.0), True, 0.25)],
                  (0.0, 0.0, 1.0))
    np.testing.assert_allclose(chain.tip(np.array([[0.75]])), [[0.0, 0.5, 1.0]], atol=1e-12)


def test_card_makes_the_same_chain():
    chain = planar()
    again = Chain.from_card(json.loads(json.dumps(chain.card())))
    assert again.links == chain.links
    angles = np.array([[0.3, -0.7]])
    assert again.tip(angles).tolist() == chain.tip(angles).tolist()


def test_errors():
    with pytest.raises(TaskError, match='at least one joint'):
        Chain([], (0.0, 0.0, 0.0))
    with pytest.raises(TaskError, match="'tip' is missing or unknown"):
        Chain.from_card({'links': []})


def test_vectors_turn_with_a_joint():
    arm = planar()
    angles = np.array([[0.5 * math.pi, 0.5 * math.pi]])
    ahead = np.array([[0.0, 1.0, 0.2]])  # where the first link points
    np.testing.assert_allclose(arm.turned_with('first', angles, ahead), [[1.0, 0.0, 0.2]],
                               atol=1e-12)
    # The second link points backwards: what lies ahead of the first is to the right of it.
    np.testing.assert_allclose(arm.turned_with('second', angles, ahead), [[0.0, -1.0, 0.2]],
                               atol=1e-12)

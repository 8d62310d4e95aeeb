"""A picture strip of an episode, where MuJoCo can draw without a screen."""

from harness import asyncppo
from matplotlib.image import imread
import numpy as np
import pytest

from asyncppo_ros.acting.rollout import layout_of
from asyncppo_ros.config import Config
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.simulation.registry import make
from asyncppo_ros.tools.render import GAP, strip


@pytest.fixture
def policy_of(tmp_path):
    def write(task):
        environment = make(task, 1, 0)
        layout = layout_of(environment)
        learner = Learner(Config(task=task), environment.describe(), layout.observation_size,
                          layout.action_size, 1)
        path = tmp_path / 'policy.safetensors'
        path.write_bytes(learner.snapshot().data)
        return path
    return write


def test_pictures_stand_side_by_side():
    joined = strip([np.zeros((4, 6, 3), np.uint8), np.ones((4, 6, 3), np.uint8)])
    assert joined.shape == (4, 12 + GAP, 3)
    assert (joined[:, 6:6 + GAP] == 255).all() and (joined[:, -6:] == 1).all()


def test_the_arm_is_drawn(policy_of, tmp_path):
    out = tmp_path / 'strip.png'
    result = asyncppo('render', policy_of('reach'), '--out', out, '--frames', 3, '--size', 160,
                      120, '--seconds', 0.4)
    if 'no off-screen renderer here' in result.stderr:
        pytest.skip(result.stderr.strip())
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(out)
    picture = imread(out)
    assert picture.shape[:2] == (120, 3 * 160 + 2 * GAP)
    assert picture[..., :3].std() > 0.05  # not one colour


def test_what_cannot_be_drawn_is_named(policy_of, tmp_path):
    result = asyncppo('render', policy_of('gymnasium:Pendulum-v1'), '--out', tmp_path / 'x.png')
    assert result.returncode == 2
    assert 'only tasks of a MuJoCo model of their own can be drawn' in result.stderr
    assert asyncppo('render', 'none', '--frames', '0').returncode == 2

"""A picture strip of an episode, where MuJoCo can draw without a screen."""

import gymnasium
from harness import asyncppo
from matplotlib.image import imread
import numpy as np
import pytest

from asyncppo_ros.acting.rollout import layout_of
from asyncppo_ros.config import Config
from asyncppo_ros.errors import TaskError
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.simulation.registry import make
from asyncppo_ros.simulation.render import episode_frames
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


@pytest.mark.parametrize('task', ['reach', 'gymnasium:Swimmer-v5'])
def test_an_episode_is_drawn(task, policy_of, tmp_path):
    out = tmp_path / 'strip.png'
    result = asyncppo('render', policy_of(task), '--out', out, '--frames', 3, '--size', 160,
                      120, '--seconds', 0.4)
    if 'no off-screen renderer here' in result.stderr:
        pytest.skip(result.stderr.strip())
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(out)
    picture = imread(out)
    assert picture.shape[:2] == (120, 3 * 160 + 2 * GAP)
    assert picture[..., :3].std() > 0.05  # not one colour


class Painted(gymnasium.Env):
    """Its pictures, 40 × 20, are as bright as it is old [steps], and a place that is drawn."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    metadata = {'render_modes': ['rgb_array'], 'render_fps': 10}
    broken = None

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_count, self.place = 0, self.np_random.integers(1, 20)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.step_count += 1
        return np.zeros(1, np.float32), 0.0, self.step_count == 8, False, {}

    def render(self):
        if self.broken:
            raise self.broken
        picture = np.full((20, 40, 3), 10 * self.step_count, np.uint8)
        picture[self.place] = 200
        return picture


@pytest.fixture
def painted(monkeypatch):
    """Give the pictures of an environment at some times."""
    gymnasium.register('Painted-v0', Painted)

    def frames(times, seed=3, **changes):
        for name, value in changes.items():
            monkeypatch.setattr(Painted, name, value)
        return episode_frames('gymnasium:Painted-v0', lambda observation: np.zeros((1, 1)),
                              np.array(times), seed, 80, 60)
    yield frames
    del gymnasium.registry['Painted-v0']


def test_an_environment_of_gymnasium_draws_itself(painted):
    pictures = painted([0.0, 0.1, 0.5, 0.7, 0.9])
    # The episode ends with its 8th step, at 0.8 s.
    assert [picture[10, 0, 0] for picture in pictures] == [0, 10, 50, 70]
    # Twice as large, with white above and below.
    assert {picture.shape for picture in pictures} == {(60, 80, 3)}
    assert (pictures[0][:10] == 255).all() and (pictures[0][50:] == 255).all()


def test_equal_seeds_give_equal_pictures(painted):
    first, again, other = painted([0.3]), painted([0.3]), painted([0.3], seed=4)
    assert np.array_equal(first, again) and not np.array_equal(first, other)


@pytest.mark.parametrize('changes, text', [
    ({'metadata': {'render_modes': ['human'], 'render_fps': 10}},
     'task gymnasium:Painted-v0: cannot be drawn: it has no render_mode rgb_array, but human'),
    ({'metadata': {}}, 'it has no render_mode rgb_array, but none at all'),
    ({'metadata': {'render_modes': ['rgb_array']}}, 'cannot be drawn by time: its metadata say'),
    ({'broken': gymnasium.error.DependencyNotInstalled('pip install painter')},
     r'no off-screen renderer here \(pip install painter\)$'),
    ({'broken': RuntimeError('no EGL')},
     r'no off-screen renderer here \(no EGL\); set MUJOCO_GL=egl or MUJOCO_GL=osmesa and')])
def test_what_cannot_be_drawn_is_named(changes, text, painted):
    with pytest.raises(TaskError, match=text):
        painted([0.0], **changes)


def test_no_pictures_are_none():
    assert asyncppo('render', 'none', '--frames', '0').returncode == 2

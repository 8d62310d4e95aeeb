"""Gymnasium environments through the adapter give the numbers of Gymnasium."""

import sys

import gymnasium
import numpy as np
import pytest

from asyncppo_ros.errors import TaskError
from asyncppo_ros.robot.actions import choices_of
from asyncppo_ros.simulation import registry


class Counter(gymnasium.Env):
    """Counts its steps: ends after `end`, both ways at once, with a success if asked to."""

    metadata = {'render_modes': [], 'render_fps': 20}

    def __init__(self, end=3, cut=True, success=True, poison=0):
        self.observation_space = gymnasium.spaces.Dict({
            'action': gymnasium.spaces.Box(-np.inf, np.inf, (2,)),
            'steps': gymnasium.spaces.Box(0.0, np.inf, (1, 1))})
        self.action_space = gymnasium.spaces.Box(
            np.array([-1.0, 10.0], np.float32), np.array([3.0, 20.0], np.float32))
        self._end, self._cut, self._success, self._poison = end, cut, success, poison
        self._steps = 0

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self._seen(np.zeros(2)), {}

    def step(self, action):
        self._steps += 1
        over = self._steps == self._end
        info = {'is_success': True} if over and self._success else {}
        return self._seen(action), float(self._steps), over, over and self._cut, info

    def _seen(self, action):
        steps = np.nan if self._poison and self._steps == self._poison else self._steps
        return {'action': np.array(action, np.float32), 'steps': np.full((1, 1), steps)}


class Chooser(gymnasium.Env):
    """Observes the action it was given, which it must have in its space."""

    def __init__(self, action_space):
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
        self.action_space = action_space

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return np.array([action], np.float32), 1.0, False, False, {}


SPACES = {'AdapterChooser-v0': gymnasium.spaces.Discrete(3, start=-1),
          'AdapterMany-v0': gymnasium.spaces.MultiDiscrete([2, 3]),
          'AdapterBits-v0': gymnasium.spaces.MultiBinary(2)}


@pytest.fixture(scope='module', autouse=True)
def counters():
    """Register the environments of this file."""
    here = f'{__name__}:Counter'
    gymnasium.register('AdapterCounter-v0', here)
    gymnasium.register('AdapterCut-v0', here, max_episode_steps=2,
                       kwargs={'success': False})
    gymnasium.register('AdapterPoison-v0', here, kwargs={'poison': 2})
    for name, space in SPACES.items():
        gymnasium.register(name, f'{__name__}:Chooser', kwargs={'action_space': space})
    yield
    for name in ('AdapterCounter-v0', 'AdapterCut-v0', 'AdapterPoison-v0', *SPACES):
        del gymnasium.registry[name]


def start(name, num_envs=1, **settings):
    """Make a batch and its first observation."""
    batch = registry.make(name, num_envs, 0, **settings)
    out = np.zeros((num_envs, batch.observation_size), np.float32)
    batch.reset(out)
    return batch, out


@pytest.mark.parametrize('environment_id', ['Pendulum-v1', 'Hopper-v5'])
def test_equal_to_gymnasium(environment_id):
    batch, out = start(f'gymnasium:{environment_id}', 2)
    theirs = gymnasium.make(environment_id)
    rng = np.random.default_rng(0)
    # Environment 1 of the batch, with its own seed.
    seed = int(np.random.default_rng((0, 1)).integers(2 ** 31))
    expected, _ = theirs.reset(seed=seed)
    np.testing.assert_array_equal(out[1], expected.astype(np.float32))
    high = theirs.action_space.high[0]
    episodes = 0
    for _ in range(450):
        actions = rng.uniform(-1.0, 1.0, (2, batch.action_size)).astype(np.float32)
        result = batch.step(actions, out)
        expected, reward, terminated, truncated, _ = theirs.step(actions[1] * high)
        assert result.reward[1] == np.float32(reward)
        assert result.terminated[1] == terminated
        assert result.truncated[1] == (truncated and not terminated)
        if truncated and not terminated:
            row = result.final_index.tolist().index(1)
            np.testing.assert_array_equal(result.final_observation[row],
                                          expected.astype(np.float32))
        if terminated or truncated:
            episodes += 1
            expected, _ = theirs.reset()
        np.testing.assert_allclose(out[1], expected, rtol=0.0, atol=1e-6)
    assert episodes >= 2
    batch.close()


def test_actions_are_scaled_and_dictionaries_flattened():
    batch, out = start('gymnasium:AdapterCounter-v0')
    assert (batch.observation_size, batch.action_size, batch.control_dt) == (3, 2, 0.05)
    batch.step(np.array([[-1.0, 1.0]], np.float32), out)
    assert out.tolist() == [[-1.0, 20.0, 1.0]]
    batch.step(np.array([[0.0, 0.5]], np.float32), out)
    assert out.tolist() == [[1.0, 17.5, 2.0]]


def test_both_ends_at_once_count_as_terminated():
    batch, out = start('gymnasium:AdapterCounter-v0')
    for _ in range(3):
        result = batch.step(np.zeros((1, 2), np.float32), out)
    assert result.terminated.tolist() == [True] and result.truncated.tolist() == [False]
    assert result.final_index.tolist() == []
    assert result.episodes.tolist() == [[6.0, 3.0, 1.0]]
    # The new episode has begun.
    assert out[0, 2] == 0.0


def test_time_limit_truncates_with_the_true_last_observation():
    batch, out = start('gymnasium:AdapterCut-v0')
    for _ in range(2):
        result = batch.step(np.zeros((1, 2), np.float32), out)
    assert result.truncated.tolist() == [True]
    assert result.final_observation.tolist() == [[1.0, 15.0, 2.0]]
    assert result.episodes.tolist() == [[3.0, 2.0, -1.0]]


def test_numbers_that_are_not_finite_end_the_episode():
    batch, _ = start('gymnasium:AdapterPoison-v0')
    rows = np.full((2, 1, 3), np.nan, np.float32)
    batch.step(np.zeros((1, 2), np.float32), rows[0])
    result = batch.step(np.zeros((1, 2), np.float32), rows[1])
    assert result.terminated.tolist() == [True] and result.reward.tolist() == [0.0]
    assert np.isfinite(rows).all() and batch.instabilities == 1


def test_random_start_spreads_the_ends():
    batch, out = start('gymnasium:Pendulum-v1', 32, random_episode_start=True)
    lengths = np.zeros(32)
    reported = 0
    for step in range(1, 201):
        result = batch.step(np.zeros((32, 1), np.float32), out)
        ended = (lengths == 0.0) & result.truncated
        lengths[ended] = step
        reported += len(result.episodes)
    assert len(set(lengths)) > 20 and lengths.max() <= 200 and lengths.min() >= 1
    assert reported == 0


def test_choices_count_from_the_start_of_their_space():
    batch, out = start('gymnasium:AdapterChooser-v0', 3)
    action = batch.describe()['action']
    assert (batch.action_size, choices_of(action), action['first']) == (1, 3, -1)
    batch.step(np.array([[0.0], [2.0], [1.0]], np.float32), out)
    assert out[:, 0].tolist() == [-1.0, 1.0, 0.0]
    # The task is tried with choices that it has.
    registry.check(batch)


def test_continuous_actions_have_no_choices():
    batch, _ = start('gymnasium:Pendulum-v1')
    assert choices_of(batch.describe()['action']) == 0


@pytest.mark.parametrize('environment_id, message', [
    *((name, f'gymnasium:{name} has a {kind} action space; box action spaces with finite bounds '
       'and Discrete ones are supported')
      for name, kind in (('AdapterMany-v0', 'MultiDiscrete'), ('AdapterBits-v0', 'MultiBinary'))),
    ('Pendulum-v7', 'task gymnasium:Pendulum-v7: unknown; did you mean Pendulum-v1 or '),
    ('Zzzz-v0', 'task gymnasium:Zzzz-v0: unknown; gymnasium.pprint_registry() lists what exists'),
    ('no_such_module:Id-v0', 'task gymnasium:no_such_module:Id-v0: cannot import it: No module '
                             "named 'no_such_module'"),
])
def test_refused(environment_id, message):
    with pytest.raises(TaskError) as error:
        registry.make(f'gymnasium:{environment_id}', 1, 0)
    assert str(error.value).startswith(message)
    assert '\n' not in str(error.value)


def test_third_party(tmp_path, monkeypatch):
    (tmp_path / 'third_party_world.py').write_text(
        'import gymnasium\n'
        "gymnasium.register('Third-v0', 'gymnasium.envs.classic_control:PendulumEnv')\n")
    monkeypatch.syspath_prepend(tmp_path)
    batch, _ = start('gymnasium:third_party_world:Third-v0')
    assert batch.task == 'gymnasium:third_party_world:Third-v0'
    sys.modules.pop('third_party_world')
    del gymnasium.registry['Third-v0']


def test_description():
    description = registry.make('gymnasium:Pendulum-v1', 1, 0).describe()
    assert description['deployable'] is False
    assert description['simulation_only'] == ['observation of gymnasium:Pendulum-v1']
    assert description['action']['scale'] == [2.0]


class LostStart(Chooser):
    """Begins with a NaN: there is no last good observation to end such an episode with."""

    def reset(self, seed=None, options=None):
        return np.full(1, np.nan, np.float32), {}


def test_a_start_that_is_not_finite_is_a_mistake_of_the_environment():
    gymnasium.register('LostStart-v0', lambda: LostStart(gymnasium.spaces.Discrete(2)))
    with pytest.raises(TaskError, match=r'LostStart-v0: reset\(\) of environment 0 gave an '
                                        r'observation that is not finite: \[nan\]'):
        start('gymnasium:LostStart-v0')

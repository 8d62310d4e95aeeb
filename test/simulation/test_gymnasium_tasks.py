"""The batched v5 tasks give the numbers of Gymnasium's own, step by step."""

import gymnasium
import mujoco
import numpy as np
import pytest

from asyncppo_ros.simulation import registry

TOLERANCE = 1e-9
# What the policy gets is float32.
FLOAT32 = 1e-6
STEPS = 1000
NUM_ENVS = 2


def episodes_side_by_side(name, scale):
    """
    Step both worlds with the same random actions, through every fall.

    Gives the largest differences of the float64 observation, of the one that the policy gets,
    and of the reward, and the number of episodes.
    """
    batch = registry.make(name, NUM_ENVS, seed=3)
    theirs = [gymnasium.make(name).unwrapped for _ in range(NUM_ENVS)]
    out = np.zeros((NUM_ENVS, batch.observation_size), np.float32)
    batch.reset(out)
    begin = np.ones(NUM_ENVS, bool)
    rng = np.random.default_rng(1)
    exact, rounded, rewards, ends = 0.0, 0.0, 0.0, 0
    for _ in range(STEPS):
        for index in np.flatnonzero(begin):
            mujoco.mj_resetData(theirs[index].model, theirs[index].data)
            theirs[index].set_state(batch.state.qpos[index], batch.state.qvel[index])
            first = theirs[index]._get_obs()
            exact = max(exact, difference(observed(batch)[index], first))
            rounded = max(rounded, difference(out[index], first))
        actions = rng.uniform(-1.0, 1.0, (NUM_ENVS, batch.action_size)).astype(np.float32)
        reward = record_reward(batch)
        result = batch.step(actions, out)
        begin = result.terminated | result.truncated
        for index, environment in enumerate(theirs):
            seen, gain, terminated, _, _ = environment.step(
                scale * actions[index].astype(np.float64))
            assert terminated == result.terminated[index]
            rewards = max(rewards, abs(gain - reward[0][index]))
            if not begin[index]:
                exact = max(exact, difference(observed(batch)[index], seen))
                rounded = max(rounded, difference(out[index], seen))
        ends += int(begin.sum())
    return exact, rounded, rewards, ends


def observed(batch):
    """Give what the observation terms say, in float64 [N, O]."""
    columns = []
    for term in batch._task.observation():
        value = term.function(batch.state)
        columns.append(np.clip(value, -term.clip, term.clip) if term.clip else value)
    return np.hstack(columns)


def record_reward(batch):
    """Catch the reward in float64, before it is rounded."""
    caught = []
    inner = type(batch._task).reward

    def reward(state, action):
        caught.append(inner(batch._task, state, action))
        return caught[-1]
    batch._task.reward = reward
    return caught


def difference(ours, theirs):
    """Give the largest difference, relative where numbers are large (float32 has 24 bits)."""
    return float((np.abs(ours - theirs) / np.maximum(1.0, np.abs(theirs))).max())


@pytest.mark.parametrize(('name', 'scale'), [
    ('Hopper-v5', 1.0), ('Walker2d-v5', 1.0), ('Ant-v5', 1.0), ('Humanoid-v5', 0.4)])
def test_observation_reward_and_termination_are_those_of_gymnasium(name, scale):
    exact, rounded, reward, ends = episodes_side_by_side(name, scale)
    assert reward <= TOLERANCE
    assert exact <= TOLERANCE
    assert rounded <= FLOAT32
    # Random actions make them fall, so what follows a fall was compared as well.
    assert ends >= 2


@pytest.mark.parametrize('name', ['Hopper-v5', 'Walker2d-v5', 'Ant-v5', 'Humanoid-v5'])
def test_sizes_and_time_limit_are_those_of_gymnasium(name):
    ours = registry.make(name, 1, seed=0)
    theirs = gymnasium.make(name)
    assert ours.observation_size == theirs.observation_space.shape[0]
    assert ours.action_size == theirs.action_space.shape[0]
    assert ours.control_dt == pytest.approx(theirs.unwrapped.dt)
    assert round(ours._task.time_limit / ours.control_dt) == \
        gymnasium.spec(name).max_episode_steps == STEPS


@pytest.mark.parametrize('numbers, column', [('qpos', 3), ('qvel', 0), ('qvel', 5)])
@pytest.mark.parametrize('value', [150.0, -150.0, np.nan])
def test_a_hopper_with_a_number_out_of_bounds_is_not_healthy(numbers, column, value):
    batch = registry.make('Hopper-v5', 3, seed=0)
    batch.reset(np.zeros((3, batch.observation_size), np.float32))
    state, task = batch.state, batch._task
    healthy = task.reward(state, state.last_action)
    assert not task.terminated(state).any()
    getattr(state, numbers)[1, column] = value
    # What follows from a state is forgotten when it changes.
    state.refresh()
    assert task.terminated(state).tolist() == [False, True, False]
    lost = healthy - task.reward(state, state.last_action)
    assert lost.tolist() == [0.0, 1.0, 0.0]

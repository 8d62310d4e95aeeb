"""The batched HalfCheetah-v5 gives the numbers of Gymnasium's own, step by step."""

import gymnasium
import numpy as np
import pytest

from asyncppo_ros.simulation import registry

TOLERANCE = 1e-9
STEPS = 1000


@pytest.fixture(scope='module')
def side_by_side():
    """Run both worlds from the same states with the same random actions."""
    batch = registry.make('HalfCheetah-v5', 2, seed=3)
    out = np.zeros((2, 17), np.float32)
    batch.reset(out)
    theirs = [gymnasium.make('HalfCheetah-v5').unwrapped for _ in range(2)]
    for index, environment in enumerate(theirs):
        environment.reset(seed=0)
        environment.set_state(batch.state.qpos[index], batch.state.qvel[index])
    rng = np.random.default_rng(1)
    differences = []
    for _ in range(STEPS - 1):
        actions = rng.uniform(-1.0, 1.0, (2, 6)).astype(np.float32)
        result = batch.step(actions, out)
        reward = batch._task.reward(batch.state, batch.state.last_action)
        ours = np.hstack((batch.state.qpos[:, 1:], batch.state.qvel))
        for index, environment in enumerate(theirs):
            # Ours computes in float64 throughout; so does Gymnasium when it is given float64.
            seen, gain, terminated, truncated, _ = environment.step(
                actions[index].astype(np.float64))
            assert (terminated, truncated) == (result.terminated[index], result.truncated[index])
            differences.append((np.abs(seen - ours[index]).max(), abs(gain - reward[index]),
                                np.abs(seen - out[index]).max()))
    return np.array(differences), batch, out


def test_observation_reward_and_termination_are_equal(side_by_side):
    differences = side_by_side[0]
    assert differences[:, 0].max() <= TOLERANCE
    assert differences[:, 1].max() <= TOLERANCE
    # What the policy gets is that, rounded to float32.
    assert differences[:, 2].max() <= 1e-5


def test_time_limit_is_that_of_gymnasium(side_by_side):
    _, batch, out = side_by_side
    assert gymnasium.spec('HalfCheetah-v5').max_episode_steps == STEPS
    result = batch.step(np.zeros((2, 6), np.float32), out)
    assert result.truncated.all() and not result.terminated.any()
    assert result.episodes[:, 1].tolist() == [STEPS, STEPS]
    assert result.episodes[:, 2].tolist() == [-1.0, -1.0]


def test_resets_are_as_wide_as_those_of_gymnasium():
    batch = registry.make('HalfCheetah-v5', 400, seed=0)
    batch.reset(np.zeros((400, 17), np.float32))
    qpos, qvel = batch.state.qpos, batch.state.qvel
    assert np.abs(qpos).max() <= 0.1
    np.testing.assert_allclose(qpos.std(axis=0), 0.1 / 3 ** 0.5, rtol=0.15)
    np.testing.assert_allclose(qvel.std(axis=0), 0.1, rtol=0.15)


def test_description_is_refused_on_a_robot_by_the_name_of_the_term():
    description = registry.make('HalfCheetah-v5', 1, seed=0).describe()
    assert description['deployable'] is False
    assert description['simulation_only'] == ['qpos', 'qvel']

"""Randomization: what differs, for how long, and that the seed decides it."""

import numpy as np
import pytest

from asyncppo_ros.config import RandomizationConfig
from asyncppo_ros.errors import TaskError
from asyncppo_ros.simulation import registry

TASK = 'quadruped_walk'
# Columns of the observation: angular velocity, gravity | command | joints | last action.
COMMAND, LAST_ACTION = slice(6, 9), slice(33, 45)
MEASURED = np.r_[0:6, 9:33]


def make(num_envs=8, seed=1, **settings):
    batch = registry.make(TASK, num_envs, seed, randomization=RandomizationConfig(**settings))
    out = np.zeros((num_envs, batch.observation_size), np.float32)
    batch.reset(out)
    return batch, out


def models_of(batch):
    return batch._physics._models


def stand(batch, out, steps):
    """Give all observations while nothing is done, float32 [steps, N, O]."""
    still = np.zeros((batch.num_envs, batch.action_size), np.float32)
    seen = []
    for _ in range(steps):
        batch.step(still, out)
        seen.append(out.copy())
    return np.array(seen)


def test_without_settings_nothing_is_disturbed():
    plain = registry.make(TASK, 4, 3)
    out = np.zeros((4, 45), np.float32)
    plain.reset(out)
    batch, other = make(4, 3)
    np.testing.assert_array_equal(stand(plain, out, 30), stand(batch, other, 30))
    assert len({id(model) for model in models_of(batch)}) == 1
    assert batch.describe()['randomization'] == {}


@pytest.mark.parametrize('setting, read, width', [
    ('mass', lambda model: model.body_mass[1:], 0.3),
    ('friction', lambda model: model.geom_friction[:, 0], 0.5),
    ('gains', lambda model: model.actuator_gainprm[:, 0], 0.2),
    ('gains', lambda model: model.actuator_biasprm[:, 1], 0.2),
    ('motor_strength', lambda model: model.actuator_forcerange[:, 1], 0.2),
    ('joint_damping', lambda model: model.dof_damping[6:], 0.5)])
def test_models_differ_within_the_width(setting, read, width):
    batch, _ = make(64, **{setting: width})
    nominal = read(batch.model)
    factors = np.array([read(model) / nominal for model in models_of(batch)])
    assert (np.abs(factors - 1.0) <= width + 1e-12).all()
    # They fill the width, and no two robots are the same.
    assert factors.min() < 1.0 - 0.8 * width and factors.max() > 1.0 + 0.8 * width
    assert len(np.unique(factors[:, 0])) == 64


def test_gains_keep_the_position_that_is_held():
    """Stiffness acts on target minus position, so both of MuJoCo's parameters change alike."""
    batch, _ = make(16, gains=0.3)
    for model in models_of(batch):
        np.testing.assert_allclose(model.actuator_gainprm[:, 0], -model.actuator_biasprm[:, 1])


def test_what_follows_from_masses_follows():
    batch, _ = make(4, mass=0.5)
    for model in models_of(batch):
        assert model.body_subtreemass[0] == pytest.approx(model.body_mass.sum())
    heights = stand(batch, np.zeros((4, 45), np.float32), 100) is not None and \
        batch.state.qpos[:, 2]
    assert np.ptp(heights) > 1e-3


def test_the_seed_and_the_number_decide_the_robot():
    few, many, other = make(2, 5, mass=0.3)[0], make(6, 5, mass=0.3)[0], make(2, 6, mass=0.3)[0]
    for index in range(2):
        np.testing.assert_array_equal(models_of(few)[index].body_mass,
                                      models_of(many)[index].body_mass)
    assert not np.array_equal(models_of(few)[0].body_mass, models_of(other)[0].body_mass)


def test_everything_at_once_is_repeatable():
    settings = {'mass': 0.2, 'friction': 0.4, 'sensor_noise': 1.0, 'sensor_bias': 1.0,
                'observation_delay': 2, 'action_delay': 2, 'push_interval': 0.5,
                'initial_state': 0.1}
    np.testing.assert_array_equal(stand(*make(**settings), 60), stand(*make(**settings), 60))


def test_noise_has_the_declared_size_and_spares_what_the_policy_knows():
    batch, out = make(64, sensor_noise=2.0)
    seen = stand(batch, out, 60)
    true = np.array([term.function(batch.state) for term in batch._observation.terms
                     if term.name == 'joint_position'])[0]
    error = seen[-1][:, 9:21] - true
    assert error.std() == pytest.approx(2.0 * 0.01, rel=0.1)
    np.testing.assert_array_equal(seen[-1][:, COMMAND],
                                  batch.state.command['velocity'].astype(np.float32))
    assert (seen[:, :, LAST_ACTION] == 0.0).all()


def test_a_bias_lasts_an_episode():
    plain, noisy = stand(*make(4), 40), stand(*make(4, sensor_bias=3.0), 40)
    bias = noisy - plain
    np.testing.assert_allclose(bias[:, :, MEASURED], np.broadcast_to(
        bias[:1, :, MEASURED], bias[:, :, MEASURED].shape), atol=2e-5)
    assert 0.0 < np.abs(bias[0, :, 9:21]).max() <= 3.0 * 0.01 + 1e-6
    assert (bias[:, :, COMMAND] == 0.0).all()


def test_measured_terms_are_late_by_a_fixed_number_of_steps():
    plain, late = stand(*make(32), 30), stand(*make(32, observation_delay=3), 30)
    delays = []
    for env in range(32):
        matches = [delay for delay in range(4) if np.array_equal(
            late[5:, env][:, MEASURED], plain[5 - delay:len(plain) - delay, env][:, MEASURED])]
        assert len(matches) == 1
        delays += matches
    assert set(delays) == {0, 1, 2, 3}
    np.testing.assert_array_equal(late[:, :, COMMAND], plain[:, :, COMMAND])


def test_actions_take_effect_late_but_are_known_at_once():
    prompt, _ = make(16)
    late, out = make(16, action_delay=2)
    delays = late._disturbances._action_lateness
    assert set(delays) == {0, 1, 2}
    action = np.full((16, 12), 0.5, np.float32)
    moved = []
    for _ in range(3):
        late.step(action, out)
        np.testing.assert_array_equal(out[:, LAST_ACTION], action)
        moved.append(late._command.copy())
    prompt.step(action, out)
    target, nominal = prompt._command[0], late._actions.offset
    for env, delay in enumerate(delays):
        for step in range(3):
            expected = target if step >= delay else nominal
            np.testing.assert_allclose(moved[step][env], expected)


def test_pushes_change_the_velocity_of_the_base_about_as_often_as_asked():
    batch, out = make(32, push_interval=0.5, push_velocity=1.0)
    pushes = []
    inner = batch._physics.push

    def push(environments, change):
        pushes.append((len(environments), change.copy()))
        inner(environments, change)
    batch._physics.push = push
    stand(batch, out, 200)  # 4 s
    count = sum(number for number, _ in pushes)
    assert 0.75 * 32 * 8 < count < 1.25 * 32 * 8
    changes = np.concatenate([change for _, change in pushes])
    assert 0.9 < np.abs(changes).max() <= 1.0


def test_a_robot_that_stands_fast_is_not_pushed():
    with pytest.raises(TaskError, match='randomization.push_interval = 2.0: this robot has no'):
        registry.make('reach', 1, 0, randomization=RandomizationConfig(push_interval=2.0))


def test_gymnasium_is_refused():
    with pytest.raises(TaskError, match='environments of Gymnasium cannot be randomized'):
        registry.make('gymnasium:Pendulum-v1', 1, 0, randomization=RandomizationConfig(mass=0.1))
    registry.make('gymnasium:Pendulum-v1', 1, 0, randomization=RandomizationConfig())


def test_initial_state_is_wider():
    starts = [make(64, initial_state=width)[0].state.qpos[:, 7:].std() for width in (0.0, 0.4)]
    assert starts[1] ** 2 - starts[0] ** 2 == pytest.approx(0.4 ** 2 / 3.0, rel=0.2)


def test_the_card_tells_it():
    batch, _ = make(1, mass=0.2, sensor_noise=1.0)
    told = batch.describe()['randomization']
    assert told['mass'] == 0.2 and told['sensor_noise'] == 1.0 and told['friction'] == 0.0

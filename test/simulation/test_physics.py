"""One MjData for all environments gives the numbers of an MjData for each, bit for bit."""

import mujoco
import numpy as np
import pytest

from asyncppo_ros.simulation import mujoco_log
from asyncppo_ros.simulation.physics import Physics, WHOLE_STATE
from asyncppo_ros.simulation.state import allocate, field_shape

NUM_ENVS, SUBSTEPS, STEPS = 4, 3, 30
# A ball on a plane and a hinge; the motor has a state of its own and its signal comes late.
PLAIN = """<mujoco><option timestep="0.005"/><worldbody>
  <geom type="plane" size="5 5 .1"/>
  <body pos="0 0 .3"><freejoint/><geom size=".1"/></body>
  <body name="arm" pos="1 0 1"><joint name="hinge" axis="0 1 0"/><geom size=".05" pos=".3 0 0"/>
  </body></worldbody>
  <actuator>MOTOR</actuator></mujoco>"""
MOTOR = '<motor joint="hinge" gear="5"/>'
LAZY_MOTOR = '<general joint="hinge" gainprm="5" dyntype="filter" dynprm="0.1"/>'
LATE_MOTOR = pytest.param(
    '<motor joint="hinge" gear="5" delay="0.02" nsample="8"/>', marks=pytest.mark.skipif(
        not hasattr(mujoco.MjModel, 'nhistory'), reason='this MuJoCo knows no delays'))
# Where the pillar stands is an input of the simulation: the keyframe moves it under the arm.
PILLAR = """<mujoco><option timestep="0.005"/><worldbody>
  <body name="pillar" mocap="true" pos="5 0 0"><geom size=".1"/></body>
  <body name="arm" pos="1 0 1"><joint name="hinge" axis="0 1 0"/><geom size=".05" pos=".3 0 0"/>
  </body></worldbody><actuator><motor joint="hinge" gear="5"/></actuator>
  <keyframe><key name="start" mpos="1.2 0 .75" qpos="0.1"/></keyframe></mujoco>"""


def model_of(text, motor=MOTOR):
    return mujoco.MjModel.from_xml_string(text.replace('MOTOR', motor))


def physics_of(models, fields=(), keyframe=-1):
    data = mujoco.MjData(models[0])
    state = allocate(models[0], len(models), 1, SUBSTEPS * 0.005, {}, {},
                     {name: field_shape(data, name) for name in fields})
    physics = Physics(models, state, SUBSTEPS, keyframe)
    rng = np.random.default_rng(0)
    for index in range(len(models)):
        physics.nominal(index)
        state.qvel[index] += rng.uniform(-1.0, 1.0, state.qvel.shape[1])
        physics.begin(index)
    return physics, state


def each_by_itself(models, physics):
    """Give an MjData for each environment, in its state."""
    everyone = np.arange(len(models))
    found = [mujoco.MjData(model) for model in models]
    for model, data, state in zip(models, found, physics.whole_states(everyone)):
        mujoco.mj_setState(model, data, state, WHOLE_STATE)
    return found


def commands():
    return np.random.default_rng(1).uniform(-1.0, 1.0, (STEPS, NUM_ENVS, 1))


@pytest.mark.parametrize('motor', [MOTOR, LAZY_MOTOR, LATE_MOTOR])
def test_steps_are_those_of_an_mjdata_each(motor):
    models = [model_of(PLAIN, motor)] * NUM_ENVS
    physics, state = physics_of(models, ('cfrc_ext', 'xpos', 'qacc'))
    theirs = each_by_itself(models, physics)
    for command in commands():
        physics.control[...] = command
        physics.step()
        for index, (model, data) in enumerate(zip(models, theirs)):
            data.ctrl[:] = command[index]
            mujoco.mj_step(model, data, SUBSTEPS)
            mujoco.mj_rnePostConstraint(model, data)
            for name, rows in (('qpos', state.qpos), ('qvel', state.qvel),
                               ('qfrc_actuator', state.actuator_force), *state.fields.items()):
                np.testing.assert_array_equal(rows[index], getattr(data, name), err_msg=name)
    assert not len(physics.unstable())
    # The balls have met the ground.
    assert (np.abs(state.fields['cfrc_ext'][:, 1]) > 0.0).any(1).all()


SERVO = '<position joint="hinge" kp="30" kv="2"/>'
KEY = '<keyframe><key name="start" qpos="0 0 .3 1 0 0 0 .2" ctrl="0.4"/></keyframe></mujoco>'


@pytest.mark.parametrize('motor, fields', [
    (MOTOR, ()), (SERVO, ()), (SERVO, ('xpos', 'qacc', 'cfrc_ext')), (LAZY_MOTOR, ()),
    ('<adhesion body="arm" ctrlrange="0 1" gain="9"/>', ())])
def test_an_episode_begins_as_mj_forward_leaves_it(motor, fields):
    model = model_of(PLAIN.replace('</mujoco>', '') + KEY, motor)
    physics, state = physics_of([model] * NUM_ENVS, fields, keyframe=0)
    # What came before leaves no trace, and the command is the owner's.
    for command in commands()[:5]:
        physics.control[...] = command
        physics.step()
    last = physics.control.copy()
    physics.nominal(2)
    state.qpos[2, 7] += 0.1
    state.qvel[2] = 0.5
    physics.begin(2)
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    data.qpos[7] += 0.1
    data.qvel[:] = 0.5
    mujoco.mj_forward(model, data)
    for name, rows in (('qpos', state.qpos), ('qvel', state.qvel),
                       ('qacc_warmstart', state.inputs.warm_start),
                       ('qfrc_actuator', state.actuator_force), *state.fields.items()):
        np.testing.assert_array_equal(rows[2], getattr(data, name), err_msg=name)
    np.testing.assert_array_equal(physics.control, last)
    if motor in (MOTOR, SERVO):
        assert data.qfrc_actuator[6] != 0.0


def test_models_may_differ_in_numbers():
    models = [model_of(PLAIN) for _ in range(NUM_ENVS)]
    for index, model in enumerate(models):
        model.body_mass[2] *= 1.0 + 0.1 * index
        mujoco.mj_setConst(model, mujoco.MjData(model))
    physics, state = physics_of(models)
    theirs = each_by_itself(models, physics)
    for command in commands():
        physics.control[...] = command
        physics.step()
        for index, (model, data) in enumerate(zip(models, theirs)):
            data.ctrl[:] = command[index]
            mujoco.mj_step(model, data, SUBSTEPS)
            np.testing.assert_array_equal(state.qvel[index], data.qvel)


def test_what_runs_away_disturbs_nobody_else():
    mujoco_log.listen()
    models = [model_of(PILLAR)] * NUM_ENVS
    physics, state = physics_of(models, keyframe=0)
    undisturbed, expected = physics_of(models, keyframe=0)
    for command in commands():
        physics.control[...] = undisturbed.control[...] = command
        # Two at once: MuJoCo warns only of the first.
        state.qvel[[0, 2]] = 1e200
        physics.step()
        undisturbed.step()
        np.testing.assert_array_equal(physics.unstable(), [0, 2])
        assert not len(physics.unstable())
        np.testing.assert_array_equal(state.qvel[[1, 3]], expected.qvel[[1, 3]])
        for index in (0, 2):
            physics.nominal(index)
            physics.begin(index)
    # The pillar holds the arm up, so that it matters where it stands.
    assert (np.abs(expected.qpos[[1, 3]]) < 1.0).all()

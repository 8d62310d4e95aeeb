"""One stretch of MjData holds what the next step follows from."""

import mujoco
import numpy as np
import pytest

from asyncppo_ros.simulation.step_inputs import bytes_in, bytes_of, step_inputs

ARM = """<mujoco><worldbody>
  <body pos="0 0 1"><freejoint/><geom size=".1"/>
    <body><joint name="hinge" axis="0 1 0"/><geom size=".05" pos=".3 0 0"/></body></body>
  </worldbody><actuator>ACTUATORS</actuator></mujoco>"""
MOTOR = '<motor joint="hinge"/>'
LAZY = '<general joint="hinge" dyntype="filter" dynprm="0.1"/>'
FIELDS = (('qpos', 'qpos'), ('qvel', 'qvel'), ('qacc_warmstart', 'warm_start'),
          ('ctrl', 'control'))


@pytest.mark.parametrize('actuators', ['', MOTOR, MOTOR + LAZY, 11 * MOTOR])
def test_a_row_is_what_mjdata_holds(actuators):
    model = mujoco.MjModel.from_xml_string(ARM.replace('ACTUATORS', actuators))
    inputs, data = step_inputs(model, 3), mujoco.MjData(model)
    sizes = [getattr(data, theirs).size for theirs, _ in FIELDS]
    assert [getattr(inputs, ours).shape for _, ours in FIELDS] == [(3, size) for size in sizes]
    for number, (_, ours) in enumerate(FIELDS):
        view = getattr(inputs, ours)
        view[...] = 100.0 * number + np.arange(view.size).reshape(view.shape)
    bytes_in(data)[:] = bytes_of(inputs.numbers[1])
    for theirs, ours in FIELDS:
        np.testing.assert_array_equal(getattr(data, theirs), getattr(inputs, ours)[1], ours)
    data.qvel[:] = -1.0
    bytes_of(inputs.numbers[2])[:] = bytes_in(data)
    assert (inputs.qvel[2] == -1.0).all() and (inputs.qvel[:2] >= 100.0).all()


def test_a_copy_has_numbers_of_its_own():
    inputs = step_inputs(mujoco.MjModel.from_xml_string(ARM.replace('ACTUATORS', MOTOR)), 2)
    inputs.qpos[...] = 1.0
    copy = inputs.copy()
    inputs.qpos[1] = 2.0
    assert (copy.qpos == 1.0).all()
    copy.take(inputs)
    assert (copy.qpos[1] == 2.0).all() and copy.qpos.shape == (2, 8)
    copy.control[...] = 3.0
    assert (inputs.control == 0.0).all()

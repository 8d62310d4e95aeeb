"""A task as a user writes it, and small changes of it, for the tests beside this file."""

import pathlib
import textwrap

MODEL = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <body>
      <joint name="rail" type="slide" axis="1 0 0"/>
      <geom size=".1" mass="1"/>
      <site name="middle"/>
      <body pos="0 0 .5">
        <joint name="spare" type="hinge" axis="0 1 0"/>
        <geom size=".1" mass="1"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor name="push" joint="rail"/></actuator>
</mujoco>
"""

# All that a user must write.
TASK = """
import numpy as np

from asyncppo_ros.robot.actions import ActionMap
from asyncppo_ros.robot.terms import command, joint_position, joint_velocity, term
from asyncppo_ros.simulation.task import Task


@term(size=1, unit='m')
def distance(state):
    return np.abs(state.command['target'] - state.joint_position[:, state.columns(('rail',))])


class Rail(Task):
    model = 'rail.xml'
    control_dt = 0.02
    time_limit = 0.2
    commands = {'target': 1}
    data_fields = ('site_xpos', 'actuator_force')

    def observation(self):
        return [joint_position(['rail']), joint_velocity(['rail']), command('target', 1),
                distance()]

    def action(self):
        return ActionMap(['rail'], self.control_dt, interface='effort', scale=5.0)

    def reset(self, state, index, rng):
        state.qpos[index, 0] = rng.uniform(-1.0, 1.0)
        state.command['target'][index] = rng.uniform(-2.0, 2.0)

    def reward(self, state, action):
        return -np.abs(state.command['target'][:, 0] - state.qpos[:, 0])

    def terminated(self, state):
        return np.abs(state.qpos[:, 0]) > 3.0

    def success(self, state):
        return np.abs(state.command['target'][:, 0] - state.qpos[:, 0]) < 0.1
"""


def write(folder: pathlib.Path, module: str, more: str = '', model: str = MODEL) -> None:
    """
    Write a module with the task `Rail`, its model beside it, and further classes.

    Parameters
    ----------
    more : str
        Code that follows; it may use every name of the task's module.

    """
    (folder / 'rail.xml').write_text(model)
    (folder / f'{module}.py').write_text(TASK + '\n\n' + textwrap.dedent(more))

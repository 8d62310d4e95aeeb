"""Limits of joints from a URDF; a text that is none is refused in one line."""

import math
import pathlib

import pytest

from asyncppo_ros import resources
from asyncppo_ros.errors import RobotError
from asyncppo_ros.robot.urdf import joint_limits, JointLimits

ARM = """<?xml version="1.0"?>
<robot name="arm">
  <link name="base"/> <link name="upper"/> <link name="hand"/>
  <joint name="shoulder" type="revolute">
    <parent link="base"/> <child link="upper"/> <axis xyz="0 0 1"/>
    <limit lower="-1.5" upper="2e0" effort="40" velocity="3.5"/>
    <safety_controller soft_lower_limit="-1" k_velocity="1"/>
  </joint>
  <joint name="wheel" type="continuous"><limit effort="5" velocity="10"/></joint>
  <joint name="free_wheel" type="continuous"/>
  <joint name="slide" type="prismatic"><limit upper="0.4" effort="0" velocity="0"/></joint>
  <joint name="glued" type="fixed"/>
  <transmission name="t"><joint name="shoulder"><limit lower="-9" upper="9"/></joint>
  </transmission>
  <ros2_control name="system" type="system">
    <joint name="shoulder"><command_interface name="position"/></joint>
    <joint name="mirror" type="revolute"><command_interface name="position"/></joint>
  </ros2_control>
</robot>
"""


def refusal(text):
    with pytest.raises(RobotError) as error:
        joint_limits(text)
    assert '\n' not in str(error.value)
    return str(error.value)


def test_limits_of_every_moving_joint():
    assert joint_limits(ARM) == {
        'shoulder': JointLimits(-1.5, 2.0, 3.5, 40.0),
        'wheel': JointLimits(-math.inf, math.inf, 10.0, 5.0),
        'free_wheel': JointLimits(),
        # What is not given is 0 in a URDF; of speed and effort that means: not known.
        'slide': JointLimits(0.0, 0.4, math.inf, math.inf)}


def test_a_declared_encoding_does_not_matter_in_a_text():
    text = ARM.replace('?>', ' encoding="iso-8859-1"?>', 1).replace('"hand"', '"händ"')
    assert 'shoulder' in joint_limits(text)


@pytest.mark.parametrize(('text', 'expected'), [
    ('', 'not an XML text'), ('joint', 'not an XML text'), ('<robot><joint', 'not an XML text'),
    ('<mujoco/>', 'begins with <mujoco>, expected <robot>'),
    ('<robot><joint type="revolute"/></robot>', 'a joint has no name'),
    ('<robot><joint name="a" type="revolute"/><joint name="a" type="revolute"/></robot>',
     "joint 'a' is there twice"),
    (ARM.replace('-1.5', '${-pi}'), "joint 'shoulder': lower = '${-pi}': must be a number (a "
                                    'xacro file must be expanded first)'),
    (ARM.replace('"40"', '"nan"'), "joint 'shoulder': effort = 'nan': must be a number"),
    (ARM.replace('-1.5', '2.5'), "joint 'shoulder': lower = 2.5 must not be above upper = 2"),
])
def test_a_wrong_text_is_refused(text, expected):
    assert expected in refusal(text)


@pytest.mark.parametrize('declaration', [
    '<!ENTITY a "aaaaaaaaaa">', '<!ENTITY a SYSTEM "file:///etc/passwd">',
    '<!ENTITY % a SYSTEM "http://127.0.0.1/a.dtd">'])
def test_entities_are_refused_before_they_are_used(declaration):
    text = f'<!DOCTYPE robot [{declaration}]><robot><joint name="&a;" type="fixed"/></robot>'
    assert refusal(text) == "URDF: declares the entity 'a': entities are refused"


def test_nested_entities_do_not_grow():
    levels = ''.join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    assert 'entities are refused' in refusal(
        f'<!DOCTYPE robot [<!ENTITY e0 "x">{levels}]><robot name="&e11;"/>')


def test_the_packages_own_urdf():
    files = sorted(pathlib.Path(resources.find('models')).glob('*.urdf'))
    for file in files:
        limits = joint_limits(file.read_text(encoding='utf-8'))
        assert limits and all(entry.low < entry.high for entry in limits.values())

"""ROS parameters ⇄ settings: every node declares the whole tree, so one YAML feeds all."""

from rcl_interfaces.msg import ParameterDescriptor
from rclpy.node import Node

from asyncppo_ros.config import Config
from asyncppo_ros.run import resolve
from asyncppo_ros.settings import settings, to_dict, without_ros_own


def read_config(node: Node) -> Config:
    """
    Read the settings of a node, then make them read-only parameters.

    The node must be made with ``automatically_declare_parameters_from_overrides=True``:
    otherwise rclpy silently ignores a misspelt name in a YAML file.

    Raises
    ------
    ConfigError
        A parameter is unknown, of a wrong type or out of range.

    """
    given = without_ros_own(node.get_parameters_by_prefix(''))
    config = resolve({name: _plain(parameter.value) for name, parameter in given.items()})
    values = to_dict(config)
    for name, _, info in settings(Config):
        unit = f' [{info.unit}]' if info.unit else ''
        descriptor = ParameterDescriptor(
            description=info.description + unit, additional_constraints=info.allowed,
            read_only=True, dynamic_typing=True)
        if node.has_parameter(name):
            node.set_descriptor(name, descriptor)
        else:
            value = values[name]
            node.declare_parameter(name, list(value) if isinstance(value, tuple) else value,
                                   descriptor)
    return config


def _plain(value: object) -> object:
    """Turn ROS's arrays into tuples."""
    if isinstance(value, (bool, int, float, str)):
        return value
    return tuple(value) if hasattr(value, '__iter__') else value

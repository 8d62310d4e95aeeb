"""ROS parameters ⇄ settings: every node declares the whole tree, so one YAML feeds all."""

from collections.abc import Iterable
from typing import Any

from rcl_interfaces.msg import ParameterDescriptor
from rclpy.node import Node

from asyncppo_ros.config import Config
from asyncppo_ros.run import resolve
from asyncppo_ros.settings import settings, to_dict, without_ros_own


class TakesSettings:
    """
    Lets a node take its settings as parameters, see `read_config`; stands before `Node`.

    Parameters
    ----------
    name : str
        Of the node.
    **options
        Of `rclpy.node.Node`.

    """

    def __init__(self, name: str, **options: Any) -> None:
        # Otherwise rclpy silently ignores a misspelt name in a YAML file.
        super().__init__(name, automatically_declare_parameters_from_overrides=True, **options)

    def declare_parameters(self, namespace: str, parameters: Iterable[tuple],
                           ignore_override: bool = False) -> list:
        """
        Declare parameters, as `rclpy.node.Node`.

        An empty list in a file or on the command line comes as one that is not set, which rclpy
        refuses with a traceback and without its name.
        """
        if ignore_override:
            parameters = [(name, [] if value is None else value, *rest)
                          for name, value, *rest in parameters]
        return super().declare_parameters(namespace, parameters, ignore_override)


def read_config(node: Node) -> Config:
    """
    Read the settings of a node that `TakesSettings`, then make them read-only parameters.

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
        value = values[name]
        # What stands for an empty list is shown in its place.
        if node.has_parameter(name) and _plain(given[name].value) == ():
            node.undeclare_parameter(name)
        if node.has_parameter(name):
            node.set_descriptor(name, descriptor)
        else:
            node.declare_parameter(name, list(value) if isinstance(value, tuple) else value,
                                   descriptor, ignore_override=True)
    return config


def _plain(value: object) -> object:
    """Turn ROS's arrays into tuples."""
    if isinstance(value, (bool, int, float, str)):
        return value
    return tuple(value) if hasattr(value, '__iter__') else value

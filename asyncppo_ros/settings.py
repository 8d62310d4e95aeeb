"""
Fill and check settings: one set of dotted names for YAML, command line, ROS and Python.

A settings class is a frozen dataclass whose fields are made by `setting` or are settings
classes themselves.  `build` turns ``{'learner.ppo.clip_ratio': 0.1}`` into such an object and
gives the same error text whatever the source.
"""

import argparse
from collections.abc import Iterator, Mapping
import dataclasses
import difflib
import math
import pathlib
import typing
from typing import Any, TypeVar

from asyncppo_ros.errors import ConfigError

ConfigT = TypeVar('ConfigT')
# Parameters that ROS itself declares or reads, and that may stand in the same files.
ROS_OWN = ('use_sim_time', 'qos_overrides.', 'start_type_description_service')


@dataclasses.dataclass(frozen=True)
class Setting:
    """
    What is known of a setting beside its type and default.

    Of a list: `length` is how many entries it must have (0 = any number), and `nothing` what
    stands for an empty one (() = it must not be empty), since no list is kept empty: it would
    have no type that ROS could declare.
    """

    description: str
    unit: str = ''
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()
    words: Mapping[str, int] = dataclasses.field(default_factory=dict)
    length: int = 0
    nothing: tuple[Any, ...] = ()

    @property
    def allowed(self) -> str:
        """Say in words which values are allowed."""
        if self.choices:
            return 'one of ' + ', '.join(self.choices)
        words = ''.join(f'{word} ({value}) or ' for word, value in self.words.items())
        if math.isinf(self.low) and math.isinf(self.high):
            return words + 'any'
        return f'{words}[{self.low:g}, {self.high:g}] {self.unit}'.strip()


def setting(default: Any, description: str, **limits: Any) -> Any:
    """
    Declare a dataclass field together with its `Setting`.

    Parameters
    ----------
    default : bool, int, float, str or tuple of those
        The value where nobody sets another; its type is the type of the setting.
    description : str
        One sentence for ``--help``, ``ros2 param describe`` and the README.
    **limits
        `unit`, `low`, `high`, `choices`, `words`, `length`, `nothing` of `Setting`.

    """
    return dataclasses.field(default=default,
                             metadata={'setting': Setting(description, **limits)})


def settings(config_class: type, prefix: str = '') -> Iterator[tuple[str, Any, Setting]]:
    """Iterate over (dotted name, default, `Setting`) of a settings class, depth first."""
    for field, kind in _fields(config_class):
        if dataclasses.is_dataclass(kind):
            yield from settings(typing.cast(type, kind), f'{prefix}{field.name}.')
        else:
            yield f'{prefix}{field.name}', field.default, field.metadata['setting']


def build(config_class: type[ConfigT], values: Mapping[str, Any]) -> ConfigT:
    """
    Fill a settings class from dotted names and check every value.

    Parameters
    ----------
    config_class : type
        A settings dataclass.
    values : mapping from str to value
        Dotted names; what is not named keeps its default.

    Raises
    ------
    ConfigError
        A name is unknown, a value has the wrong type or is out of range.

    """
    known = {name: (default, info) for name, default, info in settings(config_class)}
    for name in values:
        if name not in known:
            raise ConfigError(_unknown(name, known))
    checked = {name: _checked(name, value, *known[name]) for name, value in values.items()}
    return _construct(config_class, checked, '')


def flatten(tree: Mapping[str, Any], prefix: str = '') -> dict[str, Any]:
    """Turn nested mappings into one mapping of dotted names."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f'{prefix}{name}.'))
        else:
            flat[f'{prefix}{name}'] = value
    return flat


def to_dict(config: Any) -> dict[str, Any]:
    """Give every setting of a filled settings object as dotted name and value."""
    return flatten(dataclasses.asdict(config))


def read_yaml(path: str | pathlib.Path) -> dict[str, Any]:
    """
    Read the dotted settings of a YAML file.

    Both a plain tree (``learner: {ppo: {clip_ratio: 0.1}}``) and a ROS parameter file
    (``/**: {ros__parameters: {...}}``) are understood.

    Raises
    ------
    ConfigError
        The file is missing, is not YAML, or is not a mapping.

    """
    import yaml

    try:
        tree = yaml.safe_load(pathlib.Path(path).read_text())
    except OSError as error:
        raise ConfigError(f'config file {path}: {error.strerror}') from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        line = ' '.join(str(error).split())
        raise ConfigError(f'config file {path}: not YAML: {line}') from error
    if tree is None:
        return {}
    if not isinstance(tree, Mapping):
        raise ConfigError(f'config file {path}: a mapping of settings was expected')
    flat: dict[str, Any] = {}
    for node, section in tree.items():
        if isinstance(section, Mapping) and 'ros__parameters' in section:
            flat.update(flatten(section['ros__parameters'] or {}))
        else:
            flat.update(flatten({node: section}))
    return flat


def without_ros_own(values: Mapping[str, Any]) -> dict[str, Any]:
    """Give the dotted settings among the parameters of a node: those that are not ROS's own."""
    return {name: value for name, value in values.items() if not name.startswith(ROS_OWN)}


def write_yaml(config: Any, path: str | pathlib.Path, header: str = '') -> None:
    """Write every setting as a ROS parameter file that feeds any node of the package."""
    import yaml

    class FloatDumper(yaml.SafeDumper):
        """Writes 1e-05 as 1.0e-05: PyYAML and ROS both read that as a float."""

    def represent_float(dumper: Any, value: float) -> Any:
        text = repr(value)
        if 'e' in text and '.' not in text:
            text = text.replace('e', '.0e')
        return dumper.represent_scalar('tag:yaml.org,2002:float', text)

    FloatDumper.add_representer(float, represent_float)
    FloatDumper.add_representer(
        tuple, lambda dumper, value: dumper.represent_sequence(
            'tag:yaml.org,2002:seq', list(value), flow_style=True))
    tree = {'/**': {'ros__parameters': dataclasses.asdict(config)}}
    text = yaml.dump(tree, Dumper=FloatDumper, sort_keys=False)
    pathlib.Path(path).write_text(''.join(f'# {line}\n' for line in header.splitlines()) + text)


def add_arguments(parser: argparse.ArgumentParser, config_class: type,
                  leave_out: tuple[str, ...] = ()) -> None:
    """Give a parser one ``--dotted.name`` option for each setting."""
    for name, default, info in settings(config_class):
        if name in leave_out:
            continue
        parser.add_argument(
            f'--{name}', dest=name, default=argparse.SUPPRESS, metavar='VALUE',
            help=f'{info.description} Allowed: {info.allowed}. Default: {_shown(default)}.'
            .replace('%', '%%'))


def parse_text(config_class: type, name: str, text: str) -> Any:
    """
    Read the text of one setting as it comes from a command line.

    Raises
    ------
    ConfigError
        The name is unknown or the text is not of the setting's type.

    """
    known = {name: (default, info) for name, default, info in settings(config_class)}
    if name not in known:
        raise ConfigError(_unknown(name, known))
    default, info = known[name]
    if text in info.words:
        return info.words[text]
    if isinstance(default, bool):
        value = {'true': True, 'false': False, '1': True, '0': False}.get(text.lower())
        if value is None:
            raise ConfigError(f'{name} = {text}: expected true or false')
        return value
    if isinstance(default, tuple):
        parts = [part for part in text.strip('()[]').replace(',', ' ').split() if part]
        return tuple(_number(name, part, type(default[0])) for part in parts)
    if isinstance(default, str):
        return text
    return _number(name, text, type(default))


def as_text(value: Any) -> str:
    """Write the value of a setting as `parse_text` reads it."""
    if isinstance(value, (tuple, list)):
        return ','.join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(name: str, text: str, kind: type) -> Any:
    try:
        return kind(text) if kind is not bool else text.lower() == 'true'
    except ValueError:
        raise ConfigError(f'{name} = {text}: expected {_kind_name(kind)}') from None


def _fields(config_class: type) -> list[tuple[dataclasses.Field, Any]]:
    kinds = typing.get_type_hints(config_class)
    return [(field, kinds[field.name]) for field in dataclasses.fields(config_class)]


def _construct(config_class: type[ConfigT], values: Mapping[str, Any], prefix: str) -> ConfigT:
    arguments: dict[str, Any] = {}
    for field, kind in _fields(config_class):
        name = f'{prefix}{field.name}'
        if dataclasses.is_dataclass(kind):
            arguments[field.name] = _construct(typing.cast(type, kind), values, f'{name}.')
        elif name in values:
            arguments[field.name] = values[name]
    return config_class(**arguments)


def _checked(name: str, value: Any, default: Any, info: Setting) -> Any:
    if isinstance(value, str) and value in info.words:
        return info.words[value]
    value = _converted(name, value, default)
    if isinstance(value, tuple):
        value = _list(name, value, default, info)
    if info.choices and value not in info.choices:
        raise ConfigError(f'{name} = {value}: must be {info.allowed}')
    numbers = value if isinstance(value, tuple) else (value,)
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            continue
        if not info.low <= number <= info.high and number not in info.words.values():
            raise ConfigError(f'{name} = {_shown(value)}: must be in {info.allowed}')
    return value


def _list(name: str, value: tuple[Any, ...], default: tuple[Any, ...],
          info: Setting) -> tuple[Any, ...]:
    """Give a list that is not empty: of texts an empty one stands for none."""
    value = value or info.nothing or (('',) if isinstance(default[0], str) else ())
    if not value or info.length not in (0, len(value)):
        raise ConfigError(f'{name} = {_shown(value)}: must have {info.length or "one or more"} '
                          f'entries in {info.allowed}, such as {_shown(default)}')
    return value


def _converted(name: str, value: Any, default: Any) -> Any:
    kind = type(default)
    if isinstance(default, tuple):
        if isinstance(value, str) or not hasattr(value, '__iter__'):
            value = (value,)
        return tuple(_converted(name, item, default[0]) for item in value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is float and isinstance(value, str):
        # PyYAML reads 3e-4 as text; every other reader takes it for a number.
        try:
            return float(value)
        except ValueError:
            pass
    if kind is not type(value):
        raise ConfigError(f'{name} = {_shown(value)}: expected {_kind_name(kind)}, '
                          f'got {_kind_name(type(value))}')
    return value


def _unknown(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    leaf = name.rsplit('.', 1)[-1]
    close += [other for other in known
              if other.rsplit('.', 1)[-1] == leaf and other not in close]
    if close:
        return f'{name}: unknown setting; did you mean {" or ".join(close)}?'
    return f'{name}: unknown setting; `asyncppo settings` lists them all'


def _kind_name(kind: type) -> str:
    return {'bool': 'true or false', 'int': 'a whole number', 'float': 'a number',
            'str': 'text', 'tuple': 'a list', 'list': 'a list',
            'NoneType': 'nothing'}.get(kind.__name__, kind.__name__)


def _shown(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return '[' + ', '.join(str(item) for item in value) + ']'
    return str(value).lower() if isinstance(value, bool) else (repr(value) if value == ''
                                                               else str(value))

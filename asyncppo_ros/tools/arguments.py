"""Command lines: a few options of a verb's own, and every setting as ``--dotted.name VALUE``."""

import argparse
from collections.abc import Mapping, Sequence
import textwrap
from typing import Any, NoReturn

from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.settings import parse_text, settings


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        raise ConfigError(f'{message}; `{self.prog} --help` shows what there is')


def settings_help() -> str:
    """Give every setting with its default and what is allowed, for ``--help``."""
    lines = ['settings (also as YAML, ROS parameters and in Python, by the same names):']
    for name, default, info in settings(Config):
        shown = ' '.join(map(str, default)) if isinstance(default, tuple) else default
        unit = f' [{info.unit}]' if info.unit else ''
        lines.append(f'  --{name} (default {shown!r})' if shown == ''
                     else f'  --{name} (default {shown})')
        lines += textwrap.wrap(f'{info.description}{unit} Allowed: {info.allowed}.', 96,
                               initial_indent='      ', subsequent_indent='      ')
    return '\n'.join(lines)


def refuse_settings(given: Mapping[str, Any], names: Sequence[str], instead: str) -> None:
    """
    Refuse settings that a bench sets itself.

    Raises
    ------
    ConfigError
        One of `names` is given; the text says what there is `instead`.

    """
    for name in names:
        if name in given:
            raise ConfigError(f'--{name} {given[name]}: this bench sets it; see {instead}')


def split_settings(parser: Parser,
                   arguments: Sequence[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """
    Separate a verb's own options from settings.

    Returns
    -------
    own : Namespace
    given : dict from str to value
        The settings that were given, by dotted name.

    Raises
    ------
    ConfigError
        An option is neither, or has no value, or a value of a wrong type.

    """
    own, rest = parser.parse_known_args(arguments)
    given: dict[str, Any] = {}
    position = 0
    while position < len(rest):
        token = rest[position]
        position += 1
        if not token.startswith('--'):
            raise ConfigError(f'{token}: an option was expected; settings are given as '
                              '--name VALUE')
        name, equals, text = token[2:].partition('=')
        if not equals:
            name_is_known = any(name == known for known, _, _ in settings(Config))
            if name_is_known and position >= len(rest):
                raise ConfigError(f'--{name}: a value is missing')
            text = rest[position] if position < len(rest) else ''
            position += 1
        given[name] = parse_text(Config, name, text)
    return own, given

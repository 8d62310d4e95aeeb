"""``asyncppo settings``: list all settings."""

from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.tools.arguments import Parser, settings_help


def main(arguments: list[str], _stop: StopRequest) -> int:
    """Print every setting with its default and what is allowed."""
    Parser(prog='asyncppo settings', description=__doc__).parse_args(arguments)
    print(settings_help())
    return 0

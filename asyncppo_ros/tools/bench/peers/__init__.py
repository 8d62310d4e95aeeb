"""
Scripts that train other packages; each runs in the interpreter that has its package.

`peer_script` says what such a script is.  The bench that runs them is `against_peers`.
"""

from asyncppo_ros.nodes.process import StopRequest


def main(arguments: list[str], stop: StopRequest) -> int:
    """Run ``asyncppo bench peers``."""
    # It imports the scripts of this folder.
    from asyncppo_ros.tools.bench import against_peers
    return against_peers.main(arguments, stop)

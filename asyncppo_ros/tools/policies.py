"""The policy that a user names: a file, or the newest of a run."""

import pathlib

from asyncppo_ros.errors import ArtefactError
from asyncppo_ros.robot.artefact import Artefact, read_artefact
from asyncppo_ros.run import find_run


def policy_file(where: str) -> pathlib.Path:
    """
    Find the file of the newest policy of a run; the path itself where it is no folder.

    Raises
    ------
    ArtefactError, RunError
        There is none.

    """
    path = pathlib.Path(where)
    if not path.is_dir():
        return path
    found = find_run(path).policy_file
    if not found.is_file():
        raise ArtefactError(f'{where}: the run has no policy yet ({found} is missing)')
    return found


def open_artefact(where: str, key: bytes | None = None) -> Artefact:
    """
    Read the newest policy of a run, or a policy file; with a key, only one signed with it.

    Raises
    ------
    ArtefactError, RunError
        There is none, or it is damaged.

    """
    return read_artefact(policy_file(where), key)

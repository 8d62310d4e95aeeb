"""The policy that a user names: a file, the newest of a run, or a pretrained one."""

import pathlib

from asyncppo_ros import policy_files
from asyncppo_ros.errors import ArtefactError
from asyncppo_ros.robot.artefact import Artefact, read_artefact
from asyncppo_ros.run import find_run

# Of the argument that names one.
POLICY_HELP = ('folder of a run (its newest policy), a .safetensors file, or one that comes with '
               f'the package: {", ".join(policy_files.pretrained_policies())}')


def policy_file(where: str) -> pathlib.Path:
    """
    Find a policy: the newest of a run, a pretrained one by its name, or the file.

    Raises
    ------
    ArtefactError, RunError
        There is none.

    """
    path = pathlib.Path(where)
    if not path.is_dir():
        return policy_files.policy_file(where)
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

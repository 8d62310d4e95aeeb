"""The file of a policy that a user names."""

import pathlib

from asyncppo_ros.errors import ArtefactError, ResourceError
from asyncppo_ros.resources import find
from asyncppo_ros.robot.artefact import POLICY_FILE

# Where the package has trained policies.
PRETRAINED = 'pretrained'


def policy_file(path: str | pathlib.Path) -> pathlib.Path:
    """
    Give the file of a policy.

    Parameters
    ----------
    path : path
        A file, the folder of a run, or the name of a policy that comes with the package
        (`pretrained_policy`).

    Raises
    ------
    ArtefactError
        There is none.

    """
    found = pathlib.Path(path).expanduser().absolute()
    if found.is_dir():
        found /= POLICY_FILE
    if found.is_file():
        return found
    trained = pretrained_policy(path)
    if trained is None:
        raise ArtefactError(f'policy {path or "(none)"}: there is no file {found}; a .safetensors '
                            'file, the folder of a run, or one of '
                            f'{", ".join(pretrained_policies())} is needed')
    return trained


def pretrained_policy(name: str | pathlib.Path) -> pathlib.Path | None:
    """Find a policy of the package's ``pretrained/`` by its bare name; None = there is none."""
    if str(name) not in pretrained_policies():
        return None
    return find(f'{PRETRAINED}/{name}.safetensors')


def pretrained_policies() -> list[str]:
    """Name the policies that come with the package."""
    try:
        return sorted(file.stem for file in find(PRETRAINED).glob('*.safetensors'))
    except ResourceError:
        return []

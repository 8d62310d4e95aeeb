"""
Find the package's own files: models, configurations, launch files.

They lie in one of three places: beside the package in a checkout (also after `pip install -e`,
which copies no data files), in share/asyncppo_ros of the prefix that pip or colcon installed the
package into, and in the share of an ament prefix.
"""

from collections.abc import Iterator
import os
from pathlib import Path, PurePosixPath

from asyncppo_ros.errors import ResourceError

SHARE = Path('share') / 'asyncppo_ros'


def find(relative: str) -> Path:
    """
    Return the path of one of the package's files or folders.

    Parameters
    ----------
    relative
        Its path in the repository, with forward slashes: 'models/reach_arm.xml'.

    Raises
    ------
    ResourceError
        If no place has it; the message says where it was looked for, and what there is.

    """
    wanted = PurePosixPath(relative)
    if not relative or wanted.is_absolute() or '..' in wanted.parts:
        raise ResourceError(f'{relative!r} does not name a file of asyncppo_ros: '
                            'a relative path such as models/reach_arm.xml is needed')
    roots = list(dict.fromkeys(_roots()))
    for root in roots:
        if (root / wanted).exists():
            return root / wanted
    looked = ', '.join(str(root) for root in roots) or 'no place, as none exists'
    raise ResourceError(f'{relative} is missing from asyncppo_ros; looked in: {looked}; '
                        f'{_what_exists(roots, wanted.parent)}')


def _roots() -> Iterator[Path]:
    """Yield the folders that may hold config/, launch/ and models/, the nearest first."""
    # With links (colcon build --symlink-install) the package has two addresses.
    here = Path(__file__)
    for package in dict.fromkeys((here.absolute().parent, here.resolve().parent)):
        if (package.parent / 'package.xml').is_file():
            yield package.parent
        for parent in package.parents:
            if (parent / SHARE).is_dir():
                yield parent / SHARE
    for prefix in os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep):
        if prefix and (Path(prefix) / SHARE).is_dir():
            yield Path(prefix) / SHARE


def _what_exists(roots: list[Path], folder: PurePosixPath) -> str:
    """Say in a few words what lies where a file was looked for."""
    names = sorted({path.name for root in roots if (root / folder).is_dir()
                    for path in (root / folder).iterdir() if not path.name.startswith('.')})
    if not names:
        return f'there is no folder {folder}'
    return f'{folder} has: {", ".join(names)}'

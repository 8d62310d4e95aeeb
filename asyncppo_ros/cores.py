"""How many cores this process may use: its affinity and the limits of its control groups."""

from collections.abc import Iterator
import math
import os
import pathlib
import sys

CGROUPS = pathlib.Path('/sys/fs/cgroup')
OWN_CGROUPS = pathlib.Path('/proc/self/cgroup')


def usable_cores() -> int:
    """Count the whole cores this process may use, at least 1; see `core_limit`."""
    return max(1, int(core_limit()))


def core_limit(root: pathlib.Path = CGROUPS, own: pathlib.Path = OWN_CGROUPS) -> float:
    """
    Say how many cores' worth of time this process may use: not what the hardware has.

    Parameters
    ----------
    root : Path
        Where the control groups lie.
    own : Path
        Tells which of them this process is in.

    Returns
    -------
    float
        The least of the affinity mask and the quota of each group around this process, of
        version 1 and 2: a container may be given one core and a half.

    """
    cores = float(len(os.sched_getaffinity(0)) if sys.platform == 'linux'
                  else os.cpu_count() or 1)
    return min([cores, *(_quota(folder) for folder in _groups(root, own))])


def _groups(root: pathlib.Path, own: pathlib.Path) -> Iterator[pathlib.Path]:
    """Give each group around this process; one that sees only its own finds that at the root."""
    yield root
    for name in ('cpu', 'cpu,cpuacct'):
        yield root / name
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(':', 2)
        if controllers and 'cpu' not in controllers.split(','):
            continue
        top = root / controllers if controllers else root
        group = top / path.lstrip('/')
        while group != top and '..' not in group.parts:
            yield group
            group = group.parent


def _quota(folder: pathlib.Path) -> float:
    """Give the cores that a group allows; inf = it has no limit, or cannot be read."""
    try:
        if (folder / 'cpu.max').is_file():
            quota, period = (folder / 'cpu.max').read_text().split()
        else:
            quota, period = ((folder / f'cpu.cfs_{name}_us').read_text().strip()
                             for name in ('quota', 'period'))
        return int(quota) / int(period) if quota != 'max' and int(quota) > 0 else math.inf
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf

"""
Keep MuJoCo's warnings off the disk, and count them.

By itself MuJoCo appends every warning to MUJOCO_LOG.TXT of the working directory.  It warns once
for each kind and MjData until that is reset, so a count that stands still says that no
simulation became unstable; reading the counters of every MjData would cost a percent of a step.
"""

import logging

import mujoco

_logger = logging.getLogger(__name__)
_count = 0


def listen() -> None:
    """Receive the warnings of this process."""
    mujoco.set_mju_user_warning(_note)


def warnings_so_far() -> int:
    """Say how many warnings there were in this process."""
    return _count


def _note(text: str) -> None:
    global _count
    _count += 1
    _logger.debug('MuJoCo: %s', text)

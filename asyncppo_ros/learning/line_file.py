"""A growing file that only ever has whole lines."""

import errno
import os
import pathlib

from asyncppo_ros.errors import RunError


class LineFile:
    """
    Appends lines; each reaches the operating system at once and whole.

    What a full disk cut is taken back; a last line that a crash cut is removed on opening.

    Parameters
    ----------
    path : path
        Goes on where it exists.

    Attributes
    ----------
    empty : bool
        Nothing has been written yet, by anybody.

    Raises
    ------
    RunError
        It cannot be written.

    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = pathlib.Path(path)
        try:
            _cut_incomplete_line(self._path)
            # Without a buffer: what failed must not come later, after others had been told.
            self._file = self._path.open('ab', buffering=0)
        except OSError as error:
            raise RunError(f'{path}: cannot be written: {error.strerror}') from error
        self.empty = self._file.tell() == 0

    def append(self, lines: bytes) -> None:
        """
        Append one or more lines, each with its end.

        Raises
        ------
        OSError
            The disk is full; the file is as it was before.

        """
        written = self._file.write(lines) or 0
        if written < len(lines):
            self._file.truncate(self._file.tell() - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        self.empty = False

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _cut_incomplete_line(path: pathlib.Path) -> None:
    if not path.exists():
        return
    data = path.read_bytes()
    complete = data.rfind(b'\n') + 1
    if complete < len(data):
        os.truncate(path, complete)

"""Read files of one JSON object a line, such as ``metrics.jsonl``, also while they grow."""

from collections.abc import Callable, Iterator
import json
import os
import pathlib
from typing import Any

from asyncppo_ros.errors import RunError


def read_jsonl(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """
    Read the rows of a file; a last line that is still being written is left out.

    A missing file has no rows.

    Raises
    ------
    RunError
        A line that is complete is not a JSON object.

    """
    try:
        data = pathlib.Path(path).read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(f'{path}: cannot be read: {error.strerror}') from error
    return parse_lines(data[:data.rfind(b'\n') + 1], path)


def parse_lines(data: bytes, path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read complete lines of JSON objects; `path` is for the error text."""
    rows = []
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise RunError(f'{path}: line {number} is not a JSON object')
        rows.append(row)
    return rows


class Tail:
    """
    The new rows of a growing file of JSON lines.

    It never writes, accepts a file that is not there yet, and leaves a line that is still
    being written for the next time.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = pathlib.Path(path)
        self._position = 0

    def read(self) -> list[dict[str, Any]]:
        """Give the rows that were completed since the last call; never waits."""
        try:
            with self._path.open('rb') as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return []
        complete = data.rfind(b'\n') + 1
        self._position += complete
        return parse_lines(data[:complete], self._path)

    def follow(self, stopped: Callable[[float], bool],
               interval: float = 0.2) -> Iterator[dict[str, Any]]:
        """
        Give every row as it comes, until `stopped`.

        `stopped(seconds)` waits at most that long and says whether to end, like
        `threading.Event.wait`; the rows that came until then are still given.
        """
        ended = False
        while not ended:
            ended = stopped(interval)
            yield from self.read()

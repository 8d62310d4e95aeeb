"""``asyncppo books RUN``: where every transition of a run went."""

import json
import os
from pathlib import Path
from typing import Any

from asyncppo_ros.errors import RunError
from asyncppo_ros.learning.books import COLUMNS, imbalances
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.tools.arguments import Parser


def run(run_dir: str | os.PathLike[str]) -> int:
    """
    Print the books of a run.

    Returns
    -------
    status : int
        0 where they balance, else 1.

    Raises
    ------
    RunError
        The run has no books, or they cannot be read.

    """
    path = Path(run_dir) / 'books.json'
    try:
        rows = json.loads(path.read_text())['actors']
        text = format_table(rows)
        found = imbalances(rows)
    except OSError as error:
        raise RunError(f'{path}: {error.strerror}; is {run_dir} the folder of a run?') from error
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f'{path}: not the books of a run ({error!r})') from error
    print(text)
    for line in found:
        print(line)
    print('the books do NOT balance' if found else 'the books balance')
    return 1 if found else 0


def format_table(rows: list[dict[str, Any]]) -> str:
    """Lay the rows of the books out for a terminal, with a line of totals."""
    heads = ['actor', 'incarnation', '', *COLUMNS]
    lines = [[str(row['actor_id']), str(row['incarnation']), '' if row['alive'] else 'gone',
              *(f'{row[column]:,}' for column in COLUMNS)] for row in rows]
    lines.append(['total', '', '',
                  *(f'{sum(row[column] for row in rows):,}' for column in COLUMNS)])
    widths = [max(len(line[column]) for line in [heads, *lines]) for column in range(len(heads))]
    return '\n'.join('  '.join(cell.rjust(width) for cell, width in zip(line, widths)).rstrip()
                     for line in [heads, *lines])


def main(arguments: list[str], _stop: StopRequest) -> int:
    """Print the books of a run; exit code 1 when they do not balance."""
    parser = Parser(prog='asyncppo books', description=__doc__)
    parser.add_argument('run', metavar='RUN', help='folder of a run, for example runs/latest')
    return run(parser.parse_args(arguments).run)

"""The form of every result: ``machine, versions, settings, rows``."""

from collections.abc import Mapping, Sequence
import statistics
from typing import Any

from asyncppo_ros.run import machine, versions
from asyncppo_ros.tools.bench.uncertainty import paired_ratio


def row(name: str, values: Sequence[float], unit: str,
        ceiling: float | None = None) -> dict[str, Any]:
    """
    Summarize repeated measurements.

    Parameters
    ----------
    name : str
    values : sequence of float
        At least one.
    unit : str
    ceiling : float, optional
        What the same machine could do at best, measured in the same run.

    Returns
    -------
    dict
        ``name, median, mean, min, max, unit`` and, with a ceiling, ``ceiling, ratio``.

    """
    result: dict[str, Any] = {'name': name, 'median': statistics.median(values),
              'mean': statistics.fmean(values), 'min': min(values), 'max': max(values),
              'unit': unit}
    if ceiling is not None:
        result |= {'ceiling': ceiling, 'ratio': result['median'] / ceiling}
    return result


def paired_row(name: str, values: Sequence[float], ceilings: Sequence[float],
               unit: str) -> dict[str, Any]:
    """
    Summarize measurements, each beside its ceiling of the same round.

    Returns
    -------
    dict
        As `row` gives it; ``ratio`` is the median of the ratios within a round, and
        ``ratio_interval`` the 95 % interval of that.

    """
    found = paired_ratio(values, ceilings)
    return row(name, values, unit, ceiling=statistics.median(ceilings)) | {
        'ratio': found.value, 'ratio_interval': [found.low, found.high]}


def report(settings: Mapping[str, Any], rows: Sequence[Mapping[str, Any]],
           **more: Any) -> dict[str, Any]:
    """Give the one object that ``--json`` prints."""
    return {'machine': machine(), 'versions': versions(), 'settings': dict(settings),
            'rows': list(rows), **more}


def check(name: str, value: float, needed: str, passed: bool) -> dict[str, Any]:
    """
    Compare a number with what was asked for.

    Returns
    -------
    dict
        ``name, value, needed`` (in words) and ``passed``.

    """
    return {'name': name, 'value': value, 'needed': needed, 'passed': bool(passed)}


def verdict(checks: Sequence[Mapping[str, Any]]) -> str:
    """Say each check in a line."""
    return '\n'.join(f'{"ok    " if entry["passed"] else "FAILED"}  {entry["name"]}: '
                     f'{entry["value"]:.4g}, needed {entry["needed"]}' for entry in checks)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Lay rows out for a terminal."""
    heads = ['name', 'median', 'mean', 'min', 'max', 'unit']
    lines = [[str(entry['name']), *(f'{entry[key]:,.4g}' if abs(entry[key]) < 1000
                                    else f'{entry[key]:,.0f}' for key in heads[1:5]),
              str(entry['unit'])] for entry in rows]
    widths = [max(len(line[column]) for line in [heads, *lines]) for column in range(len(heads))]
    return '\n'.join('  '.join(cell.ljust(width) if column in (0, 5) else cell.rjust(width)
                               for column, (cell, width) in enumerate(zip(line, widths))).rstrip()
                     for line in [heads, *lines])

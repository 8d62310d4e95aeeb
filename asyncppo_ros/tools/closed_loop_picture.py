"""The picture of ``asyncppo eval --ros``: each episode through topics over the same in process."""

from collections.abc import Sequence
from typing import Any

from asyncppo_ros.tools.curves import BLUE, VERMILLION
from asyncppo_ros.tools.figures import as_png, new_figure


def draw(result: dict[str, Any]) -> bytes:
    """
    Draw a panel for the return and one for each measure; on the line nothing differs.

    Parameters
    ----------
    result : dict
        As `closed_loop.evaluate` gives it.

    Returns
    -------
    png : bytes

    Raises
    ------
    MissingDependency
        matplotlib is not installed.

    """
    units = {name: measure['unit'] for name, measure in result['ros']['measures'].items()}
    names = ['return', *units]
    figure = new_figure(4.2 * len(names), 4.6)
    title = f'{result["ros"]["task"]}, {result["mode"]}, {len(result["rows"])} episodes'
    figure.suptitle(title + _success(result), fontsize=11, x=0.01, ha='left')
    for position, name in enumerate(names):
        axes = figure.add_subplot(1, len(names), position + 1)
        values = [[_value(row[way], name) for row in result['rows']]
                  for way in ('in_process', 'ros')]
        _draw(axes, *values)
        label = name.replace('_', ' ') + (f' [{units[name]}]' if name in units else '')
        axes.set_xlabel(f'{label}, in process', fontsize=10)
        axes.set_ylabel(f'{label}, through topics', fontsize=10)
        value, low, high = result['difference'][name]
        axes.set_title(f'difference {value:+.3g} [{low:+.3g}, {high:+.3g}]', fontsize=10,
                       loc='left')
    return as_png(figure, title)


def _draw(axes: Any, expected: Sequence[float], found: Sequence[float]) -> None:
    low, high = min(*expected, *found), max(*expected, *found)
    axes.plot([low, high], [low, high], color=VERMILLION, linewidth=1.0, zorder=1)
    axes.scatter(expected, found, s=14, color=BLUE, alpha=0.6, linewidths=0, zorder=2)
    axes.set_box_aspect(1)
    axes.grid(alpha=0.25)
    axes.spines[['top', 'right']].set_visible(False)
    axes.tick_params(labelsize=9)


def _value(row: dict[str, Any], name: str) -> float:
    return float(row['return'] if name == 'return' else row['measures'][name])


def _success(result: dict[str, Any]) -> str:
    if result['ros']['success'] is None:
        return ''
    return (f'\nsuccess {result["ros"]["success"]:.1%} through topics, '
            f'{result["in_process"]["success"]:.1%} in process')

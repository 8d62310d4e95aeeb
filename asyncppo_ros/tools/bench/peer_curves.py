"""The picture of ``asyncppo bench peers``: deterministic returns over the wall-clock."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from asyncppo_ros.tools.bench.learning_curves import at_equal_steps, COLOURS
from asyncppo_ros.tools.figures import as_png, new_figure


def draw(results: Sequence[Mapping[str, Any]],
         comparisons: Sequence[Mapping[str, Any]]) -> bytes:
    """
    Draw a panel per task, a line per package, its band from the lowest seed to the highest.

    Parameters
    ----------
    results : sequence of mapping
        Of `peer_returns.outcome`.
    comparisons : sequence of mapping
        Of `peer_returns.comparisons_of`; the returns that are waited for are dashed.

    Returns
    -------
    png : bytes

    Raises
    ------
    MissingDependency
        matplotlib is not installed.

    """
    tasks = list(dict.fromkeys(result['task'] for result in results))
    names = list(dict.fromkeys(result['who'] for result in results))
    colours = dict(zip(names, COLOURS * len(names)))
    figure = new_figure(5.4 * len(tasks), 3.8)
    for position, task in enumerate(tasks):
        axes = figure.add_subplot(1, len(tasks), position + 1)
        for name in names:
            curves = [(np.array([point['seconds'] for point in result['curve']]),
                       np.array([point['return_mean'] for point in result['curve']]))
                      for result in results if (result['task'], result['who']) == (task, name)]
            if curves:
                _draw_curves(axes, name, colours[name], curves)
        for goal, target in {entry['goal']: entry['target'] for entry in comparisons
                             if entry['task'] == task}.items():
            axes.axhline(target, color=colours[goal], linestyle='--', linewidth=1.0)
        _dress(axes, task, len(names))
    return as_png(figure, 'Return over wall-clock')


def _draw_curves(axes: Any, label: str, colour: str,
                 curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
    x, y = at_equal_steps(curves)
    axes.fill_between(x, y.min(0), y.max(0), color=colour, alpha=0.15, linewidth=0)
    # A package of which only the end is known is a dot.
    axes.plot(x, y.mean(0), color=colour, linewidth=1.8,
              label=f'{label}, {len(y)} seed{"s" * (len(y) > 1)}',
              marker='o' if max(len(curve[0]) for curve in curves) == 1 else '')


def _dress(axes: Any, task: str, lines: int) -> None:
    from matplotlib.ticker import NullFormatter

    # Above the legend, which has two lines in a row.
    axes.set_title(task, fontsize=12, loc='left', pad=10 + 14 * -(-lines // 2))
    axes.set_ylabel('deterministic return', fontsize=10)
    axes.set_xlabel('wall-clock of the training [s]', fontsize=10)
    axes.set_xscale('log')
    axes.tick_params(labelsize=9)
    axes.xaxis.set_major_formatter(lambda value, _: f'{value:,g}')
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(lambda value, _: f'{value:,g}')
    axes.grid(alpha=0.25)
    axes.spines[['top', 'right']].set_visible(False)
    axes.legend(fontsize=9, frameon=False, loc='lower left', bbox_to_anchor=(-0.02, 0.98),
                ncols=2, columnspacing=1.0, handlelength=1.4, handletextpad=0.5)

"""The picture of ``asyncppo bench learning``: one panel per task, one colour per arm."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncppo_ros.learning.jsonl import read_jsonl
from asyncppo_ros.tools.bench.learning_runs import Cell
from asyncppo_ros.tools.curves import (
    BLUE,
    columns,
    current,
    generation_starts,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
)
from asyncppo_ros.tools.figures import as_png, new_figure

COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY)
# Curves of seeds meet at the same transitions: so many points.
POINTS = 200


def draw(cells: Sequence[Cell], results: Sequence[dict[str, Any]]) -> bytes:
    """
    Draw the training returns, mean ± deviation over seeds, and each seed as a thin line.

    Dots with bars are deterministic evaluations, mean ± deviation over seeds.

    Parameters
    ----------
    cells : sequence of Cell
    results : sequence of dict
        What each reached (`learning_runs.outcome`).

    Returns
    -------
    png : bytes

    Raises
    ------
    MissingDependency
        matplotlib is not installed.

    """
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    across = 2 if len(tasks) == 4 else min(3, len(tasks))
    down = -(-len(tasks) // across)
    figure = new_figure(5.4 * across, 3.6 * down)
    for position, task in enumerate(tasks):
        axes = figure.add_subplot(down, across, position + 1)
        arms = list(dict.fromkeys(cell.arm for cell in cells if cell.task == task))
        for arm, colour in zip(arms, COLOURS * len(arms)):
            members = [(cell, result) for cell, result in zip(cells, results) if cell.arm == arm]
            _draw_arm(axes, arm.removeprefix(task).strip(), colour, members)
        _dress(axes, task, len(arms))
    return as_png(figure, 'Learning curves')


def at_equal_steps(curves: Sequence[tuple[np.ndarray, np.ndarray]],
                   points: int = POINTS) -> tuple[np.ndarray, np.ndarray]:
    """
    Bring curves (x, y), x rising, to the same x: as far as all of them reach.

    Returns
    -------
    x : float [points]
    y : float [n, points]

    """
    x = np.linspace(max(curve[0][0] for curve in curves), min(curve[0][-1] for curve in curves),
                    points)
    return x, np.stack([np.interp(x, *curve) for curve in curves])


def _draw_arm(axes: Any, label: str, colour: str,
              members: Sequence[tuple[Cell, dict[str, Any]]]) -> None:
    curves = [curve for cell, _ in members if len((curve := _curve(cell))[0])]
    if curves:
        x, y = at_equal_steps(curves)
        mean, deviation = y.mean(0), y.std(0, ddof=1 if len(y) > 1 else 0)
        axes.fill_between(x, mean - deviation, mean + deviation, color=colour, alpha=0.15,
                          linewidth=0)
        axes.plot(x, y.T, color=colour, linewidth=0.6, alpha=0.45)
        axes.plot(x, mean, color=colour, linewidth=1.8, label=f'{label}, {len(y)} seeds')
    for steps in members[0][1]['returns']:
        scores = [result['returns'][steps] for _, result in members if steps in result['returns']]
        returns = np.array([score['return_mean'] for score in scores])
        axes.errorbar(np.mean([score['env_steps'] for score in scores]), returns.mean(),
                      returns.std(ddof=1) if len(returns) > 1 else 0.0, color=colour, marker='o',
                      markersize=4.5, markeredgecolor='white', capsize=3, linewidth=1.2,
                      zorder=5)


def _curve(cell: Cell) -> tuple[np.ndarray, np.ndarray]:
    rows = read_jsonl(cell.run.metrics_file)
    data = columns(current(rows, generation_starts(rows)))
    # No episode has ended yet in the first rows.
    known = np.isfinite(data.get('return_mean', np.full(len(data['env_steps']), np.nan)))
    return data['env_steps'][known], data.get('return_mean', data['env_steps'])[known]


def _dress(axes: Any, task: str, arms: int) -> None:
    from matplotlib.ticker import EngFormatter

    # Above the legend, which has two arms in a line.
    axes.set_title(task, fontsize=12, loc='left', pad=10 + 14 * -(-arms // 2))
    axes.set_ylabel('return', fontsize=10)
    axes.set_xlabel('env steps', fontsize=10)
    axes.tick_params(labelsize=9)
    axes.xaxis.set_major_formatter(EngFormatter(sep=''))
    axes.yaxis.set_major_formatter(lambda value, _: f'{value:,g}')
    axes.set_xlim(left=0)
    axes.grid(alpha=0.25)
    axes.spines[['top', 'right']].set_visible(False)
    axes.legend(fontsize=9, frameon=False, loc='lower left', bbox_to_anchor=(-0.02, 0.98),
                ncols=2, columnspacing=1.0, handlelength=1.4, handletextpad=0.5)

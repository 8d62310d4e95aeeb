"""The pictures of a lag study: return over lag, and learning curves, with confidence bands."""

from typing import Any

import numpy as np

from asyncppo_ros.tools.bench.uncertainty import interquartile_mean, iqm_estimate
from asyncppo_ros.tools.curves import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION
from asyncppo_ros.tools.figures import as_png, new_figure
from asyncppo_ros.tools.lag_grid import ARMS, Cell, KINDS, Lag
from asyncppo_ros.tools.lag_results import Study

BLACK = '#000000'
COLOURS = dict(zip(ARMS, (BLACK, BLUE, GREEN, SKY, ORANGE, PURPLE, VERMILLION)))
MARKERS = dict(zip(ARMS, 'osD^vPX'))
# Points of a curve at which runs are compared.
GRID = 50


def draw_returns(study: Study) -> bytes:
    """
    Draw the return at the end over the lag: a panel per task and kind of lag, a line per arm.

    Raises
    ------
    MissingDependency
        matplotlib is not installed.

    """
    kinds = study.kinds or ['versions']
    figure = new_figure(5.2 * len(study.tasks), 3.6 * len(kinds) + 0.9)
    figure.suptitle('Return at the end over lag: IQM, 95 % interval', fontsize=13,
                    x=0.01, ha='left')
    for row, kind in enumerate(kinds):
        for column, task in enumerate(study.tasks):
            axes = figure.add_subplot(len(kinds), len(study.tasks),
                                      row * len(study.tasks) + column + 1)
            for arm in study.arms:
                _draw_arm(axes, study, task, arm, kind)
            _lag_axis(axes, study.lags(kind))
            _dress(axes, task, f'lag [{KINDS[kind]}]', 'return' if column == 0 else '')
    _legend(figure, study)
    return as_png(figure, 'Lag study')


def draw_curves(study: Study) -> bytes:
    """
    Draw the training return over what was simulated: a panel per task and lag, a line per arm.

    Raises
    ------
    MissingDependency
        matplotlib is not installed.

    """
    lags = list(dict.fromkeys(lag for kind in study.kinds or ['versions']
                              for lag in study.lags(kind)))
    figure = new_figure(3.6 * len(lags) + 0.6, 3.2 * len(study.tasks) + 0.9)
    figure.suptitle('Return while training: IQM, 95 % interval', fontsize=13,
                    x=0.01, ha='left')
    for row, task in enumerate(study.tasks):
        shared = None
        for column, lag in enumerate(lags):
            axes = figure.add_subplot(len(study.tasks), len(lags), row * len(lags) + column + 1,
                                      sharey=shared)
            shared = shared or axes
            for arm in study.arms:
                _draw_curve(axes, study, Cell(task, arm, lag))
            _dress(axes, f'{task}, {lag if lag.amount else "no lag"}', 'simulated env steps',
                   'return' if column == 0 else '')
            _count_axis(axes)
    _legend(figure, study)
    return as_png(figure, 'Lag study')


def curve_of(runs: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """
    Bring the curves of several runs to the same points.

    Returns
    -------
    x : float64 [GRID]
    returns : float64 [runs, GRID]

    """
    curves = [np.asarray(run['curve'], np.float64) for run in runs if len(run['curve'])]
    if not curves:
        return np.empty(0), np.empty((0, 0))
    x = np.linspace(max(curve[0, 0] for curve in curves), min(curve[-1, 0] for curve in curves),
                    GRID)
    return x, np.stack([np.interp(x, *curve.T) for curve in curves])


def _draw_arm(axes: Any, study: Study, task: str, arm: str, kind: str) -> None:
    known = [(lag.amount, summary.returned) for lag in study.lags(kind)
             if (summary := study.get(task, arm, lag)) is not None]
    if not any(amount for amount, _ in known):
        return
    x = [amount for amount, _ in known]
    low, high = ([getattr(estimate, end) for _, estimate in known] for end in ('low', 'high'))
    axes.fill_between(x, low, high, color=COLOURS[arm], alpha=0.13, linewidth=0)
    axes.plot(x, [estimate.value for _, estimate in known], color=COLOURS[arm], label=arm,
              marker=MARKERS[arm], markersize=5, linewidth=1.6)


def _draw_curve(axes: Any, study: Study, cell: Cell) -> None:
    x, returns = curve_of(study.outcomes.get(cell, []))
    if not x.size:
        return
    if len(returns) > 1:
        ends = [iqm_estimate([column]) for column in returns.T]
        axes.fill_between(x, [end.low for end in ends], [end.high for end in ends],
                          color=COLOURS[cell.arm], alpha=0.13, linewidth=0)
    axes.plot(x, interquartile_mean(returns.T), color=COLOURS[cell.arm], label=cell.arm,
              linewidth=1.5)


def _lag_axis(axes: Any, lags: list[Lag]) -> None:
    # Powers of 2 at equal distances, and 0 as far from 1 as 1 from 2.
    axes.set_xscale('symlog', base=2, linthresh=1.0)
    axes.set_xticks([lag.amount for lag in lags])
    axes.xaxis.set_major_formatter(lambda value, _: f'{value:g}')
    axes.minorticks_off()


def _count_axis(axes: Any) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(EngFormatter(sep=''))


def _dress(axes: Any, title: str, x_label: str, y_label: str) -> None:
    axes.set_title(title, fontsize=11, loc='left')
    axes.set_xlabel(x_label, fontsize=9.5)
    axes.set_ylabel(y_label, fontsize=9.5)
    axes.tick_params(labelsize=9)
    axes.grid(alpha=0.25)
    axes.spines[['top', 'right']].set_visible(False)


def _legend(figure: Any, study: Study) -> None:
    from matplotlib.lines import Line2D

    figure.legend(handles=[Line2D([], [], color=COLOURS[arm], marker=MARKERS[arm], label=arm)
                           for arm in study.arms],
                  loc='outside lower left', ncols=4, fontsize=9.5, frameon=False)

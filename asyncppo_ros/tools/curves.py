"""The curves of a run as one picture: a table of panels, drawn against env steps."""

from collections.abc import Callable, Mapping, Sequence
import math
from typing import Any, NamedTuple

import numpy as np

from asyncppo_ros.learning.metrics import histogram_edges
from asyncppo_ros.tools.figures import as_png, new_figure

Row = Mapping[str, Any]
Columns = dict[str, np.ndarray]

# Okabe and Ito's colours, which colour-blind people tell apart.
BLUE, VERMILLION, GREEN = '#0072B2', '#D55E00', '#009E73'
SKY, ORANGE, PURPLE = '#56B4E9', '#E69F00', '#CC79A7'
RESUME = '#777777'
# More points than a panel has pixels would only blur it.
MOST_POINTS = 300


class Curve(NamedTuple):
    """One metric of a panel."""

    name: str
    label: str
    colour: str


class Panel(NamedTuple):
    """One set of axes; the curves of a stacked one add up."""

    title: str
    unit: str
    curves: tuple[Curve, ...]
    stacked: bool = False


PANELS = (
    Panel('Return', 'return', (
        Curve('return_mean', 'last 100 training episodes', BLUE),
        Curve('evaluation_return_mean', 'evaluation ± std', VERMILLION))),
    Panel('Success', '%', (
        Curve('success_rate', 'last 100 training episodes', BLUE),
        Curve('evaluation_success', 'evaluation', VERMILLION))),
    Panel('Episode length', 'control steps', (
        Curve('episode_length_mean', 'last 100 training episodes', BLUE),
        Curve('evaluation_length_mean', 'evaluation', VERMILLION))),
    Panel('Policy lag', 'versions', (
        Curve('policy_lag_max', 'max', VERMILLION),
        Curve('policy_lag_p95', '95th percentile', ORANGE),
        Curve('policy_lag_mean', 'mean', BLUE))),
    Panel('Parts of the mean sample age', 'ms', (
        Curve('age_collecting_mean', 'collecting', SKY),
        Curve('age_waiting_mean', 'in the actor', ORANGE),
        Curve('age_transport_mean', 'transport', GREEN),
        Curve('age_learner_mean', 'in the learner', PURPLE)), stacked=True),
    Panel('Sample age', 'ms', (
        Curve('sample_age_max', 'max', VERMILLION),
        Curve('sample_age_p95', '95th percentile', ORANGE),
        Curve('sample_age_mean', 'mean', BLUE))),
    Panel('Throughput', 'env steps/s', (Curve('env_steps_per_s', 'env steps/s', BLUE),)),
    Panel('Waiting', '% of the time', (
        Curve('learner_wait', 'learner for chunks', BLUE),
        Curve('actor_wait', 'actors for permit or policy', VERMILLION))),
    Panel('KL divergence', 'nat', (
        Curve('kl', 'exact', BLUE), Curve('approx_kl', 'approximate', ORANGE))),
    Panel('Clipping', '% of samples', (
        Curve('clip_fraction', 'ratio clipped', BLUE),
        Curve('dual_clip_fraction', 'dual clip active', VERMILLION))),
    Panel('Policy loss', 'loss', (Curve('policy_loss', 'policy', BLUE),)),
    Panel('Value loss', 'loss', (Curve('value_loss', 'value', BLUE),)),
    Panel('Explained variance', 'share', (
        Curve('explained_variance', 'of the value target', BLUE),)),
    Panel('Exploration', 'nat', (
        Curve('entropy', 'entropy', BLUE), Curve('log_std_mean', 'mean log std', VERMILLION))),
    Panel('Learning rate', 'step size', (Curve('learning_rate', 'Adam', BLUE),)),
)

# What the samples of the whole run were like: name in `metrics.HISTOGRAMS`, title, unit.
HISTOGRAM_PANELS = (
    ('policy_lag_histogram', 'Policy lag of all samples', 'versions'),
    ('sample_age_histogram', 'Sample age of all samples', 'ms'),
)


def generation_starts(rows: Sequence[Row]) -> dict[int, float]:
    """Give the env steps of the first row of every generation."""
    starts: dict[int, float] = {}
    for row in rows:
        starts.setdefault(int(row.get('generation') or 0), float(row['env_steps']))
    return starts


def current(rows: Sequence[Row], starts: Mapping[int, float]) -> list[Row]:
    """
    Leave out what a resume took back, and sort by env steps.

    After a crash a learner starts from a checkpoint: rows that the one before wrote after that
    checkpoint are no part of the curve that leads to the policy.  A row that names no
    generation is of the last one.
    """
    kept = [row for row in rows if row.get('env_steps') is not None and all(
        row['env_steps'] < start for generation, start in starts.items()
        if generation > row.get('generation', math.inf))]
    return sorted(kept, key=lambda row: row['env_steps'])


def columns(rows: Sequence[Row]) -> Columns:
    """Turn rows into one float array per name, NaN where a row has no number."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: np.array([_number(row.get(name)) for row in rows]) for name in names}


def total_counts(rows: Sequence[Row], name: str) -> np.ndarray:
    """Add up the counts of a histogram, whose lists may be of different lengths."""
    lists = [row[name] for row in rows if isinstance(row.get(name), list)]
    total = np.zeros(max(map(len, lists), default=0))
    for counts in lists:
        total[:len(counts)] += counts
    return total


def thinned(values: np.ndarray, reduce: Callable[[np.ndarray], float],
            most: int = MOST_POINTS) -> np.ndarray:
    """Reduce neighbours to one value each until at most `most` are left."""
    if values.size <= most:
        return values
    groups = np.array_split(values, most)
    return np.array([reduce(group[np.isfinite(group)]) if np.isfinite(group).any() else np.nan
                     for group in groups])


def draw(rows: Sequence[Row], evaluations: Sequence[Row], title: str) -> bytes:
    """
    Draw every panel that has data.

    Parameters
    ----------
    rows : sequence of mappings
        Of ``metrics.jsonl``, at least one.
    evaluations : sequence of mappings
        Rows of the evaluation metrics.
    title : str
        The line on top.

    Returns
    -------
    png : bytes

    Raises
    ------
    MissingDependency
        matplotlib is not installed.

    """
    starts = generation_starts(rows)
    rows = current(rows, starts)
    data = columns(rows)
    evaluated = columns(current(evaluations, starts))
    panels = [panel for panel in PANELS if any(
        np.isfinite((data | evaluated).get(curve.name, np.nan)).any() for curve in panel.curves)]
    histograms = [(name, title, unit, counts) for name, title, unit in HISTOGRAM_PANELS
                  if (counts := total_counts(rows, name)).any()]
    count = len(panels) + len(histograms)
    across = min(3, max(1, count))
    down = max(1, -(-count // across))
    figure = new_figure(5.4 * across, 3.3 * down + 0.5)
    figure.suptitle(title, fontsize=15, x=0.01, ha='left')
    last = max(values.max() for values in (data['env_steps'], evaluated.get(
        'env_steps', data['env_steps'])) if values.size)
    for position, panel in enumerate(panels):
        axes = figure.add_subplot(down, across, position + 1)
        _draw_panel(axes, panel, data, evaluated)
        axes.set_xlim(0, last * 1.01 or 1)
        for generation in list(starts)[1:]:
            axes.axvline(starts[generation], color=RESUME, linestyle=':', linewidth=1.2,
                         label='resumed' if generation == list(starts)[1] and panel is panels[0]
                         else None)
        _dress(axes, panel)
    for position, (name, title, unit, counts) in enumerate(histograms, start=len(panels)):
        axes = figure.add_subplot(down, across, position + 1)
        _draw_histogram(axes, name, counts)
        _dress_plainly(axes, title, '% of samples', unit)
    return as_png(figure, title)


def _draw_panel(axes: Any, panel: Panel, data: Columns, evaluated: Columns) -> None:
    scale = 100.0 if panel.unit.startswith('%') else 1.0
    if panel.stacked:
        known = [curve for curve in panel.curves if curve.name in data]
        x = thinned(data['env_steps'], np.mean)
        # One point has no area: it is drawn from 0 on.
        repeat = 2 if x.size == 1 else 1
        axes.stackplot(
            x if repeat == 1 else [0, *x],
            [thinned(np.nan_to_num(data[curve.name]), np.mean).repeat(repeat) for curve in known],
            labels=[curve.label for curve in known], colors=[curve.colour for curve in known],
            linewidth=0)
        return
    for curve in panel.curves:
        if curve.name in evaluated and np.isfinite(evaluated[curve.name]).any():
            _draw_evaluation(axes, curve, evaluated, scale)
        elif curve.name in data:
            reduce = np.max if curve.name.endswith('_max') else np.mean
            x = thinned(data['env_steps'], np.mean)
            axes.plot(x, thinned(data[curve.name], reduce) * scale, color=curve.colour,
                      label=curve.label, linewidth=1.4, marker='o' if x.size <= 20 else None,
                      # With few chunks a batch the 95th percentile lies on the maximum.
                      markersize=3, linestyle='--' if curve.name.endswith('_p95') else '-')


def _draw_evaluation(axes: Any, curve: Curve, evaluated: Columns, scale: float) -> None:
    x, mean = evaluated['env_steps'], evaluated[curve.name] * scale
    deviation = evaluated.get('evaluation_return_std')
    if curve.name == 'evaluation_return_mean' and deviation is not None:
        if x.size > 1:
            axes.fill_between(x, mean - deviation, mean + deviation, color=curve.colour,
                              alpha=0.18, linewidth=0)
        else:
            axes.errorbar(x, mean, deviation, color=curve.colour, capsize=4)
    axes.plot(x, mean, color=curve.colour, label=curve.label, linewidth=1.6,
              marker='o' if x.size <= 60 else None, markersize=3.5)


def _draw_histogram(axes: Any, name: str, counts: np.ndarray) -> None:
    from matplotlib.ticker import FixedLocator, MaxNLocator

    edges = histogram_edges(name, len(counts))
    used = np.flatnonzero(counts)
    if name == 'sample_age_histogram':
        # Ages below 1 ms have a bin that a logarithmic axis can show.
        edges[0] = edges[1] / 2.0
        axes.set_xscale('log', base=2)
        shown = edges[used[0]:used[-1] + 2]
        # A tick at every edge, or at every second or third where there are many.
        axes.xaxis.set_major_locator(FixedLocator(shown[::-(-len(shown) // 10)].tolist()))
    else:
        shown = edges[:used[-1] + 2]
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.bar(edges[:-1], 100.0 * counts / counts.sum(), np.diff(edges), align='edge', color=BLUE,
             edgecolor='white')
    axes.set_axisbelow(True)
    axes.set_xlim(shown[0], shown[-1])
    axes.xaxis.set_major_formatter(lambda value, _: f'{value:g}')


def _dress(axes: Any, panel: Panel) -> None:
    from matplotlib.ticker import EngFormatter

    _dress_plainly(axes, panel.title, panel.unit, 'env steps')
    axes.xaxis.set_major_formatter(EngFormatter(sep=''))
    if panel.unit in ('env steps/s', 'ms', 'versions') or panel.unit.startswith('%'):
        axes.set_ylim(bottom=0)
    if panel.unit in ('%', '% of the time'):
        axes.set_ylim(-2, 102)
    # Beside the curves, never over them.
    axes.legend(fontsize=9, frameon=False, loc='lower left', bbox_to_anchor=(-0.02, 0.98),
                ncols=5, columnspacing=1.0, handlelength=1.4, handletextpad=0.5)


def _dress_plainly(axes: Any, title: str, y_label: str, x_label: str) -> None:
    axes.set_ylabel(y_label, fontsize=10)
    axes.set_xlabel(x_label, fontsize=10)
    axes.tick_params(labelsize=9)
    axes.yaxis.set_major_formatter(lambda value, _: f'{value:g}')
    axes.grid(alpha=0.25)
    axes.spines[['top', 'right']].set_visible(False)
    axes.set_title(title, fontsize=12, loc='left', pad=24)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else np.nan

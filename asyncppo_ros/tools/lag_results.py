"""What the runs of a lag study say: per cell with intervals, as tables, and in words."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import math
import statistics
from typing import Any, NamedTuple

from asyncppo_ros.learning.jsonl import read_jsonl
from asyncppo_ros.run import Run
from asyncppo_ros.tools.bench.uncertainty import Estimate, iqm_estimate, relative_iqm
from asyncppo_ros.tools.jobs import final_score
from asyncppo_ros.tools.lag_grid import ARMS, Cell, DROPS, KINDS, Lag, REFERENCE

# An arm holds to a lag where the interval excludes a greater loss than this.
ALLOWED_LOSS = 0.1
# What lag did, as the mean over the updates of a run: metric, head of the column, scale.
DETAILS = (
    ('policy_lag_mean', 'lag', 1.0), ('gradient_lag_mean', 'gradient steps', 1.0),
    ('effective_sample_share', 'ESS %', 100.0), ('behaviour_kl', 'KL μ→π₀', 1.0),
    ('kl', 'KL π₀→π', 1.0), ('clip_fraction', 'clipped %', 100.0),
    ('dual_clip_fraction', 'dual %', 100.0), ('explained_variance', 'expl. var.', 1.0))
# Points of a learning curve that are kept.
CURVE_POINTS = 60
NONE = Lag('versions', 0)


class Outcome(NamedTuple):
    """
    What a run reached.

    Attributes
    ----------
    cell : Cell
    seed : int
    value : dict
        Of ``lag-study.json``, as `outcome_of` makes it.

    """

    cell: Cell
    seed: int
    value: dict[str, Any]


def outcome_of(cell: Cell, seed: int, run: Run) -> Outcome:
    """Read a finished run."""
    score = final_score(run)
    assert score is not None, f'{run.folder} is not finished'
    rows = read_jsonl(run.metrics_file)
    value = {
        'task': cell.task, 'arm': cell.arm, 'lag_kind': cell.lag.kind, 'lag': cell.lag.amount,
        'seed': seed, 'return_mean': score['return_mean'], 'return_std': score['return_std'],
        'episodes': score['episodes'], 'training_return_mean': mean_return(rows),
        'training_return_last': returns(rows)[-1][1] if returns(rows) else math.nan,
        'transitions_produced': rows[-1]['transitions_produced'],
        'transitions_dropped': rows[-1]['transitions_dropped'],
        'policy_version': rows[-1]['policy_version'],
        'gradient_steps': rows[-1]['gradient_steps'], 'wall_clock_s': rows[-1]['time_s'],
        **{name: mean_of(rows, name) for name, _, _ in DETAILS},
        'policy_lag_max': max(row['policy_lag_max'] for row in rows),
        'curve': thinned(returns(rows), CURVE_POINTS)}
    return Outcome(cell, seed, value)


def returns(rows: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Give (transitions simulated, mean return of the last training episodes)."""
    return [(row['transitions_produced'], row['return_mean']) for row in rows
            if row.get('return_mean') is not None]


def mean_return(rows: Sequence[Mapping[str, Any]]) -> float:
    """Give the mean training return over what was simulated: the area under the curve."""
    curve = returns(rows)
    if len(curve) < 2:
        return curve[0][1] if curve else math.nan
    area = sum((after - before) * 0.5 * (first + second)
               for (before, first), (after, second) in zip(curve, curve[1:]))
    return area / (curve[-1][0] - curve[0][0])


def mean_of(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    """Give the mean of a metric over the updates that have it; NaN if none has."""
    values = [row[name] for row in rows if row.get(name) is not None]
    return statistics.fmean(values) if values else math.nan


def thinned(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """Leave out points between the first and the last, evenly."""
    if len(points) <= most:
        return list(points)
    last = len(points) - 1
    return [points[round(index * last / (most - 1))] for index in range(most)]


class Summary(NamedTuple):
    """
    A cell over its seeds: interquartile means with bootstrap intervals.

    Attributes
    ----------
    cell : Cell
    seeds : int
    returned : Estimate
        Deterministic return at the end.
    training : Estimate
        Mean training return over the run.
    change, training_change : Estimate or None
        Relative to the same arm without lag; None where that was not trained, or is 0.
    against_clipped : Estimate or None
        Return relative to the arm `clipped` without lag.
    against_same_lag : Estimate or None
        Return relative to the arm `clipped` at this lag.
    details : dict from str to float
        Of `DETAILS`, and the share of the transitions that was `dropped`.

    """

    cell: Cell
    seeds: int
    returned: Estimate
    training: Estimate
    change: Estimate | None
    training_change: Estimate | None
    against_clipped: Estimate | None
    against_same_lag: Estimate | None
    details: dict[str, float]


class Study:
    """
    All summaries of a grid.

    Parameters
    ----------
    outcomes : iterable of Outcome

    """

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self.outcomes: dict[Cell, list[dict[str, Any]]] = {}
        for outcome in outcomes:
            self.outcomes.setdefault(outcome.cell, []).append(outcome.value)
        self.summaries = {cell: self._summary(cell) for cell in self.outcomes}

    @property
    def tasks(self) -> list[str]:
        """In the order of the grid."""
        return list(dict.fromkeys(cell.task for cell in self.outcomes))

    @property
    def arms(self) -> list[str]:
        """In the order of `ARMS`."""
        present = {cell.arm for cell in self.outcomes}
        return [arm for arm in ARMS if arm in present]

    def lags(self, kind: str) -> list[Lag]:
        """Give the lags of one kind in order; none at all counts as every kind."""
        found = {cell.lag for cell in self.outcomes if cell.lag.kind == kind}
        if found:
            found |= {cell.lag for cell in self.outcomes if cell.lag == NONE}
        return sorted(found, key=lambda lag: lag.amount)

    @property
    def kinds(self) -> list[str]:
        """The kinds of lag that there are beside none."""
        return [kind for kind in KINDS if any(lag.amount for lag in self.lags(kind))]

    def get(self, task: str, arm: str, lag: Lag) -> Summary | None:
        """Give a cell; None where it was not trained."""
        return self.summaries.get(Cell(task, arm, lag))

    def _summary(self, cell: Cell) -> Summary:
        runs = self.outcomes[cell]
        clipped = Cell(cell.task, REFERENCE, NONE)
        produced = sum(run['transitions_produced'] for run in runs)
        details = {name: mean_of(runs, name) for name, _, _ in DETAILS}
        details['dropped'] = sum(run['transitions_dropped'] for run in runs) / produced
        return Summary(
            cell, len(runs), _estimate(_column(runs, 'return_mean')),
            _estimate(_column(runs, 'training_return_mean')),
            self._relative(cell, cell.reference, 'return_mean'),
            self._relative(cell, cell.reference, 'training_return_mean'),
            self._relative(cell, clipped, 'return_mean'),
            self._relative(cell, cell._replace(arm=REFERENCE), 'return_mean'), details)

    def _relative(self, cell: Cell, to: Cell, name: str) -> Estimate | None:
        if to == cell or to not in self.outcomes:
            return None
        first, second = (_column(self.outcomes[one], name) for one in (cell, to))
        change = relative_iqm(first, second)
        if change is None or min(len(first), len(second)) > 1:
            return change
        return _without_interval(change)


def verdict(change: Estimate) -> str:
    """
    Say whether a loss is excluded, shown, or neither.

    Returns
    -------
    str
        ``holds``: the whole interval lies above -`ALLOWED_LOSS`; ``loses``: all of it lies
        below; ``open``: neither.

    """
    if change.low >= -ALLOWED_LOSS:
        return 'holds'
    return 'loses' if change.high < -ALLOWED_LOSS else 'open'


def holds_to(changes: Sequence[tuple[int, Estimate | None]]) -> int:
    """
    Give the largest lag up to which an arm holds at every lag that was tried; 0 = at none.

    Parameters
    ----------
    changes : sequence of (lag, estimate)
        Relative to lag 0, rising.

    """
    reached = 0
    for lag, change in changes:
        if change is None or verdict(change) != 'holds':
            break
        reached = lag
    return reached


def reading(study: Study) -> str:
    """Say in one paragraph which arm holds to which lag, by rule."""
    parts = [f'An arm holds to a lag where the 95 % interval of the change relative to the same '
             f'arm without lag excludes a loss above {100 * ALLOWED_LOSS:.0f} % there and at '
             'every smaller lag that was tried.']
    for task in study.tasks:
        parts += _of_task(study, task)
    return ' '.join(parts)


def _of_task(study: Study, task: str) -> list[str]:
    seeds = [summary.seeds for cell, summary in study.summaries.items() if cell.task == task]
    some = f'{min(seeds)} to {max(seeds)}' if min(seeds) < max(seeds) else str(seeds[0])
    parts = [f'On {task} ({some} seed{"s" if max(seeds) > 1 else ""} a cell):']
    exact = [lag for lag in study.lags('versions') if lag.amount]
    clauses = [_of_arm(study, task, arm, exact) for arm in study.arms
               if any(study.get(task, arm, lag) for lag in exact)]
    if clauses:
        parts.append('; '.join(clauses) + '.')
        parts.append(_best_at_the_largest(study, task, exact[-1]))
    if 'gradient_steps' in study.kinds:
        parts.append(_of_gradient_steps(study, task))
    parts += [_of_drops(study, task, lag) for lag in study.lags('spread')
              if study.get(task, DROPS, lag) and lag.amount]
    return [part for part in parts if part]


def _of_arm(study: Study, task: str, arm: str, lags: Sequence[Lag]) -> str:
    base = study.get(task, arm, NONE)
    if base is not None and base.against_clipped is not None \
            and verdict(base.against_clipped) == 'loses':
        return (f'`{arm}` learns less already without lag ({percent(base.against_clipped)} '
                f'relative to `{REFERENCE}`), so that what lag does to it says little')
    changes = [(lag.amount, summary.change) for lag in lags
               if (summary := study.get(task, arm, lag)) is not None]
    if all(change is None for _, change in changes):
        return f'`{arm}` was not trained without lag, so nothing can be said of it'
    reached = holds_to(changes)
    text = f'`{arm}` holds to lag {reached}' if reached else f'`{arm}` is not shown to hold'
    lost = [(lag, change) for lag, change in changes
            if change is not None and verdict(change) == 'loses']
    undecided = [str(lag) for lag, change in changes
                 if change is not None and verdict(change) == 'open']
    if lost:
        text += ', loses ' + ' and '.join(f'{percent(change)} at {lag}' for lag, change in lost)
    if undecided:
        text += f', undecided at {" and ".join(undecided)}'
    return text


def _best_at_the_largest(study: Study, task: str, lag: Lag) -> str:
    found = [summary for arm in study.arms
             if (summary := study.get(task, arm, lag)) is not None]
    if len(found) < 2:
        return ''
    best = max(found, key=lambda summary: summary.returned.value)
    text = (f'At {lag} the highest return is that of `{best.cell.arm}`: '
            f'{interval(best.returned)}')
    if best.against_same_lag is not None:
        sure = best.against_same_lag.low > 0.0 or best.against_same_lag.high < 0.0
        text += (f', {percent(best.against_same_lag)} relative to `{REFERENCE}` there'
                 + ('' if sure else ', which may be chance'))
    return text + '.'


def _of_gradient_steps(study: Study, task: str) -> str:
    clauses = []
    for arm in study.arms:
        changes = [(lag.amount, summary.change) for lag in study.lags('gradient_steps')
                   if lag.amount and (summary := study.get(task, arm, lag)) is not None]
        if changes and changes[0][1] is not None:
            clauses.append(f'`{arm}` {holds_to(changes)}')
    return f'In gradient steps, each holds to: {", ".join(clauses)}.' if clauses else ''


def _of_drops(study: Study, task: str, lag: Lag) -> str:
    drops = study.get(task, DROPS, lag)
    assert drops is not None
    text = (f'At {lag}, dropping what is older than {lag.amount // 2} costs '
            f'{100.0 * drops.details["dropped"]:.0f} % of the simulation')
    if drops.against_same_lag is None:
        return text + '.'
    low, high = drops.against_same_lag.low, drops.against_same_lag.high
    verb = 'gains' if low > 0.0 else 'loses' if high < 0.0 else 'neither gains nor loses'
    return f'{text} and {verb} ({percent(drops.against_same_lag)} relative to learning from all).'


def markdown(study: Study) -> str:
    """Give all tables."""
    kinds = study.kinds or ['versions']
    pieces = [_shares_table(study, task, kind) for task in study.tasks for kind in kinds]
    for task in study.tasks:
        pieces += [_returns_table(study, task, kind) for kind in kinds]
        pieces.append(_details_table(study, task))
    return '\n\n'.join(piece for piece in pieces if piece)


def _table(study: Study, task: str, kind: str, title: str,
           text_of: Callable[[Summary], str]) -> str:
    """Lay the arms that were trained at a lag of this kind out over the lags."""
    lags = study.lags(kind)
    heads = [str(lag) if lag.amount else 'no lag' for lag in lags]
    lines = [f'**{task}**: {title}', '', f'| arm | {" | ".join(heads)} | holds to |',
             f'|---|{"---|" * (len(heads) + 1)}']
    for arm in study.arms:
        found = [study.get(task, arm, lag) for lag in lags]
        changes = [(summary.cell.lag.amount, summary.change) for summary in found
                   if summary is not None and summary.cell.lag.amount]
        if changes:
            cells = ' | '.join('-' if summary is None else text_of(summary) for summary in found)
            lines.append(f'| `{arm}` | {cells} | {holds_to(changes) or "-"} |')
    return '\n'.join(lines)


def _shares_table(study: Study, task: str, kind: str) -> str:
    reference = study.get(task, REFERENCE, NONE)
    if reference is None:
        return ''
    return _table(study, task, kind, f'return in % of {_short(reference.returned.value)}, which '
                  f'`{REFERENCE}` reaches without lag [95 % interval]', _share)


def _share(summary: Summary) -> str:
    """Write the return in percent of the reference: ``55 [40, 70]``."""
    change = summary.against_clipped
    if change is None:
        return '100'
    return f'{100.0 * (1.0 + change.value):.0f} [{_whole(change.low)}, {_whole(change.high)}]'


def _whole(change: float) -> str:
    return f'{100.0 * (1.0 + change):.0f}' if math.isfinite(change) else '-'


def _returns_table(study: Study, task: str, kind: str) -> str:
    return _table(study, task, kind, 'return, IQM [95 % interval] (change relative to no lag)',
                  _returned)


def _returned(summary: Summary) -> str:
    text = interval(summary.returned)
    if summary.change is not None:
        text += f' ({100.0 * summary.change.value:+.0f} %)'
    return text


def _details_table(study: Study, task: str) -> str:
    heads = [head for _, head, _ in DETAILS]
    lines = [f'**{task}**: means over all updates and seeds', '',
             f'| arm | lag | seeds | training return | {" | ".join(heads)} | dropped % |',
             f'|---|---|{"---|" * (len(heads) + 3)}']
    for cell, summary in sorted(study.summaries.items(), key=lambda item: (
            list(KINDS).index(item[0].lag.kind), item[0].lag.amount,
            list(ARMS).index(item[0].arm))):
        if cell.task != task:
            continue
        values = [_short(scale * summary.details[name]) for name, _, scale in DETAILS]
        lines.append(f'| `{cell.arm}` | {cell.lag} | {summary.seeds} | '
                     f'{interval(summary.training)} | {" | ".join(values)} | '
                     f'{100.0 * summary.details["dropped"]:.0f} |')
    return '\n'.join(lines)


def interval(estimate: Estimate) -> str:
    """Write an estimate with its interval: ``2,310 [2,100, 2,500]``."""
    return f'{_short(estimate.value)} [{_short(estimate.low)}, {_short(estimate.high)}]'


def percent(estimate: Estimate) -> str:
    """Write a relative change with its interval: ``-45 % [-60, -30]``."""
    value, low, high = (f'{100.0 * number:+.0f}' if math.isfinite(number) else '-'
                        for number in estimate)
    return f'{value} % [{low}, {high}]'


def as_rows(study: Study) -> list[dict[str, Any]]:
    """Give every summary as a JSON object."""
    rows = []
    for cell, summary in study.summaries.items():
        entry = {'task': cell.task, 'arm': cell.arm, 'lag_kind': cell.lag.kind,
                 'lag': cell.lag.amount, 'seeds': summary.seeds, **summary.details}
        for name in ('returned', 'training', 'change', 'training_change', 'against_clipped',
                     'against_same_lag'):
            estimate = getattr(summary, name)
            entry[name] = None if estimate is None else estimate._asdict()
        rows.append(entry)
    return rows


def _estimate(values: Sequence[float]) -> Estimate:
    estimate = iqm_estimate([values])
    return estimate if len(values) > 1 else _without_interval(estimate)


def _without_interval(estimate: Estimate) -> Estimate:
    """One run does not tell how far another would lie from it."""
    return Estimate(estimate.value, math.nan, math.nan)


def _column(runs: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [run[name] for run in runs]


def _short(value: float) -> str:
    if not math.isfinite(value):
        return '-'
    size = abs(value)
    return f'{value:,.0f}' if size >= 100 else f'{value:.1f}' if size >= 10 else f'{value:.3g}'

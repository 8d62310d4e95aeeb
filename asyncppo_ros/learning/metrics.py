"""
What is measured while training: the one table of names, and where the numbers go.

A row maps names of `METRICS` to numbers.  The same names are ROS topics
(``~/metrics/<name>``), keys of ``metrics.jsonl`` and TensorBoard tags (``<group>/<name>``).
This module needs no torch, so `asyncppo report` runs without it.
"""

from collections import deque
from collections.abc import Iterable, Mapping
import json
import logging
import math
import numbers
import os
import pathlib
from typing import Any, NamedTuple, Protocol

import numpy as np

from asyncppo_ros.chunk import NO_SUCCESS
from asyncppo_ros.errors import RunError


class Metric(NamedTuple):
    """What a number means; `unit` is empty for a plain number."""

    unit: str
    description: str
    group: str


# group -> name -> unit, description
_TABLE: dict[str, dict[str, tuple[str, str]]] = {
    'progress': {
        'env_steps': ('control steps', 'Transitions that reached an update.'),
        'env_steps_per_s': ('control steps/s', 'Rate at which transitions reach updates.'),
        'policy_version': ('versions', 'Updates made.'),
        'gradient_steps': ('gradient steps', 'Optimizer steps made.'),
        'generation': ('', 'Grows whenever a learner starts or restores.'),
        'time_s': ('s', 'Training time of the run, over all generations.'),
    },
    'episodes': {
        'return_mean': ('return', 'Mean return of the last 100 training episodes.'),
        'return_max': ('return', 'Highest return of the last 100 training episodes.'),
        'episode_length_mean': ('control steps', 'Mean length of these episodes.'),
        'success_rate': ('fraction', 'Share of these episodes that succeeded.'),
    },
    'evaluation': {
        'evaluation_return_mean': ('return', 'Mean return of the deterministic evaluation.'),
        'evaluation_return_std': ('return', 'Its standard deviation over episodes.'),
        'evaluation_success': ('fraction', 'Share of its episodes that succeeded.'),
        'evaluation_length_mean': ('control steps', 'Mean length of its episodes.'),
    },
    'update': {
        'policy_loss': ('', 'Negative dual-clip objective.'),
        'value_loss': ('', 'Squared error of the critic.'),
        'entropy': ('nat', 'Entropy of the Gaussian before the tanh.'),
        'approx_kl': ('nat', 'Mean of (ratio - 1) - log ratio.'),
        'kl': ('nat', 'Exact KL divergence from the policy before the update to that after it.'),
        'behaviour_kl': ('nat', 'Exact KL divergence from the policy that acted to that before '
                                'the update: what lag has done.'),
        'clip_fraction': ('fraction', 'Share of samples whose ratio is clipped.'),
        'dual_clip_fraction': ('fraction', 'Share of samples where the dual clip is active.'),
        'explained_variance': ('', '1 - Var(target - value) / Var(target).'),
        'gradient_norm': ('', 'Mean norm of the gradient before it is scaled down.'),
        'learning_rate': ('', 'Step size of the optimizer.'),
        'log_std_mean': ('', 'Mean log standard deviation of the pre-tanh action.'),
        'first_abs_log_ratio_max': ('', 'Largest |log ratio| before the first gradient step.'),
        'ratio_max': ('', 'Largest ratio of the update.'),
        'update_time': ('s', 'Duration of the update.'),
        'policy_bytes': ('bytes', 'Size of the published policy.'),
    },
    'lag': {
        'policy_lag_min': ('versions', 'Smallest policy lag of the consumed chunks.'),
        'policy_lag_mean': ('versions', 'Mean policy lag.'),
        'policy_lag_p95': ('versions', '95th percentile of the policy lag.'),
        'policy_lag_max': ('versions', 'Largest policy lag.'),
        'gradient_lag_mean': ('gradient steps', 'Mean policy lag in gradient steps.'),
        'gradient_lag_p95': ('gradient steps', '95th percentile of that.'),
        'gradient_lag_max': ('gradient steps', 'Largest of that.'),
    },
    'age': {
        'sample_age_mean': ('ms', 'Mean age of the consumed samples: the sum of four parts.'),
        'sample_age_p95': ('ms', '95th percentile of the sample age.'),
        'sample_age_max': ('ms', 'Largest sample age.'),
        'age_collecting_mean': ('ms', 'Part of the age: the actor collects the chunk.'),
        'age_waiting_mean': ('ms', 'Part of the age: the chunk waits in the actor.'),
        'age_transport_mean': ('ms', 'Part of the age: half a round trip on the wire.'),
        'age_learner_mean': ('ms', 'Part of the age: the chunk waits in the learner.'),
    },
    'flow': {
        'learner_wait': ('fraction', 'Share of time the learner waits for chunks.'),
        'actor_wait': ('fraction', 'Share of time actors wait for a permit or a policy.'),
        'actors': ('', 'Actors that are alive.'),
        'chunks_consumed': ('chunks', 'Chunks that reached an update.'),
        'chunks_dropped': ('chunks', 'Chunks dropped because they were too old.'),
        'chunks_refused': ('chunks', 'Chunks refused by a check.'),
        'transitions_in_flight': ('transitions', 'Permitted, and not yet consumed.'),
        'bad_batches': ('batches', 'Batches refused for a non-finite loss or gradient.'),
    },
}

METRICS: dict[str, Metric] = {name: Metric(unit, description, group)
                              for group, members in _TABLE.items()
                              for name, (unit, description) in members.items()}
EVALUATOR_METRICS: tuple[str, ...] = tuple(_TABLE['evaluation'])
LEARNER_METRICS: tuple[str, ...] = tuple(n for n in METRICS if n not in EVALUATOR_METRICS)


def metrics_table() -> str:
    """Give `METRICS` as the Markdown table of the README."""
    lines = ['| metric | unit | meaning |', '|---|---|---|']
    # A bar would end the cell.
    return '\n'.join(lines + [
        f'| `{name}` | {metric.unit} | ' + metric.description.replace('|', '\\|') + ' |'
        for name, metric in METRICS.items()])


def evaluation_row(evaluation: Mapping[str, Any]) -> dict[str, float]:
    """Give a line of ``evaluations.jsonl`` as a row of metrics; unknown values are left out."""
    row = {name: evaluation.get(name) for name in
           ('generation', 'policy_version', 'env_steps', 'time_s')}
    for name in ('return_mean', 'return_std', 'success', 'length_mean'):
        row[f'evaluation_{name}'] = evaluation.get(name)
    return {name: value for name, value in row.items() if value is not None}


class MetricsWriter(Protocol):
    """Where rows go."""

    def write(self, row: Mapping[str, float]) -> None:
        """Keep or show one row."""

    def close(self) -> None:
        """Give back what is held; nothing is written after it."""


class JsonlWriter:
    """
    Append rows to a file, one JSON object a line.

    Each line reaches the operating system at once.  A last line that a crash cut is removed on
    opening; NaN and infinity become null, which every JSON reader understands.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = pathlib.Path(path)
        try:
            _cut_incomplete_line(self._path)
            self._file = self._path.open('a', encoding='utf-8')
        except OSError as error:
            raise RunError(f'{path}: cannot be written: {error.strerror}') from error

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one row."""
        values = {name: _json_value(value) for name, value in row.items()}
        self._file.write(json.dumps(values, allow_nan=False) + '\n')
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoardWriter:
    """
    Write rows as TensorBoard events against `env_steps`.

    A directory belongs to one process.  Where tensorboard is missing one warning says so and
    rows are passed over.

    Parameters
    ----------
    directory : path
        Made where it is missing.
    purge_step : int, optional
        `env_steps` of a resumed checkpoint: what an earlier learner wrote from there on is
        hidden.

    """

    def __init__(self, directory: str | os.PathLike[str], purge_step: int | None = None) -> None:
        self._writer: Any = None
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            logging.getLogger(__name__).warning(
                'no TensorBoard events: tensorboard is missing (pip install tensorboard)')
            return
        self._writer = SummaryWriter(str(directory), purge_step=purge_step, flush_secs=10)

    def write(self, row: Mapping[str, float]) -> None:
        """Write every finite number of one row."""
        if self._writer is None:
            return
        step = int(row['env_steps'])
        for name, value in row.items():
            if name != 'env_steps' and name in METRICS and math.isfinite(value):
                self._writer.add_scalar(f'{METRICS[name].group}/{name}', value, step)

    def close(self) -> None:
        """Write out what is buffered."""
        if self._writer is not None:
            self._writer.close()


class EpisodeWindow:
    """Statistics of the last episodes that ended."""

    def __init__(self, size: int = 100) -> None:
        self._episodes: deque[tuple[float, float, float]] = deque(maxlen=size)

    def add(self, episodes: np.ndarray | Iterable[Iterable[float]]) -> None:
        """Take rows [E, 3] of return, length, success (1, 0, -1 = the task has none)."""
        for episode_return, length, success in np.asarray(episodes, np.float64).reshape(-1, 3):
            self._episodes.append((float(episode_return), float(length), float(success)))

    def row(self) -> dict[str, float]:
        """Give the metrics that are known: none before the first episode ended."""
        if not self._episodes:
            return {}
        episode_return, length, success = np.array(self._episodes).T
        row = {'return_mean': float(episode_return.mean()),
               'return_max': float(episode_return.max()),
               'episode_length_mean': float(length.mean())}
        known = success[success != NO_SUCCESS]
        if known.size:
            row['success_rate'] = float(known.mean())
        return row


def _json_value(value: Any) -> Any:
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value) if math.isfinite(value) else None
    return value


def _cut_incomplete_line(path: pathlib.Path) -> None:
    if not path.exists():
        return
    data = path.read_bytes()
    complete = data.rfind(b'\n') + 1
    if complete < len(data):
        os.truncate(path, complete)

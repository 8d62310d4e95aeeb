"""
What is measured while training: the one table of names, and where the numbers go.

A row maps names of `METRICS` to numbers, and those of `HISTOGRAMS` to lists of counts.  The same
names are ROS topics (``~/metrics/<name>``; numbers only), keys of ``metrics.jsonl`` and
TensorBoard tags (``<group>/<name>``).
This module needs no torch, so `asyncppo report` runs without it.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
import contextlib
import errno
import json
import logging
import math
import numbers
import os
import time
from typing import Any, NamedTuple, Protocol

import numpy as np

from asyncppo_ros.chunk import NO_SUCCESS
from asyncppo_ros.learning.line_file import LineFile

# A TensorBoard file that failed is replaced by another no sooner than this.
_AGAIN_S = 5.0


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
        'entropy': ('nat', 'Entropy of the policy, of a Gaussian before the tanh.'),
        'approx_kl': ('nat', 'Mean of (ratio - 1) - log ratio.'),
        'kl': ('nat', 'Exact KL divergence from the policy before the update to that after it.'),
        'behaviour_kl': ('nat', 'Exact KL divergence from the policy that acted to that before '
                                'the update: what lag has done.'),
        'clip_fraction': ('fraction', 'Share of samples whose ratio is clipped.'),
        'dual_clip_fraction': ('fraction', 'Share of samples where the dual clip is active.'),
        'explained_variance': ('', '1 - Var(target - value) / Var(target).'),
        'gradient_norm': ('', 'Mean norm of the gradient before it is scaled down.'),
        'learning_rate': ('', 'Step size of the optimizer.'),
        'epochs': ('', 'Passes over the batch that were made.'),
        'log_std_mean': ('', 'Mean log standard deviation of the pre-tanh action.'),
        'first_abs_log_ratio_max': ('', 'Largest |log ratio| before the first gradient step.'),
        'first_abs_log_ratio_mean': ('', 'Mean |log ratio| before the first gradient step.'),
        'weight_lag_log_ratio': ('', 'Mean |log ratio| that newer weights alone have made.'),
        'normalizer_drift_log_ratio': ('', 'Mean |log ratio| that the newer normalizer adds.'),
        'parameter_distance': ('', 'Distance of the weights from those of the policy that acted.'),
        'effective_sample_share': ('fraction', 'Effective sample size of these ratios, as a share '
                                               'of the batch.'),
        'ratio_max': ('', 'Largest ratio of the update.'),
        'update_time': ('s', 'Duration of the update.'),
        'policy_bytes': ('bytes', 'Size of the published policy.'),
        'gradient_bytes': ('bytes', 'What rank 0, of several, sends of gradients in each '
                                    'gradient step.'),
    },
    'lag': {
        'policy_lag_min': ('versions', 'Smallest policy lag of the consumed chunks.'),
        'policy_lag_mean': ('versions', 'Mean policy lag.'),
        'policy_lag_p95': ('versions', '95th percentile of the policy lag.'),
        'policy_lag_max': ('versions', 'Largest policy lag.'),
        'gradient_lag_min': ('gradient steps', 'Smallest policy lag in gradient steps.'),
        'gradient_lag_mean': ('gradient steps', 'Mean policy lag in gradient steps.'),
        'gradient_lag_p95': ('gradient steps', '95th percentile of that.'),
        'gradient_lag_max': ('gradient steps', 'Largest of that.'),
    },
    'age': {
        'sample_age_mean': ('ms', 'Mean age of the consumed samples: the sum of four parts.'),
        'sample_age_p95': ('ms', '95th percentile of the sample age.'),
        'sample_age_max': ('ms', 'Largest sample age.'),
        **{f'age_{part}_{name}': ('ms', f'{words} of that.' if words else
                                  f'Part of the age: {meaning}.')
           for part, meaning in (('collecting', 'the actor collects the chunk'),
                                 ('waiting', 'the chunk waits in the actor'),
                                 ('transport', 'half a round trip on the wire'),
                                 ('learner', 'the chunk waits in the learner'))
           for name, words in (('mean', ''), ('p95', '95th percentile'), ('max', 'Largest'))},
    },
    'flow': {
        'learner_wait': ('fraction', 'Share of time the learner waits for chunks.'),
        'actor_wait': ('fraction', 'Share of time actors wait for a permit or a policy.'),
        'actors': ('', 'Actors that are alive.'),
        'chunks_consumed': ('chunks', 'Chunks that reached an update.'),
        'chunks_dropped': ('chunks', 'Chunks dropped because they were too old.'),
        'chunks_cut': ('chunks', 'Chunks cut short, so that they do not get too old, and the '
                                 'rests that follow them.'),
        'chunks_refused': ('chunks', 'Chunks refused by a check.'),
        'missed_steps': ('control steps', 'Control steps and resets of robots that did not come '
                                          'about; no chunk has them.'),
        'observations_saturated': ('numbers', 'Numbers of observations that were cut to what '
                                              'float16 can have.'),
        'connections_refused': ('connections', 'Connections refused for their keys.'),
        'transitions_under_way': ('transitions', 'Permitted or received, and not yet consumed: '
                                                 'what the lag is bounded by.'),
        'transitions_produced': ('transitions', 'Simulated by all actors of the run: the sum of '
                                                'the next five.'),
        'transitions_consumed': ('transitions', 'Reached an update.'),
        'transitions_dropped': ('transitions', 'Dropped because they were too old.'),
        'transitions_refused': ('transitions', 'Refused by a check.'),
        'transitions_in_flight': ('transitions', 'With an actor, on the way, or waiting in the '
                                                 'learner.'),
        'transitions_lost': ('transitions', 'Lost with a process or a connection.'),
        'policy_silence_s': ('s', 'Longest time for which the policy topic has not brought an '
                                  'actor what was published.'),
        'bad_batches': ('batches', 'Batches refused for a non-finite loss or gradient.'),
    },
}

METRICS: dict[str, Metric] = {name: Metric(unit, description, group)
                              for group, members in _TABLE.items()
                              for name, (unit, description) in members.items()}
EVALUATOR_METRICS: tuple[str, ...] = tuple(_TABLE['evaluation'])
LEARNER_METRICS: tuple[str, ...] = tuple(n for n in METRICS if n not in EVALUATOR_METRICS)
# In metrics.jsonl and TensorBoard only: each is a list of counts of transitions.
LAG_BINS = 65
AGE_EDGES_MS: tuple[float, ...] = tuple(2.0 ** power for power in range(18))
HISTOGRAMS: dict[str, Metric] = {
    'policy_lag_histogram': Metric(
        'transitions', 'Counts at a policy lag of 0, 1, 2 … versions; the 65th has all above.',
        'lag'),
    'sample_age_histogram': Metric(
        'transitions', 'Counts at a sample age below 1 ms, below 2, 4, 8 … 131072 ms, and above.',
        'age'),
}


def histogram_edges(name: str, bins: int) -> np.ndarray:
    """Give the limits of the bins of one of `HISTOGRAMS`, one more than there are bins."""
    if name == 'policy_lag_histogram':
        return np.arange(bins + 1) - 0.5
    return np.array([0.0, *AGE_EDGES_MS, 2.0 * AGE_EDGES_MS[-1]])


def metrics_table() -> str:
    """Give `METRICS` and `HISTOGRAMS` as the Markdown table of docs/metrics.md."""
    lines = ['| metric | unit | meaning |', '|---|---|---|']
    # A bar would end the cell.
    return '\n'.join(lines + [
        f'| `{name}` | {metric.unit} | ' + metric.description.replace('|', '\\|') + ' |'
        for name, metric in (METRICS | HISTOGRAMS).items()])


def evaluation_row(evaluation: Mapping[str, Any]) -> dict[str, float]:
    """Give a line of ``evaluations.jsonl`` as a row of metrics; unknown values are left out."""
    row = {name: evaluation.get(name) for name in
           ('generation', 'policy_version', 'env_steps', 'time_s')}
    for name in ('return_mean', 'return_std', 'success', 'length_mean'):
        row[f'evaluation_{name}'] = evaluation.get(name)
    return {name: value for name, value in row.items() if value is not None}


class MetricsWriter(Protocol):
    """Where rows go."""

    def write(self, row: Mapping[str, Any]) -> None:
        """Keep or show one row."""

    def close(self) -> None:
        """Give back what is held; nothing is written after it."""


class JsonlWriter:
    """
    Append rows to a file, one JSON object a line.

    Every line of the file is whole (`LineFile`); NaN and infinity become null, which every JSON
    reader understands.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = LineFile(path)

    def write(self, row: Mapping[str, Any]) -> None:
        """
        Append one row.

        Raises
        ------
        OSError
            The disk is full; the file is as it was before.

        """
        values = {name: _json_value(value) for name, value in row.items()}
        self._file.append((json.dumps(values, allow_nan=False) + '\n').encode())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoardWriter:
    """
    Write rows as TensorBoard events against `env_steps`.

    A directory belongs to one process.  Where tensorboard is missing one warning says so and
    rows are passed over.  After a full disk another file is begun: the library does not go on
    with one that failed.

    Parameters
    ----------
    directory : path
        Made where it is missing.
    purge_step : int, optional
        `env_steps` of a resumed checkpoint: what an earlier learner wrote from there on is
        hidden.

    """

    def __init__(self, directory: str | os.PathLike[str], purge_step: int | None = None) -> None:
        self._directory = str(directory)
        self._writer: Any = None
        self._missing = False
        self._again_at = 0.0
        self._open(purge_step)

    def _open(self, purge_step: int | None = None) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            logging.getLogger(__name__).warning(
                'no TensorBoard events: tensorboard is missing (pip install tensorboard)')
            self._missing = True
            return
        self._writer = SummaryWriter(self._directory, purge_step=purge_step, flush_secs=10)

    def write(self, row: Mapping[str, Any]) -> None:
        """
        Write every finite number and the histograms of one row.

        Raises
        ------
        OSError
            The disk is full; rows are passed over until it works again.

        """
        if self._missing:
            return
        if self._writer is None:
            if time.monotonic() < self._again_at:
                raise OSError(errno.ENOSPC, 'failed a moment ago', self._directory)
            self._again_at = time.monotonic() + _AGAIN_S
            self._open()
        try:
            self._add(row)
        except OSError:
            self._writer, self._again_at = None, time.monotonic() + _AGAIN_S
            raise

    def _add(self, row: Mapping[str, Any]) -> None:
        step = int(row['env_steps'])
        for name, value in row.items():
            if name in HISTOGRAMS:
                self._add_histogram(name, value, step)
            elif name != 'env_steps' and name in METRICS and math.isfinite(value):
                self._writer.add_scalar(f'{METRICS[name].group}/{name}', value, step)

    def _add_histogram(self, name: str, counts: Sequence[int], step: int) -> None:
        edges = histogram_edges(name, len(counts))
        # The middle of a bin stands for what is in it.
        middles = (edges[:-1] + edges[1:]) / 2.0
        used = middles[np.flatnonzero(counts)]
        if used.size:
            self._writer.add_histogram_raw(
                f'{HISTOGRAMS[name].group}/{name}', used[0], used[-1], sum(counts),
                float(middles @ counts), float(middles ** 2 @ counts), edges[1:], counts, step)

    def close(self) -> None:
        """Write out what is buffered; on a full disk it is lost."""
        if self._writer is not None:
            with contextlib.suppress(OSError):
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


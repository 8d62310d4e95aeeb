"""What the chunks of an update tell of lag and age: metrics, histograms, and a line for each."""

from collections.abc import Sequence
import csv
import io
import os
from typing import Any

import numpy as np

from asyncppo_ros.learning.batcher import ConsumedChunks, MeasuredChunk
from asyncppo_ros.learning.line_file import LineFile
from asyncppo_ros.learning.metrics import AGE_EDGES_MS, LAG_BINS

CHUNK_COLUMNS = (
    'time_s', 'actor_id', 'incarnation', 'sequence', 'generation', 'policy_version',
    'transitions', 'lag_versions', 'lag_gradient_steps', 'collecting_ms', 'waiting_ms',
    'transport_ms', 'learner_ms')


def lag_row(batch: ConsumedChunks) -> dict[str, Any]:
    """Give the metrics of the groups `lag` and `age`, and the histograms."""
    lag, gradient_lag, age = batch.lag_versions, batch.lag_gradient_steps, batch.sample_age
    row: dict[str, Any] = {
        'policy_lag_min': lag.minimum, 'policy_lag_mean': lag.mean,
        'policy_lag_p95': lag.p95, 'policy_lag_max': lag.maximum,
        'gradient_lag_min': gradient_lag.minimum, 'gradient_lag_mean': gradient_lag.mean,
        'gradient_lag_p95': gradient_lag.p95, 'gradient_lag_max': gradient_lag.maximum,
        'sample_age_mean': age.total.mean, 'sample_age_p95': age.total.p95,
        'sample_age_max': age.total.maximum}
    for part in ('collecting', 'waiting', 'transport', 'learner'):
        spread = getattr(age, part)
        row |= {f'age_{part}_mean': spread.mean, f'age_{part}_p95': spread.p95,
                f'age_{part}_max': spread.maximum}
    return row | {'policy_lag_histogram': policy_lag_histogram(batch.measured),
                  'sample_age_histogram': sample_age_histogram(batch.measured)}


def policy_lag_histogram(chunks: Sequence[MeasuredChunk]) -> list[int]:
    """Count the transitions of lag 0, 1, 2 … versions; the last bin has those above, too."""
    bins = [min(chunk.lag_versions, LAG_BINS - 1) for chunk in chunks]
    return _weighted(bins, chunks)


def sample_age_histogram(chunks: Sequence[MeasuredChunk]) -> list[int]:
    """Count the transitions younger than the first of `AGE_EDGES_MS`, the second, and so on."""
    bins = np.searchsorted(AGE_EDGES_MS, [chunk.age for chunk in chunks], side='right')
    return _weighted(bins, chunks, len(AGE_EDGES_MS) + 1)


def _weighted(bins: Sequence[int] | np.ndarray, chunks: Sequence[MeasuredChunk],
              length: int = 0) -> list[int]:
    transitions = [chunk.chunk.transitions for chunk in chunks]
    return np.bincount(bins, transitions, length).astype(np.int64).tolist()


class ChunkLog:
    """
    ``chunks.csv``: one line for every chunk that was consumed.

    Parameters
    ----------
    path : path
        Goes on where it exists.

    Raises
    ------
    RunError
        It cannot be written.

    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = LineFile(path)

    def write(self, time_s: float, chunks: Sequence[MeasuredChunk]) -> None:
        """
        Append the chunks of one update.

        Raises
        ------
        OSError
            The disk is full.

        """
        head = [CHUNK_COLUMNS] if self._file.empty else []
        text = io.StringIO()
        csv.writer(text, lineterminator='\n').writerows([*head, *(
            (f'{time_s:.3f}', *one.chunk.source, one.chunk.sequence, *one.chunk.identity,
             one.chunk.transitions, one.lag_versions, one.lag_gradient_steps,
             *(f'{part:.3f}' for part in (one.collecting, one.waiting, one.transport,
                                          one.learner)))
            for one in chunks)])
        self._file.append(text.getvalue().encode())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

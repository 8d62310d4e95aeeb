"""How sure a measured difference or slope is: bootstrap intervals."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 2000
# A slope of all pairs of so many points is as good as one of more, and quick.
MOST_POINTS = 200
CONFIDENCE = 0.95
# Normal deviations of half the interval.
Z = 1.959964


class Estimate(NamedTuple):
    """A value and the ends of its 95 % interval."""

    value: float
    low: float
    high: float


def mean_difference(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray,
                    seed: int = 0) -> Estimate:
    """Give mean(first) - mean(second) of two independent samples, by the bootstrap."""
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    rng = np.random.default_rng(seed)
    resampled = (a[rng.integers(len(a), size=(RESAMPLES, len(a)))].mean(1)
                 - b[rng.integers(len(b), size=(RESAMPLES, len(b)))].mean(1))
    return Estimate(float(a.mean() - b.mean()), *_ends(resampled))


def paired_difference(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray,
                      seed: int = 0) -> Estimate:
    """Give mean(first - second) of pairs, by the bootstrap of pairs."""
    both = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    rng = np.random.default_rng(seed)
    resampled = both[rng.integers(len(both), size=(RESAMPLES, len(both)))].mean(1)
    return Estimate(float(both.mean()), *_ends(resampled))


def paired_share_difference(first: Sequence[bool] | np.ndarray,
                            second: Sequence[bool] | np.ndarray) -> Estimate:
    """
    Give the difference of two shares of the same n trials.

    The interval counts two further pairs, half a pair of each kind, so that it has a width also
    where all pairs agree: ± 0.0097 at n = 200, where the rule of three says 0.015.

    References
    ----------
    Agresti & Min 2005, Statistics in Medicine 24(5).

    """
    a, b = np.asarray(first, bool), np.asarray(second, bool)
    count = len(a) + 2.0
    gained, lost = float((a & ~b).sum()) + 0.5, float((b & ~a).sum()) + 0.5
    middle = (gained - lost) / count
    width = Z * ((gained + lost - (gained - lost) ** 2 / count) ** 0.5) / count
    return Estimate(float(a.mean() - b.mean()), max(-1.0, middle - width),
                    min(1.0, middle + width))


def relative_difference(*pairs: tuple[Sequence[float], Sequence[float]],
                        seed: int = 0) -> Estimate:
    """
    Give the mean over the pairs of mean(first) / mean(second) - 1, by the stratified bootstrap.

    The two samples of a pair are independent, and each is resampled within itself.  For means
    above 0: the interval excludes a loss above 10 % where it lies above -0.1.
    """
    rng = np.random.default_rng(seed)
    values, resampled = [], []
    for first, second in pairs:
        a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
        values.append(float(a.mean() / b.mean() - 1.0))
        resampled.append(a[rng.integers(len(a), size=(RESAMPLES, len(a)))].mean(1)
                         / b[rng.integers(len(b), size=(RESAMPLES, len(b)))].mean(1) - 1.0)
    return Estimate(float(np.mean(values)), *_ends(np.mean(resampled, axis=0)))


def median_ratio(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray,
                 seed: int = 0) -> Estimate:
    """Give median(first) / median(second) of two independent samples, by the bootstrap."""
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    rng = np.random.default_rng(seed)
    resampled = (np.median(a[rng.integers(len(a), size=(RESAMPLES, len(a)))], axis=1)
                 / np.median(b[rng.integers(len(b), size=(RESAMPLES, len(b)))], axis=1))
    return Estimate(float(np.median(a) / np.median(b)), *_ends(resampled))


def paired_ratio(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray,
                 seed: int = 0) -> Estimate:
    """Give the median of first / second of pairs, by the bootstrap of pairs."""
    ratios = np.asarray(first, np.float64) / np.asarray(second, np.float64)
    rng = np.random.default_rng(seed)
    resampled = np.median(ratios[rng.integers(len(ratios), size=(RESAMPLES, len(ratios)))], axis=1)
    return Estimate(float(np.median(ratios)), *_ends(resampled))


def interquartile_mean(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """
    Give the mean of the middle half, along the last axis.

    A value at the border of the half counts in part, so that there is a middle half of any
    number of values.

    Parameters
    ----------
    values : float [..., n]
        n ≥ 1.

    Returns
    -------
    float64 [...]

    """
    ordered = np.sort(np.asarray(values, np.float64), axis=-1)
    edges = np.arange(ordered.shape[-1] + 1) / ordered.shape[-1]
    weights = np.diff(np.clip(edges, 0.25, 0.75)) * 2.0
    return np.asarray(ordered @ weights)


def iqm_estimate(groups: Sequence[Sequence[float] | np.ndarray], seed: int = 0) -> Estimate:
    """
    Give the `interquartile_mean` of all values, by the stratified bootstrap.

    Parameters
    ----------
    groups : sequence of sequences of float
        The values of each task, in one unit; each group is resampled within itself.
    seed : int

    References
    ----------
    Agarwal et al. 2021, arXiv:2108.13264.

    """
    arrays = [np.asarray(group, np.float64) for group in groups]
    rng = np.random.default_rng(seed)
    resampled = np.concatenate([
        array[rng.integers(len(array), size=(RESAMPLES, len(array)))] for array in arrays], axis=1)
    return Estimate(float(interquartile_mean(np.concatenate(arrays))),
                    *_ends(interquartile_mean(resampled)))


def relative_iqm(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray,
                 seed: int = 0) -> Estimate | None:
    """
    Give (IQM(first) - IQM(second)) / |IQM(second)| of two independent samples.

    None: the second is 0, so that nothing can be said relative to it.
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    rng = np.random.default_rng(seed)
    more, less = (interquartile_mean(sample[rng.integers(len(sample), size=(
        RESAMPLES, len(sample)))]) for sample in (a, b))
    base = float(interquartile_mean(b))
    if base == 0.0 or not less.all():
        return None
    return Estimate((float(interquartile_mean(a)) - base) / abs(base),
                    *_ends((more - less) / np.abs(less)))


def slope(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> float:
    """Give the median of the slopes of all pairs of points (Theil-Sen)."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    first, second = np.triu_indices(len(x), 1)
    run = x[second] - x[first]
    apart = run != 0.0
    return float(np.median((y[second] - y[first])[apart] / run[apart]))


def slope_estimate(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray,
                   seed: int = 0, resamples: int = 200) -> Estimate:
    """
    Give the `slope` with an interval that holds for neighbours that resemble each other.

    What remains beside the line is resampled in blocks of √n neighbours, which are moved around
    a circle.

    Parameters
    ----------
    x, y : float [n]
        n ≥ 3; more than `MOST_POINTS` are averaged in groups.
    seed, resamples : int

    """
    x, y = _thinned(np.asarray(x, np.float64)), _thinned(np.asarray(y, np.float64))
    value = slope(x, y)
    rest = y - value * x
    count, block = len(x), max(1, round(len(x) ** 0.5))
    rng = np.random.default_rng(seed)
    found = np.empty(resamples)
    for index in range(resamples):
        starts = rng.integers(count, size=-(-count // block))
        order = (starts[:, None] + np.arange(block)).reshape(-1)[:count] % count
        found[index] = slope(x, value * x + rest[order])
    return Estimate(value, *_ends(found))


def _thinned(values: np.ndarray) -> np.ndarray:
    size = -(-len(values) // MOST_POINTS)
    whole = len(values) // size * size
    return values[:whole].reshape(-1, size).mean(1)


def _ends(resampled: np.ndarray) -> tuple[float, float]:
    tail = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(resampled, [tail, 100.0 - tail])
    return float(low), float(high)

"""Running mean and variance of observations, merged in float64 by the learner alone."""

import numpy as np


class RunningMoments:
    """
    Mean and variance of all rows seen so far.

    Merged by the parallel form of Chan et al. 1983, so that the order and the size of the
    pieces do not matter.

    Attributes
    ----------
    mean, variance : float64 [O]
    count : float
        Rows seen.

    """

    def __init__(self, size: int) -> None:
        self.mean = np.zeros(size)
        self.variance = np.ones(size)
        self.count = 0.0

    def merge(self, rows: np.ndarray) -> None:
        """
        Take in more rows.

        Parameters
        ----------
        rows : float32 [M, O]
            Finite.

        Raises
        ------
        ValueError
            They are not: one such row would spoil the statistics for ever.

        """
        count = rows.shape[0]
        if count == 0:
            return
        mean = rows.mean(axis=0, dtype=np.float64)
        variance = rows.var(axis=0, dtype=np.float64)
        if not (np.isfinite(mean).all() and np.isfinite(variance).all()):
            raise ValueError('rows to normalize by must be finite')
        total = self.count + count
        delta = mean - self.mean
        spread = (self.variance * self.count + variance * count
                  + delta ** 2 * self.count * count / total)
        self.mean = self.mean + delta * (count / total)
        self.variance = spread / total
        self.count = total

    def copy(self) -> 'RunningMoments':
        """Give a copy that does not change with this one."""
        twin = RunningMoments(len(self.mean))
        twin.mean, twin.variance, twin.count = self.mean.copy(), self.variance.copy(), self.count
        return twin


class ScalarScale:
    """
    Mean and deviation of value targets, for a critic that learns them normalized.

    The early batches count fully, later ones with weight `rate`, so that the scale follows
    returns that grow.

    Attributes
    ----------
    mean, std : float

    """

    def __init__(self, rate: float = 0.05) -> None:
        self.rate = rate
        self.mean = 0.0
        self.square = 1.0
        self.updates = 0

    @property
    def std(self) -> float:
        """Deviation, never 0."""
        return max(float(np.sqrt(max(self.square - self.mean ** 2, 0.0))), 1e-4)

    def merge(self, values: np.ndarray) -> None:
        """Take in the value targets of one batch, any shape."""
        self.updates += 1
        weight = max(1.0 / self.updates, self.rate)
        mean = float(values.mean(dtype=np.float64))
        square = float(np.square(values, dtype=np.float64).mean())
        self.mean += weight * (mean - self.mean)
        self.square += weight * (square - self.square)

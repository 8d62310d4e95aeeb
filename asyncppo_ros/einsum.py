"""
`numpy.einsum` without its way there.

`np.einsum` first looks for what no call of this package has, for longer than a small sum takes:
after a physics step, when none of that code is in the cache, 17 instead of 10 us.
"""

import numpy as np

try:
    from numpy._core.multiarray import c_einsum as einsum
except ImportError:
    from numpy import einsum

__all__ = ['einsum', 'squared_length']


def squared_length(vectors: np.ndarray) -> np.ndarray:
    """Give the squared length of each row of float [N, K], [N]."""
    return einsum('nk,nk->n', vectors, vectors)

"""Forward and backward pass of a multi-layer perceptron in numpy, in memory made once."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from asyncppo_ros.robot.numpy_policy import ACTIVATIONS

Array = npt.NDArray[np.floating]


class Perceptron:
    """
    A multi-layer perceptron whose weights somebody else owns.

    Parameters
    ----------
    weights, biases : sequence of float [outputs, inputs] and [outputs]
        Of each layer; they may change between passes.
    weight_gradients, bias_gradients : sequence of float, shapes as above
        Receive the gradients.
    activation : str
        Of every layer but the last: a key of `robot.numpy_policy.ACTIVATIONS`, with which actors
        compute.

    """

    def __init__(self, weights: Sequence[Array], biases: Sequence[Array],
                 weight_gradients: Sequence[Array], bias_gradients: Sequence[Array],
                 activation: str) -> None:
        self._weights, self._biases = list(weights), list(biases)
        self._transposed = [weight.T for weight in weights]
        self._weight_gradients = list(weight_gradients)
        self._bias_gradients = list(bias_gradients)
        self._activate = ACTIVATIONS[activation]
        self._through_activation = _GRADIENTS[activation]
        self._last = len(self._weights) - 1
        self._make_memory(0)

    def forward(self, inputs: Array) -> Array:
        """
        Give the outputs, float [B, O] → [B, outputs], in memory that the next pass uses again.

        Parameters
        ----------
        inputs : float [B, O]
            Must stay as it is until `backward`.

        """
        self._take_rows(len(inputs))
        self._inputs = below = inputs
        for index, values in enumerate(self._values):
            np.dot(below, self._transposed[index], out=values)
            values += self._biases[index]
            if index < self._last:
                self._activate(values)
            below = values
        return below

    def backward(self, gradient: Array) -> None:
        """
        Write the gradients of all weights, from that of the outputs of the last `forward`.

        Parameters
        ----------
        gradient : float [B, outputs]
            Of the loss.

        """
        for index in range(self._last, -1, -1):
            below = self._values[index - 1] if index else self._inputs
            np.dot(gradient.T, below, out=self._weight_gradients[index])
            np.dot(self._ones, gradient, out=self._bias_gradients[index])
            if index:
                gradient = np.dot(gradient, self._weights[index],
                                  out=self._gradients[index - 1])
                self._through_activation(gradient, below, self._spare[index - 1])

    def _take_rows(self, rows: int) -> None:
        """Let the memory have as many rows as there are samples."""
        if rows > len(self._memory.ones):
            self._make_memory(rows)
        if rows != len(self._ones):
            self._use(rows)

    def _make_memory(self, rows: int) -> None:
        dtype, widths = self._weights[0].dtype, [len(weight) for weight in self._weights]
        values, gradients, spare = ([np.empty((rows, width), dtype) for width in widths]
                                    for _ in range(3))
        self._memory = _Memory(np.ones(rows, dtype), values, gradients, spare)
        self._use(rows)

    def _use(self, rows: int) -> None:
        memory = self._memory
        self._ones = memory.ones[:rows]
        self._values, self._gradients, self._spare = (
            [array[:rows] for array in arrays]
            for arrays in (memory.values, memory.gradients, memory.spare))


class _Memory(NamedTuple):
    """What passes write to, with a row for each sample; the lists have an entry for each layer."""

    ones: Array
    values: list[Array]
    gradients: list[Array]
    spare: list[Array]


def _through_tanh(gradient: Array, values: Array, spare: Array) -> None:
    np.multiply(values, values, out=spare)
    np.subtract(1.0, spare, out=spare)
    gradient *= spare


def _through_elu(gradient: Array, values: Array, spare: Array) -> None:
    # Where z ≤ 0 its slope is exp(z) = elu(z) + 1.
    np.minimum(values, 0.0, out=spare)
    spare += 1.0
    gradient *= spare


def _through_relu(gradient: Array, values: Array, spare: Array) -> None:
    gradient *= values > 0.0


#: Of each activation: what makes the gradient of z, in place, from that of the outputs, the
#: outputs, and memory to spare.
_GRADIENTS: dict[str, Callable[[Array, Array, Array], None]] = {
    'tanh': _through_tanh, 'elu': _through_elu, 'relu': _through_relu}

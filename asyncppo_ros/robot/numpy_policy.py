"""Run a policy with numpy alone: the forward pass of actors and of the robot."""

from collections.abc import Callable, Mapping, Sequence
import math

import numpy as np

from asyncppo_ros.errors import ArtefactError, PolicyError
from asyncppo_ros.robot.artefact import Artefact

LOG_2PI = float(np.log(2.0 * np.pi))
# Added to the variance before its root is taken, here and in the learner.
VARIANCE_FLOOR = 1e-8
# Arrays without an axis are read faster than numbers, which counts with a single row.
ZERO = np.zeros((), np.float32)


def _tanh(x: np.ndarray) -> None:
    np.tanh(x, out=x)


def _relu(x: np.ndarray) -> None:
    np.maximum(x, ZERO, out=x)


def _elu(x: np.ndarray) -> None:
    # One of the two is 0, so the sum is exact.
    below = np.minimum(x, ZERO)
    np.expm1(below, out=below)
    np.maximum(x, ZERO, out=x)
    np.add(x, below, out=x)


ACTIVATIONS: dict[str, Callable[[np.ndarray], None]] = {
    'tanh': _tanh, 'relu': _relu, 'elu': _elu}


def _index_of_largest(logits: np.ndarray) -> np.ndarray:
    return logits.argmax(axis=-1)[..., None].astype(np.float32)


# The most probable action by what the network says.
MODES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    'tanh_gaussian': np.tanh, 'categorical': _index_of_largest}


class NumpyPolicy:
    """
    The policy of an artefact: observation → mean of the pre-tanh action, or logits.

    Parameters
    ----------
    artefact : Artefact
        A checked policy.

    Attributes
    ----------
    observation_size, action_size : int
        O and A.
    distribution : str
        One of `MODES`.
    log_std, std : float32 [A]
        Of the pre-tanh action; empty where there is none.

    Raises
    ------
    ArtefactError
        The tensors do not fit the architecture in the card.

    """

    def __init__(self, artefact: Artefact) -> None:
        card = artefact.card['architecture']
        self._title = (f'policy of generation {artefact.card.get("generation")}, version '
                       f'{artefact.card.get("policy_version")}')
        self.observation_size = int(card['observation_size'])
        self.action_size = int(card['action_size'])
        self.distribution = card['distribution']
        if self.distribution not in MODES:
            raise ArtefactError(f'architecture.distribution = {self.distribution}: must be one '
                                f'of {", ".join(MODES)}')
        if card['activation'] not in ACTIVATIONS:
            raise ArtefactError(f'architecture.activation = {card["activation"]}: must be one '
                                f'of {", ".join(ACTIVATIONS)}')
        self._mode = MODES[self.distribution]
        self._activate = ACTIVATIONS[card['activation']]
        choices = int(card.get('choices', 0))
        self._layers = checked_layers(
            artefact.tensors, 'policy',
            [self.observation_size, *card['hidden_sizes'], choices or self.action_size],
            {'distribution.log_std': (0 if choices else self.action_size,),
             'normalizer.mean': (self.observation_size,),
             'normalizer.variance': (self.observation_size,), 'normalizer.count': (1,)})
        self.log_std = artefact.tensors['distribution.log_std'].astype(np.float32)
        self.std = np.exp(self.log_std)
        self._shift, self._scale = normalizer_arrays(
            artefact.tensors['normalizer.mean'], artefact.tensors['normalizer.variance'],
            float(artefact.tensors['normalizer.count'][0]))
        self._high = np.array(card['observation_clip'], np.float32)
        self._low = np.negative(self._high, out=np.empty_like(self._high))
        self._buffers: dict[int, list[np.ndarray]] = {}

    @property
    def layers(self) -> Sequence[tuple[np.ndarray, np.ndarray]]:
        """Weight [inputs, outputs] and bias [outputs] of every layer, float32."""
        return tuple(self._layers)

    def head(self, observation: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """
        Give what the network says: the mean of the Gaussian before the tanh, or the logits.

        Parameters
        ----------
        observation : float32 [N, O]
            Raw: the normalizer is part of the policy.
        out : float32 [N, A] or [N, P], optional
            Receives the result.

        Returns
        -------
        float32 [N, A] or [N, P]

        Raises
        ------
        PolicyError
            A number of the result is not finite.

        """
        count = observation.shape[0]
        if count not in self._buffers:
            self._buffers[count] = self._new_buffers(count)
        x, *hidden = self._buffers[count]
        np.subtract(observation, self._shift, out=x)
        np.multiply(x, self._scale, out=x)
        # What np.clip does, without the time that it takes to get there with a single row.
        np.maximum(x, self._low, out=x)
        np.minimum(x, self._high, out=x)
        for (weight, bias), buffer in zip(self._layers[:-1], hidden):
            np.matmul(x, weight, out=buffer)
            np.add(buffer, bias, out=buffer)
            self._activate(buffer)
            x = buffer
        weight, bias = self._layers[-1]
        if out is None:
            out = np.empty((count, len(bias)), np.float32)
        np.matmul(x, weight, out=out)
        np.add(out, bias, out=out)
        flat = out.ravel()
        # One product is not finite as soon as one number is not, or the numbers are huge.
        if not math.isfinite(np.dot(flat, flat)) and not np.isfinite(out).all():
            self._refuse(observation, out)
        return out

    def act(self, observation: np.ndarray) -> np.ndarray:
        """Give the deterministic action: float32 [N, A] in (-1, 1), or [N, 1] of an index."""
        return self._mode(self.head(observation))

    def _refuse(self, observation: np.ndarray, out: np.ndarray) -> None:
        row = int(np.flatnonzero(~np.isfinite(out).all(axis=1))[0])
        raise PolicyError(f'{self._title}: gives {out[row].tolist()} for the observation '
                          f'{observation[row].tolist()} of environment {row}')

    def _new_buffers(self, count: int) -> list[np.ndarray]:
        widths = [weight.shape[0] for weight, _ in self._layers]
        return [np.empty((count, width), np.float32) for width in widths]


def normalizer_arrays(mean: np.ndarray, variance: np.ndarray,
                      count: float) -> tuple[np.ndarray, np.ndarray]:
    """
    Give what an observation is shifted and scaled by.

    Actor, learner and robot all call this, so that their float32 values agree bit for bit.

    Parameters
    ----------
    mean, variance : float64 [O]
        Running statistics.
    count : float
        Observations seen; 0 leaves observations as they are.

    Returns
    -------
    shift, scale : float32 [O]
        normalized = (observation - shift) · scale

    """
    if count <= 0.0:
        return np.zeros(mean.shape, np.float32), np.ones(mean.shape, np.float32)
    scale = 1.0 / np.sqrt(variance + VARIANCE_FLOOR)
    # A term that never changed says nothing; one that then moves must not explode.
    scale[variance < VARIANCE_FLOOR] = 1.0
    return mean.astype(np.float32), scale.astype(np.float32)


def gaussian_log_prob(noise: np.ndarray, log_std: np.ndarray) -> np.ndarray:
    """
    Give log N(u; μ, σ) of u = μ + σ·noise, summed over the action.

    Parameters
    ----------
    noise : float32 [..., A]
        (u - μ) / σ
    log_std : float32 [A]

    Returns
    -------
    float32 [...]

    """
    constant = np.float32(log_std.sum(dtype=np.float64) + 0.5 * noise.shape[-1] * LOG_2PI)
    return np.float32(-0.5) * np.einsum('...a,...a->...', noise, noise) - constant


def categorical_log_prob(logits: np.ndarray, action: np.ndarray) -> np.ndarray:
    """
    Give log softmax(logits) of the choice that was made.

    Parameters
    ----------
    logits : float32 [..., P]
    action : float32 [..., 1]
        Its index.

    Returns
    -------
    float32 [...]

    """
    shifted = logits - logits.max(axis=-1, keepdims=True)
    chosen = np.take_along_axis(shifted, action.astype(np.intp), axis=-1)[..., 0]
    return chosen - np.log(np.exp(shifted).sum(axis=-1))


def checked_layers(tensors: Mapping[str, np.ndarray], prefix: str, widths: Sequence[int],
                   beside: Mapping[str, tuple[int, ...]]) -> list[tuple[np.ndarray, np.ndarray]]:
    """
    Give the layers of a network, each weight [inputs, outputs] and bias [outputs], float32.

    Parameters
    ----------
    tensors : mapping from str to array
        Of an artefact; of layer K they have ``PREFIX.K.weight`` and ``PREFIX.K.bias``.
    prefix : str
    widths : sequence of int
        Inputs, hidden layers, outputs.
    beside : mapping from str to shape
        What else must be there.

    Raises
    ------
    ArtefactError
        A tensor is missing or has another shape.

    """
    expected = dict(beside)
    for index, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        expected[f'{prefix}.{index}.weight'] = (outputs, inputs)
        expected[f'{prefix}.{index}.bias'] = (outputs,)
    for name, shape in expected.items():
        found = tensors[name].shape if name in tensors else None
        if found != shape:
            raise ArtefactError(f'tensor {name} has shape {found}, its card says {shape}')
    return [(np.ascontiguousarray(tensors[f'{prefix}.{index}.weight'].T, np.float32),
             np.array(tensors[f'{prefix}.{index}.bias'], np.float32))
            for index in range(len(widths) - 1)]

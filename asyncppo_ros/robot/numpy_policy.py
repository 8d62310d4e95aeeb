"""Run a policy with numpy alone: the forward pass of actors and of the robot."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from asyncppo_ros.errors import ArtefactError
from asyncppo_ros.robot.artefact import Artefact

LOG_2PI = float(np.log(2.0 * np.pi))
# Added to the variance before its root is taken, here and in the learner.
VARIANCE_FLOOR = 1e-8


def _tanh(x: np.ndarray) -> None:
    np.tanh(x, out=x)


def _relu(x: np.ndarray) -> None:
    np.maximum(x, 0.0, out=x)


def _elu(x: np.ndarray) -> None:
    np.copyto(x, np.where(x > 0.0, x, np.expm1(np.minimum(x, 0.0))))


ACTIVATIONS: dict[str, Callable[[np.ndarray], None]] = {
    'tanh': _tanh, 'relu': _relu, 'elu': _elu}
DISTRIBUTIONS = ('tanh_gaussian',)


class NumpyPolicy:
    """
    The policy of an artefact: observation → mean of the pre-tanh action.

    Parameters
    ----------
    artefact : Artefact
        A checked policy.

    Raises
    ------
    ArtefactError
        The tensors do not fit the architecture in the card.

    """

    def __init__(self, artefact: Artefact) -> None:
        card = artefact.card['architecture']
        self.observation_size = int(card['observation_size'])
        self.action_size = int(card['action_size'])
        if card['distribution'] not in DISTRIBUTIONS:
            raise ArtefactError(f'architecture.distribution = {card["distribution"]}: must be '
                                f'one of {", ".join(DISTRIBUTIONS)}')
        if card['activation'] not in ACTIVATIONS:
            raise ArtefactError(f'architecture.activation = {card["activation"]}: must be one '
                                f'of {", ".join(ACTIVATIONS)}')
        self._activate = ACTIVATIONS[card['activation']]
        self._layers = _layers(artefact.tensors, card, self.observation_size, self.action_size)
        self.log_std = artefact.tensors['distribution.log_std'].astype(np.float32)
        self.std = np.exp(self.log_std)
        self._shift, self._scale = normalizer_arrays(
            artefact.tensors['normalizer.mean'], artefact.tensors['normalizer.variance'],
            float(artefact.tensors['normalizer.count'][0]))
        self._clip = np.float32(card['observation_clip'])
        self._buffers: dict[int, list[np.ndarray]] = {}

    def mean(self, observation: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """
        Give the mean of the Gaussian before the tanh.

        Parameters
        ----------
        observation : float32 [N, O]
            Raw: the normalizer is part of the policy.
        out : float32 [N, A], optional
            Receives the result.

        Returns
        -------
        float32 [N, A]

        """
        count = observation.shape[0]
        if count not in self._buffers:
            self._buffers[count] = self._new_buffers(count)
        x, *hidden = self._buffers[count]
        np.subtract(observation, self._shift, out=x)
        np.multiply(x, self._scale, out=x)
        np.clip(x, -self._clip, self._clip, out=x)
        for (weight, bias), buffer in zip(self._layers[:-1], hidden):
            np.matmul(x, weight, out=buffer)
            np.add(buffer, bias, out=buffer)
            self._activate(buffer)
            x = buffer
        weight, bias = self._layers[-1]
        if out is None:
            out = np.empty((count, self.action_size), np.float32)
        np.matmul(x, weight, out=out)
        return np.add(out, bias, out=out)

    def act(self, observation: np.ndarray) -> np.ndarray:
        """Give the deterministic action tanh(mean), float32 [N, A] in (-1, 1)."""
        return np.tanh(self.mean(observation))

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


def _layers(tensors: Mapping[str, np.ndarray], card: Mapping[str, Any], observation_size: int,
            action_size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    widths = [observation_size, *card['hidden_sizes'], action_size]
    expected: dict[str, tuple[int, ...]] = {
        'distribution.log_std': (action_size,), 'normalizer.mean': (observation_size,),
        'normalizer.variance': (observation_size,), 'normalizer.count': (1,)}
    for index, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        expected[f'policy.{index}.weight'] = (outputs, inputs)
        expected[f'policy.{index}.bias'] = (outputs,)
    for name, shape in expected.items():
        found = tensors[name].shape if name in tensors else None
        if found != shape:
            raise ArtefactError(f'tensor {name} has shape {found}, its card says {shape}')
    return [(np.ascontiguousarray(tensors[f'policy.{index}.weight'].T, np.float32),
             np.array(tensors[f'policy.{index}.bias'], np.float32))
            for index in range(len(widths) - 1)]

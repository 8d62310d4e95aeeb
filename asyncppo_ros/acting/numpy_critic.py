"""Run the critic that travels with a policy, with numpy alone (`learner.value_source: actor`)."""

import numpy as np

from asyncppo_ros.errors import ArtefactError
from asyncppo_ros.robot.artefact import Artefact
from asyncppo_ros.robot.numpy_policy import ACTIVATIONS, checked_layers, normalizer_arrays


class NumpyCritic:
    """
    The critic of an artefact: observation → value.

    Beside the tensors of the policy it needs ``critic.K.weight`` and ``critic.K.bias``,
    ``critic.normalizer.*`` [C] of what only the critic sees, and ``critic.scale``: mean and
    deviation of the returns, float64 [2].

    Parameters
    ----------
    artefact : Artefact
        A checked policy.

    Raises
    ------
    ArtefactError
        It has no critic, or the tensors do not fit its card.

    """

    def __init__(self, artefact: Artefact) -> None:
        if 'critic' not in artefact.card:
            raise ArtefactError('has no critic: its learner needs learner.value_source = actor')
        card, architecture = artefact.card['critic'], artefact.card['architecture']
        tensors = artefact.tensors
        critic_size = int(card['critic_size'])
        self._layers = checked_layers(
            tensors, 'critic',
            [int(architecture['observation_size']) + critic_size, *card['hidden_sizes'], 1],
            {'critic.scale': (2,), 'critic.normalizer.mean': (critic_size,),
             'critic.normalizer.variance': (critic_size,), 'critic.normalizer.count': (1,)})
        self._activate = ACTIVATIONS[architecture['activation']]
        self._clip = np.float32(architecture['observation_clip'])
        self._mean, self._std = tensors['critic.scale'].astype(np.float32)
        # Of the policy's observation, then of what only the critic sees.
        parts = [normalizer_arrays(tensors[f'{prefix}.mean'], tensors[f'{prefix}.variance'],
                                   float(tensors[f'{prefix}.count'][0]))
                 for prefix in ('normalizer', 'critic.normalizer')]
        self._shift, self._scale = (np.concatenate(arrays) for arrays in zip(*parts))

    def value(self, observation: np.ndarray, critic_observation: np.ndarray) -> np.ndarray:
        """
        Give the value in the unit of the return.

        Parameters
        ----------
        observation : float32 [..., O]
        critic_observation : float32 [..., C]
            Both raw.

        Returns
        -------
        float32 [...]

        """
        rows = observation.shape[:-1]
        x = np.concatenate((observation, critic_observation), axis=-1)
        x = x.reshape(-1, x.shape[-1])
        x -= self._shift
        x *= self._scale
        np.clip(x, -self._clip, self._clip, out=x)
        for weight, bias in self._layers[:-1]:
            x = x @ weight
            x += bias
            self._activate(x)
        weight, bias = self._layers[-1]
        return ((x @ weight + bias)[:, 0] * self._std + self._mean).reshape(rows)

"""PolicySnapshot: identity, weights and normalizer as one immutable artefact."""

from collections.abc import Mapping
import dataclasses
from typing import Any

import numpy as np
import safetensors.numpy

from asyncppo_ros import __version__
from asyncppo_ros.chunk import Identity
from asyncppo_ros.robot.artefact import (
    Artefact,
    check_finite,
    content_hash,
    FORMAT,
    FORMAT_VERSION,
    parse_artefact,
)
from asyncppo_ros.robot.signing import signature_of


@dataclasses.dataclass(frozen=True, eq=False)
class PolicySnapshot:
    """
    A policy and everything that is known of it, and the bytes it travels and lies as.

    The same bytes go over the policy topic, lie in the run's folder and run on the robot, so
    weights, normalizer and identity can never be mixed up.
    """

    artefact: Artefact
    data: bytes

    @classmethod
    def from_bytes(cls, data: bytes, key: bytes | None = None) -> 'PolicySnapshot':
        """
        Check received bytes; with a key, only what was signed with it passes.

        Raises
        ------
        ArtefactError
            The bytes are cut short, altered, not signed as they must be, or not a policy of
            this package.

        """
        return cls(parse_artefact(data, key), data)

    @classmethod
    def make(cls, card: Mapping[str, Any], tensors: Mapping[str, np.ndarray],
             key: bytes | None = None) -> 'PolicySnapshot':
        """
        Write an artefact.

        Parameters
        ----------
        card : mapping
            ``run_id``, ``generation``, ``policy_version``, ``gradient_steps``, ``env_steps``,
            ``task``, ``architecture`` (JSON types only); format, package version and hash are
            added here.
        tensors : mapping from str to array
            See `Artefact`.
        key : bytes, optional
            To sign with.

        Raises
        ------
        ArtefactError
            A tensor is not finite: nobody would accept it.

        """
        import json
        full = {'format': FORMAT, 'format_version': FORMAT_VERSION,
                'package_version': __version__, **card}
        arrays = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
        check_finite(arrays)
        full['hash'] = content_hash(full, arrays)
        metadata = {'card': json.dumps(full, sort_keys=True)}
        if key is not None:
            metadata['signature'] = signature_of(key, full['hash'])
        data = safetensors.numpy.save(arrays, metadata)
        return cls(Artefact(full, arrays), data)

    @property
    def card(self) -> Mapping[str, Any]:
        """What is known of the policy."""
        return self.artefact.card

    @property
    def run_id(self) -> int:
        """The run that made it."""
        return int(self.card['run_id'])

    @property
    def identity(self) -> Identity:
        """Its place in the order of policies of its run."""
        return Identity(int(self.card['generation']), int(self.card['policy_version']))

    @property
    def gradient_steps(self) -> int:
        """Optimizer steps behind it."""
        return int(self.card['gradient_steps'])

    @property
    def env_steps(self) -> int:
        """Transitions consumed before it."""
        return int(self.card['env_steps'])

"""A policy for 12 joints and a base, with random weights, made and written with numpy alone."""

from collections.abc import Sequence
import json
from typing import Any

import numpy as np

from asyncppo_ros import __version__
from asyncppo_ros.robot.actions import ActionMap
from asyncppo_ros.robot.artefact import Artefact, content_hash, FORMAT, FORMAT_VERSION
from asyncppo_ros.robot.observation import Observation
from asyncppo_ros.robot.terms import (
    base_angular_velocity,
    command,
    joint_position,
    joint_velocity,
    last_action,
    projected_gravity,
)

JOINTS = tuple(f'{side}_{joint}' for side in ('front_left', 'front_right', 'rear_left',
                                              'rear_right') for joint in ('hip', 'thigh', 'knee'))
START = (0.0, 0.8, -1.5) * 4
_TYPES = {'<f4': 'F32', '<f8': 'F64'}


def made_up_policy(control_dt: float, hidden_sizes: Sequence[int],
                   policy_version: int = 1) -> Artefact:
    """
    Give a policy whose observation and actions are those of a quadruped: 45 numbers, 12 joints.

    Parameters
    ----------
    control_dt : float
        [s]
    hidden_sizes : sequence of int
    policy_version : int
        Its place among those of its run.

    """
    observation = Observation([
        base_angular_velocity(), projected_gravity(), command('velocity', 3, 'm/s|rad/s'),
        joint_position(JOINTS, START), joint_velocity(JOINTS), last_action(len(JOINTS))])
    actions = ActionMap(JOINTS, control_dt, offset=START, scale=0.1, low=-3.0, high=3.0)
    architecture, tensors = made_up_network(observation.size, hidden_sizes, len(JOINTS))
    card = {'format': FORMAT, 'format_version': FORMAT_VERSION, 'package_version': __version__,
            'run_id': 1, 'generation': 0, 'policy_version': policy_version,
            'gradient_steps': 0, 'env_steps': 0,
            'task': {'task': 'made_up', 'control_dt': control_dt,
                     'observation': observation.card(), 'action': actions.card(),
                     'joints': list(JOINTS), 'controller': {},
                     'commands': {'velocity': {'size': 3, 'low': None, 'high': None}},
                     'start_pose': dict(zip(JOINTS, START)), 'critic_observation': [],
                     'deployable': True, 'simulation_only': [], 'randomization': {}},
            'architecture': architecture}
    card['hash'] = content_hash(card, tensors)
    return Artefact(card, tensors)


def made_up_network(observation_size: int, hidden_sizes: Sequence[int],
                    action_size: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Give the architecture of a card, and all tensors with random weights."""
    widths = [observation_size, *hidden_sizes, action_size]
    rng = np.random.default_rng(0)
    tensors: dict[str, np.ndarray] = {
        'distribution.log_std': np.zeros(action_size, np.float32),
        'normalizer.mean': np.zeros(observation_size),
        'normalizer.variance': np.ones(observation_size), 'normalizer.count': np.ones(1)}
    for layer, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        weight = rng.standard_normal((outputs, inputs)) / np.sqrt(inputs)
        tensors[f'policy.{layer}.weight'] = weight.astype(np.float32)
        tensors[f'policy.{layer}.bias'] = np.zeros(outputs, np.float32)
    return {'observation_size': observation_size, 'action_size': action_size,
            'hidden_sizes': list(hidden_sizes), 'activation': 'tanh',
            'distribution': 'tanh_gaussian', 'observation_clip': 10.0}, tensors


def written(artefact: Artefact) -> bytes:
    """Give the bytes of an artefact as `read_artefact` reads them, without safetensors."""
    header: dict[str, object] = {'__metadata__': {'card': json.dumps(dict(artefact.card))}}
    end = 0
    for name, tensor in artefact.tensors.items():
        header[name] = {'dtype': _TYPES[tensor.dtype.str], 'shape': list(tensor.shape),
                        'data_offsets': [end, end + tensor.nbytes]}
        end += tensor.nbytes
    text = json.dumps(header).encode()
    return b''.join([len(text).to_bytes(8, 'little'), text,
                     *(tensor.tobytes() for tensor in artefact.tensors.values())])

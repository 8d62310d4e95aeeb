"""Small policies of real tasks, with weights drawn at random: made in milliseconds."""

import numpy as np

from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.simulation import registry

HIDDEN = (24, 16)


def task_card(task, **settings):
    """Give what the card of an artefact says of a task."""
    return registry.make(task, 1, 0, **settings).describe()


def small_policy(task, seed=0, version=1, gain=1.0, **changes):
    """
    Make an artefact of a task, given by its card; `changes` replace entries of the card.

    With a small `gain` all actions are near 0.
    """
    rng = np.random.default_rng(seed)
    size = sum(term['size'] * term['history'] for term in task['observation'])
    actions = len(task['action']['joints'])
    widths = [size, *HIDDEN, actions]
    tensors = {'distribution.log_std': np.zeros(actions, np.float32),
               'normalizer.mean': rng.normal(0.0, 0.1, size),
               'normalizer.variance': rng.uniform(0.05, 1.0, size),
               'normalizer.count': np.array([1000.0])}
    for layer, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        weight = rng.normal(0.0, 1.0 / np.sqrt(inputs), (outputs, inputs))
        factor = gain if layer == len(HIDDEN) else 1.0
        tensors[f'policy.{layer}.weight'] = (factor * weight).astype(np.float32)
        bias = rng.normal(0.0, 0.1, outputs)
        tensors[f'policy.{layer}.bias'] = (factor * bias).astype(np.float32)
    card = {'run_id': 7, 'generation': 1, 'policy_version': version, 'gradient_steps': 0,
            'env_steps': 0, 'task': task,
            'architecture': {'observation_size': size, 'action_size': actions,
                             'hidden_sizes': list(HIDDEN), 'activation': 'tanh',
                             'distribution': 'tanh_gaussian', 'observation_clip': 10.0}}
    return PolicySnapshot.from_bytes(
        PolicySnapshot.make({**card, **changes}, tensors).data).artefact

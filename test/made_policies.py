"""Policies with random weights, for tests that need no training."""

import json

import numpy as np

from asyncppo_ros.config import Config, PolicyConfig
from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.robot.actions import ActionMap
from asyncppo_ros.robot.observation import Observation
from asyncppo_ros.robot.terms import (
    base_angular_velocity,
    command,
    joint_position,
    joint_velocity,
    last_action,
    projected_gravity,
)


def made_learner(task, observation_size, action_size, seed=0, noise=0.3, **policy):
    """Make a learner whose weights are far from where they begin."""
    import torch

    from asyncppo_ros.learning.learner import Learner
    config = Config(policy=PolicyConfig(**{'hidden_sizes': (32, 16), **policy}))
    learner = Learner(config, task, observation_size, action_size, run_id=7)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in learner.network.parameters():
            parameter.add_(noise * torch.randn(parameter.shape, generator=generator))
    learner.pending_normalizer.merge(observations_of(learner, seed + 1, 1000))
    return learner


def observations_of(learner, seed, count):
    """Give raw observations [count, O] with another mean and deviation in each column."""
    size = learner.network.policy[0].in_features
    rng = np.random.default_rng(seed)
    column = np.arange(size)
    return rng.normal(column % 5 - 2.0, 0.1 + column % 3, (count, size)).astype(np.float32)


def card_of(environment):
    """Give what the card says of a task, as it is read from a file."""
    return json.loads(json.dumps(environment.describe()))


def legs_task(joints=('hip', 'knee', 'ankle'), control_dt=0.02, start=(0.1, -0.5, 0.3), **action):
    """Describe a robot with a base, a few joints and a velocity command."""
    size = len(joints)
    terms = [joint_position(joints, start), joint_velocity(joints), base_angular_velocity(),
             projected_gravity(), command('velocity', 3, 'm/s|rad/s'), last_action(size)]
    actions = ActionMap(joints, control_dt, **{'offset': start, 'scale': 0.2, 'low': -0.9,
                                               'high': 0.9, **action})
    return {'task': 'legs', 'control_dt': control_dt, 'observation': Observation(terms).card(),
            'action': actions.card(), 'joints': list(joints),
            'start_pose': dict(zip(joints, start)),
            'controller': {'stiffness': [30.0] * size, 'damping': [0.6] * size,
                           'effort_limit': [20.0] * size},
            'commands': {'velocity': {'size': 3, 'low': [-1.0] * 3, 'high': [1.0] * 3}},
            'critic_observation': [], 'deployable': True, 'simulation_only': [],
            'randomization': {}}


def policy_bytes(task, hidden_sizes=(16,), activation='tanh', seed=0, key=None, **card):
    """Give an artefact of a task with random weights; it knows upright robots at their start."""
    observation = Observation.from_card(task['observation'])
    widths = [observation.size, *hidden_sizes, len(task['action']['joints'])]
    rng = np.random.default_rng(seed)
    tensors = {'distribution.log_std': np.zeros(widths[-1], np.float32),
               'normalizer.mean': np.zeros(widths[0]), 'normalizer.variance': np.ones(widths[0]),
               'normalizer.count': np.ones(1)}
    for layer, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        tensors[f'policy.{layer}.weight'] = (rng.normal(size=(outputs, inputs))
                                             / np.sqrt(inputs)).astype(np.float32)
        tensors[f'policy.{layer}.bias'] = np.zeros(outputs, np.float32)
    made = {'run_id': 1, 'generation': 0, 'policy_version': 3, 'gradient_steps': 4,
            'env_steps': 5, **card}
    return PolicySnapshot.make(
        {**made, 'task': task, 'architecture': {
            'observation_size': widths[0], 'action_size': widths[-1],
            'hidden_sizes': list(hidden_sizes), 'activation': activation,
            'distribution': 'tanh_gaussian', 'observation_clip': 10.0}}, tensors, key).data

"""
Save and restore all that `Learner.update` changes: safetensors and JSON, never pickle.

A checkpoint is one file, written beside its place and renamed, so that a crash or a full disk
leaves the last good one intact.
"""

from collections.abc import Mapping
import json
import os
import pathlib
from typing import Any

import numpy as np
import safetensors.numpy
import torch

from asyncppo_ros.errors import ArtefactError, RunError
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.policy.normalizer import RunningMoments
from asyncppo_ros.robot.artefact import Artefact, check_finite, parse_safetensors
from asyncppo_ros.run import replace_file, Run

FORMAT = 'asyncppo-checkpoint-1'
COUNTERS = ('generation', 'policy_version', 'gradient_steps', 'env_steps', 'learning_rate',
            'learning_rate_scale', 'bad_batches')
FILE = 'checkpoint.safetensors'


def save_checkpoint(folder: pathlib.Path, learner: Learner,
                    extra: Mapping[str, Any] | None = None) -> pathlib.Path:
    """
    Write the state of a learner, keep the previous file as ``previous.safetensors``.

    Parameters
    ----------
    folder : Path
        ``RUN/checkpoint``; made if missing.
    learner : Learner
    extra : mapping, optional
        More to keep (books, elapsed time), JSON types.

    Raises
    ------
    OSError
        The disk is full or read-only; the last good checkpoint is untouched.
    ArtefactError
        A tensor is not finite; the last good checkpoint is untouched.

    """
    tensors = _tensors(learner)
    scale = learner.value_scale
    value_scale = [scale.mean, scale.square, scale.updates]
    check_finite(tensors | {'value_scale': np.array(value_scale)})
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    state = {'format': FORMAT, 'task': learner.task['task'], 'run_id': learner.run_id,
             'architecture': learner.architecture(),
             'critic': learner.critic_architecture(), 'extra': dict(extra or {}),
             'value_scale': value_scale,
             **{name: getattr(learner, name) for name in COUNTERS}}
    data = safetensors.numpy.save(tensors, {'state': json.dumps(state)})
    if path.exists():
        previous = folder / 'previous.safetensors'
        previous.unlink(missing_ok=True)
        os.link(path, previous)
    replace_file(path, data, durable=True)
    return path


def read_state(folder: pathlib.Path) -> dict[str, Any]:
    """
    Read what a checkpoint says of itself, without its tensors.

    Raises
    ------
    RunError
        There is no checkpoint, or it is damaged.

    """
    return _read(folder)[0]


def load_checkpoint(folder: pathlib.Path, learner: Learner) -> dict[str, Any]:
    """
    Restore a learner and begin its next generation.

    Returns
    -------
    dict
        The `extra` that was saved.

    Raises
    ------
    RunError
        There is no checkpoint, it is damaged, or it belongs to another task or network.

    """
    state, tensors = _read(folder)
    if state['task'] != learner.task['task']:
        raise RunError(f'checkpoint {folder}: was made by task {state["task"]}, this run has '
                       f'task {learner.task["task"]}')
    _require_same(folder, 'network', state['architecture'], learner.architecture())
    ours = learner.critic_architecture()
    # Checkpoints were without this entry while critics saw what policies see.
    _require_same(folder, 'critic (policy.privileged_critic, policy.critic_hidden_sizes)',
                  state.get('critic', ours | {'critic_size': 0, 'terms': []}), ours)
    _restore(learner, state, tensors)
    learner.generation += 1
    return state['extra']


def go_on(run: Run, env_steps: int, learner: Learner) -> dict[str, Any]:
    """
    Restore the learner of a run that is to make `env_steps` transitions in all.

    Returns
    -------
    dict
        The `extra` that was saved.

    Raises
    ------
    RunError
        See `load_checkpoint`; or all are made.

    """
    extra = load_checkpoint(run.checkpoint, learner)
    if learner.env_steps >= env_steps:
        raise RunError(f'run {run.folder}: all {env_steps} env steps are done; ask for more with '
                       '--env_steps')
    return extra


def _require_same(folder: pathlib.Path, what: str, saved: Mapping[str, Any],
                  now: Mapping[str, Any]) -> None:
    if saved != now:
        changed = [f'{name} {saved.get(name)} (now {value})' for name, value in now.items()
                   if saved.get(name) != value]
        raise RunError(f'checkpoint {folder}: its {what} differs: ' + ', '.join(changed))


def load_policy(artefact: Artefact, learner: Learner) -> None:
    """
    Begin a new run from the policy and the normalizer of an artefact.

    Raises
    ------
    ArtefactError
        It is of another task or network.

    """
    ours, theirs = learner.task, artefact.card['task']
    for key in ('observation', 'action'):
        if json.loads(json.dumps(ours.get(key))) != theirs.get(key):
            raise ArtefactError(f'policy of task {theirs["task"]}: its {key} entries differ from '
                                f'those of task {ours["task"]}')
    if artefact.card['architecture'] != learner.architecture():
        raise ArtefactError(f'policy with {artefact.card["architecture"]}: this run has '
                            f'{learner.architecture()}')
    learner.network.load_policy_tensors(dict(artefact.tensors))
    learner.pending_normalizer = _moments(artefact.tensors, 'normalizer')
    learner.normalizer = learner.pending_normalizer.copy()


def _tensors(learner: Learner) -> dict[str, np.ndarray]:
    tensors = {f'network.{name}': tensor.detach().cpu().numpy()
               for name, tensor in learner.network.state_dict().items()}
    for index, slot in learner.optimizer.state_dict()['state'].items():
        for name, tensor in slot.items():
            tensors[f'optimizer.{index}.{name}'] = tensor.detach().cpu().numpy().reshape(
                tensor.shape or (1,))
    for prefix, moments in (('normalizer', learner.normalizer),
                            ('pending', learner.pending_normalizer),
                            ('critic_normalizer', learner.critic_normalizer),
                            ('pending_critic', learner.pending_critic_normalizer)):
        tensors[f'{prefix}.mean'] = moments.mean
        tensors[f'{prefix}.variance'] = moments.variance
        tensors[f'{prefix}.count'] = np.array([moments.count])
    tensors['generator'] = learner.generator.get_state().numpy()
    return {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}


def _read(folder: pathlib.Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    path = folder / FILE
    try:
        metadata, tensors = parse_safetensors(path.read_bytes())
        check_finite(tensors)
        state = json.loads(metadata['state'])
    except FileNotFoundError:
        raise RunError(f'no checkpoint in {folder}: nothing to resume') from None
    except (OSError, ArtefactError, KeyError, ValueError) as error:
        previous = folder / 'previous.safetensors'
        hint = f'; the one before it is {previous}' if previous.exists() else ''
        raise RunError(f'checkpoint {path}: damaged ({error}){hint}') from None
    if state.get('format') != FORMAT:
        raise RunError(f'checkpoint {path}: format {state.get("format")} is not {FORMAT}')
    return state, tensors


def _restore(learner: Learner, state: Mapping[str, Any],
             tensors: Mapping[str, np.ndarray]) -> None:
    learner.network.load_state_dict({
        name: torch.from_numpy(tensors[f'network.{name}'].copy())
        for name in learner.network.state_dict()})
    slots: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith('optimizer.'):
            _, index, key = name.split('.')
            value = torch.from_numpy(tensor.copy())
            slots.setdefault(int(index), {})[key] = value.reshape(()) if key == 'step' else value
    optimizer = learner.optimizer.state_dict()
    learner.optimizer.load_state_dict({**optimizer, 'state': slots})
    learner.normalizer = _moments(tensors, 'normalizer')
    learner.pending_normalizer = _moments(tensors, 'pending')
    if 'pending_critic.mean' in tensors:
        learner.critic_normalizer = _moments(tensors, 'critic_normalizer')
        learner.pending_critic_normalizer = _moments(tensors, 'pending_critic')
    scale = learner.value_scale
    scale.mean, scale.square, scale.updates = state['value_scale']
    learner.generator.set_state(torch.from_numpy(tensors['generator'].copy()))
    for name in COUNTERS:
        setattr(learner, name, state[name])


def _moments(tensors: Mapping[str, np.ndarray], prefix: str) -> RunningMoments:
    moments = RunningMoments(len(tensors[f'{prefix}.mean']))
    moments.mean = tensors[f'{prefix}.mean'].astype(np.float64)
    moments.variance = tensors[f'{prefix}.variance'].astype(np.float64)
    moments.count = float(tensors[f'{prefix}.count'][0])
    return moments

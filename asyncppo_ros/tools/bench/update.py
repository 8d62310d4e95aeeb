"""
``asyncppo bench update``: samples per second of the learner's update, on a CPU or a GPU.

One update is all that a learner process does between a batch and the next policy: transfers,
values, advantages, all epochs, checks, and the snapshot.  A sample counts once for each epoch.
The chunks are made up; what is in them does not change the time.  All networks and batches are
measured in turn, round after round, so that a machine that slows down slows all of them down.
"""

from collections.abc import Mapping, Sequence
import json
import time
from typing import Any

import numpy as np
import torch

from asyncppo_ros.chunk import Chunk
from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.settings import build, to_dict
from asyncppo_ros.tools.arguments import Parser, split_settings
from asyncppo_ros.tools.bench.results import report, row, table
from asyncppo_ros.tools.bench.rounds import interleaved

# Sizes of HalfCheetah-v5.
OBSERVATION_SIZE, ACTION_SIZE = 17, 6
NUM_ENVS, CHUNK_LENGTH = 64, 32
BATCHES = (4096, 16384, 65536, 262144)
NETWORKS = ('64,64', '256,256')


def main(arguments: list[str], stop: StopRequest) -> int:
    """Measure and print the table or the JSON object."""
    parser = Parser(prog='asyncppo bench update', description=__doc__, allow_abbrev=False)
    parser.add_argument('--devices', nargs='+', default=['auto'], choices=('auto', 'cpu', 'cuda'))
    parser.add_argument('--networks', nargs='+', default=list(NETWORKS), metavar='WIDTHS',
                        help=f'hidden layers of policy and critic, default {" ".join(NETWORKS)}')
    parser.add_argument('--batches', nargs='+', type=int, default=list(BATCHES),
                        help=f'transitions, default {" ".join(map(str, BATCHES))}')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    own, given = split_settings(parser, arguments)
    if own.rounds < 1 or min(own.batches) < NUM_ENVS * CHUNK_LENGTH:
        raise ConfigError(f'--rounds {own.rounds} --batches {" ".join(map(str, own.batches))}: '
                          f'at least 1 round, batches of at least {NUM_ENVS * CHUNK_LENGTH}')
    cases = [Case(device, network, batch, given) for device in dict.fromkeys(own.devices)
             for network in own.networks for batch in own.batches]
    rates = interleaved({case.name: case.measure for case in cases}, own.rounds, stop)
    if stop():
        return 0
    rows = [row(name, values, 'samples/s') for name, values in rates.items()]
    settings = {case.name: to_dict(case.learner.config) for case in cases[:1]}
    result = report(settings, rows, devices=device_names(cases),
                    command=['asyncppo', 'bench', 'update', *arguments])
    print(json.dumps(result, indent=1) if own.json else table(rows))
    return 0


class Case:
    """
    One network and one batch on one device.

    Attributes
    ----------
    name : str

    """

    def __init__(self, device: str, network: str, batch: int, given: Mapping[str, Any]) -> None:
        config = build(Config, {
            'env_steps': 10 ** 12, 'learner.ppo.minibatch_size': max(512, batch // 8), **given,
            'learner.device': device, 'learner.batch_size': batch,
            'policy.hidden_sizes': _widths(network),
            'policy.critic_hidden_sizes': _widths(network)})
        self.learner = Learner(config, {'task': 'update'}, OBSERVATION_SIZE, ACTION_SIZE,
                               run_id=1)
        self.name = f'{self.learner.device.type} {network} {batch}'
        rng = np.random.default_rng(0)
        self._chunks = [made_up_chunk(rng) for _ in range(batch // (NUM_ENVS * CHUNK_LENGTH))]

    def measure(self) -> float:
        """Make one update; give its rate [samples/s]."""
        begun = time.perf_counter()
        self.learner.update(self._chunks)
        # Its bytes leave the GPU, so everything before them is done.
        self.learner.snapshot()
        seconds = time.perf_counter() - begun
        transitions = len(self._chunks) * NUM_ENVS * CHUNK_LENGTH
        return transitions * self.learner.ppo.epochs / seconds


def made_up_chunk(rng: np.random.Generator) -> Chunk:
    """Give a chunk of a standard normal policy, in which nothing ends."""
    shape = (CHUNK_LENGTH, NUM_ENVS)

    def normal(*sizes: int) -> np.ndarray:
        return rng.standard_normal(sizes, dtype=np.float32)

    action = normal(*shape, ACTION_SIZE)
    log_prob = (-0.5 * action ** 2 - 0.5 * np.log(2.0 * np.pi)).sum(-1).astype(np.float32)
    nothing = np.empty((0, 0), np.float32)
    integers = dict.fromkeys(('run_id', 'actor_id', 'incarnation', 'sequence', 'generation',
                              'policy_version', 'gradient_steps', 'collecting_ns',
                              'waiting_ns'), 0)
    return Chunk(
        **integers, observation=normal(CHUNK_LENGTH + 1, NUM_ENVS, OBSERVATION_SIZE),
        critic_observation=np.empty((CHUNK_LENGTH + 1, NUM_ENVS, 0), np.float32), action=action,
        behaviour_log_prob=log_prob,
        behaviour_parameters=np.zeros((*shape, 2 * ACTION_SIZE), np.float32),
        value=np.empty((CHUNK_LENGTH + 1, NUM_ENVS, 0), np.float32), reward=normal(*shape),
        terminated=np.zeros(shape, bool), truncated=np.zeros(shape, bool),
        final_observation=np.empty((0, OBSERVATION_SIZE), np.float32),
        final_critic_observation=nothing, final_value=nothing,
        final_index=np.empty((0, 2), np.int32), episodes=np.empty((0, 3), np.float32))


def device_names(cases: Sequence[Case]) -> dict[str, str]:
    """Say what was measured on, beside the processor."""
    found = {case.learner.device for case in cases}
    return {device.type: torch.cuda.get_device_name(device) if device.type == 'cuda'
            else f'{torch.get_num_threads()} threads of torch' for device in found}


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(width) for width in text.split(','))
    except ValueError:
        raise ConfigError(f'--networks {text}: must be widths such as 64,64') from None

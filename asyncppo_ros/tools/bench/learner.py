"""
``asyncppo bench learner``: samples per second of the learner's update, on a CPU or a GPU.

One update is all that a learner process does between a batch and the next policy: transfers,
values, advantages, all epochs, checks, and the snapshot.  A sample counts once for each epoch.
The chunks are made up; what is in them does not change the time.

Beside each stand two ceilings of the same round.  ``matmul`` is torch multiplying matrices of
the same sizes and nothing else: for every sample of every epoch, forward and backward through
policy and critic, a minibatch at a time on the same device.  ``memcpy`` copies the arrays of the
batch once an epoch, which is the least that reading it costs.
"""

from collections.abc import Callable, Mapping, Sequence
import functools
import json
import time
from typing import Any

import numpy as np
import torch

from asyncppo_ros.chunk import ARRAYS, Chunk, Layout
from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.settings import build, to_dict
from asyncppo_ros.tools.arguments import Parser, split_settings
from asyncppo_ros.tools.bench.inference import widths_of
from asyncppo_ros.tools.bench.results import paired_row, report, row, table
from asyncppo_ros.tools.bench.rounds import interleaved
from asyncppo_ros.tools.made_up_chunks import made_up_chunk

# Sizes of HalfCheetah-v5.
LAYOUT = Layout('learner', 17, 6, 12, '')
NUM_ENVS, CHUNK_LENGTH = 64, 32
BATCHES = (4096, 16384, 65536, 262144)
NETWORKS = ('64,64', '256,256')


def main(arguments: list[str], stop: StopRequest) -> int:
    """Measure and print the table or the JSON object."""
    parser = Parser(prog='asyncppo bench learner', description=__doc__, allow_abbrev=False)
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
    found = interleaved({f'{case.name}{kind}': measure for case in cases
                         for kind, measure in case.measures().items()}, own.rounds, stop)
    if stop():
        return 0
    rows = [entry for case in cases for entry in rows_of(case.name, found)]
    settings = {case.name: to_dict(case.learner.config) for case in cases[:1]}
    result = report(settings, rows, devices=device_names(cases),
                    command=['asyncppo', 'bench', 'learner', *arguments])
    print(json.dumps(result, indent=1) if own.json else table(rows))
    return 0


def rows_of(name: str, found: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    """Give the rows of a case: its rate beside that of the matmuls, and each ceiling alone."""
    rates, matmuls = found[name], found[f'{name} matmul']
    return [paired_row(name, rates, matmuls, 'samples/s'),
            row(f'{name} matmul', matmuls, 'samples/s'),
            row(f'{name} memcpy', found[f'{name} memcpy'], 'samples/s')]


class Case:
    """
    One network and one batch on one device.

    Attributes
    ----------
    name : str
    learner : Learner

    """

    def __init__(self, device: str, network: str, batch: int, given: Mapping[str, Any]) -> None:
        config = build(Config, {
            'env_steps': 10 ** 12, 'learner.ppo.minibatch_size': max(512, batch // 8), **given,
            'learner.device': device, 'learner.batch_size': batch,
            'policy.hidden_sizes': widths_of(network),
            'policy.critic_hidden_sizes': widths_of(network)})
        self.learner = Learner(config, {'task': 'learner'}, LAYOUT.observation_size,
                               LAYOUT.action_size, run_id=1)
        self.name = f'{self.learner.device.type} {network} {batch}'
        rng = np.random.default_rng(0)
        self._chunks = [made_up_chunk(LAYOUT, CHUNK_LENGTH, NUM_ENVS, rng)
                        for _ in range(batch // (NUM_ENVS * CHUNK_LENGTH))]
        # The update takes whole chunks, and a minibatch is no larger than what they hold.
        self._transitions = len(self._chunks) * NUM_ENVS * CHUNK_LENGTH
        self._minibatches = minibatches(self._transitions, config.learner.ppo.minibatch_size)
        networks = [[tuple(parameter.shape) for parameter in part.parameters()
                     if parameter.dim() == 2]
                    for part in (self.learner.network.policy, self.learner.network.critic)]
        self._matmuls = {size: Matmuls(networks, size, self.learner.device)
                         for size in set(self._minibatches)}
        self._copies = [(array, np.empty_like(array)) for array in _arrays(self._chunks)]

    def measures(self) -> dict[str, Callable[[], float]]:
        """Give what measures the update, and each ceiling, once [samples/s]."""
        return {kind: functools.partial(self._rate, work) for kind, work in (
            ('', self._update), (' matmul', self._multiply), (' memcpy', self._copy))}

    def _rate(self, work: Callable[[], None]) -> float:
        begun = time.perf_counter()
        work()
        return (self._transitions * self.learner.ppo.epochs
                / (time.perf_counter() - begun))

    def _update(self) -> None:
        self.learner.update(self._chunks)
        # Its bytes leave the GPU, so everything before them is done.
        self.learner.snapshot()

    def _multiply(self) -> None:
        for _ in range(self.learner.ppo.epochs):
            for size in self._minibatches:
                self._matmuls[size].run()
        if self.learner.device.type == 'cuda':
            torch.cuda.synchronize(self.learner.device)

    def _copy(self) -> None:
        for _ in range(self.learner.ppo.epochs):
            for array, copy in self._copies:
                np.copyto(copy, array)


class Matmuls:
    """
    The multiplications of one gradient step, in memory that is there already.

    Parameters
    ----------
    networks : sequence of sequences of (int, int)
        Outputs and inputs of each layer of each network, as torch shapes weights.
    size : int
        Samples of the minibatch.
    device : torch.device

    Attributes
    ----------
    flops : int
        Of one `run`.

    """

    def __init__(self, networks: Sequence[Sequence[tuple[int, ...]]], size: int,
                 device: torch.device) -> None:
        def made(*shape: int) -> torch.Tensor:
            return torch.ones(shape, device=device)

        self._products = []
        for layers in networks:
            for place, (outputs, inputs) in enumerate(layers):
                below, above = made(size, inputs), made(size, outputs)
                weight = made(outputs, inputs)
                # Forward, gradient of the weight, and of what came from below.
                products = [(below, weight.T, made(size, outputs)),
                            (above.T, below, made(outputs, inputs)),
                            (above, weight, made(size, inputs))]
                # Nobody asks for the gradient of an observation.
                self._products += products if place else products[:2]
        self.flops = sum(2 * first.shape[0] * first.shape[1] * second.shape[1]
                         for first, second, _ in self._products)

    @torch.no_grad()
    def run(self) -> None:
        """Multiply all."""
        for first, second, out in self._products:
            torch.mm(first, second, out=out)


def minibatches(transitions: int, minibatch_size: int) -> list[int]:
    """Give the sizes of the minibatches of an epoch."""
    whole, rest = divmod(transitions, minibatch_size)
    return [minibatch_size] * whole + ([rest] if rest else [])


def device_names(cases: Sequence[Case]) -> dict[str, str]:
    """Say what was measured on, beside the processor."""
    found = {case.learner.device for case in cases}
    return {device.type: torch.cuda.get_device_name(device) if device.type == 'cuda'
            else f'{torch.get_num_threads()} threads of torch' for device in found}


def _arrays(chunks: Sequence[Chunk]) -> list[np.ndarray]:
    return [getattr(chunk, name) for chunk in chunks for name, _, _ in ARRAYS]

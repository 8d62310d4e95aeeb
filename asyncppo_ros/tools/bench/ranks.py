"""
``asyncppo bench ranks``: samples per second and bytes of an update, of one learner and of several.

Measured are the gradient steps of an update, from shuffled samples to the last step of the last
epoch, as `learner.ranks` and `learner.gradient_compression` have them made; a sample counts once
for each epoch.  The bytes are those of gradients that rank 0 has sent through its sockets, as the
kernel counts them.  What compression does to returns takes trainings: docs/scaling-learners.md
has the commands.
"""

from collections.abc import Mapping, Sequence
import json
import time
from typing import Any, NamedTuple

import torch

from asyncppo_ros.cluster.data_parallel import RankedSteps
from asyncppo_ros.cluster.ranks import Ranks, started
from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.learning.samples import Samples, Scheduled
from asyncppo_ros.learning.steps import Steps, steps_for
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.policy.distributions import TanhGaussian
from asyncppo_ros.policy.network import ActorCritic
from asyncppo_ros.settings import build, to_dict
from asyncppo_ros.tools.arguments import Parser, split_settings
from asyncppo_ros.tools.bench.results import check, paired_row, report, row, table, verdict
from asyncppo_ros.tools.bench.rounds import interleaved

# Sizes of HalfCheetah-v5.
OBSERVATION, ACTION = 17, 6
SCHEDULED = Scheduled(0.2, 0.0, 1e-4)
ALONE = '1 rank'
# What is sent, of what is sent uncompressed, at most; a little more than the numbers make it.
MOST_BYTES = {'bf16': 0.55, 'powersgd': 0.5, 'quantized': 0.3}


class Measured(NamedTuple):
    """What one update was: its rate [samples/s], and gradients sent in it [bytes]; NaN = none."""

    rate: float
    sent: float


def main(arguments: list[str], stop: StopRequest) -> int:
    """Measure and print the table or the JSON object."""
    parser = Parser(prog='asyncppo bench ranks', description=__doc__, allow_abbrev=False)
    parser.add_argument('--ranks', type=int, default=2, help='beside one; default 2')
    parser.add_argument('--device', default='cpu', choices=('cpu', 'cuda'))
    parser.add_argument('--widths', nargs='+', type=int, default=[256, 256],
                        help='hidden layers of policy and critic, default 256 256')
    parser.add_argument('--batch', type=int, default=16384, help='transitions, default 16384')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    own, given = split_settings(parser, arguments)
    if own.rounds < 1 or own.ranks < 2 or own.batch < own.ranks:
        raise ConfigError(f'--rounds {own.rounds} --ranks {own.ranks} --batch {own.batch}: at '
                          'least 1 round, 2 ranks, and a transition for each')
    compressions = ['none', 'bf16', 'powersgd', *(['quantized'] if own.device == 'cuda' else [])]
    cases = {ALONE: Case(own, given, 1, 'none')}
    cases |= {f'{own.ranks} ranks {name}': Case(own, given, own.ranks, name)
              for name in compressions}
    ranks = started(own.ranks, torch.device(own.device))
    try:
        found = interleaved({name: lambda case=case: case.measure(ranks)  # type: ignore[misc]
                             for name, case in cases.items()}, own.rounds, stop)
    finally:
        ranks.close()
    if stop():
        return 0
    rows, checks = rows_of(found), checks_of(found, own.ranks, compressions[1:])
    if own.json:
        print(json.dumps(report(to_dict(cases[ALONE].config), rows, checks=checks,
                                command=['asyncppo', 'bench', 'ranks', *arguments]), indent=1))
    else:
        print(text_of(rows, checks))
    return 0 if all(entry['passed'] for entry in checks) else 1


class Case:
    """
    A network and the samples of an update.

    Parameters
    ----------
    own : Namespace
        Of the command line.
    given : mapping
        Settings, by dotted name.
    ranks : int
    compression : str

    """

    def __init__(self, own: Any, given: Mapping[str, Any], ranks: int, compression: str) -> None:
        widths = tuple(own.widths)
        self.config = build(Config, {
            'learner.ppo.minibatch_size': max(512, own.batch // 16), 'learner.powersgd_start': 2,
            'policy.hidden_sizes': widths, 'policy.critic_hidden_sizes': widths, **given,
            'learner.batch_size': own.batch, 'learner.ranks': ranks,
            'learner.gradient_compression': compression})
        generator = torch.Generator().manual_seed(0)
        self._network = ActorCritic(OBSERVATION, ACTION, TanhGaussian(), self.config.policy,
                                    generator).to(own.device)
        self._optimizer = torch.optim.Adam(self._network.parameters(), eps=1e-5, fused=True)
        self._samples = Samples(*(torch.randn((own.batch, *shape), generator=generator).to(
            own.device) for shape in ((OBSERVATION,), (0,), (ACTION,), (), (), (), ())))
        alone = build(Config, {**to_dict(self.config), 'learner.ranks': 1,
                               'learner.gradient_compression': 'none'})
        self._alone = steps_for(alone.learner, self._network, self._optimizer)

    def measure(self, ranks: Ranks) -> Measured:
        """Make an update that is not measured, so that memory and PowerSGD are warm, and one."""
        steps: Steps[Any] = self._alone
        if self.config.learner.ranks > 1:
            steps = RankedSteps(ranks, self._alone, self._network, self._optimizer,  # type: ignore
                                self.config.learner)
        self._update(steps, epochs=1)
        steps.measured()
        epochs = self.config.learner.ppo.epochs
        begun = time.perf_counter()
        made = self._update(steps, epochs)
        rate = epochs * len(self._samples.action) / (time.perf_counter() - begun)
        return Measured(rate, made * steps.measured().get('gradient_bytes', float('nan')))

    def _update(self, steps: Steps[Any], epochs: int) -> int:
        """Make the gradient steps of an update and give how many they were."""
        numbers = []
        steps.begin_update()
        for epoch in range(epochs):
            order = torch.randperm(len(self._samples.action),
                                   generator=torch.Generator().manual_seed(epoch))
            numbers += [steps.step(minibatch, SCHEDULED)
                        for minibatch in steps.minibatches(self._samples, order)]
        # Read, so that a GPU is done with them.
        return len(torch.stack(numbers).tolist())


def rows_of(found: Mapping[str, Sequence[Measured]]) -> list[dict[str, Any]]:
    """Give the rate of each case, beside that of one rank, and the bytes of an update."""
    alone = [measured.rate for measured in found[ALONE]]
    rows = [row(ALONE, alone, 'samples/s')]
    for name, measured in found.items():
        if name != ALONE:
            rows.append(paired_row(name, [one.rate for one in measured], alone, 'samples/s'))
            sent = [one.sent for one in measured if one.sent == one.sent]
            rows += [row(f'{name} sent', sent, 'bytes/update')] if sent else []
    return rows


def checks_of(found: Mapping[str, Sequence[Measured]], ranks: int,
              compressions: Sequence[str]) -> list[dict[str, Any]]:
    """Compare what compressed gradients are with what they are uncompressed."""
    checks = []
    plain = found[f'{ranks} ranks none'][-1].sent
    for name in compressions:
        share = found[f'{ranks} ranks {name}'][-1].sent / plain
        if share == share:
            checks.append(check(f'{name}: bytes, of those uncompressed', share,
                                f'< {MOST_BYTES[name]:g}', share < MOST_BYTES[name]))
    return checks


def text_of(rows: Sequence[Mapping[str, Any]], checks: Sequence[Mapping[str, Any]]) -> str:
    """Give the table, the ratios and the checks."""
    ratios = [f'{entry["name"]}: {entry["ratio"]:.2f} times one rank, 95 % interval '
              f'{entry["ratio_interval"][0]:.2f} to {entry["ratio_interval"][1]:.2f}'
              for entry in rows if 'ratio' in entry]
    return '\n'.join([table(rows), '', *ratios, verdict(checks)])

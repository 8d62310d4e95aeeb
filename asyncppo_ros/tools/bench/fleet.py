"""
``asyncppo bench fleet``: the chunks of many actors on one learner, beside those of one actor.

The actors simulate nothing: each sends a chunk of full size as soon as its permit allows it, and
all chunks have one payload, which is made once: what it costs to make is not the learner's.  All
else is as in a training: every actor has a connection (TCP), hello, permits, sequence, heartbeats
and ledger of its own.  The learner's thread makes all checks and grants permits; the learner
takes every batch and publishes, in no time.  The same transitions may be under way with any
number of actors.  So what changes with the number is what each actor costs the learner.

Numbers of actors are measured in turn, round after round.  The actors run on the same cores, at
a lower priority (nice 10) than the learner: on hosts of their own they would not push it off its
core, and it is what is measured.  CPU times tell what is whose.
"""

from collections.abc import Mapping, Sequence
import functools
import gc
import json
import resource
import time
from typing import Any, NamedTuple

from asyncppo_ros.acting.rollout import layout_of, sends_values
from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError, RunError
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.settings import build, to_dict
from asyncppo_ros.simulation.registry import make
from asyncppo_ros.tools.arguments import Parser, split_settings
from asyncppo_ros.tools.bench.fleet_actors import ActorProcesses, Shape
from asyncppo_ros.tools.bench.fleet_learner import Learner, LONGEST_S, resident_mib
from asyncppo_ros.tools.bench.results import check, paired_row, report, row, table, verdict
from asyncppo_ros.tools.bench.rounds import interleaved
from asyncppo_ros.tools.bench.uncertainty import paired_ratio

# Signs of life of 256 actors twice a second would be a tenth of what the learner handles.
SETTINGS = {'task': 'HalfCheetah-v5', 'actor.num_envs': 64, 'actor.chunk_length': 32,
            'transport.heartbeat_s': 2.0}
SENDERS = 256
CHUNKS = 20
PROCESSES = 1
# Shares of the rate of one actor, and of the most by the fewest chunks of an actor.
RATE, FAIR = 0.9, 1.2
# Beside the chunks: buffers of the sockets, of the allocator, and of each connection.
_FIXED_MIB, _EACH_MIB = 48.0, 0.125
# So much is sent before the clock runs, by however many: one that is alone has by then been
# granted all that may be under way.
_WARM_BATCHES = 4


class Outcome(NamedTuple):
    """
    What one number of actors did for a moment.

    Attributes
    ----------
    joined_s : float
        Until all were taken in [s].
    chunks_per_s : float
        That passed all checks.
    cpu_ms : float
        Of the learner's process, per chunk [ms].
    thread_ms : float
        Of its thread that receives, per chunk [ms].
    senders_ms : float
        Of the processes of the senders, per chunk [ms].
    actor_wait : float
        Mean share of the time in which an actor waits for its permit.
    chunks : tuple of int
        Of each actor.
    mib : float
        Most memory of the learner's process, above what it had at the start [MiB].
    mib_after : float
        The same once all actors were gone.
    dropped, refused : int
        Chunks that were too old; messages that failed a check.
    balanced : bool
        The books balance.

    """

    joined_s: float
    chunks_per_s: float
    cpu_ms: float
    thread_ms: float
    senders_ms: float
    actor_wait: float
    chunks: tuple[int, ...]
    mib: float
    mib_after: float
    dropped: int
    refused: int
    balanced: bool


def main(arguments: list[str], stop: StopRequest) -> int:
    """Measure each number of actors in turn and print the table or the JSON object."""
    parser = Parser(prog='asyncppo bench fleet', description=__doc__, allow_abbrev=False)
    parser.add_argument('--senders', type=int, default=SENDERS,
                        help=f'compared with one, default {SENDERS}')
    parser.add_argument('--counts', nargs='+', type=int, default=[],
                        help='further numbers of senders, to see where it bends')
    parser.add_argument('--seconds', type=float, default=3.0,
                        help='of each measurement, default 3')
    parser.add_argument('--chunks', type=int, default=CHUNKS,
                        help='a measurement takes longer until the senders have sent so many '
                             f'each on average, default {CHUNKS}: few are no fair shares')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--processes', type=int, default=PROCESSES,
                        help=f'that the senders share, default {PROCESSES}')
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    own, given = split_settings(parser, arguments)
    counts = sorted({1, own.senders, *own.counts})
    if min(*counts, own.rounds, own.processes, own.chunks) < 1 or own.seconds <= 0.0:
        raise ConfigError(f'--senders {own.senders} --counts {own.counts} --rounds {own.rounds} '
                          f'--processes {own.processes} --chunks {own.chunks} --seconds '
                          f'{own.seconds:g}: all must be above 0')
    config, shape = prepared(given, counts[-1])
    _allow_descriptors(counts[-1])
    base = resident_mib()
    with ActorProcesses(own.processes) as actors:
        found = interleaved({str(count): functools.partial(
            measure, count, config, shape, own.seconds, own.chunks, actors, base)
            for count in counts}, own.rounds, stop)
    if stop():
        return 0
    outcomes = {int(count): entries for count, entries in found.items()}
    rows = rows_of(outcomes, shape)
    checks = checks_of(outcomes, own.senders, memory_bound(config, shape, own.senders))
    result = report(to_dict(config), rows, checks=checks, chunk_bytes=shape.wire_bytes(),
                    rounds={count: [outcome._asdict() for outcome in entries]
                            for count, entries in outcomes.items()},
                    command=['asyncppo', 'bench', 'fleet', *arguments])
    print(json.dumps(result, indent=1) if own.json else f'{table(rows)}\n\n{verdict(checks)}')
    return 0 if all(entry['passed'] for entry in checks) else 1


def prepared(given: Mapping[str, Any], most: int) -> tuple[Config, Shape]:
    """
    Give the settings, and what the actors send.

    Raises
    ------
    ConfigError
        A batch does not hold one chunk of each of the `most` actors.

    """
    first = build(Config, {**SETTINGS, **given})
    transitions = first.actor.num_envs * first.actor.chunk_length
    config = build(Config, {**SETTINGS, 'learner.batch_size': most * transitions, **given})
    if config.learner.batch_size < most * transitions:
        raise ConfigError(f'learner.batch_size = {config.learner.batch_size}: must be at least '
                          f'{most * transitions}, one chunk of each of {most} actors')
    environment = make(config.task, 1, config.seed, privileged=config.policy.privileged_critic)
    try:
        layout = layout_of(environment, sends_values(config),
                           config.transport.observation_dtype)
    finally:
        environment.close()
    return config, Shape(layout, config.actor.chunk_length, config.actor.num_envs)


def measure(count: int, config: Config, shape: Shape, seconds: float, chunks_each: int,
            actors: ActorProcesses, base: float) -> Outcome:
    """Let so many actors come, send for a while, and go."""
    outcome = _observe(Learner(config, shape), count, config, shape, seconds, chunks_each, actors)
    # The parts of a learner know each other, so that all it holds is freed by this alone.
    gc.collect()
    return outcome._replace(mib=outcome.mib - base, mib_after=resident_mib() - base)


def _observe(learner: Learner, count: int, config: Config, shape: Shape, seconds: float,
             chunks_each: int, actors: ActorProcesses) -> Outcome:
    begun = time.monotonic()
    actors.start(learner.address, count, shape, config.transport.keys)
    try:
        if not learner.wait_for(count, actors.is_alive):
            raise RunError(f'{count} senders: not all of them came within {LONGEST_S:g} s')
        joined_s = time.monotonic() - begun
        learner.begin()
        warm = -(-_WARM_BATCHES * config.learner.batch_size // (count * shape.transitions))
        learner.work_until(lambda: learner.has_heard(count, warm), LONGEST_S)
        before, begun = learner.chunks_of_each(), time.monotonic()
        cpu, thread, senders = time.process_time(), learner.receiving_s(), actors.cpu_s()
        enough = learner.intake.chunks_received + chunks_each * count
        learner.work(seconds)
        learner.work_until(lambda: learner.intake.chunks_received >= enough, LONGEST_S)
        passed = time.monotonic() - begun
        cpu, thread = time.process_time() - cpu, learner.receiving_s() - thread
        senders = actors.cpu_s() - senders
        chunks = tuple(sent - before[actor]
                       for actor, sent in sorted(learner.chunks_of_each().items()))
        wait = learner.intake.actor_wait
    finally:
        learner.close()
    cpu_ms, thread_ms, senders_ms = (1e3 * spent / sum(chunks)
                                     for spent in (cpu, thread, senders))
    return Outcome(joined_s, sum(chunks) / passed, cpu_ms, thread_ms, senders_ms, wait, chunks,
                   learner.most_mib, 0.0, learner.intake.chunks_dropped,
                   sum(learner.intake.refused().values()), not learner.intake.write_books())


def rows_of(outcomes: Mapping[int, Sequence[Outcome]], shape: Shape) -> list[dict[str, Any]]:
    """Give the rows of each number of actors."""
    megabytes, rows = shape.wire_bytes() * 1e-6, []
    alone = outcomes[1]
    for count, entries in outcomes.items():
        name = f'{count} sender{"s" * (count > 1)}'
        rates, single = ([megabytes * entry.chunks_per_s for entry in found]
                         for found in (entries, alone))
        rows += [
            paired_row(f'{name}: bytes', rates, single, 'MB/s'),
            row(f'{name}: chunks', [entry.chunks_per_s for entry in entries], 'chunks/s'),
            row(f'{name}: transitions', [shape.transitions * entry.chunks_per_s
                                         for entry in entries], 'transitions/s'),
            paired_row(f'{name}: CPU of the learner', [entry.cpu_ms for entry in entries],
                       [entry.cpu_ms for entry in alone], 'ms/chunk'),
            paired_row(f'{name}: CPU of the receiving thread',
                       [entry.thread_ms for entry in entries],
                       [entry.thread_ms for entry in alone], 'ms/chunk'),
            paired_row(f'{name}: CPU of the senders', [entry.senders_ms for entry in entries],
                       [entry.senders_ms for entry in alone], 'ms/chunk'),
            row(f'{name}: wait of an actor', [entry.actor_wait for entry in entries], 'share'),
            row(f'{name}: dropped by age', [entry.dropped for entry in entries], 'chunks'),
            row(f'{name}: memory', [entry.mib for entry in entries], 'MiB'),
            row(f'{name}: memory after', [entry.mib_after for entry in entries], 'MiB'),
            row(f'{name}: all taken in after', [entry.joined_s for entry in entries], 's')]
    return rows


def checks_of(outcomes: Mapping[int, Sequence[Outcome]], senders: int,
              bound_mib: float) -> list[dict[str, Any]]:
    """Compare with what is asked for."""
    entries, every = outcomes[senders], [entry for found in outcomes.values() for entry in found]
    ratio = paired_ratio([entry.chunks_per_s for entry in entries],
                         [entry.chunks_per_s for entry in outcomes[1]])
    most, fair = max(entry.mib for entry in every), unfairness(entries)
    refused = sum(entry.refused for entry in every)
    balanced = all(entry.balanced for entry in every)
    return [
        check(f'bytes/s of {senders} senders / of one ({ratio.low:.3f} to {ratio.high:.3f})',
              ratio.value, f'>= {RATE}', ratio.value >= RATE),
        check(f'chunks of a sender, most / fewest of {senders}', fair, f'<= {FAIR}',
              fair <= FAIR),
        check('memory of the learner above its start [MiB]', most, f'<= {bound_mib:.0f}',
              most <= bound_mib),
        check('messages refused', refused, '0', refused == 0),
        check('books balance', float(balanced), '1', balanced)]


def unfairness(outcomes: Sequence[Outcome]) -> float:
    """Give the most chunks of an actor, in all rounds together, by the fewest of another."""
    chunks = [sum(numbers) for numbers in zip(*(entry.chunks for entry in outcomes))]
    return max(chunks) / min(chunks) if min(chunks) else float('inf')


def memory_bound(config: Config, shape: Shape, senders: int) -> float:
    """
    Give what a learner may need beside what it has at the start [MiB].

    All that permits let be under way, and the batch that is being consumed, of which they no
    longer know; twice, because a chunk lies in a message of ZeroMQ until it is copied out.
    """
    learner = config.learner
    chunks = (learner.target_lag + 2) * -(-learner.batch_size // shape.transitions)
    return 2.0 * chunks * shape.wire_bytes() / 2 ** 20 + _FIXED_MIB + _EACH_MIB * senders


def _allow_descriptors(senders: int) -> None:
    """Raise the limit of open files as far as it may be, before processes inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < 8 * senders + 64:
        raise ConfigError(f'--senders {senders}: needs {8 * senders + 64} open files, and '
                          f'`ulimit -Hn` allows {hard}')

#!/usr/bin/env python3
"""
Compare Ray's object store with the line of the chunks as the way of policies, on one machine.

    pip install "asyncppo_ros[ray]"
    python scripts/policies_by_ray.py

Both are a PolicyChannel, and both ends check every policy.  With ZeroMQ the learner tells of a
policy, each receiver asks for it, and gets its bytes.  With Ray the learner puts the bytes into
the object store and their reference into a named actor, which answers the standing question of
each receiver; a receiver reads the bytes from shared memory.  Receivers are processes that wait
as an actor does which has no permit.  Latency is from before `publish` until the policy has been
accepted; CPU time is that of the learner's process, of the receivers and of all that Ray has
started, without what Ray needs when nothing is published.
"""

import argparse
import asyncio
import functools
import itertools
import json
import os
from pathlib import Path
import statistics
import sys
import time

import ray

from asyncppo_ros.chunk import Identity, Layout, NO_POLICY
from asyncppo_ros.errors import RunError
from asyncppo_ros.learning.batcher import Batcher
from asyncppo_ros.learning.books import Books
from asyncppo_ros.tools.bench.made_up_policy import made_up_policy, written
from asyncppo_ros.tools.bench.results import paired_row, report, table
from asyncppo_ros.tools.bench.rounds import interleaved
from asyncppo_ros.tools.stopwatch import cpu_seconds
from asyncppo_ros.transport.admission import Session
from asyncppo_ros.transport.intake import Intake
from asyncppo_ros.transport.messages import hello
from asyncppo_ros.transport.permits import PermitBook
from asyncppo_ros.transport.policy_channel import NewestPolicy
from asyncppo_ros.transport.policy_fetch import ZmqPolicySubscriber
from asyncppo_ros.transport.receiver import ZmqChunkReceiver
from asyncppo_ros.transport.sender import ZmqChunkSender

LAYOUT = Layout('made_up', 45, 12, 24, '')
# Two hidden layers so wide make policies of about these sizes.
WAYS = ('ZeroMQ', 'Ray')
WIDTHS = {'60 kB': (96, 96), '1 MB': (480, 480)}
FIRST = Identity(0, 0)
# An actor that waits for a permit or a policy looks for both this often [s].
WAIT_S = 0.004
LONGEST_S = 60.0
STORE_BYTES = 512 * 2 ** 20


class Holder:
    """The named actor: knows the reference of the newest policy."""

    def __init__(self):
        self._newest = NO_POLICY, []
        self._changed = asyncio.Condition()

    async def hold(self, identity, reference):
        """Take the newest one; the reference is in a list, or Ray would hand over the bytes."""
        async with self._changed:
            self._newest = identity, reference
            self._changed.notify_all()

    async def newer(self, have):
        """Wait until there is a newer one than that, and give it."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._newest[0] > have)
            return self._newest


class RayPolicyPublisher:
    """The learner's end of a PolicyChannel over the object store."""

    def __init__(self, name):
        self._holder = ray.get_actor(name)

    def publish(self, data, identity):
        """Make a policy the newest one."""
        self._holder.hold.remote(identity, [ray.put(data)])


class RayPolicySubscriber(NewestPolicy):
    """A receiver's end: one question to the holder is always under way."""

    def __init__(self, name):
        super().__init__()
        self._holder = ray.get_actor(name)
        self._question = self._holder.newer.remote(NO_POLICY)

    def look(self, timeout=0.0):
        """Take in what has arrived; wait up to `timeout` for it."""
        if ray.wait([self._question], timeout=timeout)[0]:
            identity, (reference,) = ray.get(self._question)
            self._question = self._holder.newer.remote(identity)
            self.offer(ray.get(reference))


class Receiver:
    """A process that takes policies in, either way."""

    def __init__(self, number, address, name):
        self._line = ZmqChunkSender(address, hello(number, LAYOUT, 1, 1), kind='zmq')
        if not self._line.connect(LONGEST_S):
            raise RunError(f'no learner answers at {address}')
        self._by_zmq, self._by_ray = ZmqPolicySubscriber(self._line), RayPolicySubscriber(name)

    def pid(self):
        """Give the number of this process, which is then ready."""
        return os.getpid()

    def receive(self, way, last):
        """Give when each policy was accepted, up to the last [ns]."""
        policies = self._by_zmq if way == 'ZeroMQ' else self._by_ray
        accepted, end = {}, time.monotonic() + LONGEST_S
        while policies.identity < last and time.monotonic() < end:
            before = policies.identity
            if way == 'ZeroMQ':
                self._line.poll(WAIT_S)
                policies.look()
            else:
                policies.look(WAIT_S)
            if policies.identity > before:
                accepted[policies.identity] = time.monotonic_ns()
        return accepted


class Learner:
    """Publishes either way to some receivers."""

    def __init__(self, count):
        self._intake = Intake(Session(1, LAYOUT, heartbeat_timeout_s=10 * LONGEST_S, rings=False),
                              PermitBook(1024, 1, FIRST), Batcher(1024, 8), Books())
        self._line = ZmqChunkReceiver(self._intake, 'tcp://127.0.0.1:*')
        self._line.start()
        name = f'policies for {count}'
        self._holder = ray.remote(num_cpus=0)(Holder).options(name=name).remote()
        self.receivers = [ray.remote(num_cpus=0)(Receiver).remote(number, self._line.address, name)
                          for number in range(count)]
        ray.get([receiver.pid.remote() for receiver in self.receivers])
        self._by_ray = RayPolicyPublisher(name)
        self._versions = itertools.count()

    def policies(self, count, widths):
        """Make policies that are newer than all before: their bytes by identity."""
        made = (made_up_policy(0.02, widths, version)
                for version in itertools.islice(self._versions, count))
        return {Identity(0, int(one.card['policy_version'])): written(one) for one in made}

    def publish(self, way, data, identity):
        """Publish one of them."""
        if way == 'ZeroMQ':
            self._intake.published(identity, data)
        else:
            self._by_ray.publish(data, identity)

    def close(self):
        """End the receivers and their line."""
        for process in (*self.receivers, self._holder):
            ray.kill(process)
        self._line.close(0.0)


def measure(way, learner, widths, count, pause_s):
    """Publish so many policies one after the other; give latencies and CPU time [ms]."""
    policies = learner.policies(count, widths)
    answers = [receiver.receive.remote(way, max(policies)) for receiver in learner.receivers]
    time.sleep(0.5)
    processes = descendants()
    published, begun, cpu = {}, time.monotonic(), cpu_s(processes)
    for identity, data in policies.items():
        published[identity] = time.monotonic_ns()
        learner.publish(way, data, identity)
        time.sleep(pause_s)
    accepted = ray.get(answers)
    cpu, passed = cpu_s(processes) - cpu, time.monotonic() - begun
    # Who is overtaken by the next publication takes that one alone.
    latencies = [1e-6 * (at - published[identity]) for found in accepted
                 for identity, at in found.items()]
    return {'latencies': sorted(latencies), 'cpu_s': cpu, 'passed_s': passed,
            'missed': count * len(accepted) - len(latencies)}


def idle(seconds):
    """Give the CPU time when nothing is published [share of a core]."""
    processes = descendants()
    cpu = cpu_s(processes)
    time.sleep(seconds)
    return (cpu_s(processes) - cpu) / seconds


def descendants():
    """Name this process and all that it has started."""
    parents = {}
    for status in Path('/proc').glob('[0-9]*/stat'):
        try:
            _, parent, *_ = status.read_text().rpartition(')')[2].split()
            parents[int(status.parent.name)] = int(parent)
        except (OSError, ValueError):
            continue
    found = [os.getpid()]
    for parent in found:
        found += [pid for pid, its in parents.items() if its == parent]
    return found


def cpu_s(processes):
    """Give their CPU time so far [s]."""
    total = 0.0
    for pid in processes:
        try:
            total += cpu_seconds(pid)
        except OSError:
            continue  # ended meanwhile
    return total


def rows_of(found, sizes, receivers, count):
    """Give the rows of Ray and of ZeroMQ, each round beside ZeroMQ in the same round."""
    rows = []
    for size in sizes:
        figures = {way: [figures_of(entry, share, count) for entry, share
                         in zip(found[f'{way}, {size}'], found['idle'])] for way in WAYS}
        for way in WAYS:
            for place, (name, unit) in enumerate((
                    ('median', 'ms'), ('95th percentile', 'ms'), ('CPU', 'ms/publication'))):
                own, others = ([one[place] for one in figures[which]] for which in (way, WAYS[0]))
                rows.append(paired_row(f'{size} to {receivers}, {way}: {name}', own, others, unit))
    return rows


def figures_of(entry, idle_share, count):
    """Give median and 95th percentile of the latency, and CPU time of a publication [ms]."""
    latencies = entry['latencies']
    cpu = entry['cpu_s'] - idle_share * entry['passed_s']
    return (statistics.median(latencies), latencies[int(0.95 * (len(latencies) - 1))],
            1e3 * cpu / count)


def main():
    """Measure both ways in turn, and print the table or the JSON object."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--receivers', nargs='+', type=int, default=[1, 4])
    parser.add_argument('--count', type=int, default=40, help='publications, default 40')
    parser.add_argument('--pause', type=float, default=0.05, help='between two [s], default 0.05')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    own = parser.parse_args()
    ray.init(address='local', num_cpus=1, include_dashboard=False, log_to_driver=False,
             logging_level='ERROR', object_store_memory=STORE_BYTES)
    rows, rounds = [], {}
    try:
        for receivers in own.receivers:
            learner = Learner(receivers)
            measures = {f'{way}, {size}': functools.partial(
                measure, way, learner, widths, own.count, own.pause)
                for size, widths in WIDTHS.items() for way in WAYS}
            measures['idle'] = functools.partial(idle, own.count * own.pause)
            rounds[receivers] = interleaved(measures, own.rounds, lambda: False)
            rows += rows_of(rounds[receivers], WIDTHS, receivers, own.count)
            learner.close()
    finally:
        ray.shutdown()
    print(json.dumps(report(vars(own), rows, rounds=rounds), indent=1) if own.json
          else table(rows))
    return 0


if __name__ == '__main__':
    sys.exit(main())

"""Hosts that are far away, and what a training learns from actors on several hosts."""

from lab import ADDRESSES, folders_in, Lab
from network import Network, why_not
import numpy as np
import pytest

from asyncppo_ros.learning.jsonl import read_jsonl
from asyncppo_ros.tools.bench.uncertainty import relative_difference

pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
REASON = why_not()
pytestmark = [pytest.mark.nodes, pytest.mark.one_distro, pytest.mark.slow,
              pytest.mark.skipif(bool(REASON), reason=REASON)]

SEEDS = (0, 1, 2)
# As the task has it, but for a batch that three actors fill alike.  At the end it is solved; half
# way there the same seed on the same host is 30 % apart from one time to the next.
LEARNING = {'task': 'cartpole_swingup', 'env_steps': 900_000, 'actor__num_envs': 32,
            'actor__chunk_length': 32, 'learner__batch_size': 4096,
            'learner__ppo__minibatch_size': 512, 'learner__ppo__epochs': 5,
            'learner__checkpoint_seconds': 60.0, 'transport__heartbeat_timeout_s': 20.0,
            'evaluation__every_seconds': 3600.0, 'evaluation__final_episodes': 20}
# However busy the machine is.
LEARNING_S = 1800.0


def test_late_and_lost_packets_cost_no_transition(tmp_path):
    far = {'lab1': {'delay-s': 0.02, 'loss': 0.02}, 'lab2': {'delay-s': 0.05}}
    hidden = folders_in(tmp_path)
    with Network(ADDRESSES, hidden, far) as network, Lab(tmp_path, network) as lab:
        lab.join('lab1')
        lab.join('lab2', ros=True)
        lab.wait_for(lambda: lab.newest('actors') == 3, 'three actors')
        few = 10 * lab.run.config().learner.batch_size
        lab.wait_for(lambda: all(lab.books_of(name)['consumed'] > few for name in ADDRESSES),
                     'chunks of all', timeout=240.0)
        rows = lab.finish()
        for name in ADDRESSES:
            row = lab.books_of(name)
            assert row['lost_in_crash'] == row['refused_by_check'] == row['dropped_by_age'] == 0
        # The age knows the way: one way is half a round trip.
        assert max(row['age_transport_max'] for row in rows[-10:]) >= 50.0


@pytest.mark.timeout(2 * len(SEEDS) * LEARNING_S)
def test_three_hosts_learn_what_one_host_learns_from_as_many_steps(tmp_path):
    ends = {1: [], 3: []}
    for seed in SEEDS:
        for hosts in ends:
            folder = tmp_path / f'{seed}-{hosts}'
            folder.mkdir()
            along, end = learned(folder, seed, hosts)
            ends[hosts].append(end)
            print(f'seed {seed}, {hosts} hosts: return {along:.1f} on the way, {end:.1f} at the '
                  'end', flush=True)
    difference = relative_difference((ends[3], ends[1]))
    print(f'three hosts / one host - 1: {difference}')
    assert difference.low > -0.1, difference


def learned(folder, seed, hosts):
    """
    Train with three actors, all on one host or one on each of three.

    Returns
    -------
    along : float
        Mean return of training episodes over all steps.
    end : float
        Mean return of the deterministic evaluation of the last policy.

    """
    hidden = folders_in(folder)
    with Network(ADDRESSES, hidden) as network, \
            Lab(folder, network, seed=seed, num_actors=4 - hosts, **LEARNING) as lab:
        if hosts == 3:
            lab.join('lab1')
            lab.join('lab2', ros=True)
        lab.watched.watch(LEARNING_S, until=lambda: lab.watched.process.poll() is not None)
        rows = lab.finish()
        assert rows[-1]['env_steps'] >= LEARNING['env_steps']
        if hosts == 3:
            shares = [lab.books_of(name)['consumed'] for name in ADDRESSES]
            assert min(shares) > 0.1 * sum(shares), shares
        # None before the first episode has ended.
        steps, returns = np.array([(row['env_steps'], row['return_mean']) for row in rows
                                   if 'return_mean' in row]).T
        grid = np.linspace(steps[0], steps[-1], 100)
        final, = (row for row in read_jsonl(lab.run.evaluations_file) if row.get('final'))
        return float(np.interp(grid, steps, returns).mean()), final['return_mean']

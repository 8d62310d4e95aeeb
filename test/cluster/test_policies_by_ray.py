"""The script that compares two ways of policies: its parts that need no running Ray."""

import asyncio
import importlib.util
import os
from pathlib import Path
import subprocess
import sys

import pytest

pytest.importorskip('ray', reason='needs Ray: pip install "asyncppo_ros[ray]"')

from asyncppo_ros.chunk import Identity, NO_POLICY  # noqa: E402
from asyncppo_ros.policy.snapshot import PolicySnapshot  # noqa: E402

SCRIPT = Path(__file__).parents[2] / 'scripts' / 'policies_by_ray.py'


@pytest.fixture(scope='module')
def script():
    """Give the script as a module."""
    spec = importlib.util.spec_from_file_location('policies_by_ray', SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_holder_answers_once_there_is_something_newer(script):
    async def story():
        holder = script.Holder()
        first = asyncio.ensure_future(holder.newer(NO_POLICY))
        await asyncio.sleep(0)
        assert not first.done()
        await holder.hold(Identity(0, 1), ['one'])
        assert await first == (Identity(0, 1), ['one'])
        second = asyncio.ensure_future(holder.newer(Identity(0, 1)))
        # Who asks late gets the newest alone.
        await holder.hold(Identity(0, 2), ['two'])
        await holder.hold(Identity(0, 3), ['three'])
        assert await second == (Identity(0, 3), ['three'])
        assert await holder.newer(Identity(0, 1)) == (Identity(0, 3), ['three'])

    asyncio.run(story())


def test_figures_leave_out_what_an_idle_ray_needs(script):
    entry = {'latencies': [float(number) for number in range(1, 102)], 'cpu_s': 0.5,
             'passed_s': 2.0, 'missed': 0}
    # 0.5 s less 2 s × 0.1, for 30 publications.
    assert script.figures_of(entry, 0.1, 30) == (51.0, 96.0, pytest.approx(10.0))


@pytest.mark.parametrize(('size', 'low', 'high'), [('60 kB', 55e3, 75e3), ('1 MB', 0.95e6, 1.1e6)])
def test_policies_have_the_sizes_that_are_told(script, size, low, high):
    made = script.made_up_policy(0.02, script.WIDTHS[size], 7)
    data = script.written(made)
    assert low < len(data) < high
    assert PolicySnapshot.from_bytes(data).identity == Identity(0, 7)


def test_cpu_time_is_that_of_all_that_was_started(script):
    spin = ('import sys, time\nwhile time.process_time() < 0.05: pass\n'
            'print(flush=True)\nsys.stdin.read()')
    with subprocess.Popen([sys.executable, '-c', spin], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        found = script.descendants()
        assert found[0] == os.getpid() and child.pid in found
        assert script.cpu_s([child.pid]) >= 0.05
        child.stdin.close()
    assert script.cpu_s([child.pid]) == 0.0

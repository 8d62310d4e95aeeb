"""`asyncppo train --cluster ray`, as far as it goes without Ray."""

import argparse
import os
import signal
import socket
import subprocess
import sys

from harness import wait_for
import pytest

from asyncppo_ros.cluster import ray_command
from asyncppo_ros.cluster.ray_command import add_options, check_head, fleet_of, RayFleet
from asyncppo_ros.config import Config
from asyncppo_ros.errors import AddressError, ConfigError, MissingDependency
from asyncppo_ros.nodes.actor_states import states_file, write_states
from asyncppo_ros.run import Run
from asyncppo_ros.settings import build
from asyncppo_ros.tools.train import _Child


def given(*arguments):
    parser = argparse.ArgumentParser()
    add_options(parser)
    return parser.parse_args(arguments)


def test_without_the_option_there_is_a_supervisor():
    assert fleet_of(given()) is None
    with pytest.raises(ConfigError, match='--ray_address auto: only with --cluster ray'):
        fleet_of(given('--address', 'auto'))
    with pytest.raises(ConfigError, match='--ray_cpus 2.0: only with'):
        fleet_of(given('--ray_cpus', '2'))


def test_without_ray_one_line_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, 'ray', None)
    with pytest.raises(MissingDependency, match=r'ray is missing .*asyncppo_ros\[ray\]'):
        fleet_of(given('--cluster', 'ray'))


@pytest.mark.parametrize('cpus', ['0', '-1', 'nan', 'inf'])
def test_an_actor_needs_some_cpu(cpus):
    with pytest.raises(ConfigError, match='must be above 0'):
        fleet_of(given('--cluster', 'ray', '--ray_cpus', cpus))


def test_a_cluster_that_is_not_there_is_one_line():
    with socket.socket() as held:
        held.bind(('127.0.0.1', 0))
        address = f'127.0.0.1:{held.getsockname()[1]}'
        with pytest.raises(AddressError, match=f'--ray_address {address}: no Ray cluster'):
            check_head(address)
        held.listen()
        check_head(address)
    with pytest.raises(AddressError, match='no Ray cluster'):
        check_head('127.0.0.1:70000')
    for left_to_ray in ('', 'auto', 'local', 'ray://10.255.255.1:10001'):
        check_head(left_to_ray)


@pytest.mark.parametrize(('address', 'settings', 'told'), [
    ('', {'actor.source': 'robot', 'actor.num_envs': 1}, 'actor.source = robot'),
    ('auto', {'num_actors': 0}, 'num_actors = auto'),
    ('auto', {'num_actors': 4, 'transport.address': 'ipc:///tmp/x'}, 'must be tcp://'),
])
def test_settings_that_do_not_go_with_ray(address, settings, told):
    with pytest.raises(ConfigError, match=told):
        RayFleet(address, 1.0).check(build(Config, settings))


def test_settings_that_do():
    RayFleet('', 1.0).check(build(Config, {'transport.address': 'ipc:///tmp/x'}))
    RayFleet('auto', 1.0).check(build(Config, {'num_actors': 4}))


def test_a_local_ray_has_a_folder_for_the_time_of_the_run(tmp_path):
    write_states(states_file(tmp_path, 0), [{'actor_id': 0, 'state': 'running'}])
    fleet = RayFleet('', 0.5)
    arguments = fleet.arguments(Run(tmp_path))
    folder = arguments[arguments.index('--folder') + 1]
    assert os.path.isdir(folder) and not states_file(tmp_path, 0).exists()
    fleet.close()
    assert not os.path.exists(folder)
    joined = RayFleet('10.0.0.1:6379', 1.0)
    assert '10.0.0.1:6379' in joined.arguments(Run(tmp_path))
    joined.close()


def test_the_progress_tells_how_many_have_been_placed(tmp_path):
    run, fleet = Run(tmp_path), RayFleet('', 1.0)

    def news(*names):
        write_states(states_file(tmp_path, 0), [
            {'actor_id': number, 'state': name} for number, name in enumerate(names)])
        return fleet.news(run)

    assert fleet.news(run) == ''
    assert news('running', 'running', 'running', 'pending') \
        == 'Ray: 3 of 4 actors placed, 1 pending'
    assert fleet.news(run) == ''
    assert news('running', 'restarting', 'running', 'running') \
        == 'Ray: 3 of 4 actors placed, 1 restarting'
    assert news('running', 'running', 'running', 'running') == 'Ray: 4 of 4 actors placed'
    assert news('finished', 'running', 'running', 'running') == ''


# A process of a session of its own that starts another, in a group of its own as Ray does.
FLEET = """
import os, subprocess, sys
from asyncppo_ros.cluster.ray_command import end_session
left = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'],
                        preexec_fn=os.setpgrp, stdout=subprocess.DEVNULL)
print(left.pid, flush=True)
if sys.argv[1:]:
    end_session(os.getpid())
    sys.exit(-left.wait())
"""


def fleet_process(*arguments):
    return subprocess.Popen([sys.executable, '-c', FLEET, *arguments], stdout=subprocess.PIPE,
                            text=True, start_new_session=True)


def test_what_a_killed_fleet_has_left_is_ended():
    process = fleet_process()
    pid = int(process.communicate(timeout=20)[0])
    RayFleet('in a cluster nothing is ours', 1.0).sweep(process.pid)
    assert not is_gone(pid)
    RayFleet('', 1.0).sweep(process.pid)
    wait_for(lambda: is_gone(pid), 'end of what was left')


def test_a_fleet_ends_its_own_ray_and_not_itself():
    process = fleet_process('end')
    process.communicate(timeout=20)
    assert process.returncode == signal.SIGKILL


def is_gone(pid):
    try:
        with open(f'/proc/{pid}/stat') as file:
            return file.read().rpartition(')')[2].split()[0] == 'Z'
    except OSError:
        return True


@pytest.mark.parametrize(('code', 'mends'), [(0, False), (2, False), (ray_command.GAVE_UP, False),
                                             (1, True), (-9, True)])
def test_a_fleet_that_died_with_ray_is_started_again(tmp_path, code, mends):
    assert _Child(ray_command.NAME, [], tmp_path)._mends(code) is mends

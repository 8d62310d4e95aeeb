"""Processes: signals as a flag, death with the parent, clear errors, the supervisor."""

import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import time

from harness import wait_for
import pytest

from asyncppo_ros.errors import ConfigError
from asyncppo_ros.nodes import actor_process, restarts, supervisor
from asyncppo_ros.nodes.process import (
    child_environment,
    die_with_parent,
    guarded,
    PARENT_VARIABLE,
    stay_on_this_host,
    STOP_SIGNALS,
    StopRequest,
)


def python(code):
    return [sys.executable, '-c', code]


def test_a_mistake_is_one_line_and_exit_code_two(capsys):
    def mistaken():
        raise ConfigError('seed = x: expected a whole number')

    assert guarded(mistaken, 'asyncppo') == 2
    assert capsys.readouterr().err == 'asyncppo: seed = x: expected a whole number\n'


def test_a_fault_is_told_in_full(capsys):
    assert guarded(lambda: 1 / 0, 'asyncppo') == 1
    assert 'ZeroDivisionError' in capsys.readouterr().err
    assert guarded(lambda: None, 'asyncppo') == 0


def test_a_library_of_others_that_is_missing_is_a_fault(capsys):
    def importing():
        raise ModuleNotFoundError("No module named 'users_own'", name='users_own')

    assert guarded(importing, 'asyncppo') == 1
    assert 'users_own' in capsys.readouterr().err


def test_signals_become_a_flag():
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        for number in before:
            # As a shell leaves it for what runs in the background.
            signal.signal(number, signal.SIG_DFL if number == signal.SIGHUP else signal.SIG_IGN)
            stop = StopRequest().install()
            assert not stop() and not stop.wait(0.0)
            os.kill(os.getpid(), number)
            assert stop.wait(1.0) and stop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_the_end_of_the_terminal_stays_ignored_under_nohup():
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        stop = StopRequest().install()
        os.kill(os.getpid(), signal.SIGHUP)
        assert not stop.wait(0.1)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_children_have_one_thread_and_stay_on_this_host(monkeypatch):
    for name in ('OMP_NUM_THREADS', 'ROS_AUTOMATIC_DISCOVERY_RANGE', 'ROS_LOCALHOST_ONLY'):
        monkeypatch.delenv(name, raising=False)
    environment = child_environment()
    assert environment['OMP_NUM_THREADS'] == '1'
    assert environment['ROS_AUTOMATIC_DISCOVERY_RANGE'] == 'LOCALHOST'
    assert environment[PARENT_VARIABLE] == str(os.getpid())
    monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', 'SUBNET')
    assert child_environment()['ROS_AUTOMATIC_DISCOVERY_RANGE'] == 'SUBNET'


@pytest.mark.parametrize('distro, told, found', [
    ('jazzy', {'ROS_STATIC_PEERS': '192.168.1.10'}, ('LOCALHOST', None)),
    ('jazzy', {'ROS_DISCOVERY_SERVER': '192.168.1.10:11811'}, (None, None)),
    ('jazzy', {'ROS_LOCALHOST_ONLY': '0'}, (None, '0')),
    ('humble', {}, ('LOCALHOST', '1')), ('humble', {'ROS_STATIC_PEERS': 'x'}, (None, None))])
def test_discovery_goes_to_peers_that_are_named_and_no_further(distro, told, found):
    environment = {'ROS_DISTRO': distro, **told}
    stay_on_this_host(environment)
    assert (environment.get('ROS_AUTOMATIC_DISCOVERY_RANGE'),
            environment.get('ROS_LOCALHOST_ONLY')) == found


def test_processes_of_a_run_start_no_others_by_importing_mujoco(monkeypatch):
    """A process that is ended while it loads would leave that one behind."""
    pytest.importorskip('mujoco')
    monkeypatch.delenv('MUJOCO_GL', raising=False)
    code = ('import subprocess, sys; started = []; '
            'subprocess.Popen = lambda *a, **k: started.append(a) or sys.exit(f"started {a}"); '
            'import mujoco')
    ended = subprocess.run(python(code), env=child_environment(), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    monkeypatch.setenv('MUJOCO_GL', 'egl')
    assert child_environment()['MUJOCO_GL'] == 'egl'


@pytest.mark.skipif(sys.platform != 'linux', reason='needs the kernel of Linux')
def test_children_die_with_their_parent():
    child = ('import time; from asyncppo_ros.nodes.process import die_with_parent; '
             'die_with_parent(); print("up", flush=True); time.sleep(60)')
    parent = subprocess.Popen(python(
        'import subprocess, sys, time; from asyncppo_ros.nodes.process import child_environment; '
        f'child = subprocess.Popen([sys.executable, "-c", {child!r}], env=child_environment()); '
        'print(child.pid, flush=True); time.sleep(60)'), stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    assert parent.stdout.readline() == 'up\n'
    parent.kill()
    parent.wait()
    stat = pathlib.Path(f'/proc/{pid}/stat')
    wait_for(lambda: not stat.exists() or stat.read_text().rpartition(')')[2].split()[0] == 'Z',
             'end of the child', timeout=5.0)


@pytest.mark.skipif(sys.platform != 'linux', reason='needs the kernel of Linux')
def test_a_process_started_by_hand_does_not(monkeypatch):
    monkeypatch.delenv(PARENT_VARIABLE, raising=False)
    die_with_parent()
    number = ctypes.c_int(-1)
    get_parent_death_signal = 2
    ctypes.CDLL(None).prctl(get_parent_death_signal, ctypes.byref(number))
    assert number.value == 0


@pytest.fixture
def make_actor(monkeypatch):
    monkeypatch.setattr(restarts, 'FIRST_PAUSE_S', 0.01)
    actors = []

    def make(code, hung_after=60.0):
        # As the real command: interpreter, three words, options.
        script = f'import sys; sys.argv = sys.argv[:1]; {code}'
        actor = actor_process.Actor(len(actors), [sys.executable, '-u', '-c', script], hung_after)
        actors.append(actor)
        return actor

    yield make
    for actor in actors:
        actor.stop()
        actor.wait(0.0)


def tend_until(actors, condition, timeout=20.0):
    deadline = time.monotonic() + timeout
    while not condition() and time.monotonic() < deadline:
        for actor in actors:
            actor.tend(time.monotonic())
        time.sleep(0.01)
    assert condition()


def test_an_actor_that_dies_is_restarted(make_actor):
    actor = make_actor('import time; time.sleep(60)')
    tend_until([actor], lambda: actor.pid)
    first = actor.pid
    os.kill(first, signal.SIGKILL)
    tend_until([actor], lambda: actor.pid not in (0, first))
    assert not actor.quarantined


def test_a_crash_loop_ends_with_its_reason(make_actor, capfd):
    actor = make_actor('sys.exit(3)')
    assert supervisor.supervise([actor], StopRequest()) == 1
    assert actor.quarantined == '5 crashes in a row, the last with exit code 3'
    assert capfd.readouterr().err.count('actor 0 died with exit code 3') == 4


def test_a_mistake_of_the_user_is_not_repeated(make_actor):
    actor, other = make_actor('sys.exit(2)'), make_actor('import time; time.sleep(60)')
    assert supervisor.supervise([actor, other], StopRequest()) == 2
    assert 'mistake' in actor.quarantined


def test_an_actor_that_finished_stays_finished(make_actor):
    actor = make_actor('pass')
    assert supervisor.supervise([actor], StopRequest()) == 0
    assert actor.finished and actor.exit_code == 0


def test_a_hung_actor_shows_its_stacks_and_is_replaced(make_actor, capfd, monkeypatch):
    monkeypatch.setattr(actor_process, 'STACK_DUMP_S', 0.3)
    actor = make_actor(
        'import os, time, signal, faulthandler; faulthandler.register(signal.SIGUSR1); '
        'os.write(int(os.environ["ASYNCPPO_HEARTBEAT_FD"]), b"."); time.sleep(60)',
        hung_after=0.5)
    tend_until([actor], lambda: actor.pid)
    first = actor.pid
    tend_until([actor], lambda: actor.pid not in (0, first))
    errors = capfd.readouterr().err
    assert 'actor 0 is hung' in errors and 'most recent call first' in errors
    assert 'died with signal SIGKILL' in errors


def test_further_actors_hear_at_once_why_no_learner_answers(tmp_path, capfd, monkeypatch):
    pytest.importorskip('zmq')
    from asyncppo_ros.transport import keys, reach
    keys.make_keys(tmp_path / 'keys')
    file = tmp_path / 'config.yaml'
    file.write_text('task: cartpole_swingup\ntransport: {address: "tcp://10.0.0.1:5577"}\n')
    asked = []
    monkeypatch.setattr(reach, 'why_out_of_reach',
                        lambda address, found: asked.append((address, found)) or 'for a reason')
    monkeypatch.setattr(supervisor, 'supervise', lambda actors, *_: len(actors))
    options = ['--params-file', str(file), '--num-actors', '3']
    assert supervisor.run(options, StopRequest()) == 3
    assert asked == []  # the learner of this host is about to start
    assert supervisor.run([*options, '--further', '--address', 'tcp://lab:5577', '--keys',
                           str(tmp_path / 'keys')], StopRequest()) == 3
    assert asked == [('tcp://lab:5577', keys.actor_keys(tmp_path / 'keys'))]
    assert 'no learner answers at tcp://lab:5577; still trying; for a reason\n' \
        in capfd.readouterr().err
    with pytest.raises(ConfigError, match='transport.keys: .*nowhere'):
        supervisor.run([*options, '--further', '--keys', str(tmp_path / 'nowhere')],
                       StopRequest())

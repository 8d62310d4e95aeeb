"""The supervisor with `num_actors: auto`: windows, changes, actors sent away and taken back."""

import json
import os
import sys
import time

from harness import (
    asyncppo,
    end,
    options,
    processes_of,
    rows_of,
    shared_memory,
    start,
    wait_for,
)
import pytest

from asyncppo_ros.config import Config
from asyncppo_ros.learning.jsonl import Tail
from asyncppo_ros.nodes import actor_process, supervisor
from asyncppo_ros.nodes.actor_count import ActorCount, FIRST_PAUSE_S
from asyncppo_ros.nodes.actor_states import read_states, StatesRecord
from asyncppo_ros.nodes.host_load import HostLoad, Load
from asyncppo_ros.nodes.load_following import (
    following,
    LoadFollowing,
    PATIENCE_S,
    WARM_UP_S,
    WINDOW_S,
)
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.settings import build, to_dict

TURN_S = WARM_UP_S + WINDOW_S + 3.0


class MadeUpActor:
    """An actor without a process, which starts at once and ends at the next look."""

    def __init__(self, index):
        self.actor_id, self.pid = index, 1000 + index
        self.retired = self.finished = False
        self.quarantined, self.calls = '', []

    def retire(self, now):
        self.retired, self.pid = True, 0
        self.calls.append('retire')

    def recall(self):
        self.retired, self.pid = False, 2000 + self.actor_id
        self.calls.append('recall')


class MadeUpLoad:
    """What the host is made to tell, and whom it was asked about."""

    def __init__(self):
        self.load, self.pids = Load(1.0, 0.05, 0.0, 100), []

    def begin(self, pids):
        self.pids = list(pids)

    def end(self):
        return self.load


class MadeUpRun:
    """A learner that writes a row a second, a clock, and the following of both."""

    def __init__(self, folder, actors=2, most=16):
        self.file, self.now, self.said = folder / 'metrics.jsonl', 0.0, []
        self.actors = [MadeUpActor(index) for index in range(actors)]
        self.row = {'env_steps': 0, 'time_s': 0.0, 'generation': 0, 'learner_wait': 0.8,
                    'actor_wait': 0.0, 'policy_lag_mean': 0.4, 'actors': actors}
        self.per_actor, self.load, self.others, self.joins = 1000, MadeUpLoad(), 0, True
        self.count = ActorCount(most, 2)
        self.write()
        self.following = LoadFollowing(self.actors, MadeUpActor, self.count, Tail(self.file), 1,
                                       self.said.append, self.load, lambda: self.now)

    @property
    def running(self):
        return sum(not actor.retired for actor in self.actors)

    def write(self, **more):
        with open(self.file, 'a') as file:
            file.write(json.dumps({**self.row, **more}) + '\n')

    def seconds(self, count, **more):
        for _ in range(int(count)):
            self.now += 1.0
            self.row['time_s'] += 1.0
            self.row['env_steps'] += self.running * self.per_actor
            self.row['actors'] = self.others + (self.running if self.joins else 0)
            self.write(**more)
            self.following.look()
        return self


@pytest.fixture
def made_up_run(tmp_path):
    return MadeUpRun(tmp_path)


def test_a_window_without_a_change_decides(made_up_run):
    made_up_run.seconds(WINDOW_S)
    assert made_up_run.running == 2 and made_up_run.said == []
    made_up_run.seconds(5)
    assert made_up_run.running == 4
    assert made_up_run.said == ['2 -> 4 actors: the learner waits 80% of the time, '
                                'an actor sleeps 95%']
    made_up_run.seconds(3 * TURN_S)
    # Each brought what was hoped for; the batch holds no more.
    assert made_up_run.running == 16 and len(made_up_run.said) == 3
    assert made_up_run.load.pids == [actor.pid for actor in made_up_run.actors]


def test_what_did_not_help_is_sent_away_and_taken_back_later(made_up_run):
    made_up_run.seconds(TURN_S)
    made_up_run.per_actor //= 2
    made_up_run.seconds(TURN_S)
    states = [(actor.retired, actor.calls) for actor in made_up_run.actors]
    assert states == 2 * [(False, [])] + 2 * [(True, ['retire'])]
    assert made_up_run.said[1].startswith('4 -> 2 actors: the rate went from 2,000 to 2,000 env')
    made_up_run.seconds(FIRST_PAUSE_S + 2 * TURN_S)
    assert [actor.calls[:2] for actor in made_up_run.actors[2:4]] == 2 * [['retire', 'recall']]
    assert [actor.actor_id for actor in made_up_run.actors] == list(range(len(made_up_run.actors)))


def test_actors_of_other_hosts_are_waited_for_as_well(made_up_run):
    made_up_run.others = 3
    while made_up_run.running == 2 and made_up_run.now < 100.0:
        made_up_run.seconds(1)
    assert made_up_run.running == 4
    # They do not join: it is measured without them, after a while.
    made_up_run.joins = False
    made_up_run.seconds(PATIENCE_S - 1.0)
    assert made_up_run.running == 4
    made_up_run.seconds(TURN_S)
    assert made_up_run.running == 8


@pytest.mark.parametrize('trouble', ['crashed', 'finished', 'quarantined', 'ending'])
def test_nothing_changes_while_something_else_does(made_up_run, trouble):
    first = made_up_run.actors[0]
    if trouble == 'crashed':
        first.pid = 0
    elif trouble == 'finished':
        first.finished = True
    elif trouble == 'quarantined':
        first.quarantined = 'for a reason'
    else:
        made_up_run.actors.append(MadeUpActor(2))
        made_up_run.actors[2].retired = True
    made_up_run.seconds(4 * TURN_S)
    assert made_up_run.running == 2 and made_up_run.said == []


def test_a_learner_that_starts_anew_or_pauses_is_not_measured(made_up_run):
    made_up_run.seconds(9)
    made_up_run.row['generation'] = 1
    made_up_run.seconds(8)
    assert made_up_run.said == []
    made_up_run.row['time_s'] += 60.0
    made_up_run.seconds(8)
    assert made_up_run.said == []
    made_up_run.seconds(5)
    assert len(made_up_run.said) == 1


def test_a_learner_that_is_silent_is_waited_for(made_up_run):
    made_up_run.now += 1000.0
    made_up_run.following.look()
    made_up_run.seconds(5)
    assert made_up_run.said == []


def test_a_line_that_cannot_be_read_does_not_end_the_actors(made_up_run):
    made_up_run.seconds(4, actor_wait=None)
    with open(made_up_run.file, 'a') as file:
        file.write('not a row\n')
    made_up_run.seconds(2)
    made_up_run.seconds(TURN_S, actor_wait=None)
    assert made_up_run.running == 4


def config_of(folder, **changed):
    return build(Config, {'task': 'cartpole_swingup', 'run_dir': str(folder),
                          'actor.num_envs': 8, 'actor.chunk_length': 16, 'actors_at_start': 2,
                          'learner.batch_size': 2048, **changed})


@pytest.mark.parametrize(('changed', 'most'), [
    ({}, 16), ({'max_actors': 5}, 5), ({'num_actors': 2}, None), ({'max_actors': 1}, None),
    ({'actor.source': 'robot', 'actor.num_envs': 1}, None), ({'run_dir': '/no/such'}, None),
    ({'run_dir': ''}, None), ({'learner.batch_size': 130}, None)])
def test_only_auto_on_the_host_of_the_run_is_followed(tmp_path, changed, most):
    found = following(config_of(tmp_path, **changed), [], MadeUpActor, print)
    assert (found and found.most) == most


@pytest.mark.parametrize(('options', 'followed'), [
    ([], True), (['--num-actors', '2'], False), (['--by-cores'], False), (['--further'], False)])
def test_a_supervisor_follows_where_the_number_is_its_own(tmp_path, monkeypatch, capfd, options,
                                                          followed):
    from asyncppo_ros.settings import write_yaml
    from asyncppo_ros.transport import reach
    monkeypatch.setattr(reach, 'why_out_of_reach', lambda *_: '')
    write_yaml(config_of(tmp_path), tmp_path / 'config.yaml')
    monkeypatch.setattr(supervisor, 'supervise', lambda actors, *_: 0)
    supervisor.run(['--params-file', str(tmp_path / 'config.yaml'), *options], StopRequest())
    assert ('up to 16 as the load asks for' in capfd.readouterr().err) == followed


def test_processes_are_sent_away_and_started_again(tmp_path):
    """The real supervision of processes that do nothing but wait for their end."""
    code = ('import signal, time; signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM]); '
            'time.sleep(60)')
    command = [sys.executable, '-S', '-c', code]

    def make(index):
        return actor_process.Actor(index, command, 60.0)

    actors, stop, events = [make(index) for index in range(3)], StopRequest(), []
    record = StatesRecord(str(tmp_path), 0, lambda: [actor.state for actor in actors], print)
    deadline = time.monotonic() + 30.0

    def states():
        return [state['state'] for state in read_states(tmp_path)]

    def follow():
        """Go on from one thing to the next once it has happened."""
        if time.monotonic() > deadline:
            stop.set()
        if not events and states() == 3 * ['running']:
            events.append([actor.pid for actor in actors])
            actors[2].retire(time.monotonic())
        elif len(events) == 1 and states()[2] == 'stopped' and not actors[2].pid:
            events.append(states())
            actors[2].recall()
            actors.append(make(3))
        elif len(events) == 2 and states() == 4 * ['running']:
            events.append([actor.pid for actor in actors])
            stop.set()

    assert supervisor.supervise_to_the_end(actors, stop, record, 5.0, follow) == 0
    before, without, after = events
    assert without == ['running', 'running', 'stopped']
    assert before[:2] == after[:2] and before[2] != after[2]
    assert states() == 4 * ['finished'] and not any(actor.pid for actor in actors)


def test_one_that_does_not_leave_is_killed(tmp_path):
    code = ('import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); '
            'signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM]); '
            'os.write(int(os.environ["ASYNCPPO_HEARTBEAT_FD"]), b"."); time.sleep(60)')
    actor = actor_process.Actor(0, [sys.executable, '-S', '-c', code], 60.0)
    try:
        actor.tend(0.0)
        actor.retire(0.0)
        actor.tend(actor_process.RETIRE_S - 1.0)
        assert actor.pid and actor.state['state'] == 'stopped'
        deadline = time.monotonic() + 20.0
        while not actor.finished and time.monotonic() < deadline:
            actor.tend(actor_process.RETIRE_S + 1.0)
            time.sleep(0.01)
        # It was meant to end: that is no crash.
        assert actor.finished and not actor.pid and actor.state['crashes'] == 0
    finally:
        actor.stop()
        actor.wait(0.0)


def made_up_proc(folder, idle, used_s, starved_s, available_kib=4_000_000, pages=1000):
    usable = sorted(os.sched_getaffinity(0))
    lines = [f'cpu{number} 10 0 10 {idle} 0 0 0 0' for number in (*usable, max(usable) + 1)]
    (folder / 'stat').write_text('\n'.join(['cpu 1 2 3 4 5 6 7 8', *lines, 'intr 5']) + '\n')
    (folder / 'meminfo').write_text(f'MemTotal: 1 kB\nMemAvailable: {available_kib} kB\n')
    (folder / '7').mkdir(exist_ok=True)
    (folder / '7' / 'schedstat').write_text(f'{int(1e9 * used_s)} {int(1e9 * starved_s)} 5\n')
    (folder / '7' / 'statm').write_text(f'5000 {pages} 1 1 0 1 0\n')


def test_the_load_of_a_host_by_its_counters(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr('asyncppo_ros.nodes.host_load.time.monotonic', lambda: now[0])
    monkeypatch.setattr('asyncppo_ros.nodes.host_load.core_limit', lambda: 1000.0)
    load, ticks = HostLoad(tmp_path), os.sysconf('SC_CLK_TCK')
    made_up_proc(tmp_path, idle=0, used_s=5.0, starved_s=1.0)
    load.begin([7])
    now[0] += 10.0
    # Half of the time each core was idle; one that this process may not use counts for nothing.
    made_up_proc(tmp_path, idle=5 * ticks, used_s=9.0, starved_s=2.0)
    found = load.end()
    assert found.free_cores == pytest.approx(0.5 * len(os.sched_getaffinity(0)))
    assert (found.used_cores, found.starved) == (pytest.approx(0.4), pytest.approx(0.1))
    assert found.room == 4_000_000 * 1024 // 2 // (1000 * os.sysconf('SC_PAGE_SIZE'))
    # A limit of a control group.
    monkeypatch.setattr('asyncppo_ros.nodes.host_load.core_limit', lambda: 0.25)
    assert load.end().free_cores == 0.25


def test_a_system_that_tells_nothing_leaves_it_to_the_rate(tmp_path, monkeypatch):
    monkeypatch.setattr('asyncppo_ros.nodes.host_load.core_limit', lambda: 3.0)
    load = HostLoad(tmp_path)
    load.begin([7])
    time.sleep(0.001)
    found = load.end()
    assert found.free_cores == pytest.approx(3.0) and found.room > 10 ** 5
    assert found.used_cores == found.starved == 0.0


def test_a_resumed_run_follows_again_unless_it_is_given_a_number(tmp_path):
    config = config_of(tmp_path)
    assert following(config, [], MadeUpActor, print) is not None
    pinned = build(Config, {**to_dict(config), 'num_actors': 3})
    assert following(pinned, [], MadeUpActor, print) is None


@pytest.mark.slow
@pytest.mark.nodes
@pytest.mark.one_distro
def test_a_real_training_whose_steps_sleep_gets_more_actors(tmp_path):
    pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
    run = tmp_path / 'run'
    training = start(
        'train', '--task', 'asyncppo_ros.tools.bench.sleeping:Sleeping', '--run_dir', run,
        *options(num_actors=0, actors_at_start=1, max_actors=4, actor__num_envs=4,
                 learner__batch_size=512, env_steps=10 ** 9, learner__ppo__epochs=1,
                 evaluation__every_seconds=3600.0, transport__heartbeat_timeout_s=10.0))

    def running():
        return [state['actor_id'] for state in read_states(run) if state['state'] == 'running']

    def alive():
        rows = rows_of(run / 'metrics.jsonl')
        return rows and rows[-1]['actors']
    try:
        wait_for(lambda: running() == [0, 1, 2, 3] and alive() == 4, '4 actors', 400.0, training)
        code, _, output = end(training)
    finally:
        training.kill()
    assert code == 0 and 'Traceback' not in output, output
    log = (run / 'logs' / 'supervisor.log').read_text()
    assert 'supervisor: 1 -> 2 actors: the learner waits ' in log
    assert 'supervisor: 2 -> 4 actors: the learner waits ' in log
    assert asyncppo('books', run).returncode == 0
    assert not processes_of(run) and not shared_memory()

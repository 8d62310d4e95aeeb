"""What dies, hangs, is cut or full: the run goes on, and its books and its lag stay right."""

import os
import resource
import signal
import time

from fault_run import ACTORS, FaultRun, HERE, RECOVERY_S, stopped
from harness import wait_for
from proxy import Proxy
import pytest

from asyncppo_ros.learning.checkpoint import read_state

pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
pytestmark = [pytest.mark.nodes, pytest.mark.faults]
slow = pytest.mark.slow


def test_half_the_actors_die_at_once(tmp_path):
    with FaultRun(tmp_path) as run:
        run.settle()
        victims = run.kill('actor', ACTORS // 2)
        run.assert_recovers()
        actors = run.watched.pids('actor')
        assert len(actors) == ACTORS and not set(victims) & set(actors)
        assert sorted(state['crashes'] for state in run.states().values()) == [0, 0, 1, 1]
        rows = run.finish()
        assert all(state['state'] == 'finished' for state in run.states().values())
        # For a while the dead count beside the new; in the very last rows actors may have left.
        assert ACTORS in {row['actors'] for row in rows[-20:]}


@slow
def test_a_hung_actor_is_replaced(tmp_path):
    with FaultRun(tmp_path) as run:
        run.settle()
        hung = run.watched.pids('actor')[0]
        os.kill(hung, signal.SIGSTOP)
        run.wait_for(lambda: hung not in run.watched.pids('actor'), 'end of the hung actor')
        run.assert_recovers()
        assert 'is hung: its stacks follow' in run.log('supervisor')
        assert any('was hung' in state['reason'] for state in run.states().values())
        run.finish()


def test_the_learner_is_killed_and_goes_on_from_its_checkpoint(tmp_path):
    with FaultRun(tmp_path) as run:
        run.settle()
        actors = run.watched.pids('actor')
        before = run.watched.seen[-1].row
        run.kill('learner')
        run.assert_recovers()
        # The actors have waited; none was lost.
        assert run.watched.pids('actor') == actors
        after = run.watched.seen[-1].row
        assert after['generation'] == before['generation'] + 1
        assert 'the learner died with signal SIGKILL: started again' in run.told()
        # Chunks of policies that the restored learner never had are of no use.
        run.drops_allowed = True
        rows = run.finish()
        first = next(row for row in rows if row['generation'] == after['generation'])
        assert first['env_steps'] > 0 and first['policy_version'] > 1


@slow
def test_a_full_disk_stops_checkpoints_but_not_the_training(tmp_path):
    with FaultRun(tmp_path) as run, diagnostics() as heard:
        run.settle()
        learner, = run.watched.pids('learner')
        checkpoint = run.run.checkpoint / 'checkpoint.safetensors'
        _, hard = resource.prlimit(learner, resource.RLIMIT_FSIZE)
        resource.prlimit(learner, resource.RLIMIT_FSIZE, (0, hard))
        version = run.watched.seen[-1].row['policy_version']
        good = checkpoint.read_bytes()
        wait_for(lambda: 'NO CHECKPOINT WRITTEN' in heard(), 'alarm on /diagnostics', timeout=15.0)
        assert 'METRICS NOT WRITTEN' in heard()
        assert checkpoint.read_bytes() == good
        resource.prlimit(learner, resource.RLIMIT_FSIZE, (hard, hard))
        run.assert_recovers()
        # It had gone on: no row was written, but versions were made.
        assert run.watched.seen[-1].row['policy_version'] > version + 5
        run.wait_for(lambda: checkpoint.read_bytes() != good, 'checkpoint')
        read_state(run.run.checkpoint)
        assert 'checkpoints are written again after' in run.log('learner')
        wait_for(lambda: heard().endswith('OK'), 'end of the alarm', timeout=10.0)
        # The thread of the TensorBoard library tells its end with a traceback.
        rows = run.finish(tracebacks=('learner',))
        assert {row['generation'] for row in rows} == {0}  # it did not die


@slow
def test_a_cut_network_heals(tmp_path):
    with FaultRun(tmp_path) as run:
        run.settle()
        proxy = Proxy(run.watched.address)
        try:
            run.extra_actor(9, '-p', f'transport.address:={proxy.address}')
            run.settle(ACTORS + 1)
            for cut in (proxy.hang_up, proxy.swallow):
                cut()
                run.wait_for(lambda: run.watched.seen[-1].row['actors'] == ACTORS, 'silence')
                proxy.heal()
                run.wait_for(lambda: run.watched.seen[-1].row['actors'] == ACTORS + 1, 'return')
                run.assert_recovers()
            # What the actor had collected before the cut may be too old after it.
            run.drops_allowed = True
            run.finish()
        finally:
            proxy.close()
        assert incarnations_of(run, 9) == [1]


@slow
@pytest.mark.parametrize('kind', ['zmq', 'auto'])
def test_a_short_cut_costs_nothing(tmp_path, kind):
    """Connections end and come back before the actor counts as silent."""
    with FaultRun(tmp_path, transport__kind=kind, transport__heartbeat_timeout_s=4.0) as run:
        run.settle()
        proxy = Proxy(run.watched.address)
        try:
            run.extra_actor(9, '-p', f'transport.address:={proxy.address}')
            run.settle(ACTORS + 1)
            for _ in range(3):
                proxy.hang_up()
                run.watched.watch(0.5)
                proxy.heal()
                run.watched.watch(2.0)
            run.assert_recovers()
            run.finish()
        finally:
            proxy.close()
        row, = (row for row in books(run)['actors'] if row['actor_id'] == 9)
        assert row['lost_in_crash'] == 0 and row['consumed'] > 0


@slow
@pytest.mark.parametrize('offset_s', [3600.0, -3600.0])
def test_a_clock_that_is_off_moves_no_age(tmp_path, offset_s):
    with FaultRun(tmp_path) as run:
        run.settle()
        run.extra_actor(9, environment={
            'CLOCK_OFFSET_S': str(offset_s), 'PYTHONPATH': f'{HERE / "skewed_clock"}'
            f'{os.pathsep}{os.environ.get("PYTHONPATH", "")}'})
        run.settle(ACTORS + 1)
        since = len(run.watched.seen)
        run.watched.watch(5.0)
        ages = [seen.row['sample_age_max'] for seen in run.watched.seen[since:]]
        before = [seen.row['sample_age_max'] for seen in run.watched.seen[:since]]
        assert ages and 0.0 < max(ages) < 3.0 * max(before)
        run.finish()
        assert books_of(run, 9)['consumed'] > 0


@slow
def test_an_actor_without_the_policy_topic_goes_on(tmp_path):
    with FaultRun(tmp_path, transport__policy_timeout_s=1.0) as run:
        run.settle()
        run.extra_actor(9, '-r', 'policy:=nowhere')
        run.wait_for(lambda: 'policy topic' in run.log('learner'), 'alarm')
        run.settle(ACTORS + 1)
        run.finish()
        assert books_of(run, 9)['consumed'] > 1024


@slow
def test_an_endless_loop_shows_its_stacks_and_ends(tmp_path):
    marker = tmp_path / 'looped'
    with FaultRun(tmp_path, task='faulty_tasks:EndlessLoop',
                  environment={'ENDLESS_LOOP_MARKER': str(marker)}) as run:
        run.wait_for(marker.exists, 'endless loop', timeout=60.0)
        run.wait_for(lambda: 'died with signal SIGKILL' in run.log('supervisor'), 'end of it')
        assert 'faulty_tasks.py' in run.log('supervisor')  # the stack of the loop
        run.settle()
        run.finish()


@slow
def test_a_crash_loop_is_quarantined_and_the_others_go_on(tmp_path):
    with FaultRun(tmp_path, task='faulty_tasks:Crashing', actor__max_crashes=2) as run, \
            diagnostics() as heard:
        run.wait_for(lambda: run.states().get(1, {}).get('state') == 'quarantined', 'quarantine',
                     timeout=90.0)
        assert run.states()[1]['reason'] == '2 crashes in a row, the last with exit code 1'
        assert 'actor 1 is not restarted any more' in run.log('supervisor')
        wait_for(lambda: 'actor 1 on' in heard() and 'quarantined' in heard(), 'warning')
        run.settle(ACTORS - 1)
        assert sorted(state['state'] for state in run.states().values()) == [
            'quarantined', 'running', 'running', 'running']
        run.finish(tracebacks=('supervisor',))


@slow
def test_the_supervisor_is_killed_also_while_an_actor_hangs(tmp_path):
    with FaultRun(tmp_path) as run:
        run.settle()
        actors = run.watched.pids('actor')
        with stopped(actors[:1]):
            run.kill('supervisor')
            # They die with it, the hung one too.
            run.wait_for(lambda: not set(actors) & set(run.watched.pids('actor')), 'their end')
        run.assert_recovers()
        assert len(run.watched.pids('actor')) == ACTORS
        assert 'the supervisor died with signal SIGKILL: started again' in run.told()
        run.finish()


@slow
def test_the_evaluator_is_killed(tmp_path):
    with FaultRun(tmp_path) as run:
        run.settle()
        run.kill('evaluator')
        run.assert_recovers()
        run.wait_for(lambda: run.watched.pids('evaluator'), 'evaluator')
        count = len(run.run.evaluations_file.read_text().splitlines())
        run.wait_for(lambda: len(run.run.evaluations_file.read_text().splitlines()) > count,
                     'evaluation')
        run.finish()


@slow
def test_the_learner_stands_still_for_a_while(tmp_path):
    with FaultRun(tmp_path) as run:
        run.settle()
        with stopped(run.watched.pids('learner')):
            time.sleep(3.0)
        run.assert_recovers()
        run.finish()


@slow
def test_learner_and_supervisor_die_together(tmp_path):
    with FaultRun(tmp_path) as run:
        run.settle()
        run.kill('learner')
        run.kill('supervisor')
        # Two faults; six processes start at the same time.
        run.assert_recovers(within_s=2.0 * RECOVERY_S)
        run.drops_allowed = True
        run.finish()


@slow
def test_the_learner_is_killed_before_its_second_checkpoint(tmp_path):
    """Actors that joined after the checkpoint, and died with the learner, are in the books."""
    with FaultRun(tmp_path, learner__checkpoint_seconds=600.0) as run:
        run.settle()
        victim = run.kill('actor')
        run.wait_for(lambda: len(set(run.watched.pids('actor')) - set(victim)) == ACTORS,
                     'new actor')
        run.wait_for(lambda: list((run.folder / 'books').glob('actor-*-2.ledger')), 'its hello')
        run.kill('learner')
        run.assert_recovers()
        run.drops_allowed = True
        run.finish()
        known = {(row['actor_id'], row['incarnation']) for row in books(run)['actors']}
        ledgers = {tuple(map(int, path.stem.split('-')[1:]))
                   for path in (run.folder / 'books').glob('actor-*.ledger')}
        assert known == ledgers and len(known) == ACTORS + 1


def books(run):
    import json
    return json.loads((run.folder / 'books.json').read_text())


def books_of(run, actor_id):
    row, = (row for row in books(run)['actors'] if row['actor_id'] == actor_id)
    return row


def incarnations_of(run, actor_id):
    return [row['incarnation'] for row in books(run)['actors'] if row['actor_id'] == actor_id]


class diagnostics:
    """Gives, when called, the newest messages on /diagnostics, and OK where all is well."""

    def __enter__(self):
        from diagnostic_msgs.msg import DiagnosticArray
        import rclpy
        self._rclpy = rclpy
        rclpy.init()
        self._node = rclpy.create_node('watcher')
        self._text = ''
        self._node.create_subscription(DiagnosticArray, '/diagnostics', self._hear, 10)
        return self

    def __exit__(self, *_):
        self._node.destroy_node()
        self._rclpy.try_shutdown()

    def _hear(self, message):
        levels = [status.level for status in message.status]
        self._text = ' '.join(status.message for status in message.status) + (
            ' OK' if all(level == b'\0' for level in levels) else '')

    def __call__(self):
        self._rclpy.spin_once(self._node, timeout_sec=0.2)
        return self._text

"""A training on one host and actors on others, with keys, and what must hold at its end."""

import json
import os
import shutil
import signal

from harness import ASYNCPPO, asyncppo, wait_for

from asyncppo_ros.launching import first_actor_id
from asyncppo_ros.nodes.process import child_environment
from asyncppo_ros.tools.bench.watched import processes_of, WatchedRun

ADDRESSES = {'learner': '192.168.1.10', 'lab1': '192.168.1.11', 'lab2': '192.168.1.12'}
# Its rate is set by sleeping, not by the processor, so it says what a fault did.
TASK = 'asyncppo_ros.tools.bench.sleeping:Sleeping'
MAX_LAG = 4
SETTINGS = {
    'task': TASK, 'env_steps': 10 ** 9, 'num_actors': 1, 'actor.num_envs': 8,
    'actor.chunk_length': 16, 'learner.batch_size': 512, 'learner.ppo.minibatch_size': 256,
    'learner.ppo.epochs': 1, 'learner.max_policy_lag': MAX_LAG, 'learner.checkpoint_seconds': 1.0,
    'transport.heartbeat_s': 0.1, 'transport.heartbeat_timeout_s': 3.0, 'evaluation.episodes': 2,
    'evaluation.final_episodes': 2, 'evaluation.every_seconds': 60.0}
# However busy the machine is.
END_S = 60.0
# Discovery reaches as far as multicast does, and nothing else is on that network.
ROS = {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET', 'ROS_DOMAIN_ID': '7',
       **{name: '0' for name in ('ROS_LOCALHOST_ONLY',) if name in os.environ}}


def folders_in(folder):
    """Make what is on the disk of each host: `Network` hides the learner's from the others."""
    for name in ADDRESSES:
        (folder / name).mkdir()
    return {name: [folder / 'learner'] for name in ADDRESSES if name != 'learner'}


class Lab:
    """
    Start the training on host ``learner``; `join` adds the others.

    Parameters
    ----------
    folder : path
        Of `folders_in`.
    network : Network
        Of the hosts in `ADDRESSES`.
    **settings
        Of the run; two underscores stand for a dot.

    """

    def __init__(self, folder, network, **settings):
        self.folder, self.network, self.guests = folder, network, []
        self.address = f'tcp://{ADDRESSES["learner"]}:5577'
        keys = folder / 'learner' / 'keys'
        assert asyncppo('keys', keys).returncode == 0
        for name in ('lab1', 'lab2'):
            shutil.copytree(keys / 'actor', folder / name / 'keys')
        self.watched = WatchedRun(
            folder / 'learner' / 'run',
            {**SETTINGS, 'transport.keys': str(keys), 'transport.address': self.address,
             **{name.replace('__', '.'): value for name, value in settings.items()}},
            environment=ROS, entering=network['learner'].entering)
        self.run = self.watched.run

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.watched.kill()

    def join(self, name, *arguments, ros=False, keys=None, log='actors.log'):
        """
        Start actors on a host, with the settings of the run in a file of its own.

        With `ros` they are what ``actors.launch.py`` starts, else ``asyncppo actors``.
        """
        home = self.folder / name
        keys = home / 'keys' if keys is None else keys
        self.wait_for(lambda: 'chunks at' in self.log('learner'), 'learner')
        config = home / 'config.yaml'
        if not config.exists():
            shutil.copyfile(self.run.config_file, config)
        if ros:
            command = [ASYNCPPO[0], '-m', 'asyncppo_ros.nodes.main', 'supervisor',
                       '--params-file', config, '--keys', keys, '--further',
                       '--first-actor-id', first_actor_id(name)]
        else:
            command = [*ASYNCPPO, 'actors', '--config', config, '--transport.keys', keys]
        process = self.network[name].start([*command, '--num-actors', 1, *arguments], home / log,
                                           {**child_environment(), **ROS})
        if log == 'actors.log':
            self.guests.append(process)
        return process

    def log(self, name):
        """Give the log of a process of the learner's host."""
        path = self.run.logs / f'{name}.log'
        return path.read_text(errors='replace') if path.exists() else ''

    def told(self, name, log='actors.log'):
        """Give what the actors of another host have printed."""
        path = self.folder / name / log
        return path.read_text(errors='replace') if path.exists() else ''

    def newest(self, metric):
        """Give a metric of the last update; nan before the first."""
        self.watched.look()
        return self.watched.seen[-1].row[metric] if self.watched.seen else float('nan')

    def wait_for(self, condition, what, timeout=90.0):
        """Wait for a condition while rows are taken."""
        def looked():
            self.watched.look()
            return condition()
        return wait_for(looked, what, timeout, self.watched.process)

    def books_of(self, name):
        """Give what the books say of the one actor of a host; it died nowhere on the way."""
        actor = first_actor_id(name) if name != 'learner' else 0
        books = json.loads((self.run.folder / 'books.json').read_text())
        row, = (row for row in books['actors'] if row['actor_id'] == actor)
        return row

    def finish(self):
        """End the training, which ends its actors everywhere, and assert what always holds."""
        # The learner first: how fast all of them end together is the matter of other tests.
        for learner in self.watched.pids('learner'):
            os.kill(learner, signal.SIGINT)
        wait_for(lambda: not self.watched.pids('learner'), 'end of the learner', END_S)
        code, _ = self.watched.end()
        assert code == 0, self.watched.output.read_text()
        for process in self.guests:
            assert process.wait(END_S) == 0
        wait_for(lambda: not processes_of(self.run.folder), 'end of all processes', timeout=5.0)
        books = asyncppo('books', self.run.folder)
        assert books.returncode == 0, books.stdout
        rows = self.watched.rows()
        assert max(row['policy_lag_max'] for row in rows) <= MAX_LAG
        for log in [*self.run.logs.iterdir(), *self.folder.glob('lab*/*.log')]:
            assert 'Traceback' not in log.read_text(errors='replace'), log
        return rows

"""Start the real processes of a run and look at what they leave."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from asyncppo_ros.tools.jobs import free_address

ASYNCPPO = [sys.executable, '-m', 'asyncppo_ros.tools.cli']
# Small and quick: an update every few tenths of a second.
SMALL = {'actor.num_envs': 16, 'actor.chunk_length': 16, 'learner.batch_size': 1024,
         'learner.ppo.minibatch_size': 256, 'learner.ppo.epochs': 2, 'num_actors': 2,
         'evaluation.episodes': 4, 'evaluation.final_episodes': 4,
         'evaluation.every_seconds': 5.0, 'transport.heartbeat_s': 0.1,
         'transport.heartbeat_timeout_s': 2.0}


def options(**settings):
    values = {**SMALL, 'transport.address': free_address(),
              **{name.replace('__', '.'): value for name, value in settings.items()}}
    return [text for name, value in values.items() for text in (f'--{name}', str(value))]


def asyncppo(*arguments, timeout=120, cwd=None):
    """Run the command to its end."""
    return subprocess.run([*ASYNCPPO, *map(str, arguments)], capture_output=True, text=True,
                          timeout=timeout, cwd=cwd, stdin=subprocess.DEVNULL)


def start(*arguments):
    return subprocess.Popen([*ASYNCPPO, *map(str, arguments)], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            start_new_session=True)


def rows_of(path):
    if not pathlib.Path(path).exists():
        return []
    rows = []
    for line in pathlib.Path(path).read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def wait_for(condition, what, timeout=60.0, process=None):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        if process is not None and process.poll() is not None:
            raise AssertionError(f'ended with {process.returncode} before {what}: '
                                 f'{process.stdout.read() if process.stdout else ""}')
        time.sleep(0.05)
    raise AssertionError(f'no {what} within {timeout} s')


def processes_of(run_dir):
    """Give pid → command line of every living process that belongs to a run."""
    found = {}
    for folder in pathlib.Path('/proc').iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            command = (folder / 'cmdline').read_bytes().replace(b'\0', b' ').decode()
            state = (folder / 'stat').read_text().rpartition(')')[2].split()[0]
        except OSError:
            continue
        if str(run_dir) in command and state != 'Z':
            found[int(folder.name)] = command
    return found


def pids_of(run_dir, name):
    return sorted(pid for pid, command in processes_of(run_dir).items()
                  if f'asyncppo_ros.nodes.main {name} ' in command)


def shared_memory():
    return sorted(path.name for path in pathlib.Path('/dev/shm').glob('asyncppo_*'))


def end(process, number=signal.SIGINT, timeout=20.0):
    """Send a signal; give exit code, seconds until the end, and what was printed."""
    begun = time.monotonic()
    process.send_signal(number)
    output, _ = process.communicate(timeout=timeout)
    return process.returncode, time.monotonic() - begun, output

"""Start simulated robots for tests; of those with a clock there must be one at a time."""

import contextlib
import signal
import subprocess
import sys

SEED = 1_000_003


@contextlib.contextmanager
def sim_robot(namespace, *parameters, task='reach'):
    given = [f'task:={task}', f'sim_robot.seed:={SEED}', *parameters]
    process = subprocess.Popen(
        [sys.executable, '-m', 'asyncppo_ros.nodes.main', 'sim_robot', '--ros-args', '-r',
         f'__ns:=/{namespace}', *(text for one in given for text in ('-p', one))])
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(20)

"""Trainings as jobs: processes of their own, so many at a time, each with a log file."""

from collections.abc import Callable, Iterator
import contextlib
import pathlib
import socket
import subprocess
import sys
from typing import Any, NamedTuple
import zlib

from asyncppo_ros.learning.jsonl import read_jsonl
from asyncppo_ros.nodes.process import child_environment, StopRequest
from asyncppo_ros.run import Run
from asyncppo_ros.settings import as_text

POLL_S = 0.5


class Job(NamedTuple):
    """
    One training.

    Attributes
    ----------
    run : Run
        Its folder.  A checkpoint in it is continued.
    verb : str
        ``train`` or ``train-local``.
    settings : mapping
        Dotted names to values.

    """

    run: Run
    verb: str
    settings: dict[str, object]

    @property
    def log(self) -> pathlib.Path:
        """What the training prints."""
        return self.run.folder.with_name(self.run.folder.name + '.log')

    def command(self) -> list[str]:
        """Give the command line that begins or continues the run."""
        options = ['--run_dir', str(self.run.folder)]
        if (self.run.checkpoint / 'checkpoint.safetensors').is_file():
            options = ['--resume', str(self.run.folder)]
        # Trainings at the same time must not listen at one address.
        own = {'transport.address': free_address()} if self.verb == 'train' else {}
        for name, value in {**own, **self.settings}.items():
            options += [f'--{name}', as_text(value)]
        return [sys.executable, '-m', 'asyncppo_ros.tools.cli', self.verb, *options]


class Ended(NamedTuple):
    """A job that is over: its exit code; `stopped` where `watch` ended it."""

    job: Job
    code: int
    stopped: bool


def run_jobs(jobs: Iterator[Job], workers: int, stop: StopRequest,
             watch: Callable[[Job], bool] = lambda job: False) -> Iterator[Ended]:
    """
    Run jobs, up to `workers` at a time, and give each as it ends.

    The next job is asked for only when there is room for it, so that it may depend on what was
    given before.

    Parameters
    ----------
    jobs : iterator of Job
    workers : int
    stop : StopRequest
        Ends everything; what was unfinished is not given.
    watch : callable, optional
        Looks at a running job; True ends it.

    """
    running: list[_Running] = []
    more = True
    try:
        while (more or running) and not stop():
            while more and len(running) < workers:
                job = next(jobs, None)
                if job is None:
                    more = False
                else:
                    running.append(_Running(job))
            for entry in running[:]:
                code = entry.process.poll()
                if code is not None:
                    running.remove(entry)
                    yield Ended(entry.job, code, entry.stopped)
                elif not entry.stopped and watch(entry.job):
                    entry.process.terminate()
                    entry.stopped = True
            stop.wait(POLL_S)
    finally:
        for entry in running:
            entry.process.terminate()
        for entry in running:
            entry.process.wait()


def free_address() -> str:
    """Give an address of this host where nobody listens."""
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return f'tcp://127.0.0.1:{probe.getsockname()[1]}'


def final_score(run: Run) -> dict[str, Any] | None:
    """Give the evaluation at the end of a training; None = it is not finished."""
    finals = [entry for entry in read_jsonl(run.evaluations_file) if entry.get('final')]
    return finals[-1] if finals else None


def tail_of(job: Job, lines: int = 3) -> str:
    """Give the last lines that a training printed."""
    with contextlib.suppress(OSError):
        return '\n'.join(job.log.read_text(errors='replace').splitlines()[-lines:])
    return ''


class _Running:
    """A job's process."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.stopped = False
        job.log.parent.mkdir(parents=True, exist_ok=True)
        # Each has the graph for itself.
        number = zlib.crc32(str(job.run.folder).encode()) % 100 + 1
        environment = {'ROS_DOMAIN_ID': str(number), **child_environment()}
        with open(job.log, 'ab') as log:
            self.process = subprocess.Popen(
                job.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=environment, start_new_session=True)

"""``asyncppo train``: one learner node, one evaluator node, and a supervisor with its actors."""

from collections.abc import Sequence
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

from asyncppo_ros.config import Config
from asyncppo_ros.errors import RunError, UserError
from asyncppo_ros.launching import check_task, namespace_of, NEEDED, require
from asyncppo_ros.learning.jsonl import Tail
from asyncppo_ros.nodes.process import child_environment, signals_held_back, StopRequest
from asyncppo_ros.robot.artefact import read_artefact
from asyncppo_ros.run import create, num_actors, replace_file, resolve, resume, Run
from asyncppo_ros.tools.arguments import Parser, settings_help, split_settings
from asyncppo_ros.tools.progress import Progress

# The promise is 5 s from the signal to the exit; the rest is for this process.
STOP_S = 4.0
POLL_S = 0.2


def parser_for(verb: str, description: str | None) -> Parser:
    """Give the parser of the options that `train` and `train-local` share."""
    import argparse
    parser = Parser(prog=f'asyncppo {verb}', description=description, epilog=settings_help(),
                    formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument('--config', action='append', default=[], metavar='FILE',
                        help='YAML file of settings; may be given again, later wins')
    parser.add_argument('--resume', default='', metavar='RUN',
                        help='continue this run (its counters, curves and settings)')
    parser.add_argument('--init_from', default='', metavar='ARTEFACT',
                        help='begin a new run from a trained policy')
    return parser


def open_run(own: Any, given: dict[str, Any], command: Sequence[str]) -> tuple[Run, Config]:
    """
    Make the folder of a new run, or open that of the one to resume.

    Raises
    ------
    UserError
        See `run.create`, `run.resume`.

    """
    import json
    if own.resume and own.init_from:
        raise RunError('--resume and --init_from exclude each other: a resumed run goes on from '
                       'its own checkpoint')
    if own.resume:
        return resume(own.resume, given, own.config)
    config = resolve(given, own.config)
    check_task(config.task, config.seed)
    num_actors(config)
    if own.init_from:
        read_artefact(own.init_from)
    run, config = create(config, command)
    if own.init_from:
        facts = {**run.facts(), 'init_from': str(pathlib.Path(own.init_from).absolute())}
        replace_file(run.run_file, (json.dumps(facts, indent=2) + '\n').encode())
    return run, config


def main(arguments: list[str], stop: StopRequest) -> int:
    """Train, show the progress, evaluate, and say where everything is."""
    parser = parser_for('train', __doc__)
    parser.add_argument('--namespace', default='asyncppo', help='ROS namespace of the run')
    own, given = split_settings(parser, arguments)
    namespace = namespace_of('--namespace ', own.namespace)
    require(NEEDED)
    run, config = open_run(own, given, ['asyncppo', 'train', *arguments])
    # Taken and given back: the learner takes it for the length of the run.
    run.lock()
    run.unlock()
    if stop():
        return 0
    print(f'task {config.task}: {num_actors(config)} actors × {config.actor.num_envs} '
          f'environments, {config.env_steps:,} env steps; run {run.folder}', file=sys.stderr)
    processes = Processes(run, namespace)
    progress = Progress(config.env_steps)
    try:
        processes.start()
        code = _watch(run, processes, progress, stop)
    finally:
        processes.stop()
        progress.close()
    if stop():
        print(f'stopped; continue with: asyncppo train --resume {run.folder}', file=sys.stderr)
        return 0
    if code != 0:
        if code == 2:
            raise UserError(processes.reason())
        print(processes.blame(code or 1), file=sys.stderr)
        return 1
    return finish(run, config, stop)


def finish(run: Run, config: Config, stop: StopRequest) -> int:
    """Evaluate the trained policy, draw the curves, and say what to run next."""
    import json

    from asyncppo_ros.acting.evaluation import Interrupted
    from asyncppo_ros.tools.evaluate import score_artefact, score_text
    from asyncppo_ros.tools.report import report
    print(f'evaluating {config.evaluation.final_episodes} deterministic episodes …',
          file=sys.stderr)
    try:
        score = score_artefact(read_artefact(run.policy_file), config.evaluation.final_episodes,
                               config.evaluation.seed, stop)
    except Interrupted:
        return 0
    with open(run.evaluations_file, 'a') as file:
        file.write(json.dumps({**score, 'final': True}) + '\n')
    png, page = report(run.folder)
    print(f'\n{score_text(score)}\n\n'
          f'  policy    {run.policy_file}\n'
          f'  metrics   {run.metrics_file}\n'
          f'  curves    {png}\n'
          f'            {page}\n\n'
          f'next:\n'
          f'  {_command("asyncppo")} eval {_relative(run.folder)} --episodes 100\n'
          f'  {_command("asyncppo")} render {_relative(run.folder)}\n'
          f'  {_command("tensorboard")} --logdir {_relative(run.folder / "tensorboard")}\n'
          f'  {_command("asyncppo")} train --resume {_relative(run.folder)} --env_steps '
          f'{2 * config.env_steps}')
    return 0


class Processes:
    """
    The processes of a run on this host: learner, evaluator, supervisor.

    Parameters
    ----------
    run : Run
    namespace : str
        ROS namespace of the run.

    """

    def __init__(self, run: Run, namespace: str) -> None:
        self._run = run
        self._ros = ['--ros-args', '--params-file', str(run.config_file),
                     '-r', f'__ns:=/{namespace.strip("/")}']
        self._namespace = namespace
        self._children: dict[str, subprocess.Popen] = {}

    def start(self) -> None:
        """Start all three, each with a log file of its own."""
        self._start('learner', self._ros)
        self._start('evaluator', self._ros)
        self._start('supervisor', ['--params-file', str(self._run.config_file),
                                   '--namespace', self._namespace])

    def exit_code(self) -> int | None:
        """
        Give the code that ends the run; None while it goes on.

        The learner decides: its end is the end of the run.  A supervisor that gave up ends it
        as well.  An evaluator that died does not.
        """
        learner = self._children['learner'].poll()
        if learner is not None:
            return learner
        supervisor = self._children['supervisor'].poll()
        return supervisor if supervisor else None

    def stop(self) -> None:
        """Ask all to end, and kill what has not ended in time."""
        for child in self._children.values():
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        for name, child in self._children.items():
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                print(f'{name} did not end in time: killed', file=sys.stderr)

    def reason(self) -> str:
        """Give the line in which a process told the user's mistake."""
        for name in ('learner', 'supervisor', 'evaluator'):
            if self._children[name].returncode == 2:
                lines = self._log(name).read_text(errors='replace').splitlines()
                marked = [line for line in lines if '_node: ' in line or 'supervisor: ' in line]
                told = next((line for line in marked if 'gave up' not in line
                             and '_node: ' in line), (marked or lines or ['?'])[-1])
                return told.partition(': ')[2] or told
        return f'see {self._run.logs}'

    def blame(self, code: int) -> str:
        """Say which process ended the run, with the end of its log."""
        name = next((name for name in ('learner', 'supervisor')
                     if self._children[name].returncode == code), 'learner')
        tail = self._log(name).read_text(errors='replace').splitlines()[-15:]
        return '\n'.join([*tail, f'asyncppo: the {name} ended with exit code {code}; its log is '
                          f'{self._log(name)}; continue with --resume {self._run.folder}'])

    def _log(self, name: str) -> pathlib.Path:
        return self._run.logs / f'{name}.log'

    def _start(self, name: str, arguments: list[str]) -> None:
        # A session of its own: Ctrl-C reaches this process alone, which then ends the others
        # in good order.
        with open(self._log(name), 'ab') as log, signals_held_back():
            self._children[name] = subprocess.Popen(
                [sys.executable, '-m', 'asyncppo_ros.nodes.main', name, *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env=child_environment())


def _watch(run: Run, processes: Processes, progress: Progress, stop: StopRequest) -> int | None:
    """Show what the run's files tell until a process ends the run or the user does."""
    rows, evaluations = Tail(run.metrics_file), Tail(run.evaluations_file)
    while True:
        ended = stop.wait(POLL_S)
        code = processes.exit_code()
        for evaluation in evaluations.read():
            progress.evaluation(evaluation)
        for row in rows.read() or [{}]:
            progress.update(row)
        if ended or code is not None:
            return code


def _relative(path: pathlib.Path) -> str:
    here = pathlib.Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _command(name: str) -> str:
    """Give a command of this installation as it can be typed here."""
    found = shutil.which(name)
    ours = pathlib.Path(sys.prefix) / 'bin' / name
    if found is not None and pathlib.Path(found).resolve() == ours.resolve():
        return name
    return _relative(ours) if ours.exists() else name

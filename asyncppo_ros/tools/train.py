"""``asyncppo train``: one learner node, one evaluator node, and a supervisor with its actors."""

from collections.abc import Callable, Sequence
import functools
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

from asyncppo_ros.cluster.ray_command import add_options, fleet_of, GAVE_UP, NAME, RayFleet
from asyncppo_ros.config import Config
from asyncppo_ros.errors import RunError, UserError
from asyncppo_ros.launching import (
    check_keys,
    check_lag,
    check_resume,
    check_task,
    namespace_of,
    NEEDED,
    require,
)
from asyncppo_ros.learning.jsonl import Tail
from asyncppo_ros.nodes.process import (
    child_environment,
    how_it_ended,
    signals_held_back,
    StopRequest,
)
from asyncppo_ros.nodes.restarts import Restarts
from asyncppo_ros.robot.artefact import read_artefact
from asyncppo_ros.run import create, num_actors, replace_file, resolve, resume, Run
from asyncppo_ros.tools.arguments import Parser, settings_help, split_settings
from asyncppo_ros.tools.auto import settled
from asyncppo_ros.tools.progress import Progress

# The promise is 5 s from the signal to the exit; the rest is for this process.
STOP_S = 4.0
POLL_S = 0.2
# A process of the run that dies of a signal or a fault is started again so often in a row.
MAX_RESTARTS = 3


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


def open_run(own: Any, given: dict[str, Any], command: Sequence[str],
             check: Callable[[Config], None], settle: Callable[[Config], Config],
             nodes: bool = True) -> tuple[Run, Config]:
    """
    Make the folder of a new run, or open that of the one to resume.

    Parameters
    ----------
    own : Namespace
        Of `parser_for`.
    given : dict from str to value
        Settings, by dotted name.
    command : sequence of str
        Is written into ``run.json``.
    check : callable
        Refuses settings that do not suit the verb.
    settle : callable
        Replaces `auto` by numbers; see `tools.auto`.
    nodes : bool
        The learner is a node; else it trains in one process.

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
        def agreed(config: Config) -> Config:
            check(config)
            config = settle(config)
            check_resume(config, nodes=nodes)
            return config

        return resume(own.resume, given, own.config, agreed)
    config = resolve(given, own.config)
    check(config)
    check_task(config.task, config.seed)
    check_keys(config.transport.keys)
    if own.init_from:
        read_artefact(own.init_from)
    config = settle(config)
    num_actors(config)
    run, config = create(config, command)
    if own.init_from:
        facts = {**run.facts(), 'init_from': str(pathlib.Path(own.init_from).absolute())}
        replace_file(run.run_file, (json.dumps(facts, indent=2) + '\n').encode())
    return run, config


def main(arguments: list[str], stop: StopRequest) -> int:
    """Train, show the progress, evaluate, and say where everything is."""
    parser = parser_for('train', __doc__)
    parser.add_argument('--namespace', default='asyncppo', help='ROS namespace of the run')
    add_options(parser)
    own, given = split_settings(parser, arguments)
    namespace = namespace_of('--namespace ', own.namespace)
    require(NEEDED)
    fleet = fleet_of(own)

    def check(config: Config) -> None:
        check_lag(config)
        if fleet is not None:
            fleet.check(config)

    settle = functools.partial(settled, stop=stop, tell=tell)
    run, config = open_run(own, given, ['asyncppo', 'train', *arguments], check, settle)
    # Taken and given back: the learner takes it for the length of the run.
    run.lock()
    run.unlock()
    if stop():
        return 0
    begins = '' if config.num_actors or fleet is not None else 'at first '
    print(f'task {config.task}: {begins}{num_actors(config)} actors × {config.actor.num_envs} '
          f'environments, {config.env_steps:,} env steps; run {run.folder}', file=sys.stderr)
    progress = Progress(config.env_steps)
    processes = Processes(run, namespace, progress.message, fleet)
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


def tell(text: str) -> None:
    """Say something beside the results."""
    print(text, file=sys.stderr)


class Processes:
    """
    The processes of a run on this host: learner, evaluator, and the owner of the actors.

    Parameters
    ----------
    run : Run
    namespace : str
        ROS namespace of the run.
    tell : callable
        Is given a line for the user when a process died.
    fleet : RayFleet, optional
        Owns the actors in the place of a supervisor.

    """

    def __init__(self, run: Run, namespace: str,
                 tell: Callable[[str], None] = lambda text: None,
                 fleet: RayFleet | None = None) -> None:
        ros = ['--ros-args', '--params-file', str(run.config_file),
               '-r', f'__ns:=/{namespace.strip("/")}']
        owner = _Child('supervisor', ['--params-file', str(run.config_file), '--namespace',
                                      namespace], run.logs) if fleet is None else \
            _Child(NAME, fleet.arguments(run), run.logs, fleet.sweep)
        self._run = run
        self._tell = tell
        self._fleet = fleet
        self._owner = owner.name
        self._children = {'learner': _Child('learner', ros, run.logs),
                          'evaluator': _Child('evaluator', ros, run.logs),
                          owner.name: owner}

    def start(self) -> None:
        """Start all three, each with a log file of its own."""
        for child in self._children.values():
            child.start()

    def tend(self) -> None:
        """Start again, after a pause, what died of a signal or a fault; tell the user."""
        for child in self._children.values():
            text = child.tend(time.monotonic())
            if text:
                self._tell(text)
        news = self._fleet.news(self._run) if self._fleet is not None else ''
        if news:
            self._tell(news)

    def exit_code(self) -> int | None:
        """
        Give the code that ends the run; None while it goes on.

        The learner decides: its end, other than by a death that `tend` mends, is the end of the
        run.  A supervisor or a fleet that gave up ends it as well.  An evaluator that died does
        not.
        """
        learner = self._children['learner'].ended
        if learner is not None:
            return learner
        return self._children[self._owner].ended or None

    def stop(self) -> None:
        """Ask all to end, and kill what has not ended in time."""
        for child in self._children.values():
            child.terminate()
        deadline = time.monotonic() + STOP_S
        for name, child in self._children.items():
            if not child.wait(deadline - time.monotonic()):
                print(f'{name} did not end in time: killed', file=sys.stderr)
        if self._fleet is not None:
            self._fleet.close()

    def reason(self) -> str:
        """Give the line in which a process told the user's mistake."""
        for name in ('learner', self._owner, 'evaluator'):
            if self._children[name].ended == 2:
                lines = self._children[name].log.read_text(errors='replace').splitlines()
                marked = [line for line in lines
                          if '_node: ' in line or f'{self._owner}: ' in line]
                told = next((line for line in marked if 'gave up' not in line
                             and '_node: ' in line), (marked or lines or ['?'])[-1])
                return told.partition(': ')[2] or told
        return f'see {self._run.logs}'

    def blame(self, code: int) -> str:
        """Say which process ended the run, with the end of its log."""
        name = next((name for name in ('learner', self._owner)
                     if self._children[name].ended == code), 'learner')
        log = self._children[name].log
        tail = log.read_text(errors='replace').splitlines()[-15:]
        return '\n'.join([*tail, f'asyncppo: the {name} ended with {how_it_ended(code)}; its log '
                          f'is {log}; continue with --resume {self._run.folder}'])


class _Child:
    """
    One process of a run, started again when it dies of a signal or a fault.

    Attributes
    ----------
    name : str
    log : Path
    ended : int or None
        Exit code once it is over for good.

    """

    def __init__(self, name: str, arguments: Sequence[str], logs: pathlib.Path,
                 sweep: Callable[[int], None] = lambda pid: None) -> None:
        self.name = name
        self.log = logs / f'{name}.log'
        self.ended: int | None = None
        self._sweep = sweep
        self._command = [sys.executable, '-m', 'asyncppo_ros.nodes.main', name, *arguments]
        self._process: subprocess.Popen | None = None
        self._restarts = Restarts(MAX_RESTARTS + 1)

    def start(self) -> None:
        # A session of its own: Ctrl-C reaches this process alone, which then ends the others
        # in good order.
        with open(self.log, 'ab') as log, signals_held_back():
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, env=child_environment())
        self._restarts.started(time.monotonic())

    def tend(self, now: float) -> str:
        """Reap or start again, whatever is due; give a line for the user, mostly empty."""
        if self.ended is not None:
            return ''
        if self._process is None:
            if self._restarts.due(now):
                self.start()
            return ''
        code = self._process.poll()
        if code is None:
            return ''
        self._sweep(self._process.pid)
        return self._reap(code, now)

    def _reap(self, code: int, now: float) -> str:
        if not self._mends(code):
            self.ended = code
            return ''
        pause = self._restarts.crashed(now)
        died = f'the {self.name} died with {how_it_ended(code)}'
        if pause is None:
            self.ended = code
            return f'{died}, {self._restarts.crashes} times in a row: it is not started again'
        self._process = None
        goes_on = ' from the last checkpoint' if self.name == 'learner' else ''
        return f'{died}: started again{goes_on} in {pause:g} s ({self.log})'

    def _mends(self, code: int) -> bool:
        """Say whether another start may help; a supervisor ends with 1 when it gave up."""
        return code < 0 if self.name == 'supervisor' else code not in (0, 2, GAVE_UP)

    def terminate(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            # One that is stopped would take its SIGTERM only when it goes on.
            self._process.send_signal(signal.SIGCONT)

    def wait(self, seconds: float) -> bool:
        """Wait for the end and kill after that; say whether it ended by itself."""
        if self._process is None:
            return True
        try:
            self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return False
        finally:
            self._sweep(self._process.pid)
        return True


def _watch(run: Run, processes: Processes, progress: Progress, stop: StopRequest) -> int | None:
    """Show what the run's files tell until a process ends the run or the user does."""
    rows, evaluations = Tail(run.metrics_file), Tail(run.evaluations_file)
    while True:
        ended = stop.wait(POLL_S)
        if not ended:
            processes.tend()
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

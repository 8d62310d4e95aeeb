"""A run: its folder, who may write to it, and how its settings come together."""

from collections.abc import Callable, Mapping, Sequence
import contextlib
import datetime
import fcntl
import json
import os
import pathlib
import platform
import secrets
from typing import Any

from asyncppo_ros import __version__
from asyncppo_ros.config import Config
from asyncppo_ros.cores import usable_cores
from asyncppo_ros.errors import ConfigError, ResourceError, RunError
from asyncppo_ros.resources import find
from asyncppo_ros.settings import build, read_yaml, to_dict, write_yaml

# A run may be resumed with other values of these, but not of the rest of `policy.`.
POLICY_FILE = 'policy.safetensors'


class Run:
    """
    The folder of a run.

    Parameters
    ----------
    folder : path
        ``RUN``; see the attributes for what lies in it.

    """

    def __init__(self, folder: str | pathlib.Path) -> None:
        self.folder = pathlib.Path(folder).absolute()
        self.config_file = self.folder / 'config.yaml'
        self.run_file = self.folder / 'run.json'
        self.metrics_file = self.folder / 'metrics.jsonl'
        self.chunks_file = self.folder / 'chunks.csv'
        self.evaluations_file = self.folder / 'evaluations.jsonl'
        self.policy_file = self.folder / POLICY_FILE
        self.policies = self.folder / 'policies'
        self.checkpoint = self.folder / 'checkpoint'
        self.logs = self.folder / 'logs'
        self._lock: Any = None
        self._last_holder = ''

    def lock(self) -> None:
        """
        Take the folder for this process until it ends.

        Raises
        ------
        RunError
            Another process trains in it.

        """
        file = open(self.folder / '.lock', 'a+')  # noqa: SIM115 - held until the process ends
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip()
            file.close()
            raise RunError(f'run_dir = {self.folder}: in use by process {holder or "?"}; choose '
                           'another folder with --run_dir or wait until it ends') from None
        file.seek(0)
        self._last_holder = file.read()
        self._lock = file
        self._name_holder(str(os.getpid()))

    def unlock(self) -> None:
        """Give the folder back as it was."""
        if self._lock is not None:
            self._name_holder(self._last_holder)
            self._lock.close()
            self._lock = None

    def _name_holder(self, text: str) -> None:
        self._lock.truncate(0)
        self._lock.write(text)
        self._lock.flush()

    def config(self) -> Config:
        """Read the settings that the run was made with."""
        return build(Config, read_yaml(self.config_file))

    def facts(self) -> dict[str, Any]:
        """Read ``run.json``."""
        try:
            return json.loads(self.run_file.read_text())
        except (OSError, ValueError) as error:
            raise RunError(f'{self.run_file}: {error}') from None

    def is_run(self) -> bool:
        """Say whether the folder holds a run."""
        return self.run_file.is_file() and self.config_file.is_file()


def resolve(overrides: Mapping[str, Any], files: Sequence[str | pathlib.Path] = (),
            base: Mapping[str, Any] | None = None) -> Config:
    """
    Bring the settings of a run together.

    Later wins: defaults, ``config/TASK.yaml`` of the package (where it has one), `base`,
    `files` in order, `overrides`.

    Raises
    ------
    ConfigError
        As `settings.build`.

    """
    values: dict[str, Any] = dict(base or {})
    for file in files:
        values.update(read_yaml(file))
    values.update(overrides)
    task = values.get('task', Config().task)
    if base is None and isinstance(task, str):
        with contextlib.suppress(ResourceError):
            values = {**read_yaml(find(f'config/{task_file(task)}')), **values}
    return build(Config, values)


def task_file(task: str) -> str:
    """Give the name of a task's settings file, safe on every file system."""
    return task.replace(':', '_').replace('/', '_') + '.yaml'


def create(config: Config, command: Sequence[str] = ()) -> tuple[Run, Config]:
    """
    Make the folder of a new run and write its settings into it.

    Returns
    -------
    run : Run
    config : Config
        With `run_dir` filled in.

    Raises
    ------
    RunError
        The folder exists and holds a run or other files, or cannot be made.

    """
    folder = pathlib.Path(config.run_dir or _new_name(config.task)).absolute()
    run = Run(folder)
    if run.is_run():
        raise RunError(f'run_dir = {folder}: holds a run already; continue it with '
                       f'--resume {folder} or choose another folder')
    if folder.exists() and not folder.is_dir():
        raise RunError(f'run_dir = {folder}: is a file')
    if folder.is_dir() and any(entry.name != '.lock' for entry in folder.iterdir()):
        raise RunError(f'run_dir = {folder}: is not empty; choose another folder')
    try:
        for part in (folder, run.policies, run.logs, folder / 'books'):
            part.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f'run_dir = {folder}: {error.strerror}') from None
    config = build(Config, {**to_dict(config), 'run_dir': str(folder)})
    write_yaml(config, run.config_file,
               f'All settings of this run, made by asyncppo_ros {__version__}.\n'
               'A ROS parameter file: --ros-args --params-file, or asyncppo --config.')
    facts = {'run_id': secrets.randbits(62), 'task': config.task, 'seed': config.seed,
             'created': datetime.datetime.now().astimezone().isoformat(timespec='seconds'),
             'command': list(command), 'versions': versions(), 'machine': machine()}
    replace_file(run.run_file, (json.dumps(facts, indent=2) + '\n').encode())
    point_latest(folder)
    return run, config


def resume(folder: str | pathlib.Path, overrides: Mapping[str, Any],
           files: Sequence[str | pathlib.Path] = (),
           settle: Callable[[Config], Config] = lambda config: config) -> tuple[Run, Config]:
    """
    Open a run to continue it, with some settings changed if so wished.

    Before they are written `settle` may replace what is to be found out, such as `auto`, or
    refuse them.  A run that is refused stays as it is.

    Raises
    ------
    RunError
        The folder holds no run or no checkpoint, another process trains in it, or another task
        is asked for.
    UserError
        See `resolve` and `settle`.

    """
    # `latest` is a link that would come to point to itself.
    run = Run(pathlib.Path(folder).resolve())
    if not run.is_run():
        raise RunError(f'--resume {folder}: no run there (run.json and config.yaml are missing)')
    # Not while another process trains with its settings.
    run.lock()
    try:
        if not (run.checkpoint / 'checkpoint.safetensors').is_file():
            raise RunError(f'--resume {folder}: no checkpoint in {run.checkpoint}; start anew '
                           f'with --config {run.config_file}')
        old = to_dict(run.config())
        config = resolve({**overrides, 'run_dir': str(run.folder)}, files, base=old)
        if config.task != old['task']:
            raise RunError(f'--resume {folder}: that run learned task {old["task"]}, not '
                           f'{config.task}')
        config = settle(config)
        write_yaml(config, run.config_file, 'All settings of this run, as last resumed.')
    finally:
        run.unlock()
    point_latest(run.folder)
    return run, config


def find_run(folder: str | pathlib.Path) -> Run:
    """
    Open a run to read from it.

    Raises
    ------
    RunError
        The folder holds no run.

    """
    run = Run(folder)
    if not run.is_run():
        raise RunError(f'{folder}: no run there (run.json and config.yaml are missing); runs lie '
                       'under runs/, the newest is runs/latest')
    return run


def versions() -> dict[str, str]:
    """Give the versions of what matters for a result, without importing any of it."""
    from importlib.metadata import PackageNotFoundError, version
    found = {'asyncppo_ros': __version__, 'python': platform.python_version()}
    for name in ('torch', 'mujoco', 'gymnasium', 'numpy', 'pyzmq', 'ros-jazzy-rclpy',
                 'ros-kilted-rclpy'):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    if 'ROS_DISTRO' in os.environ:
        found['ROS_DISTRO'] = os.environ['ROS_DISTRO']
    return found


def machine() -> dict[str, Any]:
    """Describe the machine: processor, cores that may be used, memory [GiB], system."""
    facts: dict[str, Any] = {'system': platform.platform(), 'cores': usable_cores()}
    try:
        lines = pathlib.Path('/proc/cpuinfo').read_text().splitlines()
        facts['processor'] = next(line.split(':', 1)[1].strip() for line in lines
                                  if line.startswith('model name'))
        pages, size = os.sysconf('SC_PHYS_PAGES'), os.sysconf('SC_PAGE_SIZE')
        facts['memory_gib'] = round(pages * size / 2 ** 30, 1)
    except (OSError, StopIteration, ValueError):
        facts['processor'] = platform.processor()
    return facts


def check_source(config: Config) -> None:
    """
    Refuse what an actor cannot do.

    Raises
    ------
    ConfigError
        It has a robot and several environments, or nobody has said how many it has.

    """
    if config.actor.num_envs == 0:
        raise ConfigError('actor.num_envs = auto: is settled when a run is made; a process on its '
                          'own needs a number, or the config.yaml of the run')
    if config.actor.source == 'robot' and config.actor.num_envs != 1:
        raise ConfigError(f'actor.num_envs = {config.actor.num_envs}: must be 1 where '
                          'actor.source = robot: an actor has one robot')


def actors_by_cores() -> int:
    """
    Say how many actors the cores of this host have room for.

    On few cores one actor a core: whatever core the learner leaves idle is used.  On more the
    learner keeps one for itself.
    """
    cores = usable_cores()
    return cores if cores <= 2 else cores - 1


def most_actors(config: Config, num_envs: int) -> int:
    """Say how many actors of so many environments the batch, and the user, have room for."""
    room = max(1, config.learner.batch_size // (num_envs * config.actor.chunk_length))
    return room if config.num_actors else min(room, config.max_actors or room)


def num_actors(config: Config) -> int:
    """
    Say how many actors this host starts with: by its cores, where that is not settled.

    Where `num_actors` is auto there may be more or fewer of them later.

    Raises
    ------
    ConfigError
        The batch is smaller than one chunk of every actor, or see `check_source`.

    """
    check_source(config)
    if config.actor.source == 'robot':
        return 1
    chunk = config.actor.num_envs * config.actor.chunk_length
    most, count = most_actors(config, config.actor.num_envs), config.num_actors
    if not count:
        return min(most, config.actors_at_start or actors_by_cores())
    if count > most:
        raise ConfigError(
            f'learner.batch_size = {config.learner.batch_size}: must hold at least one chunk of '
            f'each of {count} actors: {count} × actor.num_envs {config.actor.num_envs} × '
            f'actor.chunk_length {config.actor.chunk_length} = {count * chunk} transitions')
    return count


def replace_file(path: pathlib.Path, data: bytes, durable: bool = False) -> None:
    """
    Replace a file in one step: readers see the old or the new bytes, never a part.

    Parameters
    ----------
    path : Path
    data : bytes
    durable : bool
        Wait until the bytes are on the disk, so that a power cut loses nothing either.

    Raises
    ------
    OSError
        The disk is full or read-only; the old file is untouched.

    """
    temporary = path.with_name(f'.{path.name}.{os.getpid()}')
    try:
        with open(temporary, 'wb') as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def point_latest(folder: pathlib.Path) -> None:
    """Let ``latest`` beside the run point to it."""
    link = folder.parent / 'latest'
    if link.exists() and not link.is_symlink():
        return
    temporary = folder.parent / f'.latest.{os.getpid()}'
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(folder.name)
    os.replace(temporary, link)


def _new_name(task: str) -> pathlib.Path:
    stamp = datetime.datetime.now().strftime('%Y%m%d-%H%M%S')
    name = f'{pathlib.Path(task_file(task)).stem}-{stamp}'
    folder = pathlib.Path('runs') / name
    suffix = 1
    while folder.exists():
        suffix += 1
        folder = pathlib.Path('runs') / f'{name}-{suffix}'
    return folder

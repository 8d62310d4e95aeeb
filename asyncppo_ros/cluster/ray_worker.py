"""
What runs in a worker process of Ray: the loop of an actor.

Neither ROS nor Ray is imported here, and what is heavy only where an actor begins.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import os
import pathlib
import queue
import socket
import sys
import tempfile
import threading
from typing import Any, NamedTuple

from asyncppo_ros.config import Config
from asyncppo_ros.errors import UserError
from asyncppo_ros.nodes.process import missing_dependency
from asyncppo_ros.robot.signing import key_folder, read_secret, SIGNING_KEY_FILE
from asyncppo_ros.settings import build

# What an actor reads of the folder that `asyncppo keys` made for it.
_KEY_FILES = ('actor.key_secret', 'learner.key', SIGNING_KEY_FILE)


@dataclasses.dataclass(frozen=True, repr=False)
class KeyFiles:
    """
    The keys of an actor on their way to another host; no log shows what they are.

    Attributes
    ----------
    contents : dict from str to bytes
        By the names of the files.

    """

    contents: dict[str, bytes]

    @classmethod
    def of(cls, keys: str) -> 'KeyFiles':
        """
        Read those of the folder that ``transport.keys`` names.

        Raises
        ------
        ConfigError
            A file is missing or can be read by others.

        """
        folder = key_folder(keys, 'actor')
        return cls({name: (folder / name).read_bytes() if name == 'learner.key'
                    else read_secret(folder / name) for name in _KEY_FILES})

    def __repr__(self) -> str:
        """Name the files alone."""
        return f'KeyFiles({", ".join(self.contents)})'


class Answer(NamedTuple):
    """
    A sign of life of a worker process.

    Attributes
    ----------
    host : str
        Its name.
    pid : int
    said : list of str
        Lines for people since the last answer.

    """

    host: str
    pid: int
    said: list[str]


class Collector:
    """
    One actor of a run in a worker process; one thread collects while another answers.

    Parameters
    ----------
    settings : dict from str to value
        All settings of the run, by dotted name.
    actor_id : int
        Unique in the run.
    keys : KeyFiles, optional
        Where they are not on this host.
    paths : sequence of str
        Where tasks of the user may lie beside what is installed.

    """

    def __init__(self, settings: dict[str, Any], actor_id: int, keys: KeyFiles | None = None,
                 paths: tuple[str, ...] = ()) -> None:
        self._settings = settings
        self._actor_id = actor_id
        self._keys = keys
        self._stop = threading.Event()
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        sys.path += [path for path in paths if path not in sys.path]

    def answer(self) -> Answer:
        """Show that this process lives."""
        said = []
        with contextlib.suppress(queue.Empty):
            while True:
                said.append(self._said.get_nowait())
        return Answer(socket.gethostname(), os.getpid(), said)

    def collect(self) -> str:
        """Collect until the learner or `stop` ends it; give the user's mistake, or ''."""
        try:
            self._collect()
        except UserError as error:
            return str(error)
        except ModuleNotFoundError as error:
            missing = missing_dependency(error)
            if missing is None:
                raise
            return str(missing)
        return ''

    def stop(self) -> None:
        """Ask `collect` to end."""
        self._stop.set()

    def _collect(self) -> None:
        # As for the actors of a supervisor: MuJoCo draws nothing here.
        os.environ.setdefault('MUJOCO_GL', 'disable')
        from asyncppo_ros.acting.actor import Actor
        from asyncppo_ros.robot.signing import signing_key
        from asyncppo_ros.transport.policy_channel import PolicySubscriber
        from asyncppo_ros.transport.policy_fetch import ZmqPolicySubscriber
        from asyncppo_ros.transport.sender import ZmqChunkSender
        with contextlib.ExitStack() as files:
            settings = dict(self._settings)
            if self._keys is not None:
                settings['transport.keys'] = files.enter_context(unpacked(self._keys))
            key = signing_key(settings['transport.keys'])

            def policies_from(sender: ZmqChunkSender) -> PolicySubscriber:
                # There is a line to the learner: the sender has read its keys.
                files.close()
                return ZmqPolicySubscriber(sender, key, self._said.put)

            Actor(build(Config, settings), self._actor_id, policies_from, self._stop.is_set,
                  lambda: None, self._said.put).collect()


@contextlib.contextmanager
def unpacked(keys: KeyFiles) -> Iterator[str]:
    """Lay keys into a folder that only this user can read, for as long as they are needed."""
    with tempfile.TemporaryDirectory(prefix='asyncppo-keys-') as folder:
        for name, content in keys.contents.items():
            path = pathlib.Path(folder) / name
            path.touch(mode=0o600)
            path.write_bytes(content)
        yield folder

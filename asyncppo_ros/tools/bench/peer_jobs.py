"""Peers of benches: their scripts, the interpreters that have them, trainings by them."""

from collections.abc import Mapping, Sequence
import importlib
import json
import pathlib
import pkgutil
import subprocess
from types import ModuleType
from typing import Any, NamedTuple

from asyncppo_ros.errors import ConfigError
from asyncppo_ros.robot.artefact import read_artefact
from asyncppo_ros.robot.numpy_policy import NumpyPolicy
from asyncppo_ros.tools.bench import peers
from asyncppo_ros.tools.bench.peers.peer_script import play
from asyncppo_ros.tools.jobs import Job

OURS = 'asyncppo_ros'
# Of the episodes that all are scored by.
EVALUATION_SEED = 1_000_003


class Peer(NamedTuple):
    """
    A package that is compared with.

    Attributes
    ----------
    name : str
        A key of `scripts`.
    python : str
        The interpreter that has it.
    variants : tuple of str
        Those that were asked for; empty = as the script says for what is measured.

    """

    name: str
    python: str
    variants: tuple[str, ...] = ()

    @property
    def script(self) -> Any:
        """Its script, which is only looked at here."""
        return scripts()[self.name]

    def chosen(self, usual: Sequence[str]) -> tuple[str, ...]:
        """Give the variants that are to run where usually these do."""
        return self.variants or tuple(usual)


def scripts() -> dict[str, ModuleType]:
    """Give the script of every peer: ``peers/NAME_ALGORITHM.py`` by its name."""
    files = sorted(entry.name for entry in pkgutil.iter_modules(peers.__path__)
                   if entry.name != 'peer_script')
    return {file.rpartition('_')[0]: importlib.import_module(f'{peers.__name__}.{file}')
            for file in files}


def named(given: Sequence[str], variants: Sequence[str] = ()) -> list[Peer]:
    """
    Read ``NAME=INTERPRETER`` and ``NAME:VARIANT``.

    Raises
    ------
    ConfigError
        No such peer or variant, or one that is named twice, or has no interpreter.

    """
    found: dict[str, Peer] = {}
    for word in given:
        name, _, python = word.partition('=')
        if name not in scripts():
            raise ConfigError(f'--peer {word}: there is no peer {name}; there are '
                              f'{", ".join(scripts())}')
        if not python or name in found:
            raise ConfigError(f'--peer {word}: must be NAME=INTERPRETER, each name once')
        # The path is kept as it is: a link into a virtual environment is what names it.
        found[name] = Peer(name, str(pathlib.Path(python).expanduser().absolute()))
    for word in variants:
        name, _, variant = word.partition(':')
        if name not in found:
            raise ConfigError(f'--variants {word}: --peer {name}=INTERPRETER is not given')
        allowed = found[name].script.VARIANTS
        if variant not in allowed:
            raise ConfigError(f'--variants {word}: must be {name}: and one of '
                              f'{", ".join(allowed)}')
        found[name] = found[name]._replace(variants=(*found[name].variants, variant))
    return list(found.values())


def require_interpreter(peer: Peer, option: str) -> None:
    """
    Check that a peer can run, before anything does.

    Parameters
    ----------
    peer : Peer
    option : str
        By which it was given, for the message.

    Raises
    ------
    ConfigError
        The interpreter is not there, or lacks what the script needs.

    """
    try:
        found = subprocess.run([peer.python, '-c', f'import {", ".join(peer.script.NEEDS)}'],
                               capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigError(f'{option}: {error.strerror}') from None
    if found.returncode != 0:
        why = (found.stderr.strip().splitlines() or ['it failed'])[-1]
        raise ConfigError(f'{option}: {why}; there: pip install {peer.script.INSTALL}')


class PeerJob(Job):
    """
    A training by the script of a peer.

    `verb` is the interpreter, and `settings` are the options of the script and ``peer``, the
    name of the script.
    """

    @property
    def result(self) -> pathlib.Path:
        """What the script writes when it is done."""
        return self.run.folder / 'result.json'

    def command(self) -> list[str]:
        """Give the command line of the script."""
        script = scripts()[str(self.settings['peer'])].__file__
        options = [text for name, value in self.settings.items() if name != 'peer'
                   for text in (f'--{name}', str(value))]
        return [self.verb, str(script), *options, '--out', str(self.result)]

    def found(self) -> dict[str, Any]:
        """Read the result."""
        return json.loads(self.result.read_text())


def returns_of(policy: pathlib.Path, kept: pathlib.Path, task: str, episodes: int) -> list[float]:
    """
    Play a policy of ours in the environment that peers are scored in, once.

    Parameters
    ----------
    policy : Path
        An artefact.
    kept : Path
        Takes the returns, and has them where that was done.
    task : str
        Gymnasium id.
    episodes : int

    Returns
    -------
    list of float [episodes]

    """
    if kept.is_file():
        returns = json.loads(kept.read_text())
        if len(returns) == episodes:
            return returns
    artefact = read_artefact(policy)
    numpy_policy, action = NumpyPolicy(artefact), artefact.card['task']['action']

    def act(observation: Any) -> Any:
        return numpy_policy.act(observation[None])[0] * action['scale'] + action['offset']

    returns = play(act, task, episodes, EVALUATION_SEED)
    kept.write_text(json.dumps(returns))
    return returns


def told(arguments: Sequence[str], private: Mapping[str, str]) -> list[str]:
    """
    Give a command line without places, which say nothing to others.

    Parameters
    ----------
    arguments : sequence of str
    private : mapping
        Option to its value, both of which are left out.

    """
    kept: list[str] = []
    for word in arguments:
        option, _, value = word.partition('=')
        if word in private or word in private.values() or (
                option in private and value == private[option]):
            continue
        before = f'{option}=' if option == '--peer' else ''
        name, _, python = word[len(before):].partition('=')
        # The name of the peer says enough.
        kept.append(f'{before}{name}=PYTHON' if python and name in scripts() else word)
    return kept

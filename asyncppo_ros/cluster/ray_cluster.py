"""The Ray cluster of a run: one of its own on this host, or one that runs already."""

from collections.abc import Callable, Iterator
import contextlib
import os
import shutil
import sys
import threading
from typing import Any, NamedTuple, NoReturn

import ray

from asyncppo_ros.cluster.ray_command import end_session
from asyncppo_ros.errors import AddressError, UserError
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.transport.zeromq import check_address, connectable

# Nothing but settings goes through Ray's store of objects [bytes]; it takes no less.
OBJECT_STORE = 80 * 2 ** 20
POLL_S = 0.05


class Cluster(NamedTuple):
    """
    Where actors can run.

    Attributes
    ----------
    host : str
        The address of this host in it.
    others : tuple of str
        The addresses of other hosts that are in it now.

    """

    host: str
    others: tuple[str, ...]


class Stopped(Exception):
    """A signal came while Ray was started."""


@contextlib.contextmanager
def opened(address: str, cpus: float, folder: str, stop: StopRequest) -> Iterator[Cluster]:
    """
    Start a local Ray, or join a cluster and leave it in the end.

    A local Ray is to be ended with `end_local_ray`.

    Parameters
    ----------
    address : str
        Of a running cluster; '' = a local Ray is started.
    cpus : float
        That a local Ray has to give.
    folder : str
        For the files of a local Ray.
    stop : StopRequest
        Is looked at meanwhile.

    Raises
    ------
    UserError
        There is no such cluster, or it does not take this host in.
    Stopped
        See above.

    """
    _in_background((lambda: _join(address)) if address else (lambda: _start(cpus, folder)), stop)
    try:
        own = ray.util.get_node_ip_address()
        hosts = {node['NodeManagerAddress'] for node in ray.nodes() if node['Alive']}
        yield Cluster(own, tuple(sorted(hosts - {own})))
    finally:
        if address:
            ray.shutdown()


def end_local_ray(code: int, folder: str) -> NoReturn:
    """
    End this process and the Ray that it has started, at once, with an exit code.

    Ray takes seconds to end its processes in turn, and they have nothing left to lose.
    """
    leader = os.getpid()
    if os.getsid(0) == leader:
        end_session(leader)
    else:
        ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)
    sys.stderr.flush()
    os._exit(code)


def learner_address(address: str, cluster: Cluster) -> str:
    """
    Give the address by which the workers of a cluster reach the learner.

    Parameters
    ----------
    address : str
        Where the learner binds.
    cluster : Cluster

    Raises
    ------
    AddressError
        It is of this host alone, and there are others.

    """
    if connectable(address) != address and cluster.others:
        # Every interface of this host: also the one that Ray has found.
        scheme, _, rest = address.partition('://')
        return f'{scheme}://{cluster.host}:{rest.rpartition(":")[2]}'
    if cluster.others and not reaches_others(address):
        raise AddressError(
            f'transport.address = {address}: workers on the other hosts of the Ray cluster '
            f'({", ".join(cluster.others[:3])}) cannot reach it; use tcp://{cluster.host}:PORT '
            'with --transport.keys (docs/ray.md)')
    return connectable(address)


def reaches_others(address: str) -> bool:
    """Say whether an address can be reached from other hosts."""
    if not address.startswith('tcp://'):
        return False
    try:
        check_address(address, allow_any=False)
    except AddressError:
        return True
    return False


def _in_background(connect: Callable[[], None], stop: StopRequest) -> None:
    """Run what takes long and hears no signals, and takes none over in a thread of its own."""
    failed: list[BaseException] = []
    done = threading.Event()

    def body() -> None:
        try:
            connect()
        except BaseException as error:  # noqa: BLE001 - raised again below
            failed.append(error)
        done.set()
        # Linux ends what Ray has started with this thread, not only with this process.
        threading.Event().wait()

    threading.Thread(target=body, name='ray.init', daemon=True).start()
    while not done.is_set():
        if stop.wait(POLL_S):
            raise Stopped
    if failed:
        raise failed[0]


def _start(cpus: float, folder: str) -> None:
    _init(address='local', num_cpus=cpus, num_gpus=0, include_dashboard=False,
          object_store_memory=OBJECT_STORE, _temp_dir=folder)


def _join(address: str) -> None:
    try:
        _init(address=address)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        why = ' '.join(str(error).split())[:300]
        # With an explicit address Ray shows its token to nobody unless it is told to.
        if 'AuthToken' in f'{error} {error.__cause__}':
            why = ('it demands a token: set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN where '
                   '~/.ray/auth_token has another')
        raise UserError(f'--ray_address {address}: this host cannot join a Ray cluster there '
                        f'({why})') from None


def _init(**options: Any) -> None:
    ray.init(log_to_driver=False, logging_level='ERROR', **options)

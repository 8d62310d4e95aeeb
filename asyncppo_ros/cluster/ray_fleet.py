"""
Ray fleet: owns the actors of a run as Ray actors, in the place of a supervisor.

Asks Ray for them, lets those collect that have been placed, notes which live, and takes all of
them along when it ends.
"""

import argparse
import os
import secrets
import sys
from typing import Any

from asyncppo_ros.cluster.ray_actors import Actor
from asyncppo_ros.cluster.ray_command import GAVE_UP, NAME
from asyncppo_ros.cluster.ray_worker import KeyFiles
from asyncppo_ros.config import Config
from asyncppo_ros.errors import UserError
from asyncppo_ros.launching import require
from asyncppo_ros.nodes.actor import NICENESS
from asyncppo_ros.nodes.actor_states import StatesRecord
from asyncppo_ros.nodes.process import guarded, StopRequest
from asyncppo_ros.nodes.supervisor import supervise_to_the_end
from asyncppo_ros.run import check_source, num_actors
from asyncppo_ros.settings import build, read_yaml, to_dict

# So long an actor may take leave of the learner; Ray itself needs the rest of the time.
STOP_S = 1.0


def run(arguments: list[str], stop: StopRequest) -> int:
    """Run the Ray fleet of a run."""
    parser = argparse.ArgumentParser(prog=NAME, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--params-file', required=True, help='settings of the run (config.yaml)')
    parser.add_argument('--address', default='', help='of a running cluster; empty = a local Ray')
    parser.add_argument('--cpus', type=float, default=1.0, help='that each actor asks for')
    parser.add_argument('--folder', default='', help='for the files of a local Ray')
    own = parser.parse_args(arguments)
    require(('ray',))
    config = build(Config, read_yaml(own.params_file))
    check_source(config)
    count = num_actors(config)
    if not own.address:
        _prepare_local_ray()
    # To import Ray takes seconds, and there is nothing yet to end in good order.
    stop.loading = True
    from asyncppo_ros.cluster.ray_cluster import end_local_ray
    stop.loading = False
    if own.address:
        _say('joins a Ray cluster')
        code = _with_ray(own, config, count, stop)
        if stop():
            # Ray's own threads may still be about to join.
            sys.stderr.flush()
            os._exit(code)
        return code
    _say('starts a local Ray')
    end_local_ray(guarded(lambda: _with_ray(own, config, count, stop), NAME), own.folder)


def _with_ray(own: argparse.Namespace, config: Config, count: int, stop: StopRequest) -> int:
    from asyncppo_ros.cluster.ray_cluster import opened, Stopped
    try:
        with opened(own.address, count * own.cpus, own.folder, stop) as cluster:
            return _own_actors(_requested(config, count, own.cpus, own.address, cluster),
                               config.run_dir, stop)
    except Stopped:
        return 0


def _prepare_local_ray() -> None:
    """Set what Ray reads when it is imported."""
    os.environ.setdefault('RAY_USAGE_STATS_ENABLED', '0')
    os.environ.setdefault('RAY_worker_niceness', str(NICENESS))
    # Ray listens on every interface: nobody but this run is to give it anything to do.
    os.environ['RAY_AUTH_MODE'] = 'token'
    os.environ['RAY_AUTH_TOKEN'] = secrets.token_hex(32)


def _requested(config: Config, count: int, cpus: float, joined: str,
               cluster: Any) -> list[Actor]:
    """Ask Ray for the actors."""
    from asyncppo_ros.cluster.ray_cluster import learner_address, reaches_others
    from asyncppo_ros.cluster.ray_placement import RayPlacement
    address = learner_address(config.transport.address, cluster)
    # Of this host alone the learner is reached from nowhere else, also from hosts still to come.
    beside = {} if reaches_others(address) else {f'node:{cluster.host}': 0.001}
    settings = {**to_dict(config), 'transport.policies': 'zmq', 'transport.address': address,
                'transport.keys': folder_there(config.transport.keys), 'run_dir': ''}
    keys = sent_keys(config.transport.keys, joined)
    paths = tuple(path for path in sys.path if path) if not joined else (os.getcwd(),)
    where = f'the Ray cluster of {cluster.host}' if joined else 'a local Ray'
    _say(f'{count} actors of {cpus:g} CPUs, {config.actor.num_envs} environments each, asked of '
         f'{where} for the learner at {address}')
    return [Actor(index, RayPlacement((settings, index, keys, paths), cpus, beside),
                  config.actor.max_crashes, _say) for index in range(count)]


def folder_there(keys: str) -> str:
    """Give ``transport.keys`` for a worker, whose working directory is another."""
    return keys if not keys or keys.startswith('~') else os.path.abspath(keys)


def sent_keys(keys: str, joined: str) -> KeyFiles | None:
    """
    Give the keys that go to the workers through Ray; None = each has them on its own host.

    Parameters
    ----------
    keys : str
        ``transport.keys``.
    joined : str
        Address of the cluster; '' = a local Ray.

    """
    # Ray sends everything in plain text unless it is told to use TLS.
    encrypted = os.environ.get('RAY_USE_TLS') == '1'
    return KeyFiles.of(keys) if keys and joined and encrypted else None


def _own_actors(actors: list[Actor], run_dir: str, stop: StopRequest) -> int:
    code = supervise_to_the_end(actors, stop, StatesRecord(
        run_dir, 0, lambda: [actor.state for actor in actors], _say), STOP_S)
    if code == 2:
        raise UserError(next(actor.quarantined for actor in actors if actor.exit_code == 2))
    return GAVE_UP if code else 0


def _say(text: str) -> None:
    print(f'{NAME}: {text}', file=sys.stderr, flush=True)

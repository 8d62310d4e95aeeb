"""A resume that is refused, by whatever, leaves every file of the run as it was."""

import socket
import sys

from harness import asyncppo
import pytest

from asyncppo_ros import launching
from asyncppo_ros.errors import UserError
from asyncppo_ros.nodes.process import guarded, StopRequest
from asyncppo_ros.run import Run
from asyncppo_ros.tools import cli, train

pytest.importorskip('mujoco')
torch = pytest.importorskip('torch')

TASK = """
from asyncppo_ros.simulation.cartpole_swingup import CartpoleSwingup


class Mine(CartpoleSwingup):
    def observation(self):
        return super().observation()[:{terms}]
"""
MORE = ('--env_steps', '4096')


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """Give a folder with a short run in `run`, that train-local has finished, and its task."""
    folder = tmp_path_factory.mktemp('resuming')
    (folder / 'own_tasks.py').write_text(TASK.format(terms=3))
    result = asyncppo(
        'train-local', '--task', 'own_tasks:Mine', '--run_dir', folder / 'run', '--env_steps', 512,
        '--actor.num_envs', 8, '--actor.chunk_length', 16, '--learner.batch_size', 512,
        '--evaluation.final_episodes', 1, '--num_actors', 1, cwd=folder)
    assert result.returncode == 0, result.stderr
    return folder


@pytest.fixture
def here(folder, monkeypatch):
    """Be in that folder, where nothing is started if a resume is not refused."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(train, 'Processes', None)
    monkeypatch.setattr(train, 'NEEDED', ())
    return folder


@pytest.fixture
def rehearsed_here(here, monkeypatch):
    """Rehearse in this process: a start of Python takes seconds."""
    from asyncppo_ros import rehearsal
    monkeypatch.syspath_prepend(here)
    monkeypatch.setattr(launching, 'check_nodes', lambda python, config: None)
    monkeypatch.setattr(launching, '_try', lambda python, arguments, config, told: (
        rehearsal.rehearse(Run(config.run_dir), config, '--local' not in arguments)))


def content(folder):
    return {path: path.readlink() if path.is_symlink() else path.read_bytes()
            for path in folder.rglob('*') if path.is_symlink() or path.is_file()
            if path.suffix != '.pyc'}


def refused(capsys, *arguments):
    """Resume by the command; give the one line that says why not."""
    before = content(Run('run').folder.parent)
    code = guarded(lambda: cli.run([*map(str, arguments)], StopRequest()), 'asyncppo')
    lines = capsys.readouterr().err.strip().splitlines()
    assert code == 2 and len(lines) == 1, lines
    assert content(Run('run').folder.parent) == before
    return lines[0]


def refused_by_launch(**arguments):
    values = {'task': 'reach', 'config': '', 'num_actors': 'auto', 'num_envs': '0',
              'env_steps': '0', 'seed': '-1', 'run_dir': '', 'resume': 'run',
              'python': sys.executable, **arguments}
    before = content(Run('run').folder.parent)
    with pytest.raises(UserError) as caught:
        launching.open_run(values)
    assert content(Run('run').folder.parent) == before
    return str(caught.value)


@pytest.mark.parametrize('verb', ['train', 'train-local'])
@pytest.mark.parametrize('arguments, text', [
    (('--task', 'reach'), 'that run learned task own_tasks:Mine, not reach'),
    (('--policy.hidden', '8'), 'policy.hidden: unknown setting'),
    (('--learner.discount', '2'), 'learner.discount = 2.0: must be in [0, 1]'),
    (('--config', 'none.yaml'), 'config file none.yaml'),
    (('--init_from', 'run'), '--resume and --init_from exclude each other'),
    (('--policy.hidden_sizes', '32,32'), 'its network differs: hidden_sizes [64, 64] (now'),
    (('--policy.critic_hidden_sizes', '8'), 'its critic (policy.privileged_critic, policy'),
    (('--num_actors', '4', '--learner.batch_size', '128'), 'must hold at least one chunk of'),
    (('--injected_lag.versions', '9', '--learner.max_policy_lag', '3'), 'injected_lag.versions'),
    (('--learner.ranks', '2', '--learner.device', 'cpu', '--learner.gradient_compression',
      'quantized'), 'learner.gradient_compression = quantized'),
    (('--learner.gradients', 'numpy', '--learner.ppo.objective', 'misread_dual_clip'),
     'learner.gradients = numpy'),
    pytest.param(('--learner.device', 'cuda'), 'learner.device = cuda', marks=pytest.mark.skipif(
        torch.cuda.is_available(), reason='there is a GPU')),
])
def test_settings_that_do_not_go_with_the_run(verb, arguments, text, rehearsed_here, capsys):
    assert text in refused(capsys, verb, '--resume', 'run', *MORE, *arguments)


@pytest.mark.parametrize('verb', ['train', 'train-local'])
def test_other_ranks_than_there_are(verb, rehearsed_here, capsys, monkeypatch):
    for name, value in {'RANK': '0', 'WORLD_SIZE': '3', 'MASTER_ADDR': '127.0.0.1',
                        'MASTER_PORT': '1'}.items():
        monkeypatch.setenv(name, value)
    line = refused(capsys, verb, '--resume', 'run', *MORE, '--learner.ranks', '2')
    assert 'learner.ranks = 2: WORLD_SIZE = 3 says' in line


@pytest.mark.parametrize('arguments, text', [
    (('--env_steps', '512'), 'all 512 env steps are done; ask for more with --env_steps'),
    ((*MORE, '--transport.keys', 'nowhere'), 'transport.keys: '),
    ((*MORE, '--transport.address', 'tcp://0.0.0.0:1'), 'other hosts could reach it'),
    ((*MORE, '--transport.address', 'tcp:/127.0.0.1'), 'cannot be bound'),
    ((*MORE, '--transport.allow_plain_text', 'true', '--transport.address', 'tcp://192.0.2.1:9'),
     'cannot be bound'),
    ((*MORE, '--namespace', '1a'), 'a ROS namespace is expected'),
])
def test_what_only_the_nodes_of_a_training_need(arguments, text, rehearsed_here, capsys):
    assert text in refused(capsys, 'train', '--resume', 'run', *arguments)


def test_an_address_in_use(rehearsed_here, capsys):
    with socket.socket() as other:
        other.bind(('127.0.0.1', 0))
        other.listen()
        address = f'tcp://127.0.0.1:{other.getsockname()[1]}'
        line = refused(capsys, 'train', '--resume', 'run', *MORE, '--transport.address', address)
    assert f'transport.address = {address}: in use' in line


@pytest.mark.parametrize('verb', ['train', 'train-local'])
def test_a_busy_run(verb, rehearsed_here, capsys):
    run = Run('run')
    run.lock()
    try:
        assert 'in use by process' in refused(capsys, verb, '--resume', 'run', *MORE)
        assert 'in use by process' in refused_by_launch(env_steps='4096')
    finally:
        run.unlock()


@pytest.mark.parametrize('verb', ['train', 'train-local'])
def test_a_checkpoint_that_is_damaged_or_missing(verb, rehearsed_here, capsys):
    path = Run('run').checkpoint / 'checkpoint.safetensors'
    good = path.read_bytes()
    try:
        path.write_bytes(good[:-100])
        assert 'damaged' in refused(capsys, verb, '--resume', 'run', *MORE)
        path.unlink()
        assert 'no checkpoint in' in refused(capsys, verb, '--resume', 'run', *MORE)
    finally:
        path.write_bytes(good)


def test_a_task_that_sees_other_things_now(here, capsys):
    """By the real check, in a process of its own."""
    try:
        (here / 'own_tasks.py').write_text(TASK.format(terms=2))
        line = refused(capsys, 'train-local', '--resume', 'run', *MORE)
    finally:
        (here / 'own_tasks.py').write_text(TASK.format(terms=3))
    assert line.endswith('its network differs: observation_size 5 (now 3)')


def test_a_launch_file_with_no_interpreter_or_too_few_steps(here, monkeypatch):
    assert 'no such interpreter' in refused_by_launch(python='/no/python', env_steps='4096')
    monkeypatch.setattr(launching, 'check_nodes', lambda python, config: None)
    assert refused_by_launch(env_steps='512').endswith('ask for more with env_steps:=')


def test_a_launch_file_with_other_settings(rehearsed_here, tmp_path):
    file = tmp_path / 'other.yaml'
    file.write_text('env_steps: 4096\npolicy: {hidden_sizes: [32]}\n')
    assert 'its network differs' in refused_by_launch(config=str(file))
    file.write_text('injected_lag: {versions: 2}\n')
    assert 'only `asyncppo train-local` injects lag' in refused_by_launch(config=str(file))
    assert 'exclude each other' in refused_by_launch(run_dir='other')


def test_what_is_not_refused_is_written(rehearsed_here):
    assert launching.open_run({
        'task': 'reach', 'config': '', 'num_actors': 'auto', 'num_envs': '0', 'seed': '3',
        'env_steps': '4096', 'run_dir': '', 'resume': 'run', 'python': sys.executable,
    }).config().seed == 3

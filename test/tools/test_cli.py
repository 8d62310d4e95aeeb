"""The command line: each mistake is one clear line and exit code 2, and nothing is lost."""

import json
import os
import pathlib
import subprocess
import sys

from harness import asyncppo, options
import numpy as np
import pytest

from asyncppo_ros.config import Config
from asyncppo_ros.nodes.process import guarded, StopRequest
from asyncppo_ros.run import create, resolve, Run
from asyncppo_ros.tools.cli import run, VERBS

SMALL = ('--env_steps', 2048, '--actor.num_envs', 8, '--actor.chunk_length', 16,
         '--learner.batch_size', 512, '--learner.ppo.minibatch_size', 128,
         '--evaluation.final_episodes', 3)


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
    """Give a short run that train-local has finished."""
    run = tmp_path_factory.mktemp('cli') / 'run'
    result = asyncppo('train-local', '--task', 'cartpole_swingup', '--run_dir', run, *SMALL)
    assert result.returncode == 0, result.stderr
    return run


def refused(*arguments, code=2, **kwargs):
    result = asyncppo(*arguments, **kwargs)
    lines = result.stderr.strip().splitlines()
    assert result.returncode == code, result.stderr
    assert len(lines) == 1 and lines[0].startswith('asyncppo: '), result.stderr
    assert result.stdout == ''
    return lines[0]


@pytest.fixture
def refused_here(capsys, monkeypatch, tmp_path):
    """Do as `refused`, in this process and an empty folder: a start of Python takes seconds."""
    monkeypatch.chdir(tmp_path)

    def run_verb(*arguments):
        code = guarded(lambda: run([*map(str, arguments)], StopRequest()), 'asyncppo')
        output = capsys.readouterr()
        lines = output.err.strip().splitlines()
        assert code == 2 and output.out == '', output
        assert len(lines) == 1 and lines[0].startswith('asyncppo: '), output.err
        return lines[0]
    return run_verb


def test_help_names_every_verb_and_setting():
    text = asyncppo('--help')
    assert text.returncode == 0 and all(verb in text.stdout for verb in VERBS)
    assert '--learner.ppo.dual_clip' in asyncppo('train-local', '--help').stdout
    assert asyncppo('--version').stdout.startswith('asyncppo_ros 0.')


def test_train_local_leaves_a_whole_run(finished):
    for name in ('config.yaml', 'run.json', 'metrics.jsonl', 'evaluations.jsonl', 'report.png',
                 'report.html', 'policy.safetensors', 'checkpoint/checkpoint.safetensors'):
        assert (finished / name).is_file(), name
    facts = json.loads((finished / 'run.json').read_text())
    assert facts['task'] == 'cartpole_swingup' and 'mujoco' in facts['versions']
    assert Run(finished).config().learner.batch_size == 512
    assert (finished.parent / 'latest').resolve() == finished


def test_eval_prints_one_json_object(finished):
    outputs = [asyncppo('eval', finished, '--episodes', 5, '--json').stdout for _ in range(2)]
    score = json.loads(outputs[0])
    assert outputs[0] == outputs[1]
    assert {'task', 'policy_version', 'episodes', 'return_mean', 'return_std', 'length_mean',
            'success'} <= score.keys()
    assert score['task'] == 'cartpole_swingup' and score['episodes'] == 5
    text = asyncppo('eval', finished / 'policy.safetensors', '--episodes', 2).stdout
    assert 'over 2 deterministic episodes' in text


def test_many_episodes_are_played_in_several_goes(finished):
    from asyncppo_ros.robot.artefact import read_artefact
    from asyncppo_ros.tools import evaluate
    score = evaluate.score_artefact(read_artefact(finished / 'policy.safetensors'), 130)
    assert score['episodes'] == 130 and np.isfinite(score['return_std'])


def test_resume_continues_and_init_from_begins_anew(finished, tmp_path):
    result = asyncppo('train-local', '--resume', finished, '--env_steps', 4096)
    assert result.returncode == 0, result.stderr
    rows = [json.loads(line) for line in (finished / 'metrics.jsonl').read_text().splitlines()]
    assert [row['env_steps'] for row in rows] == list(range(512, 4097, 512))
    assert [row['generation'] for row in rows] == [0] * 4 + [1] * 4
    new = tmp_path / 'new'
    result = asyncppo('train-local', '--task', 'cartpole_swingup', '--run_dir', new, *SMALL,
                      '--init_from', finished / 'policy.safetensors')
    assert result.returncode == 0, result.stderr
    first = json.loads((new / 'metrics.jsonl').read_text().splitlines()[0])
    assert first['env_steps'] == 512 and first['policy_version'] == 1


@pytest.mark.parametrize('verb', ['train', 'train-local'])
@pytest.mark.parametrize('arguments, text', [
    (('--task', 'reech'), "'reech'"),
    (('--task', 'no_such_package.tasks:Mine'), 'no_such_package'),
    (('--task', 'gymnasium:NoSuch-v9'), 'NoSuch'),
    (('--learner.ppo.clip', '0.1'), 'learner.ppo.clip: unknown setting'),
    (('--seed', 'one'), 'seed = one: expected a whole number'),
    (('--learner.discount', '2'), 'learner.discount = 2.0: must be in [0, 1]'),
    (('--num_actors', '4', '--learner.batch_size', '100'), 'must hold at least one chunk'),
    (('--config', 'none.yaml'), 'none.yaml'),
    (('--resume', 'no_run'), 'no run there'),
    (('--init_from', 'no_policy.safetensors'), 'no_policy.safetensors'),
])
def test_mistakes(verb, arguments, text, tmp_path, refused_here):
    if verb == 'train':
        pytest.importorskip('rclpy')
    assert text in refused_here(verb, *arguments)
    assert not (tmp_path / 'runs').exists()


@pytest.mark.parametrize('arguments, text', [
    (('fly',), 'no such verb'), (('eval', 'nowhere.safetensors'), 'there is no file'),
    (('report', 'nowhere'), 'nowhere'), (('books', 'nowhere'), 'nowhere'),
    (('eval',), 'RUN_OR_ARTEFACT'), (('eval', 'x', '--episodes', '0'), 'must be at least 1'),
])
def test_mistakes_of_other_verbs(arguments, text, refused_here):
    assert text in refused_here(*arguments)


def test_a_mistake_at_the_command_line(tmp_path):
    assert "'reech'" in refused('train-local', '--task', 'reech', cwd=tmp_path)


def test_a_run_is_never_overwritten(finished, tmp_path):
    before = (finished / 'policy.safetensors').read_bytes()
    line = refused('train-local', '--task', 'cartpole_swingup', '--run_dir', finished)
    assert 'holds a run already; continue it with --resume' in line
    assert (finished / 'policy.safetensors').read_bytes() == before
    (tmp_path / 'notes.txt').write_text('mine')
    assert 'is not empty' in refused('train-local', '--task', 'cartpole_swingup', '--run_dir',
                                     tmp_path)
    assert (tmp_path / 'notes.txt').read_text() == 'mine'


def test_a_run_in_use_is_named(finished):
    run = Run(finished)
    run.lock()
    try:
        line = refused('train-local', '--resume', finished, '--env_steps', 10 ** 6)
    finally:
        run.unlock()
    assert 'in use by process' in line


def test_resume_without_a_checkpoint_or_with_another_task(finished, tmp_path):
    empty, _ = create(resolve({'task': 'cartpole_swingup', 'run_dir': str(tmp_path / 'run')}))
    assert 'no checkpoint in' in refused('train-local', '--resume', empty.folder)
    line = refused('train-local', '--resume', finished, '--task', 'reach')
    assert 'learned task cartpole_swingup, not reach' in line


def test_damaged_policies(finished, tmp_path):
    data = (finished / 'policy.safetensors').read_bytes()
    cut, altered = tmp_path / 'cut.safetensors', tmp_path / 'altered.safetensors'
    cut.write_bytes(data[:-100])
    altered.write_bytes(data[:-100] + bytes(100))
    assert 'cut short' in refused('eval', cut)
    assert 'was altered' in refused('eval', altered)


def test_port_in_use(tmp_path):
    pytest.importorskip('rclpy')
    import zmq
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        port = socket.bind_to_random_port('tcp://127.0.0.1')
        address = f'tcp://127.0.0.1:{port}'
        result = asyncppo('train', '--task', 'cartpole_swingup', '--run_dir', tmp_path / 'run',
                          *options(transport__address=address))
    assert result.returncode == 2
    assert f'transport.address = {address}: in use' in result.stderr.splitlines()[-1]


@pytest.mark.parametrize('missing, verb', [('torch', 'train-local'), ('torch', 'train'),
                                           ('rclpy', 'train'), ('mujoco', 'train-local')])
def test_a_missing_library_is_named_with_the_interpreter_and_the_fix(missing, verb, tmp_path):
    if verb == 'train' and missing != 'rclpy':
        pytest.importorskip('rclpy')
    blocker = (f'import sys; sys.modules[{missing!r}] = None; '
               f'sys.argv = ["asyncppo", {verb!r}, "--task", "cartpole_swingup", "--run_dir", '
               f'{str(tmp_path / "run")!r}]; from asyncppo_ros.tools.cli import main; main()')
    result = subprocess.run([sys.executable, '-c', blocker], capture_output=True, text=True,
                            timeout=60)
    assert result.returncode == 2, result.stderr
    line = result.stderr.strip().splitlines()[-1]
    assert f'{missing} is missing from {sys.executable}' in line and 'pip install' in line
    assert 'Traceback' not in result.stderr


def test_default_run_folder_is_named_by_task(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run, config = create(Config(task='gymnasium:Hopper-v5'))
    assert pathlib.Path(config.run_dir).name.startswith('gymnasium_Hopper-v5-')
    again, _ = create(Config(task='gymnasium:Hopper-v5'))
    assert again.folder != run.folder
    assert (tmp_path / 'runs' / 'latest').resolve() == again.folder


def test_numbers_have_one_thread_unless_the_user_says_otherwise():
    program = ('import os, sys\nfrom asyncppo_ros.tools import cli\n'
               'assert "numpy" not in sys.modules and "torch" not in sys.modules\n'
               'sys.argv = ["asyncppo", "--version"]\n'
               'try:\n    cli.main()\nexcept SystemExit:\n'
               '    print(os.environ["OPENBLAS_NUM_THREADS"])')
    environment = {name: value for name, value in os.environ.items()
                   if name not in ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS')}
    for given, expected in (({}, '1'), ({'OPENBLAS_NUM_THREADS': '3'}, '3')):
        result = subprocess.run([sys.executable, '-c', program], env={**environment, **given},
                                capture_output=True, text=True)
        assert result.stdout.split()[-1] == expected, result.stderr

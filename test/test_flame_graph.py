"""scripts/flame_graph.py: graphs without paths of the machine; one line where there is no run."""

import importlib.util
import os
from pathlib import Path
import subprocess
import sys

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / 'scripts' / 'flame_graph.py'
GRAPH = """<svg xmlns="http://www.w3.org/2000/svg"><text id="title" x="50.0000%" y="24.00">{title}\
</text><title>act (asyncppo_ros/acting/actor.py:100) (5 samples, 1%)</title>\
<title>step ({path}:7) (12 samples, 2%)</title><text>step ({path}:7)</text></svg>"""


@pytest.fixture(scope='module')
def script():
    spec = importlib.util.spec_from_file_location('flame_graph', SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(('path', 'told'), [
    ('/home/me/ws/src/asyncppo_ros/asyncppo_ros/acting/rollout.py',
     'asyncppo_ros/acting/rollout.py'),
    ('/home/me/.venv/lib/python3.12/site-packages/numpy/_core/einsumfunc.py',
     'numpy/_core/einsumfunc.py'),
    ('/opt/ros/jazzy/lib/python3.12/dist-packages/rclpy/executors.py', 'rclpy/executors.py'),
    ('/opt/python/lib/python3.12/threading.py', 'threading.py'),
    ('/lib/x86_64-linux-gnu/libc.so.6', 'libc.so.6')])
def test_paths_begin_with_their_package(script, path, told):
    svg = script.stripped(GRAPH.format(title=f'py-spy record -o {path}', path=path), 'an actor')
    assert svg == GRAPH.format(title='an actor', path=told)


@pytest.mark.parametrize('role', ['actor', 'learner'])
def test_the_graphs_of_the_documentation_have_no_paths(role):
    svg = (ROOT / 'docs' / f'profile-{role}.svg').read_text(encoding='utf-8')
    assert len(svg) < 200_000 and f'asyncppo_ros: {role}, HalfCheetah-v5' in svg
    assert '(/' not in svg
    assert not [folder for folder in ('/home/', '/root/', '/usr/', '/var/', '/opt/', '/tmp/')
                if folder in svg]


def test_a_run_that_does_not_go_on(tmp_path):
    (tmp_path / 'run.json').write_text('{}')
    (tmp_path / 'config.yaml').write_text('/**:\n  ros__parameters:\n    task: reach\n')
    result = subprocess.run([sys.executable, str(SCRIPT), str(tmp_path)], text=True,
                            capture_output=True, env={**os.environ, 'PYTHONPATH': str(ROOT)})
    assert result.returncode == 1
    assert result.stderr == f'flame_graph: {tmp_path}: no actor runs; give the folder of a run ' \
                            'that goes on\n'

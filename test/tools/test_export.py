"""``asyncppo export``."""

import subprocess
import sys

from harness import ASYNCPPO, asyncppo
from made_policies import legs_task, policy_bytes
import pytest

pytest.importorskip('onnx', reason='needs ONNX: pip install "asyncppo_ros[onnx]"')
pytest.importorskip('onnxruntime', reason='needs ONNX: pip install "asyncppo_ros[onnx]"')


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / 'policy.safetensors'
    path.write_bytes(policy_bytes(legs_task()))
    return path


def test_it_writes_and_says_how_far_it_differs(policy, tmp_path):
    result = asyncppo('export', policy, tmp_path / 'policy.onnx')
    assert result.returncode == 0, result.stderr
    assert 'over 10,000 random observations' in result.stdout
    assert len(result.stdout.splitlines()) == 1
    assert (tmp_path / 'policy.onnx').stat().st_size > 1000


def test_mistakes_are_one_line(policy, tmp_path):
    (tmp_path / 'there.onnx').touch()
    without_onnx = [sys.executable, '-c', 'import sys; sys.modules["onnx"] = None\n'
                    'from asyncppo_ros.tools.cli import main; main()']
    for command, arguments, words in (
            (ASYNCPPO, (policy, tmp_path / 'there.onnx'), '--force overwrites it'),
            (ASYNCPPO, (tmp_path / 'none', tmp_path / 'a.onnx'), 'there is no file'),
            (ASYNCPPO, (policy,), 'OUT.onnx'),
            (without_onnx, (policy, tmp_path / 'a.onnx'), 'onnx is missing from')):
        result = subprocess.run([*command, 'export', *map(str, arguments)], capture_output=True,
                                text=True, timeout=120)
        line, = result.stderr.strip().splitlines()
        assert result.returncode == 2 and words in line and line.startswith('asyncppo: ')
    assert not (tmp_path / 'a.onnx').exists()

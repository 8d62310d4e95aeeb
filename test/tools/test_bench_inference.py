"""The calls that the bench of inference measures."""

import importlib.util
import json

from harness import asyncppo
import numpy as np

from asyncppo_ros.tools.bench.inference import calls_of, microseconds

HAS_ONNX = all(importlib.util.find_spec(name) for name in ('onnx', 'onnxruntime'))
KINDS = ['matmul', 'head', 'act', 'step'] + ['onnxruntime'] * HAS_ONNX


def test_all_kinds_are_of_one_network():
    calls = calls_of((8, 8), 3)
    assert list(calls) == KINDS
    head = calls['head']().copy()
    assert head.shape == (3, 6) and np.isfinite(head).all()
    if HAS_ONNX:
        np.testing.assert_allclose(calls['onnxruntime']()[0], np.tanh(head), atol=1e-5)
    for kind in ('matmul', 'act', 'step'):
        calls[kind]()


def test_a_call_that_makes_many_steps_counts_as_many():
    made = []
    assert microseconds(lambda: made.append(1), 0.001, 4) > 0.0
    assert len(made) % 2 == 0
    whole = microseconds(lambda: sum(range(20_000)), 0.05)
    assert microseconds(lambda: sum(range(20_000)), 0.05, 1000) < whole / 10.0


def test_a_short_run():
    result = asyncppo('bench', 'inference', '--networks', '8,8', '--batches', 1, 4, '--rounds', 2,
                      '--seconds', 0.001, '--json')
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert {'machine', 'versions', 'settings', 'rows', 'command'} <= found.keys()
    assert [entry['name'] for entry in found['rows']] == [
        f'8-8, batch {batch}: {kind}' for batch in (1, 4) for kind in KINDS]
    assert all(entry['median'] > 0.0 for entry in found['rows'])
    assert [entry['ratio'] for entry in found['rows'] if entry['name'].endswith('matmul')] == [
        1.0, 1.0]


def test_mistakes():
    for arguments, text in ((('--rounds', 0), 'above 0'), (('--networks', 'wide'), '64,64')):
        result = asyncppo('bench', 'inference', *arguments)
        assert result.returncode == 2 and text in result.stderr, result.stderr

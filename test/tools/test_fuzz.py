"""The fuzz bench: nothing is found in the package, and every fault that is put in is found."""

import dataclasses
import json

from harness import asyncppo
import pytest

from asyncppo_ros.errors import CodecError
from asyncppo_ros.tools.bench import fuzz, oracle
from asyncppo_ros.transport import codec, messages, payload, ring


def failure_of(count=3000):
    return fuzz.run(fuzz.Fuzzer(1), 0, count)


def test_nothing_is_found_in_20_000_messages():
    fuzzer = fuzz.Fuzzer(0)
    assert fuzz.run(fuzzer, 0, 20_000) is None
    assert sum(fuzzer.counts.values()) == 20_000
    # All was tried: every target and mutation, and every cause of the codec.
    seen = {(entry['target'], entry['mutation']) for entry in fuzz.outcomes(fuzzer.counts)}
    assert len(seen) >= 17 + 12 + 11 + 13
    causes = {outcome for target, _, outcome in fuzzer.counts if target == 'chunk'}
    assert causes == {'accepted', 'frames', 'magic', 'schema', 'layout', 'sizes', 'length', 'crc',
                      'integers', 'not_finite', 'bools', 'ends', 'final_index', 'episodes'}
    assert {'accepted', 'ring', 'crc', 'sizes', 'not_finite'} <= {
        outcome for target, _, outcome in fuzzer.counts if target == 'ring'}
    accepted = sum(count for (_, mutation, outcome), count in fuzzer.counts.items()
                   if outcome == 'accepted' and mutation == 'untouched')
    assert accepted > 300


@pytest.mark.parametrize('module, name, fault', [
    (codec, '_check_ends', lambda chunk: None),
    (codec, 'check_integers', lambda integers: None),
    (codec.np, 'isfinite', lambda array: codec.np.ones_like(array, bool)),
    (codec.zlib, 'crc32', lambda data, start=0: 0),
    (messages, '_fits', lambda kind, values: True),
    (messages, 'MAX_INTEGER', 2 ** 63),
    (ring, '_checksum', lambda memory, length: 7),
    (ring, 'checked_chunks', payload.packed_chunks),
    (ring.RingReader, '_plans_of_alike', lambda reader, headers, columns: [
        next(iter(reader._plans.values()))] * len(headers))])
def test_a_check_that_is_missing_is_found(monkeypatch, module, name, fault):
    monkeypatch.setattr(module, name, fault)
    failure = failure_of(12_000)
    assert failure is not None and failure['frames']


@pytest.mark.parametrize('target, name', [('chunk', 'checked_arrays'), ('control', '_fits')])
def test_another_exception_is_found(monkeypatch, target, name):
    monkeypatch.setattr(codec if target == 'chunk' else messages, name, lambda *_: {}['x'])
    failure = failure_of()
    assert failure['target'] in (target, 'intake')
    assert 'KeyError' in failure['what'] or 'stumbled' in failure['what']


def test_a_value_that_is_read_wrongly_is_found(monkeypatch):
    decode = codec.decode_chunk

    def decode_wrongly(*arguments):
        chunk = decode(*arguments)
        return dataclasses.replace(chunk, waiting_ns=chunk.waiting_ns + 1)

    monkeypatch.setattr(codec, 'decode_chunk', decode_wrongly)
    assert 'other values are read' in failure_of()['what']


def test_a_failure_is_written_and_comes_again_by_its_number(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(messages, '_fits', lambda kind, values: True)
    options = ['--folder', str(tmp_path), '--seed', '3']
    assert fuzz.main([*options, '--messages', '2000'], lambda: False) == 1
    path, = tmp_path.glob('fuzz-3-*.json')
    number = json.loads(path.read_text())['number']
    assert f'--first {number} --messages 1' in capsys.readouterr().err
    first = path.read_text()
    path.unlink()
    assert fuzz.main([*options, '--first', str(number), '--messages', '1'], lambda: False) == 1
    assert path.read_text() == first


def test_the_oracle_reads_what_was_sent_and_nothing_else():
    layout = fuzz.LAYOUTS[1]
    chunk = fuzz.make_chunk(layout, 3, 3, 1)
    frames = fuzz.encoded(chunk, layout)
    values = oracle.read_chunk(frames, fuzz.shape_of(layout), 9)
    assert values['sequence'] == 1 and values['reward'] == chunk.reward.ravel().tolist()
    for wrong in (frames[:1], [frames[0], frames[1][:-8]], frames[::-1]):
        with pytest.raises(oracle.Invalid):
            oracle.read_chunk(wrong, fuzz.shape_of(layout), 9)
    with pytest.raises(oracle.Invalid):
        oracle.read_chunk(frames, fuzz.shape_of(layout), 8)


def test_a_refusal_needs_both_readers():
    def refuse():
        raise CodecError('crc', 'x')

    def invalid():
        raise oracle.Invalid

    assert fuzz.compared(refuse, invalid) == 'crc'
    assert fuzz.compared(lambda: 1, lambda: 1) == 'accepted'
    for read, by_oracle in ((refuse, lambda: 1), (lambda: 1, invalid), (lambda: 1, lambda: 2)):
        with pytest.raises(fuzz.Difference):
            fuzz.compared(read, by_oracle)


def test_the_command_prints_one_object():
    result = asyncppo('bench', 'fuzz', '--messages', 500, '--json')
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert {'machine', 'versions', 'settings', 'rows', 'outcomes'} <= found.keys()
    assert found['rows'][0]['median'] == 500 and found['rows'][2]['median'] == 0
    assert asyncppo('bench', 'fuzz', '--messages', 0).returncode == 2

"""Ledgers, books, and the verb that prints them."""

import os
import signal
import subprocess
import sys
import time

import pytest

from asyncppo_ros.chunk import Source
from asyncppo_ros.errors import RunError
from asyncppo_ros.learning.books import Books
from asyncppo_ros.learning.ledger import ActorLedger, Counters, ledger_path, read_ledger, RING
from asyncppo_ros.tools.books import run

A = Source(3, 1)


def row(books):
    """Give the only row of the books, without names."""
    found, = books.table()
    return {name: found[name] for name in ('produced', 'consumed', 'dropped_by_age',
                                           'refused_by_check', 'in_flight', 'lost_in_crash')}


def test_a_ledger_is_read_as_it_was_written(tmp_path):
    ledger = ActorLedger(A, tmp_path)
    assert read_ledger(tmp_path, A).counters == Counters()
    ledger.stepped(4)
    ledger.stepped(4)
    assert read_ledger(tmp_path, A).counters == Counters(0, 0, 8)
    ledger.completed(8)
    ledger.stepped(4)
    reading = read_ledger(tmp_path, A)
    assert reading.counters == ledger.counters == Counters(1, 8, 4)
    assert reading.chunk_transitions == {0: 8}


def test_the_ring_keeps_the_last_chunks(tmp_path):
    ledger = ActorLedger(A, tmp_path)
    for sequence in range(RING + 10):
        ledger.stepped(1 + sequence % 3)
        ledger.completed(1 + sequence % 3)
    reading = read_ledger(tmp_path, A)
    assert reading.counters.transitions == sum(1 + s % 3 for s in range(RING + 10))
    assert min(reading.chunk_transitions) == 11
    assert reading.chunk_transitions[RING + 9] == 1 + (RING + 9) % 3


def test_a_ledger_of_another_or_none_is_not_read(tmp_path):
    assert read_ledger(tmp_path, A) is None
    ActorLedger(A, tmp_path)
    os.rename(ledger_path(tmp_path, A), ledger_path(tmp_path, Source(4, 1)))
    assert read_ledger(tmp_path, Source(4, 1)) is None
    ledger_path(tmp_path, A).write_bytes(b'short')
    assert read_ledger(tmp_path, A) is None


def test_a_ledger_survives_kill(tmp_path):
    code = f"""
import sys
from asyncppo_ros.chunk import Source
from asyncppo_ros.learning.ledger import ActorLedger
ledger = ActorLedger(Source(3, 1), {str(tmp_path)!r})
ledger.stepped(32); ledger.completed(32); ledger.stepped(5)
print('ready', flush=True)
while True: ledger.stepped(1); ledger.completed(6) if ledger.counters.unfinished >= 6 else None
"""
    process = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE)
    process.stdout.readline()
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    reading = read_ledger(tmp_path, A)
    assert reading.counters.transitions == 32 + 6 * (reading.counters.chunks - 1)
    assert reading.counters.chunks > 100
    assert 0 <= reading.counters.unfinished <= 6


def test_every_transition_has_one_place(tmp_path):
    ledger, books = ActorLedger(A, tmp_path), Books(tmp_path)
    books.joined(A)
    for _ in range(6):
        ledger.stepped(10)
        ledger.completed(10)
    ledger.stepped(3)
    assert row(books)['in_flight'] == 63
    books.received(A, 10)
    books.received(A, 10)
    books.refused(A, 10)
    books.skipped(A, 4, 40)
    books.received(A, 10)
    books.consumed(A, 10)
    books.dropped(A, 10)
    assert row(books) == {'produced': 63, 'consumed': 10, 'dropped_by_age': 10,
                          'refused_by_check': 10, 'in_flight': 23, 'lost_in_crash': 10}
    assert books.check() == []
    books.gone(A)
    assert row(books) == {'produced': 63, 'consumed': 10, 'dropped_by_age': 10,
                          'refused_by_check': 10, 'in_flight': 10, 'lost_in_crash': 23}
    assert books.check() == []


def test_an_actor_that_comes_back_has_lost_nothing(tmp_path):
    ledger, books = ActorLedger(A, tmp_path), Books(tmp_path)
    books.joined(A)
    ledger.stepped(10)
    books.gone(A)
    assert row(books)['lost_in_crash'] == 10
    books.joined(A)
    ledger.stepped(10)
    ledger.completed(20)
    books.received(A, 20)
    books.consumed(A, 20)
    assert row(books) == {'produced': 20, 'consumed': 20, 'dropped_by_age': 0,
                          'refused_by_check': 0, 'in_flight': 0, 'lost_in_crash': 0}


def test_without_a_file_the_last_word_of_the_actor_counts():
    books = Books()
    books.joined(A)
    books.received(A, 10)
    books.consumed(A, 10)
    books.claimed(A, Counters(3, 30, 4))
    assert row(books)['in_flight'] == 24
    books.gone(A)
    assert row(books)['lost_in_crash'] == 24
    assert books.check() == []


def test_a_lie_is_found(tmp_path):
    ledger, books = ActorLedger(A, tmp_path), Books(tmp_path)
    books.joined(A)
    ledger.stepped(12)
    ledger.completed(10)
    books.received(A, 10)
    assert books.check() == ['actor 3, incarnation 1: 2 transitions unaccounted for']
    books.received(A, 10)
    assert books.check() == ['actor 3, incarnation 1: 8 transitions counted twice']


def test_the_books_go_on_with_the_next_learner(tmp_path):
    ledger, books = ActorLedger(A, tmp_path), Books(tmp_path)
    books.joined(A)
    for _ in range(3):
        ledger.completed(10)
        books.received(A, 10)
    books.consumed(A, 10)
    following = Books(tmp_path, books.state())
    assert row(following) == {'produced': 30, 'consumed': 10, 'dropped_by_age': 0,
                              'refused_by_check': 0, 'in_flight': 0, 'lost_in_crash': 20}
    assert following.expected(A) == 3
    assert following.alive() == [A]
    assert following.last_incarnation(3) == 1
    ActorLedger(Source(3, 7), tmp_path)
    assert following.last_incarnation(3) == 7


def test_the_verb_prints_a_table_and_a_verdict(tmp_path, capsys):
    ledger, books = ActorLedger(A, tmp_path), Books(tmp_path)
    books.joined(A)
    ledger.completed(1000)
    books.received(A, 1000)
    books.write()
    assert run(tmp_path) == 0
    printed = capsys.readouterr().out
    assert '1,000' in printed and 'lost_in_crash' in printed
    assert printed.endswith('the books balance\n')
    books.received(A, 1)
    books.write()
    assert run(tmp_path) == 1
    assert 'counted twice' in capsys.readouterr().out


def test_the_verb_says_what_is_wrong_with_its_folder(tmp_path):
    with pytest.raises(RunError, match='is .* the folder of a run'):
        run(tmp_path)
    (tmp_path / 'books.json').write_text('{"actors": 3}')
    with pytest.raises(RunError, match='not the books of a run'):
        run(tmp_path)


def test_an_actor_that_joined_after_the_checkpoint_is_in_the_books(tmp_path):
    """The learner was killed; the actor comes back, or is lost with all that it made."""
    (tmp_path / 'books').mkdir()
    for back in (True, False):
        source = Source(3, 1 if back else 2)
        ledger = ActorLedger(source, tmp_path)
        for _ in range(5):
            ledger.stepped(10)
            ledger.completed(10)
        books = Books(tmp_path, {'accounts': []})
        assert source in books.alive()
        if back:
            # The learner that died had acknowledged its first three chunks.
            books.joined(source, 3, 30)
            assert books.expected(source) == 3
            books.received(source, 10)
            books.consumed(source, 10)
        books.gone(source)
        row = next(row for row in books.table() if row['incarnation'] == source.incarnation)
        assert row['produced'] == 50 and row['consumed'] == (10 if back else 0)
        assert row['lost_in_crash'] == (40 if back else 50)
        assert books.check() == []


def test_a_restored_learner_takes_what_an_actor_still_has(tmp_path):
    """More chunks have passed since the checkpoint than any check of sequences allows."""
    source = Source(0, 1)
    books = Books(tmp_path)
    books.joined(source)
    books.received(source, 10)
    restored = Books(tmp_path, books.state())
    restored.joined(source, 5000, 50_000)
    assert restored.expected(source) == 5000
    restored.received(source, 10)
    restored.gone(source, Counters(5001, 50_010, 0))
    assert restored.check() == []

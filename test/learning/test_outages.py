"""A full disk is told when it begins, now and then, and when it ends."""

import resource
import subprocess
import sys

from asyncppo_ros.learning.training import Outages, TELL_AGAIN_S


def test_an_outage_is_told_at_its_begin_and_its_end():
    told, now = [], [0.0]
    outages = Outages(told.append, lambda: now[0])
    outages.worked('checkpoint', 'checkpoints')
    assert told == []
    for second in range(int(1.5 * TELL_AGAIN_S)):
        now[0] = float(second)
        outages.failed('checkpoint', 'NO CHECKPOINT: disk full')
    assert told == ['NO CHECKPOINT: disk full'] * 2
    assert outages == {'checkpoint': 'NO CHECKPOINT: disk full'}
    outages.worked('checkpoint', 'checkpoints')
    assert outages == {}
    assert told[-1] == ('checkpoints are written again after 15 failures in 14 s, which were: '
                        'NO CHECKPOINT: disk full')
    outages.failed('checkpoint', 'again')
    assert told[-1] == 'again'


SCRIPT = """
import resource, sys
from asyncppo_ros.learning.metrics import JsonlWriter
writer = JsonlWriter(sys.argv[1])
writer.write({'a': 1})
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
# Room for a part of the next row, as on a disk that is nearly full.
resource.setrlimit(resource.RLIMIT_FSIZE, (20, hard))
try:
    writer.write({'a': 2, 'b': 'x' * 40})
except OSError as error:
    print(error.strerror)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
writer.write({'a': 3})
"""


def test_a_full_disk_leaves_no_half_line(tmp_path):
    path = tmp_path / 'metrics.jsonl'
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    result = subprocess.run([sys.executable, '-c', SCRIPT, str(path)], capture_output=True,
                            text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() in ('No space left on device', 'File too large')
    assert path.read_text() == '{"a": 1}\n{"a": 3}\n'

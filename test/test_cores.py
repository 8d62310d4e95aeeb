"""What a process may use of a machine, by control groups made up here."""

import os

import pytest

from asyncppo_ros.cores import core_limit, usable_cores


@pytest.fixture
def cores(monkeypatch):
    monkeypatch.setattr(os, 'sched_getaffinity', lambda pid: set(range(8)))


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def own(tmp_path, text):
    write(tmp_path / 'own', text)
    return tmp_path / 'own'


@pytest.mark.parametrize(('files', 'groups', 'expected'), [
    ({}, '0::/\n', 8.0),
    ({'cpu.max': 'max 100000\n'}, '0::/\n', 8.0),
    ({'cpu.max': '150000 100000\n'}, '0::/\n', 1.5),
    # The limit of a group further out holds, too, and so does one further in.
    ({'a/cpu.max': '300000 100000\n', 'a/b/cpu.max': 'max 100000\n'}, '0::/a/b\n', 3.0),
    ({'a/cpu.max': '300000 100000\n', 'a/b/cpu.max': '50000 100000\n'}, '0::/a/b\n', 0.5),
    ({'other/cpu.max': '100000 100000\n'}, '0::/a\n', 8.0),
    # Version 1: -1 = no limit.
    ({'cpu/cpu.cfs_quota_us': '-1\n', 'cpu/cpu.cfs_period_us': '100000\n'}, '1:cpu:/\n', 8.0),
    ({'cpu/cpu.cfs_quota_us': '400000\n', 'cpu/cpu.cfs_period_us': '100000\n'}, '', 4.0),
    ({'cpu,cpuacct/j/cpu.cfs_quota_us': '200000\n',
      'cpu,cpuacct/j/cpu.cfs_period_us': '100000\n'}, '3:cpu,cpuacct:/j\n4:memory:/k\n', 2.0),
    ({'memory/k/cpu.max': '100000 100000\n'}, '4:memory:/k\n', 8.0),
    # A group with more than the affinity mask allows.
    ({'cpu.max': '9900000 100000\n'}, '0::/\n', 8.0),
    # What cannot be read is no limit.
    ({'cpu.max': 'nonsense\n'}, '0::/../..\n', 8.0)])
def test_the_least_of_all_limits(cores, tmp_path, files, groups, expected):
    for name, text in files.items():
        write(tmp_path / 'root' / name, text)
    assert core_limit(tmp_path / 'root', own(tmp_path, groups)) == expected


def test_there_is_always_one_core(monkeypatch):
    monkeypatch.setattr('asyncppo_ros.cores.core_limit', lambda: 0.5)
    assert usable_cores() == 1
    monkeypatch.setattr('asyncppo_ros.cores.core_limit', lambda: 3.7)
    assert usable_cores() == 3

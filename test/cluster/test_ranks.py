"""Ranks of a learner: settings that do not fit, and processes that do not come."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
import torch

from asyncppo_ros.cluster import ranks
from asyncppo_ros.config import Config, LearnerConfig
from asyncppo_ros.errors import ConfigError, RankError
from asyncppo_ros.learning.steps import steps_for
from asyncppo_ros.policy.distributions import TanhGaussian
from asyncppo_ros.policy.network import ActorCritic
from asyncppo_ros.settings import build
from asyncppo_ros.tools import cli, rank


def never():
    return False


@pytest.fixture
def environment(monkeypatch):
    """Set what torchrun sets, for rank 0 of 3, and say what else is set."""
    def announce(**more):
        for name, value in {'RANK': '0', 'WORLD_SIZE': '3', 'MASTER_ADDR': '127.0.0.1',
                            'MASTER_PORT': '1', **more}.items():
            monkeypatch.setenv(name, value)
    return announce


@pytest.mark.parametrize(('settings', 'text'), [
    ({'learner.gradient_compression': 'bf16'},
     'learner.gradient_compression = bf16: needs learner.ranks of at least 2'),
    ({'learner.ranks': 4, 'learner.ppo.minibatch_size': 3},
     'learner.ppo.minibatch_size = 3: must be at least learner.ranks = 4'),
    ({'learner.ranks': 0}, r'learner.ranks = 0: .*\[1, 256\]'),
    ({'learner.gradient_compression': 'zip'}, 'learner.gradient_compression = zip: .*powersgd')])
def test_settings_that_do_not_fit(settings, text):
    with pytest.raises(ConfigError, match=text):
        build(Config, settings)


def test_how_many_there_are_must_be_told_alike(environment):
    environment()
    assert ranks.outside() == 3
    network = ActorCritic(3, 2, TanhGaussian(), Config().policy, torch.Generator())
    optimizer = torch.optim.Adam(network.parameters())
    for number in (1, 2):
        with pytest.raises(ConfigError, match=f'learner.ranks = {number}: WORLD_SIZE = 3'):
            steps_for(LearnerConfig(ranks=number), network, optimizer)


def test_torch_quantizes_between_gpus_alone():
    network = ActorCritic(3, 2, TanhGaussian(), Config().policy, torch.Generator())
    with pytest.raises(ConfigError, match='= quantized: needs learner.device'):
        steps_for(LearnerConfig(ranks=2, gradient_compression='quantized'), network,
                  torch.optim.Adam(network.parameters()))


def test_each_needs_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 1)
    with pytest.raises(ConfigError, match='learner.ranks = 2: each rank needs a GPU .* finds 1'):
        ranks.started(2, torch.device('cuda'))


def test_one_that_ends_at_once_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(ranks, '_start', lambda *_: subprocess.Popen(
        [sys.executable, '-S', '-c', 'raise SystemExit(3)']))
    monkeypatch.setattr(ranks.tempfile, 'mkdtemp', lambda prefix: str(tmp_path / 'meeting'))
    (tmp_path / 'meeting').mkdir()
    with pytest.raises(RankError, match='rank 1 of the learner ended with exit code 3 as soon'):
        ranks.started(2, torch.device('cpu'), str(tmp_path / 'logs'))
    assert not (tmp_path / 'meeting').exists() and (tmp_path / 'logs').is_dir()


def test_those_that_others_start_must_come(environment, monkeypatch):
    environment(WORLD_SIZE='2', MASTER_PORT='0', RANK='1')
    monkeypatch.setattr(ranks, 'MEETING_S', 0.2)
    with pytest.raises(RankError, match='the ranks did not meet within 0.2 s'):
        ranks.met()


def test_the_verb_says_what_it_needs(environment, monkeypatch):
    with pytest.raises(ConfigError, match='RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT must be'):
        rank.main([], never)
    environment()
    with pytest.raises(ConfigError, match='RANK = 0: is the learner'):
        rank.main([], never)


def test_where_torchrun_trains_only_the_first_trains(environment, monkeypatch):
    environment(RANK='2')
    given = []
    monkeypatch.setattr(rank, 'main', lambda arguments, stop: given.append(arguments) or 0)
    assert cli.run(['train', '--task', 'reach', '--learner.ranks', '3'], never) == 0
    assert given == [[]]


@pytest.mark.slow
@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGKILL])
def test_no_rank_outlives_the_learner(number, tmp_path):
    process = subprocess.Popen(
        [sys.executable, '-m', 'asyncppo_ros.tools.cli', 'train-local', '--task', 'reach',
         '--actor.num_envs', '8', '--learner.batch_size', '256', '--learner.ranks', '2',
         '--run_dir', str(tmp_path / 'run')], start_new_session=True, stderr=subprocess.DEVNULL)
    metrics = tmp_path / 'run' / 'metrics.jsonl'
    while not (metrics.is_file() and metrics.stat().st_size):
        assert process.poll() is None
        time.sleep(0.1)
    children = pathlib.Path(f'/proc/{process.pid}/task/{process.pid}/children').read_text()
    other, = [int(child) for child in children.split()
              if b'--meeting' in pathlib.Path(f'/proc/{child}/cmdline').read_bytes()]
    # As Ctrl-C does, to all that the terminal knows of.
    os.killpg(process.pid, number)
    assert process.wait(60) == (0 if number == signal.SIGINT else -number)
    deadline = time.monotonic() + 30.0
    while pathlib.Path(f'/proc/{other}').exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)

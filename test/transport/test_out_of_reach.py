"""Whether a learner can be reached, found out by a handshake and nothing more."""

import socket

from making import make_intake
import pytest

from asyncppo_ros.errors import AddressError
from asyncppo_ros.transport.keys import actor_keys, learner_keys, make_keys
from asyncppo_ros.transport.reach import why_out_of_reach
from asyncppo_ros.transport.receiver import ZmqChunkReceiver
from asyncppo_ros.transport.zeromq import connectable


class Learner:
    """A door, and what was said at it."""

    def __init__(self, keys=''):
        self.warnings = []
        self.intake = make_intake(warnings=self.warnings)
        self._receiver = ZmqChunkReceiver(self.intake, 'tcp://127.0.0.1:*',
                                          keys=learner_keys(keys))
        self.address = connectable(self._receiver.address)
        self._receiver.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._receiver.close(timeout=0.2)


@pytest.fixture
def keys(tmp_path):
    make_keys(tmp_path / 'keys')
    return tmp_path / 'keys'


@pytest.mark.parametrize('encrypted', [False, True])
def test_a_learner_that_is_there_is_in_reach_and_not_troubled(keys, encrypted):
    folder = keys if encrypted else ''
    with Learner(folder) as learner:
        assert why_out_of_reach(learner.address, actor_keys(folder), 10.0) == ''
        assert learner.intake.refused_connections() == {} and learner.warnings == []


def test_where_nobody_is_the_remedy_depends_on_whose_address_it_is():
    with socket.create_server(('127.0.0.1', 0)) as probe:
        port = probe.getsockname()[1]
    here = 'that address is of this host itself'
    assert here in why_out_of_reach(f'tcp://127.0.0.1:{port}', timeout=0.1)
    assert here in why_out_of_reach(f'tcp://0.0.0.0:{port}', timeout=0.1)
    # Set aside for examples, so nobody is there (RFC 5737).
    assert 'does no firewall keep the port closed?' in why_out_of_reach('tcp://192.0.2.1:5577',
                                                                        timeout=0.1)


def test_a_name_that_nobody_has_is_told(monkeypatch):
    def unknown(*_):
        raise socket.gaierror(socket.EAI_NONAME, 'Name or service not known')
    monkeypatch.setattr(socket, 'getaddrinfo', unknown)
    assert why_out_of_reach('tcp://nobody.invalid:5577', timeout=10.0) == (
        'this host knows no nobody.invalid (Name or service not known)')


def test_whoever_is_turned_away_learns_why(keys, tmp_path):
    make_keys(tmp_path / 'others')
    stranger = actor_keys(tmp_path / 'others')._replace(learner=learner_keys(keys).public)
    with Learner(keys) as learner:
        assert "does not know this actor's key" in why_out_of_reach(learner.address, stranger,
                                                                     10.0)
        assert 'set transport.keys here too' in why_out_of_reach(learner.address, None, 10.0)
        assert 'copy learner.key' in why_out_of_reach(
            learner.address, actor_keys(tmp_path / 'others'), 10.0)


def test_a_malformed_address_is_refused():
    with pytest.raises(AddressError, match='transport.address = nonsense: cannot be used'):
        why_out_of_reach('nonsense')

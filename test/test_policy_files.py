"""The policies that come with the package, and how they are named."""

import pytest

from asyncppo_ros import policy_files
from asyncppo_ros.errors import ArtefactError
from asyncppo_ros.policy_files import policy_file, pretrained_policies
from asyncppo_ros.tools import policies
from asyncppo_ros.tools.evaluate import score_artefact


@pytest.mark.parametrize('name', pretrained_policies())
def test_a_pretrained_policy_does_its_task(name):
    """Of the task as it is now: one that has changed is refused."""
    score = score_artefact(policies.open_artefact(name), 8)
    assert score['task'] == name
    if score['success'] is None:
        assert score['length_mean'] == 1000.0  # 20 s without a fall
        assert score['measures']['velocity_error']['mean'] < 0.15
    else:
        assert score['success'] == 1.0


def test_the_robots_of_the_package_have_one():
    assert pretrained_policies() == ['quadruped_walk', 'reach']


@pytest.mark.parametrize('find', [policy_file, policies.policy_file])
def test_one_is_named_where_nothing_else_has_the_name(find, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pretrained = find('reach')
    assert pretrained.name == 'reach.safetensors' and pretrained.is_file()
    own = tmp_path / 'reach'
    own.write_bytes(b'')
    assert find('reach') == own
    with pytest.raises(ArtefactError, match='policy walk: there is no file .*/walk; .* or one of '
                                            'quadruped_walk, reach is needed'):
        find('walk')


def test_an_installation_without_any(monkeypatch):
    monkeypatch.setattr(policy_files, 'PRETRAINED', 'nowhere')
    assert pretrained_policies() == []
    with pytest.raises(ArtefactError, match='there is no file'):
        policy_file('reach')

"""Settings: one set of names, one error text, whatever the source."""

import dataclasses

import pytest

from asyncppo_ros.config import Config, LearnerConfig, PpoConfig
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.settings import (
    as_text,
    build,
    flatten,
    parse_text,
    read_yaml,
    setting,
    settings,
    to_dict,
    write_yaml,
)
from asyncppo_ros.tools.arguments import Parser, settings_help, split_settings


def test_defaults_build_and_every_field_is_described():
    config = build(Config, {})
    assert config == Config()
    for name, default, info in settings(Config):
        assert info.description.endswith('.'), name
        assert isinstance(default, (bool, int, float, str, tuple)), name


def test_three_ways_in_one_result(tmp_path):
    by_python = Config(learner=LearnerConfig(ppo=PpoConfig(clip_ratio=0.1)))
    by_dict = build(Config, {'learner.ppo.clip_ratio': 0.1})
    plain = tmp_path / 'plain.yaml'
    plain.write_text('learner:\n  ppo:\n    clip_ratio: 0.1\n')
    ros = tmp_path / 'ros.yaml'
    ros.write_text('/**:\n  ros__parameters:\n    learner:\n      ppo:\n        clip_ratio: 0.1\n')
    _, by_command_line = split_settings(Parser(), ['--learner.ppo.clip_ratio', '0.1'])
    assert by_python == by_dict == build(Config, by_command_line)
    assert build(Config, read_yaml(plain)) == build(Config, read_yaml(ros)) == by_python


@pytest.mark.parametrize('values, text', [
    ({'learner.ppo.clip_ration': 0.1},
     'learner.ppo.clip_ration: unknown setting; did you mean learner.ppo.clip_ratio'),
    ({'clip_ratio': 0.1}, 'clip_ratio: unknown setting; did you mean learner.ppo.clip_ratio?'),
    ({'wibble': 1}, 'wibble: unknown setting; `asyncppo settings` lists them all'),
    ({'learner.ppo.clip_ratio': 'wide'},
     'learner.ppo.clip_ratio = wide: expected a number, got text'),
    ({'learner.batch_size': 2.5}, 'learner.batch_size = 2.5: expected a whole number, got a '
                                  'number'),
    ({'learner.batch_size': True}, 'learner.batch_size = true: expected a whole number, got true '
                                   'or false'),
    ({'learner.discount': 1.5}, 'learner.discount = 1.5: must be in [0, 1]'),
    ({'learner.discount': float('nan')}, 'learner.discount = nan: must be in [0, 1]'),
    ({'learner.device': 'tpu'}, 'learner.device = tpu: must be one of auto, cpu, cuda'),
    ({'policy.hidden_sizes': (64, 0)}, 'policy.hidden_sizes = [64, 0]: must be in [1, 4096]'),
    ({'num_actors': 0.5}, 'num_actors = 0.5: expected a whole number, got a number'),
    ({'learner.ppo.dual_clip': 1.1},
     'learner.ppo.dual_clip = 1.1: must exceed 1 + learner.ppo.clip_ratio = 1.2, or be 0 (off)'),
    ({'learner.target_lag': 9, 'learner.max_policy_lag': 8},
     'learner.max_policy_lag = 8: must be at least learner.target_lag = 9'),
])
def test_mistakes_are_one_clear_line(values, text):
    with pytest.raises(ConfigError) as error:
        build(Config, values)
    assert str(error.value).startswith(text)
    assert '\n' not in str(error.value)


def test_values_of_actors_are_not_recomputed():
    with pytest.raises(ConfigError, match='recompute_advantages = true: must be false where '
                                          'learner.value_source = actor'):
        build(Config, {'learner.value_source': 'actor',
                       'learner.ppo.recompute_advantages': True})


def test_publish_updates_that_would_starve_actors_is_refused():
    with pytest.raises(ConfigError, match='must be at most learner.target_lag'):
        build(Config, {'learner.target_lag': 0, 'learner.max_policy_lag': 1,
                       'learner.publish_updates': 2})


def test_words_stand_for_numbers_in_every_source():
    assert build(Config, {'num_actors': 'auto'}).num_actors == 0
    assert parse_text(Config, 'num_actors', 'auto') == 0
    assert build(Config, {'num_actors': 3}).num_actors == 3


def test_text_of_a_command_line_becomes_the_type_of_the_setting():
    assert parse_text(Config, 'policy.hidden_sizes', '256,128') == (256, 128)
    assert parse_text(Config, 'learner.ppo.learning_rate', '3e-4') == 3e-4
    assert parse_text(Config, 'actor.random_episode_start', 'false') is False
    with pytest.raises(ConfigError, match='actor.num_envs = many: expected a whole number'):
        parse_text(Config, 'actor.num_envs', 'many')
    with pytest.raises(ConfigError, match='expected true or false'):
        parse_text(Config, 'actor.random_episode_start', 'maybe')


def test_every_default_goes_through_text_and_through_a_file(tmp_path):
    texts = {name: as_text(default) for name, default, _ in settings(Config)}
    given = {name: parse_text(Config, name, text) for name, text in texts.items()}
    assert build(Config, given) == Config()
    # No list is empty: ROS could not declare it.
    write_yaml(build(Config, {'robot.joint_names': []}), tmp_path / 'config.yaml')
    assert read_yaml(tmp_path / 'config.yaml')['robot.joint_names'] == ['']


def by_command_line(name, text, _folder):
    return build(Config, split_settings(Parser(), [f'--{name}', text])[1])


def by_yaml(name, text, folder):
    file = folder / 'settings.yaml'
    file.write_text(f'{name}: {text}\n')
    return build(Config, read_yaml(file))


@pytest.mark.parametrize('way', [by_command_line, by_yaml])
@pytest.mark.parametrize('name, text, wrong', [
    ('policy.hidden_sizes', '[]',
     'policy.hidden_sizes = []: must have one or more entries in [1, 4096], such as [64, 64]'),
    ('policy.critic_hidden_sizes', '[]', 'policy.critic_hidden_sizes = []: must have one or more'),
    ('robot.imu_rotation', '[]',
     'robot.imu_rotation = []: must have 4 entries in [-1, 1], such as [1.0, 0.0, 0.0, 0.0]'),
    ('robot.imu_rotation', '[1.0, 0.0, 0.0]', 'robot.imu_rotation = [1.0, 0.0, 0.0]: must have 4'),
])
def test_a_list_of_numbers_that_is_too_short_is_one_clear_line(way, name, text, wrong, tmp_path):
    with pytest.raises(ConfigError) as error:
        way(name, text, tmp_path)
    assert str(error.value).startswith(wrong) and '\n' not in str(error.value)


@pytest.mark.parametrize('way', [by_command_line, by_yaml])
def test_an_empty_list_of_what_may_be_none_is_none(way, tmp_path):
    assert way('learner.milestones', '[]', tmp_path) == Config()
    assert way('robot.joint_names', '[]', tmp_path) == Config()


def test_every_list_of_numbers_says_what_an_empty_one_is():
    """A new one is to be thought of here: none, or refused."""
    refused = set()
    for name, default, info in settings(Config):
        if isinstance(default, tuple) and not isinstance(default[0], str):
            try:
                assert to_dict(build(Config, {name: []}))[name] == info.nothing
            except ConfigError:
                refused.add(name)
    assert refused == {'policy.hidden_sizes', 'policy.critic_hidden_sizes', 'robot.imu_rotation'}


def test_yaml_float_that_pyyaml_reads_as_text(tmp_path):
    file = tmp_path / 'settings.yaml'
    file.write_text('learner: {ppo: {learning_rate: 3e-4}}\nseed: 7\n')
    config = build(Config, read_yaml(file))
    assert config.learner.ppo.learning_rate == 3e-4 and config.seed == 7


def test_written_settings_come_back_and_floats_look_like_floats(tmp_path):
    config = build(Config, {'learner.ppo.learning_rate': 0.00001, 'task': 'reach',
                            'policy.hidden_sizes': (32, 16)})
    file = tmp_path / 'config.yaml'
    write_yaml(config, file, 'first line\nsecond line')
    text = file.read_text()
    assert text.startswith('# first line\n# second line\n/**:\n  ros__parameters:\n')
    assert '1.0e-05' in text
    assert build(Config, read_yaml(file)) == config
    assert flatten({'a': {'b': 1}, 'c': 2}) == {'a.b': 1, 'c': 2}


@pytest.mark.parametrize('content, text', [
    (None, 'No such file'), ('a: [1', 'not YAML'), ('- 1\n', 'a mapping of settings')])
def test_bad_files_are_named(tmp_path, content, text):
    file = tmp_path / 'settings.yaml'
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match=text) as error:
        read_yaml(file)
    assert str(file) in str(error.value)


def test_command_line_mistakes():
    for arguments, text in ((['--learner.nonsense', '1'], 'unknown setting'),
                            (['--seed'], '--seed: a value is missing'),
                            (['reach'], 'an option was expected')):
        with pytest.raises(ConfigError, match=text):
            split_settings(Parser(), arguments)


def test_help_lists_every_setting():
    text = settings_help()
    for name, _, _ in settings(Config):
        assert f'--{name} ' in text


def test_settings_classes_are_frozen():
    config = Config()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 1  # type: ignore[misc]

    @dataclasses.dataclass(frozen=True)
    class Small:
        size: int = setting(3, 'A size.', unit='m', low=1, high=5)

    assert to_dict(build(Small, {'size': 5})) == {'size': 5}
    with pytest.raises(ConfigError, match=r'size = 6: must be in \[1, 5\] m'):
        build(Small, {'size': 6})

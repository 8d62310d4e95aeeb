"""The search: what it proposes is allowed, what it is told is believed, and it goes on."""

import json
import statistics

import pytest

from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.run import resolve, Run
from asyncppo_ros.settings import build, read_yaml, to_dict
from asyncppo_ros.tools import tune
from asyncppo_ros.tools.jobs import Ended

pytest.importorskip('optuna')
STEPS = 1000
RATE = 'learner.ppo.learning_rate'


def search_of(entries=(), names=tuple(tune.SPACE)):
    return tune.Search('cartpole_swingup', names, {'env_steps': STEPS}, entries)


def train(search, run, score, at=STEPS, params=None):
    """Let a training end at some steps, whose return grew to a score in proportion."""
    job = (search.ask(run, 'train-local', seed=0) if params is None
           else search.again(run, 'train-local', params, seed=1000))
    run.folder.mkdir(parents=True)
    rows = [{'env_steps': steps, 'time_s': 1.0, 'return_mean': score * steps / STEPS}
            for steps in range(100, at + 1, 100)]
    run.metrics_file.write_text(''.join(json.dumps(row) + '\n' for row in rows))
    if at == STEPS:
        run.evaluations_file.write_text(json.dumps({'final': True, 'return_mean': score}) + '\n')
    return search.tell(Ended(job, 0, at < STEPS))


def test_the_search_begins_with_what_the_package_has(tmp_path):
    job = search_of().ask(Run(tmp_path), 'train-local', seed=3)
    have = to_dict(resolve({'task': 'cartpole_swingup'}))
    assert {name: job.settings[name] for name in tune.SPACE} == {
        name: have[name] for name in tune.SPACE}
    assert job.settings['policy.critic_hidden_sizes'] == have['policy.critic_hidden_sizes']
    assert job.settings['seed'] == 3 and job.settings['env_steps'] == STEPS


def test_every_proposal_is_allowed_and_a_batch_has_two_chunks(tmp_path):
    search = search_of()
    for number in range(12):
        job = search.ask(Run(tmp_path / str(number)), 'train-local', seed=number)
        config = build(Config, job.settings)
        chunk = config.actor.num_envs * config.actor.chunk_length
        assert config.learner.batch_size == 2 * chunk


def test_best_is_the_best_mean_of_the_most_seeds(tmp_path):
    search = search_of()
    first = train(search, Run(tmp_path / '0'), 80.0)
    lucky = train(search, Run(tmp_path / '1'), 90.0)
    train(search, Run(tmp_path / '2'), 70.0, params=first['params'])
    assert [group[0] for group in search.ranking()] == [lucky['params'], first['params']]
    text = search.yaml()
    assert '# Mean return 75.0 of 2 seeds, found in 3 trainings' in text
    file = tmp_path / 'best.yaml'
    file.write_text(text)
    assert read_yaml(file)[RATE] == pytest.approx(first['params'][RATE])
    build(Config, read_yaml(file))


def test_a_trial_behind_half_of_the_others_is_hopeless(tmp_path):
    search = search_of()
    for number in range(tune.FIRST_TRIALS):
        train(search, Run(tmp_path / str(number)), 50.0 + number)
    median = statistics.median(50.0 + number for number in range(tune.FIRST_TRIALS))
    for name, score, hopeless in (('good', median + 1.0, False), ('bad', median - 1.0, True)):
        run = Run(tmp_path / name)
        job = search.ask(run, 'train-local', seed=9)
        run.folder.mkdir()
        run.metrics_file.write_text(json.dumps(
            {'env_steps': 300, 'time_s': 1.0, 'return_mean': 0.3 * score}) + '\n')
        assert search.is_hopeless(job) == hopeless, name


def test_a_trial_that_was_ended_counts_with_what_it_had(tmp_path):
    search = search_of()
    entry = train(search, Run(tmp_path / '0'), 50.0, at=300)
    assert not entry['finished'] and entry['score'] == 15.0 and search.ranking() == []
    assert search.yaml() == '# nothing was trained to its end'


def test_a_training_that_failed_ends_the_search(tmp_path):
    search = search_of()
    run = Run(tmp_path / '0')
    job = search.ask(run, 'train-local', seed=0)
    job.log.write_text('asyncppo: task cartpole_swingup: a reason\n')
    with pytest.raises(ConfigError, match='a reason'):
        search.tell(Ended(job, 2, False))


def test_search_goes_on_from_its_log(tmp_path):
    """A real search on a tiny budget; the second call only adds what is missing."""
    def tuned(trials):
        return tune.main(['--task', 'cartpole_swingup', '--env_steps', '2500', '--trials', trials,
                          '--confirm', '1', '--seeds', '1', '--workers', '2', '--folder',
                          str(tmp_path), '--search', RATE, '--evaluation.final_episodes', '2',
                          '--learner.batch_size', '1024', '--actor.chunk_length', '16'],
                         StopRequest())

    log = tmp_path / 'cartpole_swingup-sync.jsonl'
    assert tuned('1') == 0
    first = log.read_text()
    assert tuned('2') == 0
    assert log.read_text().startswith(first)
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(entries) == 2 and all(entry['finished'] for entry in entries)
    assert entries[0]['params'][RATE] == resolve({'task': 'cartpole_swingup'}).learner.ppo.\
        learning_rate
    assert entries[0]['params'] != entries[1]['params']


@pytest.mark.parametrize('words, told', [
    (['--task', 'reach', '--search', 'seed'], 'must be of'),
    (['--task', 'reach', '--seed', '1'], 'chosen by the search'),
    ([], '--task')])
def test_mistakes_are_one_line(words, told):
    with pytest.raises(ConfigError, match=told):
        tune.main(words, StopRequest())


def test_an_older_log_that_searched_less_is_read(tmp_path):
    few = [name for name in tune.SPACE if name != 'policy.hidden_sizes']
    entry = train(search_of(names=few), Run(tmp_path / '0'), 50.0)
    search = search_of([entry])
    job = search.ask(Run(tmp_path / '1'), 'train-local', seed=1)
    assert set(tune.SPACE) <= set(job.settings)

"""Tasks by name."""

import numpy as np
import pytest

from asyncppo_ros.errors import TaskError
from asyncppo_ros.simulation import registry

LIST = ('reach, cartpole_swingup, quadruped_walk, HalfCheetah-v5, Hopper-v5, Walker2d-v5, Ant-v5, '
        'Humanoid-v5, gymnasium:ID, my_pkg.my_module:MyTask')


@pytest.mark.parametrize('name', [*registry.TASKS, 'gymnasium:Pendulum-v1'])
def test_every_task_passes_its_check_and_describes_itself(name):
    import json

    batch = registry.make(name, 2, 0)
    registry.check(batch)
    assert batch.task == name and batch.control_dt > 0.0
    description = batch.describe()
    json.dumps(description, allow_nan=False)
    assert description['task'] == name
    assert sum(entry['size'] * entry['history'] for entry in description['observation']) == (
        batch.observation_size)
    assert len(description['action']['joints']) == batch.action_size
    batch.close()


@pytest.mark.parametrize('name', list(registry.TASKS))
def test_seeds_repeat_bit_for_bit(name):
    def run():
        batch = registry.make(name, 3, 7, random_episode_start=True)
        out = np.zeros((3, batch.observation_size), np.float32)
        rng = np.random.default_rng(0)
        batch.reset(out)
        seen = [out.copy()]
        for _ in range(150):
            action = rng.uniform(-1.0, 1.0, (3, batch.action_size)).astype(np.float32)
            result = batch.step(action, out)
            seen += [out.copy(), result.reward, result.truncated, result.episodes]
        return seen
    for one, other in zip(run(), run()):
        np.testing.assert_array_equal(one, other)


def test_names():
    assert ', '.join(registry.task_names()) == LIST


@pytest.mark.parametrize('name, message', [
    ('rech', f"task 'rech' is unknown; there are: {LIST}"),
    ('', f"task '' is unknown; there are: {LIST}"),
    ('no_such_package.tasks:Mine', 'task no_such_package.tasks:Mine: cannot import '
                                   "no_such_package.tasks: No module named 'no_such_package'"),
    ('asyncppo_ros.simulation.reach:Rich',
     "task asyncppo_ros.simulation.reach:Rich: asyncppo_ros.simulation.reach has no task 'Rich'; "
     'tasks there: Reach'),
])
def test_unknown(name, message):
    with pytest.raises(TaskError) as error:
        registry.make(name, 1, 0)
    assert str(error.value) == message


def test_error_inside_a_users_module_is_one_line(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / 'imports_wrongly.py').write_text('import no_such_thing\n')
    (tmp_path / 'is_not_python.py').write_text('class Mine(\n')
    with pytest.raises(TaskError) as error:
        registry.make('imports_wrongly:Mine', 1, 0)
    assert str(error.value) == ('task imports_wrongly:Mine: cannot import imports_wrongly: No '
                                "module named 'no_such_thing'")
    with pytest.raises(TaskError, match=r'cannot import is_not_python: .* line 1\)$'):
        registry.make('is_not_python:Mine', 1, 0)

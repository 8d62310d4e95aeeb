"""A user's own task through the whole chain; its faults are one line, whoever meets them."""

import importlib.util
import pathlib
import sys

from harness import asyncppo, options, processes_of
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / 'simulation'))
import user_tasks  # noqa: E402 - the task that the tests of the simulation use

needs_ros = pytest.mark.skipif(importlib.util.find_spec('rclpy') is None,
                               reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
SMALL = ('--env_steps', 2048, '--actor.num_envs', 8, '--actor.chunk_length', 16,
         '--learner.batch_size', 512, '--learner.ppo.minibatch_size', 128,
         '--evaluation.final_episodes', 3)
BROKEN = {
    'Missing': ("    model = 'nowhere.xml'\n", 'nowhere.xml'),
    'NoJoint': ("    def action(self):\n"
                "        return ActionMap(['elbow'], self.control_dt, interface='effort')\n",
                'elbow'),
    'Wide': ('    def observation(self):\n        return [two()]\n', 'two'),
    'Nan': ('    def observation(self):\n        return [broken()]\n', 'broken'),
    'LongReward': ('    def reward(self, state, action):\n        return np.zeros(3)\n', 'reward'),
}
TERMS = """
@term(size=1)
def two(state):
    return np.zeros((state.joint_position.shape[0], 2))


@term(size=1)
def broken(state):
    values = np.zeros((state.joint_position.shape[0], 1))
    values[1] = np.nan
    return values


class Late(Rail):
    '''Its reward is not a number any more after some time.'''

    steps = 0

    def reward(self, state, action):
        Late.steps += 1
        values = -np.abs(state.qpos[:, 0])
        if Late.steps > 40:
            values[2] = np.nan
        return values
"""


@pytest.fixture
def folder(tmp_path):
    classes = ''.join(f'\n\nclass {name}(Rail):\n{body}' for name, (body, _) in BROKEN.items())
    user_tasks.write(tmp_path, 'my_tasks', TERMS + classes)
    (tmp_path / 'broken_model').mkdir()
    user_tasks.write(tmp_path / 'broken_model', 'broken_tasks', model='<mujoco><oops></mujoco>')
    return tmp_path


def test_a_task_beside_the_user_trains(folder):
    result = asyncppo('train-local', '--task', 'my_tasks:Rail', *SMALL, cwd=folder)
    assert result.returncode == 0, result.stderr
    assert 'my_tasks:Rail, policy version 4' in result.stdout


@pytest.mark.parametrize('name', BROKEN)
def test_faults_are_found_before_anything_starts(folder, name):
    result = asyncppo('train-local', '--task', f'my_tasks:{name}', cwd=folder)
    assert result.returncode == 2, result.stderr
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert BROKEN[name][1] in result.stderr
    assert not (folder / 'runs').exists()


def test_a_broken_model_shows_what_mujoco_says(folder):
    result = asyncppo('train-local', '--task', 'broken_tasks:Rail', cwd=folder / 'broken_model')
    assert result.returncode == 2 and 'rail.xml' in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@needs_ros
@pytest.mark.nodes
@pytest.mark.one_distro
def test_a_task_of_the_user_trains_with_real_nodes(folder):
    result = asyncppo('train', '--task', 'my_tasks:Rail', '--env_steps', 6000, '--run_dir',
                      folder / 'run', *options(), cwd=folder)
    assert result.returncode == 0, result.stderr
    assert 'my_tasks:Rail, policy version' in result.stdout


@needs_ros
@pytest.mark.nodes
@pytest.mark.one_distro
def test_a_nan_that_comes_late_ends_the_run_with_its_reason(folder):
    run = folder / 'run'
    result = asyncppo('train', '--task', 'my_tasks:Late', '--env_steps', 10 ** 7, '--run_dir',
                      run, *options(), cwd=folder)
    assert result.returncode == 2, result.stderr
    line = result.stderr.strip().splitlines()[-1]
    assert line.startswith('asyncppo: ') and 'reward' in line and 'environment 2' in line
    assert 'Traceback' not in result.stderr
    assert not processes_of(run)
    # What was learned until then is kept.
    assert (run / 'checkpoint' / 'checkpoint.safetensors').is_file()

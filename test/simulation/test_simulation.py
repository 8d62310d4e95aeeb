"""The batch of simulations: a user's task, episodes, seeds, and every mistake by its message."""

import itertools
import re
import sys

import mujoco
import numpy as np
import pytest
import user_tasks

from asyncppo_ros.errors import TaskError
from asyncppo_ros.simulation import registry
from asyncppo_ros.simulation.environment import critic_rows
from asyncppo_ros.simulation.simulation import BatchedSimulation

STEPS = 10  # of an episode of Rail
_numbers = itertools.count()


@pytest.fixture
def task(tmp_path, monkeypatch):
    """Give a function that writes a task module and makes one of its classes."""
    monkeypatch.syspath_prepend(tmp_path)
    modules = []

    def make(more='', kind='Rail', num_envs=3, seed=0, model=user_tasks.MODEL, **settings):
        modules.append(f'user_tasks_{next(_numbers)}')
        user_tasks.write(tmp_path, modules[-1], more, model)
        return registry.make(f'{modules[-1]}:{kind}', num_envs, seed, **settings)

    yield make
    for module in modules:
        sys.modules.pop(module, None)


def run(batch, steps, seed=0, action=None):
    """Reset and step; give all observations and all results."""
    rng = np.random.default_rng(seed)
    out = np.full((batch.num_envs, batch.observation_size), np.nan, np.float32)
    batch.reset(out)
    observations, results = [out.copy()], []
    for _ in range(steps):
        chosen = rng.uniform(-1.0, 1.0, (batch.num_envs, batch.action_size))
        results.append(batch.step(np.float32(chosen if action is None else action), out))
        observations.append(out.copy())
    return np.array(observations), results


def refused(make, *arguments, **settings):
    """Give the message with which something is refused, without the name of the module."""
    with pytest.raises(TaskError) as error:
        registry.check(make(*arguments, **settings))
    text = str(error.value)
    assert '\n' not in text
    return re.sub(r'user_tasks_\d+:', 'MODULE:', text)


def test_users_task_runs(task):
    batch = task()
    registry.check(batch)
    assert (batch.num_envs, batch.observation_size, batch.action_size) == (3, 4, 1)
    observations, results = run(batch, STEPS - 1)
    assert np.isfinite(observations).all()
    # position, velocity, target, distance
    np.testing.assert_allclose(
        observations[..., 3], np.abs(observations[..., 2] - observations[..., 0]), atol=1e-6)
    np.testing.assert_allclose([result.reward for result in results], -observations[1:, :, 3],
                               atol=1e-6)


CRITIC = """
@term(size=2, unit='m', simulation_only=True)
def place(state):
    return np.stack((state.qpos[:, 0], state.steps), axis=1)


class Judged(Rail):
    def critic_observation(self):
        return [place().processed(history=2), command('target', 1)]
"""


def test_what_only_the_critic_sees_is_of_the_same_moment(task):
    batch, plain = task(CRITIC, 'Judged', privileged=True), task()
    assert batch.critic_observation.shape == (3, 5)
    seen = batch.critic_observation
    out = np.zeros((3, 4), np.float32)
    batch.reset(out)
    previous = seen.copy()
    np.testing.assert_array_equal(seen[:, 2], out[:, 0])
    np.testing.assert_array_equal(seen[:, :2], seen[:, 2:4])
    truncations = 0
    for _ in range(2 * STEPS):
        result = batch.step(np.zeros((3, 1), np.float32), out)
        assert batch.critic_observation is seen
        np.testing.assert_array_equal(seen[:, 2], out[:, 0])
        np.testing.assert_array_equal(seen[:, 4], out[:, 2])
        # The true last state of what was truncated, not the first of the next episode.
        final = result.final_critic_observation
        np.testing.assert_array_equal(final[:, 2], result.final_observation[:, 0])
        assert (final[:, 3] == STEPS).all()
        np.testing.assert_array_equal(final[:, :2], previous[result.final_index, 2:4])
        ended = result.terminated | result.truncated
        np.testing.assert_array_equal(seen[~ended, :2], previous[~ended, 2:4])
        np.testing.assert_array_equal(seen[ended, 3], np.zeros(ended.sum()))
        previous = seen.copy()
        truncations += len(final)
    assert truncations == 6
    assert critic_rows(batch) is seen
    assert critic_rows(plain).shape == (3, 0)
    assert plain.step(np.zeros((3, 1), np.float32), out).final_critic_observation.shape == (0, 0)


def test_mistakes_in_what_the_critic_sees_are_named(task):
    broken = CRITIC.replace('state.steps)', 'state.steps * np.nan)')
    assert re.match(r"observation term 'place' \(MODULE:place\) gave nan in environment 0, "
                    'column 1', refused(task, broken, 'Judged', privileged=True))
    registry.check(task(broken, 'Judged'))
    no_term = CRITIC.replace("command('target', 1)]", "'speed']")
    assert "'speed' is not a term" in refused(task, no_term, 'Judged', privileged=True)


def test_data_fields_hold_mujocos_arrays(task):
    batch = task()
    run(batch, 3, action=np.array([[0.1], [0.2], [0.3]]))
    assert batch.state.fields['site_xpos'].shape == (3, 1, 3)
    np.testing.assert_allclose(batch.state.fields['actuator_force'][:, 0], [0.5, 1.0, 1.5],
                               rtol=1e-6)
    # Positions of sites are those of the last physics step, 0.01 s before the joints.
    np.testing.assert_allclose(batch.state.fields['site_xpos'][:, 0, 0],
                               batch.state.qpos[:, 0], atol=0.02)


def test_physics_is_a_plain_loop_of_mj_step(task):
    batch = task()
    action = np.array([[0.1], [-0.5], [0.9]], np.float32)
    out = np.zeros((3, 4), np.float32)
    batch.reset(out)
    start = batch.state.qpos.copy()
    for _ in range(5):
        batch.step(action, out)
    for index in range(3):
        data = mujoco.MjData(batch.model)
        data.qpos[:] = start[index]
        for _ in range(5):
            data.ctrl[:] = 5.0 * np.float64(action[index, 0])
            mujoco.mj_step(batch.model, data, nstep=2)
        np.testing.assert_array_equal(batch.state.qpos[index], data.qpos)
        np.testing.assert_array_equal(batch.state.qvel[index], data.qvel)


def test_equal_seeds_give_equal_bits(task):
    first, first_results = run(task(), 3 * STEPS)
    again, again_results = run(task(), 3 * STEPS)
    np.testing.assert_array_equal(first, again)
    for one, other in zip(first_results, again_results):
        for a, b in zip(one, other):
            np.testing.assert_array_equal(a, b)
    other, _ = run(task(seed=1), 3 * STEPS)
    # The rail's position and its target; the velocity always begins at 0.
    assert (first[0][:, [0, 2]] != other[0][:, [0, 2]]).all()


def test_an_environment_is_the_same_in_any_batch(task):
    rows, _ = run(task(num_envs=5), 3 * STEPS, action=np.full((5, 1), 0.3))
    fewer, _ = run(task(num_envs=2), 3 * STEPS, action=np.full((2, 1), 0.3))
    np.testing.assert_array_equal(rows[:, :2], fewer)


def test_time_limit_truncates_with_the_true_last_observation(task):
    limited, results = run(task(), STEPS)
    endless, _ = run(task('class Endless(Rail):\n    time_limit = 0.0', 'Endless'), STEPS)
    np.testing.assert_array_equal(limited[:STEPS], endless[:STEPS])
    last = results[-1]
    assert last.truncated.all() and not last.terminated.any()
    assert not any(result.truncated.any() for result in results[:-1])
    assert last.final_index.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(last.final_observation, endless[STEPS])
    # What follows is the start of the next episode, at rest.
    assert (limited[STEPS, :, 1] == 0.0).all()
    assert (limited[STEPS] != endless[STEPS]).any(axis=1).all()
    returns = np.sum([result.reward for result in results], axis=0)
    np.testing.assert_allclose(last.episodes[:, 0], returns, rtol=1e-6)
    assert last.episodes[:, 1].tolist() == [STEPS] * 3
    near = np.abs(endless[STEPS, :, 3]) < 0.1
    assert last.episodes[:, 2].tolist() == near.tolist()


def test_termination_ends_one_environment_alone(task):
    batch = task('class Long(Rail):\n    time_limit = 20.0', 'Long')
    out = np.zeros((3, 4), np.float32)
    batch.reset(out)
    # Only the middle one is pushed beyond 3 m.
    for _ in range(200):
        result = batch.step(np.array([[0.0], [1.0], [0.0]], np.float32), out)
        if result.terminated.any():
            break
    assert result.terminated.tolist() == [False, True, False]
    assert result.truncated.tolist() == [False] * 3 and result.final_index.tolist() == []
    assert result.episodes.shape == (1, 3) and result.episodes[0, 1] == batch.state.steps[0]
    assert batch.state.steps[1] == 0 and batch.state.steps[2] == batch.state.steps[0]
    assert np.abs(out[1, 0]) <= 1.0


def test_terminated_at_the_time_limit_is_terminated_only(task):
    batch = task('class Both(Rail):\n'
                 '    def terminated(self, state):\n'
                 f'        return state.steps == {STEPS}\n', 'Both')
    _, results = run(batch, STEPS)
    assert results[-1].terminated.all() and not results[-1].truncated.any()
    assert results[-1].final_observation.shape == (0, 4)


def test_random_start_cuts_first_episodes_and_leaves_them_out(task):
    batch = task(num_envs=40, random_episode_start=True)
    _, results = run(batch, 2 * STEPS)
    truncated = np.array([result.truncated for result in results])
    first = truncated.argmax(axis=0) + 1
    assert first.min() >= 1 and first.max() <= STEPS and len(set(first)) >= 5
    # The second episode has the full length, and is the first one that is reported.
    assert all(truncated[end - 1 + STEPS, index] for index, end in enumerate(first)
               if end + STEPS <= 2 * STEPS)
    episodes = np.concatenate([result.episodes for result in results])
    assert len(episodes) == 40 and (episodes[:, 1] == STEPS).all()


def test_unstable_physics_ends_the_episode_with_finite_numbers(task):
    batch = task('class Wild(Rail):\n'
                 '    time_limit = 20.0\n'
                 '    def reset(self, state, index, rng):\n'
                 '        state.qvel[index] = 1e12 if index == 1 else 0.0\n', 'Wild')
    observations, results = run(batch, 2, action=np.zeros((3, 1)))
    assert results[0].terminated.tolist() == [False, True, False]
    assert results[0].truncated.tolist() == [False] * 3
    assert batch.instabilities == 2
    assert np.isfinite(results[0].reward).all() and np.isfinite(observations).all()
    assert results[0].episodes.tolist() == [[results[0].reward[1], 1.0, 0.0]]


def test_no_log_file_of_mujoco(task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    test_unstable_physics_ends_the_episode_with_finite_numbers(task)
    assert not (tmp_path / 'MUJOCO_LOG.TXT').exists()


def test_memory_begins_at_zero_and_delays_begin_anew(task):
    batch = task("""
        class Remembers(Rail):
            memory = {'count': 2}
            def observation(self):
                return [joint_position(['rail']).processed(delay=2)]
            def reward(self, state, action):
                state.memory['count'][:] += 1.0
                return state.memory['count'][:, 1]
        """, 'Remembers')
    observations, results = run(batch, 2 * STEPS)
    assert [result.reward[0] for result in results] == [*range(1, STEPS + 1)] * 2
    for start in (0, STEPS):
        np.testing.assert_array_equal(observations[start], observations[start + 2])
    np.testing.assert_array_equal(results[STEPS - 1].final_observation[:, 0],
                                  batch_positions(task, STEPS - 2))


@pytest.mark.parametrize('changes', ['', '.processed(delay=1)', '.processed(history=2)'])
def test_after_a_termination_everyone_sees_what_is_now(task, changes):
    batch = task(f"""
        class Falls(Rail):
            def observation(self):
                return [joint_position(['rail']){changes}]
            def terminated(self, state):
                return (state.steps == 3) & (np.arange(state.num_envs) == 1)
        """, 'Falls')
    observations, results = run(batch, 4)
    assert [result.terminated.tolist() for result in results] == [
        [False, index == 2, False] for index in range(4)]
    begun, others = observations[3], observations[:, [0, 2]]
    # The new episode has no past; those that go on keep theirs.
    np.testing.assert_array_equal(begun[1], np.float32(batch.state.previous_qpos[1, 0]))
    if 'delay' in changes:
        assert (others[1] == others[0]).all() and (others[2:] != others[1:-1]).all()
    elif 'history' in changes:
        np.testing.assert_array_equal(others[1:, :, 0], others[:-1, :, 1])
    else:
        assert (others[1:] != others[:-1]).all()


def test_reset_may_choose_what_is_remembered(task):
    batch = task("""
        class Remembers(Rail):
            memory = {'start': 1}
            def reset(self, state, index, rng):
                state.memory['start'][index] = 10.0 + index
            def reward(self, state, action):
                return state.memory['start'][:, 0]
        """, 'Remembers')
    _, results = run(batch, STEPS + 1)
    assert results[-1].reward.tolist() == [10.0, 11.0, 12.0]


def batch_positions(task, step):
    """Give the rail's positions after some steps of an undelayed run."""
    return run(task(), step)[0][step, :, 0]


def test_free_base_gives_gravity_and_orientation(task):
    model = """
    <mujoco>
      <option gravity="0 0 0"/>
      <worldbody><body><freejoint/><geom size=".1"/>
        <body><joint name="rail" type="slide" axis="1 0 0"/><geom size=".1"/></body>
      </body></worldbody>
      <actuator><motor joint="rail"/></actuator>
    </mujoco>
    """
    batch = task("""
        from asyncppo_ros.robot.terms import base_angular_velocity, projected_gravity
        class Floating(Rail):
            data_fields = ()
            def observation(self):
                return [projected_gravity(), base_angular_velocity()]
            def reset(self, state, index, rng):
                state.qpos[index, 3:7] = [0.5 ** 0.5, 0.5 ** 0.5, 0.0, 0.0]
                state.qvel[index, 3:6] = [0.0, 0.1 * index, 0.0]
        """, 'Floating', model=model)
    observations, _ = run(batch, 0)
    np.testing.assert_allclose(observations[0], [[0, -1, 0, 0, 0, 0], [0, -1, 0, 0, 0.1, 0],
                                                 [0, -1, 0, 0, 0.2, 0]], atol=1e-6)


@pytest.mark.parametrize('more, message', [
    ('    model = "none.xml"', 'task Bad: model file none.xml does not exist (FOLDER/none.xml)'),
    ('    reward = Task.reward', 'task Bad: its method reward() is missing'),
    ('    model = ""', 'task Bad: it names no model; set model = PATH of its MJCF file'),
    ('    model = "package://no_such_package/x.xml"',
     'task Bad: model file package://no_such_package/x.xml does not exist (no package '
     'no_such_package found)'),
    ('    control_dt = 0.025', 'task Bad: control_dt = 0.025 s: must be a whole multiple of the '
                               'timestep of the model, 0.01 s'),
    ('    keyframe = "home"', "task Bad: the model has no key 'home'; keys: none"),
    ('    data_fields = ("xyz",)', "data_fields: MjData has no array of floats named 'xyz'"),
    ('    def action(self):\n        return ActionMap(["elbow"], self.control_dt)',
     "task Bad: the model has no joint 'elbow'; joints: rail, spare"),
    ('    def action(self):\n        return ActionMap(["spare"], self.control_dt)',
     "task Bad: the model has 0 actuators for joint 'spare', 1 is needed; joints with an "
     'actuator: rail'),
    ('    def action(self):\n        return ActionMap(["rail"], 0.5)',
     'task Bad: the action map has control_dt = 0.5 s, the task 0.02 s'),
    ('    def observation(self):\n        return [joint_position(["knee"])]',
     "joint 'knee' does not exist; joints: rail, spare"),
    ('    def setup(self, model):\n'
     '        from asyncppo_ros.simulation.model import chain\n'
     '        chain(model, "tip", ["rail"])',
     "kinematic chain: the model has no site 'tip'; sites: middle"),
    ('    def setup(self, model):\n'
     '        from asyncppo_ros.simulation.model import chain\n'
     '        chain(model, "middle", ["spare"])',
     "kinematic chain: site 'middle' is moved by rail, not by spare"),
    ('    def reward(self, state, action):\n        return state.qpos',
     'task Bad: reward() gave shape (3, 2), expected (3,): one value per environment'),
    ('    def reward(self, state, action):\n        return np.array([1.0, np.nan, 2.0])',
     'task Bad: reward() gave nan in environment 1'),
    ('    def terminated(self, state):\n        return False',
     'task Bad: terminated() gave shape (), expected (3,): one value per environment'),
    ('    def terminated(self, state):\n        return state.qpos[:, 0]',
     'task Bad: terminated() gave float64, expected bool'),
])
def test_mistakes_of_a_task(task, tmp_path, more, message):
    text = refused(task, f'class Bad(Rail):\n{more}\n', 'Bad')
    assert text.replace(str(tmp_path), 'FOLDER') == message


def test_term_of_wrong_shape(task):
    text = refused(task, """
        @term(size=2)
        def two(state):
            return state.qpos[:, :1]
        class Bad(Rail):
            def observation(self):
                return [joint_position(['rail']), two()]
        """, 'Bad')
    assert text == ("observation term 'two' (MODULE:two) gave shape (3, 1), expected (3, 2): "
                    'one row per environment, one column per number')


def test_term_that_is_not_finite_in_one_environment(task):
    text = refused(task, """
        @term(size=2)
        def broken(state):
            values = np.zeros((state.num_envs, 2))
            values[2, 1] = np.nan if state.steps[2] else 0.0
            return values
        class Bad(Rail):
            def observation(self):
                return [joint_position(['rail']), broken()]
        """, 'Bad')
    assert text == ("observation term 'broken' (MODULE:broken) gave nan in environment 2, "
                    'column 1')


def test_broken_model_shows_mujocos_message(task):
    text = refused(task, model='<mujoco><worldbody><body></worldbody></mujoco>')
    assert text.startswith('task Rail: model /') and 'rail.xml: ' in text
    assert 'XML' in text


def test_model_in_the_share_of_a_ros_package(tmp_path, monkeypatch, task):
    share = tmp_path / 'share' / 'my_robot_description'
    share.mkdir(parents=True)
    (share / 'robot.xml').write_text(user_tasks.MODEL)
    monkeypatch.setenv('AMENT_PREFIX_PATH', f'/nowhere:{tmp_path}')
    batch = task('class There(Rail):\n'
                 '    model = "package://my_robot_description/robot.xml"', 'There')
    assert isinstance(batch, BatchedSimulation)

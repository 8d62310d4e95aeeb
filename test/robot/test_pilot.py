"""The pilot does on a robot, bit for bit, what simulation and evaluation do in training."""

import dataclasses
import threading

import numpy as np
import pytest
from small_policies import small_policy, task_card

from asyncppo_ros.errors import ArtefactError, PolicyError, TaskError
from asyncppo_ros.robot.actions import ActionMap
from asyncppo_ros.robot.artefact import Artefact
from asyncppo_ros.robot.numpy_policy import NumpyPolicy
from asyncppo_ros.robot.observation import Observation
from asyncppo_ros.robot.pilot import Pilot
from asyncppo_ros.robot.state import standing
from asyncppo_ros.robot.terms import joint_position, last_action
from asyncppo_ros.simulation import registry

FIELDS = ('joint_position', 'joint_velocity', 'joint_effort', 'base_orientation',
          'base_angular_velocity', 'projected_gravity')


def copied(state):
    """Give what a robot would be measured to be, as a state of its own."""
    robot = standing(state.joint_names, state.last_action.shape[1],
                     commands={name: rows.shape[1] for name, rows in state.command.items()})
    for name in FIELDS:
        getattr(robot, name)[...] = getattr(state, name)
    for name, rows in state.command.items():
        robot.command[name][...] = rows
    return robot


# The second stands: its episode lasts 20 s, where the third one's ends with a fall.
@pytest.mark.parametrize(('task', 'gain', 'least'), [
    ('reach', 1.0, 75), ('quadruped_walk', 0.01, 1000), ('quadruped_walk', 3.0, 5)])
def test_targets_equal_those_in_simulation_over_whole_episodes(task, gain, least):
    simulation = registry.make(task, 1, 5)
    artefact = small_policy(simulation.describe(), gain=gain)
    pilot, policy = Pilot(artefact), NumpyPolicy(artefact)
    observation = np.empty((1, simulation.observation_size), np.float32)
    simulation.reset(observation)
    pilot.begin(copied(simulation.state))
    episodes = steps = 0
    while episodes < 2:
        target = pilot.target(copied(simulation.state))
        np.testing.assert_array_equal(pilot.observation_row, observation[0])
        result = simulation.step(policy.act(observation), observation)
        control = simulation._physics.control[0, simulation._actuators]
        np.testing.assert_array_equal(target, control)
        steps += 1
        if (result.terminated | result.truncated).any():
            assert result.episodes[0, 1] == steps >= least
            assert pilot.last_action.any()
            episodes, steps = episodes + 1, 0
            pilot.begin(copied(simulation.state))
    assert pilot.control_dt == simulation.control_dt
    assert pilot.interface == 'position'
    assert dict(zip(pilot.joints, pilot.start_pose)) == simulation.describe()['start_pose']


def with_memory(**action):
    """Give the card of a task whose terms remember, and whose commands are limited in rate."""
    terms = [joint_position(('a', 'b')).processed(history=3, delay=1),
             last_action(size=2).processed(history=2)]
    actions = ActionMap(('b', 'a'), 0.1, **{'rate_limit': 2.0, 'scale': 3.0, **action})
    return {'task': 'memory', 'control_dt': 0.1, 'observation': Observation(terms).card(),
            'action': actions.card(), 'joints': ['a', 'b', 'c'], 'commands': {},
            'controller': {}, 'start_pose': {'a': 0.5, 'b': -0.5, 'c': 9.0},
            'simulation_only': []}


@pytest.mark.parametrize('action', [
    {}, {'mode': 'delta'}, {'interface': 'velocity'}, {'interface': 'velocity', 'mode': 'delta'},
    {'interface': 'effort', 'high': 1.0}])
def test_delays_histories_and_rate_limits_are_those_of_training(action):
    card = with_memory(**action)
    artefact = small_policy(card)
    pilot, policy = Pilot(artefact), NumpyPolicy(artefact)
    observation, actions = Observation.from_card(card['observation']), ActionMap.from_card(
        card['action'])
    rng, row = np.random.default_rng(0), np.empty((1, 10), np.float32)
    state, robot = (standing(('a', 'b', 'c'), 2) for _ in range(2))
    for step in range(40):
        for name in ('joint_position', 'joint_velocity'):
            getattr(state, name)[...] = rng.normal(size=(1, 3))
            getattr(robot, name)[...] = getattr(state, name)
        if step % 15 == 0:
            state.last_action[...] = 0.0
            actions.reset(state, slice(None))
            observation.reset(state, [0], row)
            pilot.begin(robot)
        else:
            observation.observe(state, row)
        state.last_action[...] = policy.act(row)
        expected = np.empty((1, 2))
        actions.command(state.last_action, state, expected)
        np.testing.assert_array_equal(pilot.target(robot), expected[0])
        np.testing.assert_array_equal(pilot.last_action, state.last_action[0])
        # Whatever the owner of the state does with it in between.
        robot.last_action[...] = 9.0


def test_it_begins_by_itself_and_writes_into_an_array():
    pilot, other = (Pilot(small_policy(with_memory())) for _ in range(2))
    state = standing(('a', 'b', 'c'), 2)
    out = np.empty(2)
    other.begin(state)
    assert pilot.target(state, out) is out
    np.testing.assert_array_equal(out, other.target(state))


def test_identity_and_start_pose_are_those_of_the_card():
    pilot = Pilot(small_policy(with_memory(), version=4))
    assert pilot.identity == (1, 4) and pilot.run_id == 7
    assert pilot.joints == ('b', 'a') and pilot.start_pose.tolist() == [-0.5, 0.5]


@pytest.fixture
def flown():
    """Give a pilot, a state, and what each of two policies alone would do next."""
    first, second = small_policy(with_memory(), 0, 1), small_policy(with_memory(), 1, 2)
    pilot = Pilot(first)
    state = standing(('a', 'b', 'c'), 2)
    state.joint_position[...] = [[0.3, -0.2, 0.0]]
    pilot.begin(state)
    return pilot, state, [NumpyPolicy(first), NumpyPolicy(second)], second


def test_a_new_policy_takes_over_step_by_step(flown):
    pilot, state, (old, new), artefact = flown
    pilot.target(state)
    pilot.swap(artefact, 4)
    assert pilot.identity == (1, 1)
    for step in (1, 2, 3, 4, 4, 4):
        pilot.target(state)
        row = pilot.observation_row[None]
        share = step / 4
        mixed = (1.0 - share) * old.act(row) + share * new.act(row).astype(np.float64)
        np.testing.assert_allclose(pilot.last_action, mixed[0], atol=1e-7)
        assert pilot.identity == (1, 2)
    np.testing.assert_array_equal(pilot.last_action, new.act(row)[0])


def test_last_action_is_the_mixture(flown):
    pilot, state, _, artefact = flown
    pilot.target(state)
    pilot.swap(artefact, 2)
    pilot.target(state)
    mixed = pilot.last_action
    pilot.target(state)
    np.testing.assert_array_equal(pilot.observation_row[-2:], mixed.astype(np.float32))


def test_without_steps_a_policy_takes_over_at_once(flown):
    pilot, state, (_, new), artefact = flown
    pilot.target(state)
    pilot.swap(artefact)
    pilot.target(state)
    np.testing.assert_array_equal(pilot.last_action, new.act(pilot.observation_row[None])[0])


def test_policies_that_come_fast_never_let_the_action_jump():
    card = {**with_memory(), 'observation': Observation([joint_position(('a', 'b'))]).card()}
    pilot = Pilot(small_policy(card))
    state = standing(('a', 'b', 'c'), 2)
    steps, actions = 20, []
    for step in range(300):
        if step % 3 == 0:
            pilot.swap(small_policy(card, step, 2 + step), steps)
        pilot.target(state)
        actions.append(pilot.last_action)
    # All actions lie in (-1, 1), and what is measured does not change.
    assert 0.0 < np.abs(np.diff(actions, axis=0)).max() <= 2.0 / steps
    for _ in range(4 * steps):
        pilot.target(state)
    assert pilot.identity == (1, 2 + 297)
    np.testing.assert_array_equal(pilot.last_action, NumpyPolicy(
        small_policy(card, 297)).act(pilot.observation_row[None])[0])


def test_policies_arrive_from_another_thread():
    pilot = Pilot(small_policy(with_memory()))
    state = standing(('a', 'b', 'c'), 2)
    artefacts = [small_policy(with_memory(), seed, seed) for seed in range(2, 60)]

    def publish():
        for artefact in artefacts:
            pilot.swap(artefact, 0)
    thread = threading.Thread(target=publish)
    thread.start()
    while thread.is_alive():
        assert np.isfinite(pilot.target(state)).all()
    thread.join()
    pilot.target(state)
    assert pilot.identity == (1, 59)


@pytest.mark.parametrize(('entry', 'change'), [
    ('action', {'action': ActionMap(('b', 'a'), 0.1, rate_limit=2.0, scale=3.1).card()}),
    ('observation', {'observation': Observation(
        [joint_position(('a', 'b'), offset=(0.0, 0.1)).processed(history=3, delay=1),
         last_action(size=2).processed(history=2)]).card()}),
    ('control_dt', {'control_dt': 0.2}),
    ('joints', {'joints': ['b', 'a', 'c']}),
    ('controller', {'controller': {'stiffness': [1.0, 1.0]}})])
def test_a_policy_that_does_not_fit_is_refused_by_the_entry(entry, change):
    pilot = Pilot(small_policy(with_memory()))
    with pytest.raises(ArtefactError, match=f'generation 1, version 2: its {entry} is not that'):
        pilot.swap(small_policy({**with_memory(), **change}, 1, 2))
    state = standing(('a', 'b', 'c'), 2)
    pilot.target(state)
    assert pilot.identity == (1, 1)


def exploding(artefact):
    """Give the same policy with weights that overflow: finite, and yet not its actions."""
    tensors = {name: np.array(tensor) for name, tensor in artefact.tensors.items()}
    tensors['policy.2.weight'][...] = 3e38
    tensors['policy.1.bias'][...] = 5.0
    return Artefact(artefact.card, tensors)


def test_a_policy_whose_numbers_are_not_finite_never_takes_over():
    good = small_policy(with_memory())
    pilot = Pilot(good)
    with np.errstate(all='ignore'), pytest.raises(PolicyError, match='version 2'):
        pilot.swap(exploding(small_policy(with_memory(), 1, 2)))
    pilot.target(standing(('a', 'b', 'c'), 2))
    assert pilot.identity == (1, 1)
    pilot.warm_up()
    with np.errstate(all='ignore'), pytest.raises(PolicyError, match='version 1'):
        Pilot(exploding(good)).warm_up()


def test_a_policy_that_no_robot_can_run_is_refused():
    with pytest.raises(ArtefactError, match="'qpos' exists only in simulation"):
        Pilot(small_policy(task_card('HalfCheetah-v5')))


@pytest.mark.parametrize('what', ['observation', 'action'])
def test_an_architecture_that_does_not_fit_the_task_is_refused(what):
    good = small_policy(with_memory())
    card = dict(good.card)
    if what == 'observation':
        card['task'] = {**card['task'], 'observation': Observation(
            [joint_position(('a', 'b'))]).card()}
    else:
        card['task'] = {**card['task'], 'action': ActionMap(('a',), 0.1).card()}
    with pytest.raises(ArtefactError, match=f'architecture.{what}_size = '):
        Pilot(dataclasses.replace(good, card=card))


def test_a_start_pose_without_a_joint_is_refused():
    with pytest.raises(ArtefactError, match="its start_pose lacks the joint 'b'"):
        Pilot(small_policy({**with_memory(), 'start_pose': {'a': 0.0}}))


def test_a_state_that_is_not_finite_gives_no_target():
    pilot = Pilot(small_policy(with_memory()))
    state = standing(('a', 'b', 'c'), 2)
    pilot.target(state)
    state.joint_position[0, 1] = np.nan
    with pytest.raises(TaskError, match="term 'joint_position'.* gave nan"):
        pilot.target(state)

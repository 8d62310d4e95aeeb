"""Trainer, actor, pilot and ONNX give one and the same action for the same raw observation."""

from made_policies import card_of, made_learner
import numpy as np
import pytest
import torch

from asyncppo_ros.acting.exploration import GaussianExploration
from asyncppo_ros.robot.numpy_policy import NumpyPolicy
from asyncppo_ros.robot.pilot import Pilot
from asyncppo_ros.simulation.registry import make

STEPS = 300
AGREED = 1e-5


def of_trainer(learner, observation):
    with torch.no_grad():
        parameters = learner.network.parameters_of(learner._normalized(observation))
    return torch.tanh(parameters.chunk(2, -1)[0]).numpy()


def of_actor(artefact, observation):
    """Give what an actor would do without noise, from the parameters that it sends."""
    policy = NumpyPolicy(artefact)
    count, size = len(observation), policy.action_size
    exploration = GaussianExploration(1, count, size)
    exploration.begin(policy, np.random.default_rng(0))
    parameters = np.empty((count, 2 * size), np.float32)
    action, command = np.empty((2, count, size), np.float32)
    exploration.act(policy, observation, 0, parameters, action, command)
    return np.tanh(parameters[:, :size])


def play(artefact, task):
    """Let the pilot steer a simulation; give what it saw, did and commanded, and what was so."""
    pilot = Pilot(artefact)
    world = make(task, 1, 3)
    observation = np.empty((1, world.observation_size), np.float32)
    world.reset(observation)
    pilot.begin(world.state)
    columns = world.state.columns(pilot.joints)
    rows = []
    for _ in range(STEPS):
        measured = world.state.joint_position[0, columns].copy()
        target = pilot.target(world.state)
        np.testing.assert_array_equal(pilot.observation_row, observation[0])
        rows.append((pilot.observation_row, pilot.last_action, target, measured))
        result = world.step(pilot.last_action[None], observation)
        if (result.terminated | result.truncated).any():
            pilot.begin(world.state)
    return [np.array(column) for column in zip(*rows)]


class Played:
    """A policy that has played: what it saw, did and commanded."""

    def __init__(self, task, activation, noise):
        world = make(task, 1, 0)
        self.learner = made_learner(card_of(world), world.observation_size, world.action_size,
                                    noise=noise, hidden_sizes=(64, 64), activation=activation)
        self.artefact = self.learner.snapshot().artefact
        self.observation, self.action, self.target, self.measured = play(self.artefact, task)
        # It does not only push against its limits.
        assert np.median(self.action.std(axis=0)) > 0.1


@pytest.fixture(scope='module', params=[('reach', 'tanh', 0.3), ('quadruped_walk', 'elu', 0.1)],
                ids=lambda parameters: parameters[0])
def played(request):
    return Played(*request.param)


def test_trainer_actor_and_pilot_agree(played):
    for other in (of_trainer(played.learner, played.observation),
                  of_actor(played.artefact, played.observation)):
        assert np.abs(other - played.action).max() <= AGREED


def test_onnx_agrees(played):
    pytest.importorskip('onnx', reason='needs ONNX: pip install "asyncppo_ros[onnx]"')
    onnxruntime = pytest.importorskip('onnxruntime', reason='pip install "asyncppo_ros[onnx]"')
    from asyncppo_ros.policy.onnx_export import onnx_model
    session = onnxruntime.InferenceSession(onnx_model(played.artefact).SerializeToString(),
                                           providers=['CPUExecutionProvider'])
    inputs = {'observation': played.observation, 'measured': played.measured.astype(np.float32)}
    action, command = session.run(
        ['action', 'command'], {entry.name: inputs[entry.name] for entry in session.get_inputs()})
    assert np.abs(action - played.action).max() <= AGREED
    assert np.abs(command - played.target).max() <= AGREED

"""ONNX: the same numbers as the policy, and metadata that is enough to run it."""

import json

from made_policies import made_learner, observations_of
import numpy as np
import pytest

onnx = pytest.importorskip('onnx', reason='needs ONNX: pip install "asyncppo_ros[onnx]"')
onnxruntime = pytest.importorskip('onnxruntime', reason='pip install "asyncppo_ros[onnx]"')

from asyncppo_ros.errors import ArtefactError  # noqa: E402
from asyncppo_ros.policy import onnx_export  # noqa: E402
from asyncppo_ros.policy.onnx_export import differences, export, onnx_model, TOLERANCE  # noqa: E402
from asyncppo_ros.robot.actions import ActionMap  # noqa: E402
from asyncppo_ros.robot.artefact import Artefact  # noqa: E402
from asyncppo_ros.robot.numpy_policy import NumpyPolicy  # noqa: E402
from asyncppo_ros.robot.state import standing  # noqa: E402
from asyncppo_ros.robot.terms import joint_position, last_action  # noqa: E402

JOINTS = ('hip', 'knee')
TERMS = [joint_position(JOINTS, [0.1, -0.2]).processed(scale=2.0, history=2, clip=1.5),
         last_action(2)]


def task_of(**action):
    actions = ActionMap(JOINTS, 0.02, **{'scale': [0.5, 30.0], 'offset': [0.3, -8.0],
                                         'low': [-0.1, -20.0], 'high': [0.6, np.inf], **action})
    return {'task': 'legs', 'control_dt': 0.02, 'observation': [term.card() for term in TERMS],
            'action': actions.card(), 'start_pose': {'hip': 0.1, 'knee': -0.4},
            'controller': {'stiffness': [30.0, 20.0], 'damping': [0.6, 0.5],
                           'effort_limit': [24.0, None]},
            'commands': {}, 'deployable': True, 'simulation_only': []}


def artefact_of(task, **policy):
    return made_learner(task, 6, 2, **policy).snapshot().artefact


def outputs_of(path, **inputs):
    session = onnxruntime.InferenceSession(str(path), providers=['CPUExecutionProvider'])
    names = [entry.name for entry in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs)))


def metadata_of(path):
    return {entry.key: entry.value for entry in onnx.load(str(path)).metadata_props}


@pytest.mark.parametrize('activation', ['tanh', 'relu', 'elu'])
def test_action_and_command_are_those_of_the_policy(activation, tmp_path):
    learner = made_learner(task_of(), 6, 2, activation=activation)
    artefact = learner.snapshot().artefact
    found = export(artefact, tmp_path / 'policy.onnx')
    assert 0.0 < max(found) <= TOLERANCE
    observation = observations_of(learner, 5, 200)
    outputs = outputs_of(tmp_path / 'policy.onnx', observation=observation)
    action = NumpyPolicy(artefact).act(observation)
    np.testing.assert_allclose(outputs['action'], action, atol=1e-5)
    expected = np.empty((200, 2))
    ActionMap.from_card(artefact.card['task']['action']).command(
        action, standing(JOINTS, 2, 200), expected)
    np.testing.assert_allclose(outputs['command'], expected, atol=3e-4)
    assert (expected == [-0.1, -20.0]).any() and (expected[:, 0] == 0.6).any()


def test_in_mode_delta_the_measured_values_are_an_input(tmp_path):
    learner = made_learner(task_of(mode='delta', low=-40.0, high=40.0, rate_limit=1.0), 6, 2)
    export(learner.snapshot().artefact, tmp_path / 'policy.onnx')
    observation = observations_of(learner, 5, 3)
    measured = np.array([[0.1, 2.0], [0.2, -3.0], [39.9, 39.9]], np.float32)
    outputs = outputs_of(tmp_path / 'policy.onnx', observation=observation, measured=measured)
    target = measured + np.array([0.3, -8.0]) + outputs['action'] * np.array([0.5, 30.0])
    np.testing.assert_allclose(outputs['command'], np.clip(target, -40.0, 40.0), atol=1e-5)


def test_a_choice_is_an_index(tmp_path):
    task = {**task_of(), 'action': {'interface': 'discrete', 'choices': 5, 'first': 0}}
    learner = made_learner(task, 6, 1)
    artefact = learner.snapshot().artefact
    export(artefact, tmp_path / 'policy.onnx')
    observation = observations_of(learner, 5, 200)
    outputs = outputs_of(tmp_path / 'policy.onnx', observation=observation)
    np.testing.assert_array_equal(outputs['action'], NumpyPolicy(artefact).act(observation))
    assert set(outputs) == {'action', 'logits'} and len(set(outputs['action'].flat)) > 2


def test_the_metadata_alone_is_enough(tmp_path):
    """Observation, action and command again, by a reader that knows nothing but the file."""
    artefact = artefact_of(task_of(rate_limit=[0.0, 5.0]))
    export(artefact, tmp_path / 'policy.onnx')
    said = metadata_of(tmp_path / 'policy.onnx')

    def numbers(key):
        return [float(text) for text in said[key].split(',')]

    assert said['joint_names'].split(',') == ['hip', 'knee']
    assert (said['interface'], said['mode'], said['control_dt']) == ('position', 'absolute',
                                                                     '0.02')
    assert numbers('action_offset') == [0.3, -8.0] and numbers('action_scale') == [0.5, 30.0]
    assert numbers('action_low') == [-0.1, -20.0] and numbers('action_high') == [0.6, np.inf]
    assert numbers('action_rate_limit') == [0.0, 5.0] and numbers('start_pose') == [0.1, -0.4]
    assert numbers('stiffness') == [30.0, 20.0] and numbers('damping') == [0.6, 0.5]
    assert numbers('effort_limit') == [24.0, np.inf]
    assert said['observation_names'] == 'joint_position,last_action'
    assert numbers('observation_sizes') == [2, 2] and numbers('observation_histories') == [2, 1]
    assert numbers('observation_scales') == [2.0, 1.0] and numbers('observation_clips') == [1.5, 0]
    assert numbers('observation_delays') == [0, 0]
    terms = json.loads(said['observation'])
    assert terms[0]['parameters'] == {'joints': ['hip', 'knee'], 'offset': [0.1, -0.2]}
    assert json.loads(said['card']) == artefact.card and said['hash'] == artefact.card['hash']
    assert 'rate_limit' in said['rules'] and 'oldest first' in said['rules']


def test_a_model_that_differs_is_not_written(tmp_path, monkeypatch):
    artefact = artefact_of(task_of())
    monkeypatch.setitem(onnx_export.OPERATORS, 'tanh', 'Softsign')
    with pytest.raises(ArtefactError, match='not written: the model differs from the policy by'):
        export(artefact, tmp_path / 'policy.onnx')
    assert not list(tmp_path.iterdir())


def test_a_command_that_differs_is_seen():
    artefact = artefact_of(task_of())
    changed = json.loads(json.dumps(artefact.card))
    changed['task']['action']['offset'][1] += 0.01
    other = onnx_model(Artefact(changed, artefact.tensors)).SerializeToString()
    found = differences(other, artefact, count=100)
    assert found.action <= TOLERANCE < found.command


def test_mistakes_are_one_line(tmp_path):
    artefact = artefact_of(task_of())
    path = tmp_path / 'policy.onnx'
    path.write_bytes(b'mine')
    for target, words in ((path, 'exists; --force overwrites it'),
                          (tmp_path / 'none' / 'policy.onnx', 'does not exist'),
                          (tmp_path, 'is a folder')):
        with pytest.raises(ArtefactError, match=words):
            export(artefact, target)
    assert path.read_bytes() == b'mine'
    export(artefact, path, replace=True)
    assert metadata_of(path)['task'] == 'legs'
    assert [entry.name for entry in tmp_path.iterdir()] == ['policy.onnx']
    named = task_of()
    named['action'] = {**named['action'], 'joints': ['hip,left', 'knee']}
    with pytest.raises(ArtefactError, match='has a comma'):
        export(artefact_of(named), tmp_path / 'comma.onnx')

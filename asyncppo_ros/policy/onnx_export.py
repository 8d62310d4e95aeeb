"""
Write a policy as ONNX, for C++ and every other runtime; made from the artefact, without torch.

The graph holds everything between the raw observation and the joint command: normalizer, network,
tanh (or the index of the largest logit), offset, scale and limits.  What has a memory is not in
it: the rate limit, the last action, delays and histories of terms.  The metadata says all of that
(see `metadata_of`), and the whole card is in it as well.
"""

from collections.abc import Iterator, Mapping
import json
import math
import pathlib
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper, TensorProto
import onnxruntime

from asyncppo_ros.errors import ArtefactError
from asyncppo_ros.robot.actions import ActionMap, INTERFACES
from asyncppo_ros.robot.artefact import Artefact
from asyncppo_ros.robot.numpy_policy import normalizer_arrays, NumpyPolicy
from asyncppo_ros.robot.state import standing
from asyncppo_ros.run import replace_file

# Old enough for onnxruntime 1.8 (2021), new enough for everything used here.
OPSET = 13
IR_VERSION = 7
OPERATORS = {'tanh': 'Tanh', 'relu': 'Relu', 'elu': 'Elu'}
TOLERANCE = 1e-5
CHECKED_ROWS = 10_000
# Some of them are also given one at a time, as a robot does: other kernels may run then.
SINGLE_ROWS = 100
RULES = (
    'observation: the terms in order, raw (the normalizer is in the graph); each term is clipped '
    'to +-clip (0 = not), then multiplied by its scale, then delayed by so many control steps, '
    'then given so many times, oldest first; at the start of an episode all of them hold the '
    'present value. last_action is the output `action` of the step before, 0 at the start, before '
    'anything a safety layer changes. command = clip(offset + scale * action, low, high) in mode '
    'absolute; in mode delta the input `measured` is added, which is the present position '
    '(velocity, for the interface velocity) of joint_names. After that, and not in the graph as '
    'it has a memory: command = clip(command, previous - rate_limit * control_dt, previous + '
    'rate_limit * control_dt) where rate_limit > 0; the first previous is the measured position '
    '(velocity; 0 for effort).')


class Differences(NamedTuple):
    """
    The largest differences between a model and the policy it was made from.

    Attributes
    ----------
    action : float
        Of actions in (-1, 1), or of logits.
    command : float
        Of joint commands, as a share of max(1, |offset|, |scale|) of the joint.

    """

    action: float
    command: float


def export(artefact: Artefact, path: str | pathlib.Path, replace: bool = False) -> Differences:
    """
    Compare a model with the policy on random observations, then write it.

    Parameters
    ----------
    artefact : Artefact
    path : path
        Of the new file.
    replace : bool
        Overwrite a file that is there.

    Returns
    -------
    Differences
        At most `TOLERANCE`.

    Raises
    ------
    ArtefactError
        The policy cannot be written as ONNX or differs from it, or the file cannot be written.

    """
    target = pathlib.Path(path).expanduser()
    _check_target(target, replace)
    data = onnx_model(artefact).SerializeToString()
    found = differences(data, artefact)
    if not max(found) <= TOLERANCE:
        raise ArtefactError(f'{target}: not written: the model differs from the policy by '
                            f'{max(found):.2g}, allowed is {TOLERANCE:g}')
    try:
        replace_file(target, data)
    except OSError as error:
        raise ArtefactError(f'{target}: {error.strerror}') from None
    return found


def onnx_model(artefact: Artefact) -> onnx.ModelProto:
    """
    Make the model.

    Inputs: ``observation`` float32 [N, O], raw, and in mode delta ``measured`` float32 [N, A].
    Outputs: ``action`` float32 [N, A] in (-1, 1) and, where the task has joints, ``command``
    float32 [N, A]; of a categorical policy ``action`` int64 [N, 1], an index, and ``logits``
    float32 [N, P].

    Raises
    ------
    ArtefactError
        The tensors do not fit the card.

    """
    NumpyPolicy(artefact)  # every check of the tensors
    graph = _Graph()
    head = _head(graph, artefact)
    if artefact.card['architecture']['distribution'] == 'categorical':
        graph.add('Identity', [head], 'logits')
        graph.add('ArgMax', ['logits'], 'action', axis=1, keepdims=1)
    else:
        graph.add('Tanh', [head], 'action')
        _add_command(graph, action_map_of(artefact.card))
    return _model(graph, artefact.card)


def action_map_of(card: Mapping[str, Any]) -> ActionMap | None:
    """Give what turns actions into joint commands; None where the task has no such thing."""
    action = card['task'].get('action', {})
    return ActionMap.from_card(action) if action.get('interface') in INTERFACES else None


def metadata_of(card: Mapping[str, Any]) -> dict[str, str]:
    """
    Give the metadata of the model: all that who runs it must know.

    Lists are separated by commas, in the order of the joints or of the terms, as std::stod
    reads them (``inf`` = no limit).  JSON are ``observation`` (the terms with their parameters),
    ``commands`` (what people ask for, with its limits) and ``card`` (everything).

    Raises
    ------
    ArtefactError
        A name has a comma.

    """
    task, terms = card['task'], card['task'].get('observation', [])
    found = {'format': 'asyncppo-policy-onnx 1', 'hash': card['hash'], 'task': task['task'],
             'run_id': str(card['run_id']), 'generation': str(card['generation']),
             'policy_version': str(card['policy_version']),
             'control_dt': repr(float(task['control_dt'])),
             'deployable': str(bool(task.get('deployable'))).lower(),
             'observation': json.dumps(terms), 'rules': RULES,
             'commands': json.dumps(task.get('commands', {})),
             'card': json.dumps(card, sort_keys=True)}
    for key, entry, default in (('names', 'name', ''), ('sizes', 'size', 0), ('units', 'unit', ''),
                                ('scales', 'scale', 1.0), ('clips', 'clip', 0.0),
                                ('delays', 'delay', 0), ('histories', 'history', 1)):
        found[f'observation_{key}'] = _listed([term.get(entry, default) for term in terms])
    actions = action_map_of(card)
    return {**found, **(_joint_metadata(task, actions) if actions else {})}


def differences(data: bytes, artefact: Artefact, count: int = CHECKED_ROWS,
                seed: int = 0) -> Differences:
    """
    Compare a model with the policy on `count` random observations.

    They are normal about the mean of the policy's normalizer with three times its deviation, so
    that clipping takes part.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, ['CPUExecutionProvider'])
    policy = NumpyPolicy(artefact)
    actions = None if policy.distribution == 'categorical' else action_map_of(artefact.card)
    worst = Differences(0.0, 0.0)
    for rows in _random_rows(artefact, actions, count, seed):
        given = {entry.name: rows[entry.name] for entry in session.get_inputs()}
        names = [entry.name for entry in session.get_outputs()]
        outputs = dict(zip(names, session.run(names, given)))
        found = (_of_choice(policy, rows['observation'], outputs)
                 if policy.distribution == 'categorical'
                 else _of_motion(policy, actions, rows, outputs))
        worst = Differences(*map(max, zip(worst, found)))
    return worst


class _Graph:
    """Nodes, constants, inputs and outputs that come together."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []

    def add(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [output], output, **attributes))
        return output

    def constant(self, name: str, values: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.array(values, np.float32), name))
        return name

    def take(self, name: str, size: int) -> str:
        self.inputs.append(_rows(name, size))
        return name


def _head(graph: _Graph, artefact: Artefact) -> str:
    """Add what `NumpyPolicy.head` does; give the name of its result."""
    card, tensors = artefact.card['architecture'], artefact.tensors
    shift, scale = normalizer_arrays(tensors['normalizer.mean'], tensors['normalizer.variance'],
                                     float(tensors['normalizer.count'][0]))
    clip = float(card['observation_clip'])
    x = graph.take('observation', card['observation_size'])
    x = graph.add('Sub', [x, graph.constant('normalizer.shift', shift)], 'shifted')
    x = graph.add('Mul', [x, graph.constant('normalizer.scale', scale)], 'scaled')
    x = graph.add('Clip', [x, graph.constant('normalizer.low', -clip),
                           graph.constant('normalizer.high', clip)], 'normalized')
    last = len(card['hidden_sizes'])
    for index in range(last + 1):
        weight, bias = (graph.constant(f'policy.{index}.{part}', tensors[f'policy.{index}.{part}'])
                        for part in ('weight', 'bias'))
        x = graph.add('Gemm', [x, weight, bias], f'layer{index}', transB=1)
        if index < last:
            x = graph.add(OPERATORS[card['activation']], [x], f'hidden{index}')
    return x


def _add_command(graph: _Graph, actions: ActionMap | None) -> None:
    if actions is None:
        return
    x = graph.add('Mul', ['action', graph.constant('action.scale', actions.scale)], 'moved')
    x = graph.add('Add', [x, graph.constant('action.offset', actions.offset)], 'target')
    if actions.mode == 'delta':
        x = graph.add('Add', [x, graph.take('measured', actions.size)], 'measured_target')
    x = graph.add('Max', [x, graph.constant('action.low', actions.low)], 'above_low')
    graph.add('Min', [x, graph.constant('action.high', actions.high)], 'command')


def _model(graph: _Graph, card: Mapping[str, Any]) -> onnx.ModelProto:
    made = {name for node in graph.nodes for name in node.output}
    architecture = card['architecture']
    if 'logits' in made:
        outputs = [_rows('action', 1, TensorProto.INT64),
                   _rows('logits', int(architecture['choices']))]
    else:
        outputs = [_rows(name, architecture['action_size']) for name in ('action', 'command')
                   if name in made]
    model = helper.make_model(
        helper.make_graph(graph.nodes, 'asyncppo_policy', graph.inputs, outputs,
                          graph.constants),
        producer_name='asyncppo_ros', producer_version=card['package_version'],
        ir_version=IR_VERSION, opset_imports=[helper.make_opsetid('', OPSET)])
    helper.set_model_props(model, metadata_of(card))
    onnx.checker.check_model(model, full_check=True)
    return model


def _rows(name: str, size: int, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, ['N', size])


def _joint_metadata(task: Mapping[str, Any], actions: ActionMap) -> dict[str, str]:
    found = {'joint_names': _listed(actions.joints), 'interface': actions.interface,
             'mode': actions.mode}
    for name in ('offset', 'scale', 'low', 'high', 'rate_limit'):
        found[f'action_{name}'] = _listed(getattr(actions, name).tolist())
    start = task.get('start_pose', {})
    if all(joint in start for joint in actions.joints):
        found['start_pose'] = _listed([float(start[joint]) for joint in actions.joints])
    for name, values in task.get('controller', {}).items():
        found[name] = _listed([math.inf if value is None else float(value) for value in values])
    return found


def _listed(values: Any) -> str:
    texts = [value if isinstance(value, str) else repr(value) for value in values]
    for text in texts:
        if ',' in text:
            raise ArtefactError(f'name {text!r}: has a comma, which separates names in the '
                                'metadata of ONNX')
    return ','.join(texts)


def _random_rows(artefact: Artefact, actions: ActionMap | None, count: int,
                 seed: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield inputs of the model: all at once, then some of them one at a time."""
    rng = np.random.default_rng(seed)
    tensors = artefact.tensors
    shift, scale = normalizer_arrays(tensors['normalizer.mean'], tensors['normalizer.variance'],
                                     float(tensors['normalizer.count'][0]))
    rows = {'observation': (shift + 3.0 / scale * rng.standard_normal((count, len(shift)))
                            ).astype(np.float32)}
    if actions is not None:
        rows['measured'] = rng.normal(0.0, 2.0, (count, actions.size)).astype(np.float32)
    yield rows
    for index in range(min(count, SINGLE_ROWS)):
        yield {name: values[index:index + 1] for name, values in rows.items()}


def _of_motion(policy: NumpyPolicy, actions: ActionMap | None, rows: Mapping[str, np.ndarray],
               outputs: Mapping[str, np.ndarray]) -> Differences:
    action = policy.act(rows['observation'])
    command = 0.0
    if actions is not None:
        largest = np.maximum(1.0, np.maximum(np.abs(actions.offset), np.abs(actions.scale)))
        expected = _commands(actions, action, rows['measured'])
        command = float((np.abs(outputs['command'] - expected) / largest).max())
    return Differences(float(np.abs(outputs['action'] - action).max()), command)


def _commands(actions: ActionMap, action: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """Give what the policy's own action map says, without the rate limit."""
    without_memory = ActionMap.from_card({**actions.card(), 'rate_limit': [0.0] * actions.size})
    state = standing(actions.joints, actions.size, len(action))
    field = state.joint_velocity if actions.interface == 'velocity' else state.joint_position
    field[...] = measured
    commands = np.empty((len(action), actions.size))
    without_memory.command(action, state, commands)
    return commands


def _of_choice(policy: NumpyPolicy, observation: np.ndarray,
               outputs: Mapping[str, np.ndarray]) -> Differences:
    """Compare logits; and each index by how far its logit lies below the largest one."""
    logits = policy.head(observation)
    chosen = np.take_along_axis(logits, outputs['action'], axis=1)
    return Differences(float(np.abs(outputs['logits'] - logits).max()),
                       float((logits.max(axis=1, keepdims=True) - chosen).max()))


def _check_target(path: pathlib.Path, replace: bool) -> None:
    if not path.parent.is_dir():
        raise ArtefactError(f'{path}: the folder {path.parent} does not exist')
    if path.is_dir():
        raise ArtefactError(f'{path}: is a folder; name a file in it, such as '
                            f'{path / "policy.onnx"}')
    if path.exists() and not replace:
        raise ArtefactError(f'{path}: exists; --force overwrites it')

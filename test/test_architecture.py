"""The import rules of the package: which library belongs into which room."""

import ast
from pathlib import Path
import subprocess
import sys

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / 'asyncppo_ros'
MESSAGES = {f'{name}_msgs' for name in (
    'action', 'builtin', 'control', 'diagnostic', 'geometry', 'lifecycle', 'nav', 'rosgraph',
    'sensor', 'std', 'trajectory')}
ROS = MESSAGES | {'rclpy', 'std_srvs', 'builtin_interfaces', 'rcl_interfaces', 'rosidl_runtime_py',
                  'ament_index_python', 'launch', 'launch_ros', 'diagnostic_updater', 'tf2_ros'}
# library: the rooms (path prefixes within the package) that may import it
ROOMS = {
    **{name: ('nodes/',) for name in ROS},
    'mujoco': ('simulation/',),
    'gymnasium': ('simulation/',),
    'zmq': ('transport/',),
    'torch': ('policy/', 'learning/', 'cluster/'),
    'onnx': ('policy/',),
    'onnxruntime': ('policy/',),
    'ray': ('cluster/',),
}
# a bench may import what it measures
FREE = ('tools/bench/',)
# What runs on a robot needs numpy alone: these rooms may import only what is named here
# (and the standard library).
ROBOT = {'numpy', 'asyncppo_ros.robot', 'asyncppo_ros.errors'}
POLICY_NODE = ROS | ROBOT | {'yaml', 'asyncppo_ros.nodes', 'asyncppo_ros.config',
                             'asyncppo_ros.settings', 'asyncppo_ros.policy_files',
                             'asyncppo_ros.resources', 'asyncppo_ros.run', 'asyncppo_ros'}
# The policy node and what it imports of its room.
ON_ROBOT = ('main', 'process', 'context', 'parameters', 'qos', 'policy_node', 'policy_deployment',
            'policy_estop', 'policy_live', 'policy_loop', 'policy_pace', 'policy_reports',
            'policy_timing', 'robot_clock', 'robot_controller', 'robot_frames', 'robot_limits',
            'robot_link', 'robot_messages')
HEAVY = ('rclpy', 'mujoco', 'gymnasium', 'zmq', 'torch', 'ray', 'matplotlib', 'tensorboard',
         'safetensors', 'onnx', 'onnxruntime')
# A line of code knows its room.
NO_ROOM = {'utils', 'util', 'common', 'core', 'base', 'helpers', 'misc'}


def imported_modules(source, package):
    """
    List every module that a file imports, anywhere in it, with the line.

    Parameters
    ----------
    source
        The text of the file.
    package
        The dotted name of the package the file lies in, for relative imports.

    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ''
            if node.level:
                parts = package.split('.')
                parts = parts[:len(parts) - node.level + 1]
                module = '.'.join(parts + [module] if module else parts)
            if module.split('.')[0] == 'asyncppo_ros':
                # from asyncppo_ros import robot: the module is asyncppo_ros.robot
                found += [(f'{module}.{alias.name}', node.lineno) for alias in node.names]
            else:
                found.append((module, node.lineno))
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = getattr(node.func, 'attr', getattr(node.func, 'id', ''))
            if name in ('import_module', '__import__') and isinstance(node.args[0].value, str):
                found.append((node.args[0].value, node.lineno))
    return found


def within(module, allowed):
    """Tell whether a module is one of the allowed ones or lies in one of them."""
    return any(module == name or module.startswith(name + '.') for name in allowed)


def allowed_set(relative):
    """Return what a file on the robot's side may import, or None where all is allowed."""
    if relative.startswith('robot/'):
        return ROBOT
    if relative in {f'nodes/{name}.py' for name in ON_ROBOT}:
        # asyncppo_ros itself is allowed as a name, not everything in it
        return POLICY_NODE - {'asyncppo_ros'}
    return None


def violations(relative, source):
    """Return what is wrong with the imports of one file, a line each."""
    if relative.startswith(FREE):
        return []
    package = '.'.join(['asyncppo_ros', *Path(relative).parent.parts])
    wrong = []
    allowed = allowed_set(relative)
    for module, line in imported_modules(source, package):
        top = module.split('.')[0]
        rooms = ROOMS.get(top)
        if rooms and not relative.startswith(rooms):
            wrong.append(f'{relative}:{line} imports {module}, '
                         f'which belongs into {" ".join(rooms)}')
        elif allowed and top not in sys.stdlib_module_names and not within(module, allowed):
            wrong.append(f'{relative}:{line} imports {module}: a robot does not have it')
    return wrong


def files():
    """Yield every source file with its path within the package."""
    for path in sorted(PACKAGE.rglob('*.py')):
        yield path.relative_to(PACKAGE).as_posix(), path


def test_imports_stay_in_their_rooms():
    wrong = [line for relative, path in files()
             for line in violations(relative, path.read_text(encoding='utf-8'))]
    assert not wrong, '\n'.join(wrong)


def test_there_is_something_to_scan():
    assert len(list(files())) > 20


@pytest.mark.parametrize(('relative', 'source'), [
    ('learning/learner.py', 'import rclpy'),
    ('learning/learner.py', 'from rclpy.node import Node'),
    ('train_local.py', 'from std_msgs.msg import Float64'),
    ('policy/network.py', 'import numpy, mujoco'),
    ('acting/rollout.py', 'def f():\n    import gymnasium as gym'),
    ('learning/learner.py', 'if True:\n    import zmq.auth'),
    ('simulation/simulation.py', 'try:\n    import torch\nexcept ImportError:\n    torch = None'),
    ('nodes/learner_node.py', 'from torch import nn'),
    ('tools/cli.py', 'import importlib\nimportlib.import_module("torch")'),
    ('transport/sender.py', 'import ray'),
    ('robot/terms.py', 'import yaml'),
    ('robot/terms.py', 'import scipy.spatial'),
    ('robot/terms.py', 'from asyncppo_ros.policy import snapshot'),
    ('robot/terms.py', 'from asyncppo_ros import policy'),
    ('robot/terms.py', 'from ..policy import snapshot'),
    ('robot/terms.py', 'from .. import policy'),
    ('nodes/policy_node.py', 'from asyncppo_ros.policy import snapshot'),
    ('nodes/policy_node.py', 'import safetensors'),
    ('nodes/policy_live.py', 'from asyncppo_ros.transport import policy_channel'),
    ('nodes/robot_link.py', 'import mujoco'),
])
def test_the_scan_finds_a_violation(relative, source):
    assert violations(relative, source)


@pytest.mark.parametrize(('relative', 'source'), [
    ('nodes/learner_node.py', 'import rclpy\nfrom std_msgs.msg import Float64'),
    ('simulation/simulation.py', 'import mujoco\nimport gymnasium'),
    ('policy/network.py', 'from torch import nn'),
    ('cluster/workers.py', 'import ray\nimport torch'),
    ('tools/bench/learner.py', 'import torch\nimport mujoco'),
    ('robot/terms.py', 'import math\nimport numpy as np'),
    ('robot/terms.py', 'from asyncppo_ros.errors import UserError'),
    ('robot/terms.py', 'from . import state\nfrom .state import RobotState'),
    ('robot/terms.py', 'from asyncppo_ros.robot.state import RobotState'),
    ('nodes/policy_node.py', 'import rclpy\nfrom asyncppo_ros.robot import terms'),
    ('learning/learner.py', '# import rclpy\n"""import rclpy"""'),
])
def test_the_scan_lets_the_rules_pass(relative, source):
    assert not violations(relative, source)


def test_every_file_has_a_room():
    names = [relative for relative, path in files()
             if NO_ROOM & {path.stem, *path.relative_to(PACKAGE).parent.parts}]
    assert not names


def test_an_actor_needs_no_torch():
    """It would cost each of them more than 100 MB and a second."""
    result = subprocess.run(
        [sys.executable, '-c', 'import sys, asyncppo_ros.acting.actor; '
         'sys.exit("torch" in sys.modules)'], cwd=ROOT, timeout=60, check=False)
    assert result.returncode == 0


def test_the_policy_node_needs_nothing_heavy_but_ros():
    pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
    code = ('import sys, asyncppo_ros.nodes.policy_node\n'
            f'print(*[name for name in {HEAVY!r} if name in sys.modules])\n'
            'print(*[name for name in sys.modules if name.startswith("asyncppo_ros.nodes.")])')
    result = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True,
                            timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    heavy, own = result.stdout.splitlines()
    assert heavy.split() == ['rclpy']
    assert {name.rpartition('.')[2] for name in own.split()} <= set(ON_ROBOT)


@pytest.mark.parametrize('module', ['asyncppo_ros', 'asyncppo_ros.nodes.main',
                                    'asyncppo_ros.tools.cli', 'asyncppo_ros.robot',
                                    'asyncppo_ros.tools.check_deploy'])
def test_importing_it_imports_nothing_heavy(module):
    """So signal handlers are installed before anything slow, and a robot needs numpy alone."""
    code = (f'import sys, {module}\n'
            f'print(*[name for name in {HEAVY!r} if name in sys.modules])')
    result = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True,
                            timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []

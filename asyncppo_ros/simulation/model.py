"""Find and load MJCF models, and read from them what tasks name."""

from collections.abc import Sequence
import importlib.util
import os
import pathlib
import sys
from typing import Any

import mujoco
import numpy as np

from asyncppo_ros import resources
from asyncppo_ros.errors import TaskError
from asyncppo_ros.robot.kinematics import Chain, Link, rotation
from asyncppo_ros.simulation import mujoco_log

_PACKAGE = 'package://'


def find_model(path: str, owner: type) -> pathlib.Path:
    """
    Find the MJCF file of a task.

    Parameters
    ----------
    path : str
        Absolute, relative to the file of `owner`, or ``package://PACKAGE/PATH`` where PACKAGE is
        a Python package or a ROS package of the sourced workspaces.
    owner : type
        The class of the task.

    Raises
    ------
    TaskError, ResourceError
        There is no such file.

    """
    title = f'task {owner.__qualname__}'
    if not path:
        raise TaskError(f'{title}: it names no model; set model = PATH of its MJCF file')
    if path.startswith(_PACKAGE):
        package, _, inside = path[len(_PACKAGE):].partition('/')
        if package == 'asyncppo_ros':
            return resources.find(inside)
        places = [folder / inside for folder in _package_folders(package)]
    else:
        module = sys.modules.get(owner.__module__)
        folder = pathlib.Path(getattr(module, '__file__', None) or '.').resolve().parent
        places = [folder / pathlib.Path(path).expanduser()]
    for place in places:
        if place.is_file():
            return place
    looked = ', '.join(str(place) for place in places) or f'no package {package} found'
    raise TaskError(f'{title}: model file {path} does not exist ({looked})')


def load_model(path: pathlib.Path, title: str) -> mujoco.MjModel:
    """
    Compile an MJCF file.

    Raises
    ------
    TaskError
        MuJoCo cannot read it; its message is shown in one line.

    """
    mujoco_log.listen()
    try:
        return mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        raise TaskError(f'{title}: model {path}: {" ".join(str(error).split())}') from error


def names_of(model: mujoco.MjModel, kind: str) -> list[str]:
    """Give the names of all objects of one kind: joint, actuator, site, body, key."""
    count = {'joint': model.njnt, 'actuator': model.nu, 'site': model.nsite,
             'body': model.nbody, 'key': model.nkey}[kind]
    return [getattr(model, kind)(i).name for i in range(count)]


def require(model: mujoco.MjModel, kind: str, name: str, title: str) -> int:
    """
    Find the number of a named object.

    Raises
    ------
    TaskError
        The model does not have it; the message says which exist.

    """
    names = names_of(model, kind)
    if name not in names:
        existing = ', '.join(filter(None, names)) or 'none'
        raise TaskError(f'{title}: the model has no {kind} {name!r}; {kind}s: {existing}')
    return names.index(name)


def actuators_of(model: mujoco.MjModel, joints: Sequence[str], title: str) -> list[int]:
    """
    Find the actuator of each joint.

    Raises
    ------
    TaskError
        A joint does not exist, or it has no or several actuators.

    """
    moved = [int(model.actuator_trnid[i, 0])
             if model.actuator_trntype[i] == int(mujoco.mjtTrn.mjTRN_JOINT) else -1
             for i in range(model.nu)]
    found = []
    for joint in joints:
        number = require(model, 'joint', joint, title)
        if moved.count(number) != 1:
            with_actuator = ', '.join(model.joint(j).name for j in moved if j >= 0) or 'none'
            raise TaskError(f'{title}: the model has {moved.count(number)} actuators for joint '
                            f'{joint!r}, 1 is needed; joints with an actuator: {with_actuator}')
        found.append(moved.index(number))
    return found


def controller_of(model: mujoco.MjModel, actuators: Sequence[int]) -> dict[str, Any]:
    """
    Give what the controller of a robot must have to move as the actuators of the model do.

    Returns
    -------
    dict
        One number per actuator: ``stiffness`` [N m/rad] or [N/m] and ``damping`` [N m s/rad] or
        [N s/m] of the joint's controller, 0 for a motor; ``effort_limit`` [N m] or [N], None =
        no limit.

    """
    limits = [float(model.actuator_forcerange[i, 1] * model.actuator_gear[i, 0])
              if model.actuator_forcelimited[i] else None for i in actuators]
    bias = model.actuator_biasprm[list(actuators)]
    return {'stiffness': (-bias[:, 1] + 0.0).tolist(), 'damping': (-bias[:, 2] + 0.0).tolist(),
            'effort_limit': limits}


def substeps_of(model: mujoco.MjModel, control_dt: float, title: str) -> int:
    """
    Give the number of physics steps of one control step.

    Raises
    ------
    TaskError
        It is no whole number.

    """
    ratio = control_dt / model.opt.timestep
    if round(ratio) < 1 or abs(ratio - round(ratio)) > 1e-6:
        raise TaskError(f'{title}: control_dt = {control_dt} s: must be a whole multiple of the '
                        f'timestep of the model, {model.opt.timestep:g} s')
    return round(ratio)


def chain(model: mujoco.MjModel, tip: str, joints: Sequence[str]) -> Chain:
    """
    Read the kinematic chain from the world to a site.

    Parameters
    ----------
    tip : str
        Name of the site.
    joints : sequence of str
        The joints that move it, from the world outwards.

    Raises
    ------
    TaskError
        The site does not exist, or other joints move it.

    """
    site = require(model, 'site', tip, 'kinematic chain')
    links: list[Link] = []
    at, turned = np.zeros(3), np.eye(3)
    for body in _bodies(model, int(model.site_bodyid[site])):
        at = at + turned @ model.body_pos[body]
        turned = turned @ rotation(model.body_quat[body])
        first = int(model.body_jntadr[body])
        for joint in range(first, first + int(model.body_jntnum[body])):
            anchor = model.jnt_pos[joint]
            links.append(_link(model, joint, at + turned @ anchor, turned))
            at, turned = -anchor, np.eye(3)
    if [link.joint for link in links] != list(joints):
        raise TaskError(f'kinematic chain: site {tip!r} is moved by '
                        f'{", ".join(link.joint for link in links) or "no joint"}, not by '
                        f'{", ".join(joints)}')
    return Chain(links, _rounded(at + turned @ model.site_pos[site]))


def _package_folders(package: str) -> list[pathlib.Path]:
    """List where a Python package and the shares of a ROS package of that name may lie."""
    folders = []
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        spec = None
    if spec is not None:
        folders += [pathlib.Path(place) for place in spec.submodule_search_locations or ()]
    prefixes = os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep)
    return folders + [pathlib.Path(prefix, 'share', package) for prefix in prefixes if prefix]


def _bodies(model: mujoco.MjModel, body: int) -> list[int]:
    """List the bodies from the world (left out) to `body`."""
    bodies: list[int] = []
    while body:
        bodies.insert(0, body)
        body = int(model.body_parentid[body])
    return bodies


def _link(model: mujoco.MjModel, joint: int, position: np.ndarray, turned: np.ndarray) -> Link:
    name = model.joint(joint).name
    # The arrays of a model hold numbers, which are not equal to members of the enumeration.
    kind = mujoco.mjtJoint(int(model.jnt_type[joint]))
    if kind not in (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE):
        raise TaskError(f'kinematic chain: joint {name!r} is neither a hinge nor a slide')
    quaternion = np.zeros(4)
    mujoco.mju_mat2Quat(quaternion, turned.reshape(-1))
    return Link(name, _rounded(position), _rounded(quaternion), _rounded(model.jnt_axis[joint]),
                kind == mujoco.mjtJoint.mjJNT_SLIDE,
                float(model.qpos0[model.jnt_qposadr[joint]]))


def _rounded(numbers: np.ndarray) -> tuple[float, ...]:
    # The chain is part of a card that hosts compare; their last bits and signs of 0 may differ.
    return tuple((np.round(numbers, 12) + 0.0).tolist())

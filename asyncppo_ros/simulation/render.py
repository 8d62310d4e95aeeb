"""Pictures of an episode, drawn off-screen by MuJoCo."""

from collections.abc import Callable

import mujoco
import numpy as np

from asyncppo_ros.errors import TaskError
from asyncppo_ros.simulation.registry import make
from asyncppo_ros.simulation.simulation import BatchedSimulation


def episode_frames(task: str, act: Callable[[np.ndarray], np.ndarray], times: np.ndarray,
                   seed: int, width: int, height: int) -> list[np.ndarray]:
    """
    Play one episode and draw it at some times.

    Parameters
    ----------
    task : str
        A task of this package's simulation (not ``gymnasium:ID``).
    act : callable
        float32 [1, O] → float32 [1, A].
    times : float [K]
        When to draw [s], rising.
    seed : int
        Of the episode.
    width, height : int
        Of each picture [pixels].

    Returns
    -------
    list of uint8 [height, width, 3]
        Fewer than K where the episode ended before.

    Raises
    ------
    TaskError
        The task cannot be drawn, or there is no off-screen renderer here.

    """
    environment = make(task, 1, seed)
    if not isinstance(environment, BatchedSimulation):
        raise TaskError(f'task {task}: only tasks of a MuJoCo model of their own can be drawn')
    model = environment.model
    model.vis.global_.offwidth = max(width, model.vis.global_.offwidth)
    model.vis.global_.offheight = max(height, model.vis.global_.offheight)
    data = mujoco.MjData(model)
    try:
        renderer = mujoco.Renderer(model, height, width)
    except Exception as error:  # noqa: BLE001 - each GL platform has an error of its own
        raise TaskError(f'no off-screen renderer here ({error}); set MUJOCO_GL=egl or '
                        'MUJOCO_GL=osmesa and install that library') from None
    observation = np.empty((1, environment.observation_size), np.float32)
    environment.reset(observation)
    pictures: list[np.ndarray] = []
    step = 0
    for moment in times:
        while step * environment.control_dt < moment - 1e-9:
            result = environment.step(act(observation), observation)
            step += 1
            if (result.terminated | result.truncated)[0]:
                return pictures
        _copy_state(environment, model, data)
        renderer.update_scene(data, _camera(model))
        pictures.append(renderer.render().copy())
    renderer.close()
    return pictures


def _copy_state(environment: BatchedSimulation, model: mujoco.MjModel,
                data: mujoco.MjData) -> None:
    data.qpos[:] = environment.state.qpos[0]
    data.qvel[:] = environment.state.qvel[0]
    # A command is shown where the model has a mocap body of its name.
    for name, value in environment.state.command.items():
        body = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, name)
        if body >= 0 and model.body_mocapid[body] >= 0:
            data.mocap_pos[model.body_mocapid[body]] = value[0]
    mujoco.mj_forward(model, data)


def _camera(model: mujoco.MjModel) -> int:
    """Choose the camera named front, else the first of the model, else a free one."""
    front = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, 'front')
    return front if front >= 0 else min(model.ncam, 1) - 1

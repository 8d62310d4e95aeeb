"""Pictures of an episode, drawn off-screen by MuJoCo, or by an environment of Gymnasium."""

from collections.abc import Callable
import contextlib
import functools
from typing import Any

import mujoco
import numpy as np

from asyncppo_ros.errors import TaskError
from asyncppo_ros.simulation.environment import Environment
from asyncppo_ros.simulation.registry import make
from asyncppo_ros.simulation.simulation import BatchedSimulation


def episode_frames(task: str, act: Callable[[np.ndarray], np.ndarray], times: np.ndarray,
                   seed: int, width: int, height: int) -> list[np.ndarray]:
    """
    Play one episode and draw it at some times.

    Parameters
    ----------
    task : str
        See `registry.make`.
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
    environment = make(task, 1, seed, drawn=True)
    if not environment.control_dt:
        raise TaskError(f'task {task}: cannot be drawn by time: its metadata say no render_fps')
    with contextlib.ExitStack() as at_the_end:
        at_the_end.callback(environment.close)
        draw = _drawn(environment, width, height, at_the_end)
        return _play(environment, act, times, draw)


def _play(environment: Environment, act: Callable[[np.ndarray], np.ndarray], times: np.ndarray,
          draw: Callable[[], np.ndarray]) -> list[np.ndarray]:
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
        pictures.append(draw())
    return pictures


def _drawn(environment: Environment, width: int, height: int,
           at_the_end: contextlib.ExitStack) -> Callable[[], np.ndarray]:
    """Give what draws an environment as it is, uint8 [height, width, 3]."""
    if not isinstance(environment, BatchedSimulation):
        return functools.partial(_by_gymnasium, environment, width, height)
    model = environment.model
    model.vis.global_.offwidth = max(width, model.vis.global_.offwidth)
    model.vis.global_.offheight = max(height, model.vis.global_.offheight)
    data = mujoco.MjData(model)
    try:
        renderer = mujoco.Renderer(model, height, width)
    except Exception as error:  # noqa: BLE001 - each GL platform has an error of its own
        raise _no_renderer(error) from None
    at_the_end.callback(renderer.close)

    def draw() -> np.ndarray:
        _copy_state(environment, model, data)
        renderer.update_scene(data, _camera(model))
        return renderer.render().copy()

    return draw


def _by_gymnasium(environment: Any, width: int, height: int) -> np.ndarray:
    """Give the picture of an environment, of a size of its own, within one of ours."""
    import gymnasium
    from PIL import Image, ImageOps
    try:
        picture = environment.picture()
    except gymnasium.error.DependencyNotInstalled as error:
        # It names what to install.
        raise TaskError(f'no off-screen renderer here ({error})') from None
    except Exception as error:  # noqa: BLE001 - most are drawn by MuJoCo, each as above
        raise _no_renderer(error) from None
    return np.asarray(ImageOps.pad(Image.fromarray(picture), (width, height), color='white'))


def _no_renderer(error: Exception) -> TaskError:
    return TaskError(f'no off-screen renderer here ({error}); set MUJOCO_GL=egl or '
                     'MUJOCO_GL=osmesa and install that library')


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

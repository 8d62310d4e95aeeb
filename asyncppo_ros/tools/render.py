"""``asyncppo render RUN_OR_ARTEFACT``: a picture strip of one deterministic episode."""

import os
import pathlib

import numpy as np

from asyncppo_ros.config import EvaluationConfig
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.robot.numpy_policy import NumpyPolicy
from asyncppo_ros.tools.arguments import Parser
from asyncppo_ros.tools.policies import open_artefact, POLICY_HELP

GAP = 4


def main(arguments: list[str], _stop: StopRequest) -> int:
    """Draw the strip and say where it is."""
    parser = Parser(prog='asyncppo render', description=__doc__)
    parser.add_argument('policy', metavar='RUN_OR_ARTEFACT', help=POLICY_HELP)
    parser.add_argument('--out', default='strip.png', help='PNG file, default strip.png')
    parser.add_argument('--frames', type=int, default=5, help='pictures, default 5')
    parser.add_argument('--seconds', type=float, default=1.6, help='time they span, default 1.6')
    parser.add_argument('--start', type=float, default=0.0,
                        help='time of the first picture [s], default 0')
    parser.add_argument('--size', type=int, nargs=2, default=(320, 300), metavar=('W', 'H'),
                        help='of each picture [pixels], default 320 300')
    parser.add_argument('--seed', type=int, default=EvaluationConfig().seed,
                        help='of the episode')
    own = parser.parse_args(arguments)
    if own.frames < 1 or min(own.size) < 16 or min(own.seconds, own.start) < 0.0:
        raise ConfigError('--frames must be at least 1, --size at least 16 16, --seconds and '
                          '--start at least 0')
    if 'DISPLAY' not in os.environ:
        # Read when mujoco is imported; without a display only these can work.
        os.environ.setdefault('MUJOCO_GL', 'egl')
    from matplotlib.image import imsave

    from asyncppo_ros.simulation.render import episode_frames
    artefact = open_artefact(own.policy)
    pictures = episode_frames(
        artefact.card['task']['task'], NumpyPolicy(artefact).act,
        own.start + np.linspace(0.0, own.seconds, own.frames), own.seed, *own.size)
    imsave(own.out, strip(pictures))
    print(pathlib.Path(own.out).absolute())
    return 0


def strip(pictures: list[np.ndarray]) -> np.ndarray:
    """Put pictures [H, W, 3] of one size side by side with white gaps between them."""
    height = pictures[0].shape[0]
    gap = np.full((height, GAP, 3), 255, np.uint8)
    parts = [pictures[0]]
    for picture in pictures[1:]:
        parts += [gap, picture]
    return np.concatenate(parts, axis=1)

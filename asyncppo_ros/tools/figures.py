"""Figures of matplotlib without a display, as the bytes of a PNG file."""

import io
import pathlib
import sys
from typing import Any

from asyncppo_ros.errors import ConfigError, MissingDependency
from asyncppo_ros.launching import require


def check_picture(option: str, file: str) -> None:
    """
    Check that a picture can be drawn into a file; before the work that it will show.

    Raises
    ------
    ConfigError
        There is no such folder.
    MissingDependency
        matplotlib is not installed.

    """
    require(['matplotlib'])
    folder = pathlib.Path(file).parent
    if not folder.is_dir():
        raise ConfigError(f'{option} {file}: the folder {folder} does not exist')


def new_figure(width: float, height: float) -> Any:
    """
    Give an empty figure of a size [inches].

    Raises
    ------
    MissingDependency
        matplotlib is not installed.

    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependency(f'matplotlib is missing from {sys.executable}: '
                                f'{sys.executable} -m pip install matplotlib') from error
    return Figure(figsize=(width, height), layout='constrained')


def as_png(figure: Any, title: str) -> bytes:
    """Draw a figure; the title is for who looks at the file, not at the picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    picture = io.BytesIO()
    FigureCanvasAgg(figure).print_png(picture, metadata={'Title': title})
    return picture.getvalue()

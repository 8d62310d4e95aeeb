"""What the next physics step of a simulation follows from, as it lies in MjData."""

from collections.abc import Sequence

import mujoco
import numpy as np

# Activations and states of plugins lie among them.
_NAMES = ('qpos', 'qvel', 'qacc_warmstart', 'ctrl')


class StepInputs:
    """
    Positions, velocities, warm start and commands of N simulations.

    MuJoCo keeps them next to each other, so one copy of that stretch of memory brings a
    simulation into MjData, and one brings it out: 0.2 us where a copy for each of them takes
    0.55 us.  Where a version of MuJoCo keeps them further apart, what lies between is copied too.

    Parameters
    ----------
    numbers : float64 [N, W]
        The stretch of each simulation.
    columns : sequence of slice
        Where positions, velocities, warm start and commands are.

    Attributes
    ----------
    qpos, qvel, warm_start, control : float64 [N, ...]
        Views of the numbers.
    bytes : memoryview
        All numbers.

    """

    def __init__(self, numbers: np.ndarray, columns: Sequence[slice]) -> None:
        self.numbers = numbers
        self.bytes = bytes_of(numbers)
        self._columns = columns
        self.qpos, self.qvel, self.warm_start, self.control = (
            numbers[:, place] for place in columns)

    def copy(self) -> 'StepInputs':
        """Copy all numbers."""
        return StepInputs(self.numbers.copy(), self._columns)

    def take(self, others: 'StepInputs') -> None:
        """Take over the numbers of others of the same model."""
        # In half of the time that numpy needs.
        self.bytes[:] = others.bytes


def step_inputs(model: mujoco.MjModel, num_envs: int) -> StepInputs:
    """Make the inputs of `num_envs` simulations, all zero."""
    data = mujoco.MjData(model)
    stretch = _stretch(data)
    arrays = [getattr(data, name) for name in _NAMES]
    # An empty array lies anywhere.
    starts = [(_address(array) - _address(stretch)) // array.itemsize if array.size else 0
              for array in arrays]
    return StepInputs(np.zeros((num_envs, len(stretch))), [
        slice(start, start + array.size) for start, array in zip(starts, arrays)])


def bytes_in(data: mujoco.MjData) -> memoryview:
    """Give the stretch of MjData that holds one row of `StepInputs.numbers`."""
    return bytes_of(_stretch(data))


def bytes_of(array: np.ndarray) -> memoryview:
    """Give the bytes of a contiguous array; writing to them writes to the array."""
    return array.reshape(-1).view(np.uint8).data


def _stretch(data: mujoco.MjData) -> np.ndarray:
    """Give all numbers from the first of the arrays to the end of the last one."""
    arrays = sorted((array for array in (getattr(data, name) for name in _NAMES) if array.size),
                    key=_address)
    first, last = arrays[0], arrays[-1]
    size = (_address(last) - _address(first)) // first.itemsize + last.size
    return np.lib.stride_tricks.as_strided(first, (size,))


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__['data'][0]
    return address

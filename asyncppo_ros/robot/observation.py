"""Put observation terms together: clip, scale, delay, history, and the check of every number."""

from collections.abc import Iterable, Mapping, Sequence
import math
from typing import Any

import numpy as np

from asyncppo_ros.errors import TaskError
from asyncppo_ros.robot.state import RobotState
from asyncppo_ros.robot.terms import Term


class Observation:
    """
    Ordered terms that make one row of numbers per robot.

    Parameters
    ----------
    terms : iterable of `Term`
        In the order of the columns.

    Attributes
    ----------
    size : int
        O: the columns of all terms with their histories.

    Raises
    ------
    TaskError
        There is no term, or something that is not a `Term`.

    """

    def __init__(self, terms: Iterable[Term]) -> None:
        self.terms = tuple(terms)
        if not self.terms:
            raise TaskError('observation: at least one term is needed')
        for term in self.terms:
            if not isinstance(term, Term):
                raise TaskError(f'observation: {term!r} is not a term; use those of '
                                'asyncppo_ros.robot.terms or its decorator `term`')
        self.size = sum(term.size * term.history for term in self.terms)
        widths = [term.size for term in self.terms]
        self._scale = np.repeat([term.scale for term in self.terms], widths)
        self._clip = np.repeat([term.clip or math.inf for term in self.terms], widths)
        self._low = -self._clip
        self._clips = any(term.clip for term in self.terms)
        self._scales = any(term.scale != 1.0 for term in self.terms)
        self._remembers = any(term.delay or term.history > 1 for term in self.terms)
        edges = np.cumsum([0, *widths]).tolist()
        self._columns = [slice(*pair) for pair in zip(edges[:-1], edges[1:])]
        self._allocate(0)

    @property
    def simulation_only(self) -> tuple[str, ...]:
        """Names of the terms that no robot can measure."""
        return tuple(term.name for term in self.terms if term.simulation_only)

    def observe(self, state: RobotState, out: np.ndarray) -> None:
        """
        Write the observation of every robot after a control step.

        Parameters
        ----------
        state : RobotState
            N robots.
        out : float32 [N, O]
            Receives the rows.

        Raises
        ------
        TaskError
            A term has the wrong shape, or gave a number that is not finite.

        """
        values = self._values(state)
        if not self._remembers:
            out[...] = values
            return
        for memory, columns in zip(self._memory, self._columns):
            memory[:-1] = memory[1:]
            memory[-1] = values[:, columns]
        self._write_memory(slice(None), out)

    def reset(self, state: RobotState, rows: Sequence[int] | np.ndarray | slice,
              out: np.ndarray) -> None:
        """
        Begin new episodes: delays and histories of these robots hold the present values.

        Parameters
        ----------
        state : RobotState
            All N robots.
        rows : indices of robots
            Those that begin; no other row of `out` is written.
        out : float32 [N, O]
            Receives the rows.

        Raises
        ------
        TaskError
            As `observe`.

        """
        values = self._values(state)
        if not self._remembers:
            out[rows] = values[rows]
            return
        for memory, columns in zip(self._memory, self._columns):
            memory[:, rows] = values[rows, columns]
        self._write_memory(rows, out)

    def card(self) -> list[dict[str, Any]]:
        """Give the entry of every term, in order."""
        return [term.card() for term in self.terms]

    @classmethod
    def from_card(cls, entries: Iterable[Mapping[str, Any]]) -> 'Observation':
        """Make the observation again; raises what `Term.from_card` does."""
        return cls(Term.from_card(entry) for entry in entries)

    def _allocate(self, num_envs: int) -> None:
        self._raw = np.empty((num_envs, len(self._scale)))
        self._memory = [np.zeros((term.delay + term.history, num_envs, term.size))
                        for term in self.terms]
        self._shapes = [(num_envs, term.size) for term in self.terms]

    def _values(self, state: RobotState) -> np.ndarray:
        """Give what all terms measure now, clipped and scaled, float64 [N, sum of sizes]."""
        if state.num_envs != self._raw.shape[0]:
            self._allocate(state.num_envs)
        raw = self._raw
        for term, shape, columns in zip(self.terms, self._shapes, self._columns):
            value = term.function(state)
            found = value.shape if isinstance(value, np.ndarray) else np.shape(value)
            if found != shape:
                raise TaskError(f'{_title(term)} gave shape {found}, expected {shape}: '
                                'one row per environment, one column per number')
            raw[:, columns] = value
        flat = raw.reshape(-1)
        # One product is not finite as soon as one number is not.
        if not math.isfinite(np.dot(flat, flat)):
            self._refuse_not_finite()
        if self._clips:
            # What np.clip does, in two thirds of the time.
            np.maximum(raw, self._low, out=raw)
            np.minimum(raw, self._clip, out=raw)
        if self._scales:
            raw *= self._scale
        return raw

    def _refuse_not_finite(self) -> None:
        for term, columns in zip(self.terms, self._columns):
            for environment, column in np.argwhere(~np.isfinite(self._raw[:, columns])):
                raise TaskError(f'{_title(term)} gave {self._raw[:, columns][environment, column]}'
                                f' in environment {environment}, column {column}')

    def _write_memory(self, rows: Any, out: np.ndarray) -> None:
        first = 0
        for term, memory in zip(self.terms, self._memory):
            for age in range(term.history):
                out[rows, first:first + term.size] = memory[age, rows]
                first += term.size


def _title(term: Term) -> str:
    return f'observation term {term.name!r} ({term.reference or "without a reference"})'

"""Observation terms that no robot can measure: a policy that needs one is refused there."""

from typing import Any

import numpy as np

from asyncppo_ros.errors import TaskError
from asyncppo_ros.robot.state import RobotState
from asyncppo_ros.robot.terms import factory, Term


@factory
def qpos(size: int, first: int = 0) -> Term:
    """Give MuJoCo's generalised positions from number `first` on."""
    return Term(lambda state: _rows(state, 'qpos')[:, first:first + size], size, 'm|rad',
                simulation_only=True)


@factory
def qvel(size: int, first: int = 0) -> Term:
    """Give MuJoCo's generalised velocities from number `first` on."""
    return Term(lambda state: _rows(state, 'qvel')[:, first:first + size], size, 'm/s|rad/s',
                simulation_only=True)


@factory
def actuator_force(size: int, first: int = 0) -> Term:
    """Give the generalised forces of the actuators from number `first` on."""
    return Term(lambda state: _rows(state, 'actuator_force')[:, first:first + size], size,
                'N m|N', simulation_only=True)


@factory
def body_field(field: str, size: int, unit: str = '') -> Term:
    """Give one of the task's `data_fields` for all bodies but the world, one after another."""
    return Term(lambda state: _rows(state, 'fields')[field][:, 1:].reshape(-1, size), size,
                unit, name=field, simulation_only=True)


@factory
def mass_factor() -> Term:
    """Give by what randomization has multiplied the total mass."""
    return Term(lambda state: _rows(state, 'factors')['mass'], 1, simulation_only=True)


@factory
def friction_factor() -> Term:
    """Give by what randomization has multiplied the friction of all surfaces."""
    return Term(lambda state: _rows(state, 'factors')['friction'], 1, simulation_only=True)


@factory
def gymnasium_observation(environment: str, size: int) -> Term:
    """Stand for the whole observation of a Gymnasium environment."""
    def function(state: RobotState) -> np.ndarray:
        raise TaskError(f'the observation of {environment} exists only in Gymnasium')
    return Term(function, size, simulation_only=True, name=f'observation of {environment}')


def _rows(state: RobotState, name: str) -> Any:
    rows = getattr(state, name, None)
    if rows is None:
        raise TaskError(f'observation term {name!r} exists only in simulation')
    return rows

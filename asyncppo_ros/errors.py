"""
What can go wrong, as one tree.

::

    UserError               a mistake of the user: one clear line, exit code 2
    ├── ConfigError         a setting: unknown, of a wrong type, out of range
    ├── ResourceError       a file of the package that is not there
    ├── TaskError           a task: unknown, or its model, terms or numbers are wrong
    ├── ArtefactError       a policy file: cut short, altered, or of another robot
    ├── RobotError          a robot: its URDF or its joints do not fit, or it was stopped
    ├── RunError            a run directory: in use, empty, or of another task
    ├── AddressError        an address that is in use or not allowed
    ├── RankError           a rank of the learner: it did not come, or it is gone
    └── MissingDependency   torch, mujoco, rclpy: which interpreter, and the fix
    CodecError              a message that fails a check: counted and dropped, never fatal
    PolicyError             a policy whose output is not finite: nothing is done with it
"""


class UserError(Exception):
    """A mistake of the user; its text is the one line that is shown."""


class ConfigError(UserError):
    """A setting is unknown, of a wrong type or out of range."""


class ResourceError(UserError):
    """A file that belongs to the package was not found."""


class TaskError(UserError):
    """A task is unknown, or its model, terms or numbers are wrong."""


class ArtefactError(UserError):
    """A policy file is cut short, altered, or does not fit."""


class RobotError(UserError):
    """A robot's URDF or joints do not fit the policy, or its state forbids what is asked."""


class RunError(UserError):
    """A run directory is in use, empty, or belongs to another task."""


class AddressError(UserError):
    """An address is in use or not allowed."""


class RankError(UserError):
    """A rank of the learner did not come, or it is gone."""


class MissingDependency(UserError):
    """A library is missing from this interpreter."""


class PolicyError(ArithmeticError):
    """What a policy says of an observation is not finite; no action follows from it."""


class CodecError(ValueError):
    """
    A message failed a check.

    Attributes
    ----------
    cause : str
        The check that failed: a key of the refusal counters.

    """

    def __init__(self, cause: str, text: str) -> None:
        super().__init__(f'{cause}: {text}')
        self.cause = cause

"""What the settings of a robot's topics say: names of joints, topics of commands, of outputs."""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses

from asyncppo_ros.errors import ConfigError

# Types of the messages that carry a command, and how many numbers they hold; 0 = any number.
COMMAND_TYPES = {'Twist': 3, 'TwistStamped': 3, 'PoseStamped': 3, 'Float64MultiArray': 0}
_TOPIC_OF_OUTPUT = {'joint_trajectory': 'joint_trajectory_controller/joint_trajectory',
                    'forward_command': 'forward_command_controller/commands',
                    'joint_state': 'joint_command'}


@dataclasses.dataclass(frozen=True)
class CommandTopic:
    """The topic of one command, and the type of its messages: a key of `COMMAND_TYPES`."""

    topic: str
    type: str


def joint_names(entries: Iterable[str], joints: Sequence[str]) -> dict[str, str]:
    """
    Read ``robot.joint_names``: what each joint of a policy is called on the robot.

    Parameters
    ----------
    entries : iterable of str
        POLICY=ROBOT; empty ones are left out.
    joints : sequence of str
        All joints of the policy.

    Returns
    -------
    dict from str to str
        Every one of `joints`, in order; one that is not named keeps its name.

    Raises
    ------
    ConfigError
        An entry is malformed, names no joint of the policy or one twice, or two joints get one
        name.

    """
    names = {joint: joint for joint in joints}
    named = set()
    for entry in filter(None, entries):
        joint, equals, robot = (part.strip() for part in entry.partition('='))
        if not (joint and equals and robot) or '=' in robot:
            raise ConfigError(f'robot.joint_names: {entry!r}: must be POLICY=ROBOT')
        if joint not in names:
            raise ConfigError(f'robot.joint_names: {entry!r}: the policy has no joint {joint!r}; '
                              f'joints: {", ".join(joints)}')
        if joint in named:
            raise ConfigError(f'robot.joint_names: {entry!r}: joint {joint!r} is named twice')
        named.add(joint)
        names[joint] = robot
    for robot in names.values():
        if list(names.values()).count(robot) > 1:
            raise ConfigError(f'robot.joint_names: two joints are called {robot!r}')
    return names


def command_topics(entries: Iterable[str],
                   sizes: Mapping[str, int]) -> dict[str, CommandTopic]:
    """
    Read ``robot.command_topics``: where each command that is needed comes from.

    Parameters
    ----------
    entries : iterable of str
        NAME=TOPIC:TYPE; those of other commands are left out.
    sizes : mapping from str to int
        How many numbers each command that is needed has.

    Returns
    -------
    dict from str to CommandTopic

    Raises
    ------
    ConfigError
        An entry is malformed or of an unknown type, a command has no topic or a size that the
        type does not have.

    """
    found = {}
    for entry in filter(None, entries):
        name, equals, target = (part.strip() for part in entry.partition('='))
        topic, colon, kind = (part.strip() for part in target.rpartition(':'))
        if not (name and equals and topic and colon):
            raise ConfigError(f'robot.command_topics: {entry!r}: must be NAME=TOPIC:TYPE')
        if kind not in COMMAND_TYPES:
            raise ConfigError(f'robot.command_topics: {entry!r}: type must be one of '
                              f'{", ".join(COMMAND_TYPES)}')
        if name not in sizes:
            continue
        if COMMAND_TYPES[kind] not in (0, sizes[name]):
            raise ConfigError(f'robot.command_topics: {entry!r}: {kind} has '
                              f'{COMMAND_TYPES[kind]} numbers, the command {sizes[name]}; use '
                              'Float64MultiArray')
        found[name] = CommandTopic(topic, kind)
    for name in sizes:
        if name not in found:
            raise ConfigError(f'robot.command_topics: the policy needs the command {name!r}, and '
                              f'no topic is given; add {name}=TOPIC:TYPE')
    return found


def output_topic(output: str, topic: str = '') -> str:
    """Give the topic of the commands to the joints: ``robot.output_topic``, or the usual one."""
    return topic or _TOPIC_OF_OUTPUT[output]


def controller_of(topic: str) -> str:
    """Give the controller that a topic of commands belongs to: what is before the last slash."""
    return topic.rpartition('/')[0]

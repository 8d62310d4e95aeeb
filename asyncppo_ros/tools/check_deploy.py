"""
``asyncppo check-deploy POLICY --params ROBOT.yaml``: whether a policy fits a robot.

Listens to the topics of the robot and sends nothing.  Prints every joint of the policy beside the
robot's name for it, its value, its start pose and limits; every observation term beside what it
was in training; every topic with its rate and who is at its other end.  Ends with OK (exit code
0) or with a line for each mismatch (1).  Any setting can be given: --robot.imu_topic imu.
"""

import argparse
from collections.abc import Mapping, Sequence
import json
import math
import os
from typing import Any

from asyncppo_ros.config import Config
from asyncppo_ros.errors import ConfigError
from asyncppo_ros.launching import NAMESPACE, require
from asyncppo_ros.nodes.process import stay_on_this_host, StopRequest
from asyncppo_ros.robot.signing import signing_key
from asyncppo_ros.settings import build, read_yaml, without_ros_own
from asyncppo_ros.tools.arguments import Parser, split_settings
from asyncppo_ros.tools.policies import open_artefact, POLICY_HELP


def main(arguments: list[str], stop: StopRequest) -> int:
    """Listen, print what was found, and say whether it fits."""
    parser = Parser(prog='asyncppo check-deploy', description=__doc__, allow_abbrev=False,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('policy', metavar='POLICY', help=POLICY_HELP)
    parser.add_argument('--params', metavar='ROBOT.yaml', default='',
                        help='the parameter file of the policy node')
    parser.add_argument('--seconds', type=float, default=2.0, help='to listen, default 2')
    parser.add_argument('--namespace', default='', help='of the policy node')
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    own, given = split_settings(parser, arguments)
    if not 0.0 < own.seconds <= 3600.0:
        raise ConfigError(f'--seconds {own.seconds:g}: must be above 0 and at most 3600')
    if not NAMESPACE.fullmatch(own.namespace):
        raise ConfigError(f'--namespace {own.namespace}: not a name that ROS 2 allows')
    file = read_yaml(own.params) if own.params else {}
    config = build(Config, {**without_ros_own(file), **given})
    artefact = open_artefact(own.policy, signing_key(config.transport.keys))
    require(['rclpy'])
    # It must hear what the policy node will hear, which a launch file keeps on this host.
    stay_on_this_host(os.environ)
    from asyncppo_ros.nodes.check_deploy import examine
    found = examine(artefact, config, own.seconds, own.namespace,
                    bool(file.get('use_sim_time', False)), stop).as_dict()
    print(json.dumps(found, indent=1) if own.json else text_of(found))
    return 0 if found['ok'] else 1


def text_of(found: Mapping[str, Any]) -> str:
    """Lay out what was found for a terminal."""
    joints = [('policy joint', 'robot joint', 'topic', 'value', 'start', 'low', 'high',
               'first command'),
              *((row['joint'], row['robot_joint'], ' '.join(row['topics']) or '-',
                 *(_number(row[key]) for key in ('value', 'start_pose', 'low', 'high',
                                                 'first_command')))
                for row in found['joints'])]
    terms = [('term', 'unit', 'numbers', 'least', 'largest', 'worst |z|', 'of'),
             *((row['term'], row['unit'] or '-', str(row['size'] * row['history']),
                _number(row['low']), _number(row['high']), _number(row['worst_z'], 1),
                row['worst_number']) for row in found['terms'])]
    topics = [('topic', 'type', '', 'Hz', 'age [s]', 'other end'),
              *((row['topic'], row['type'], row['direction'], _number(row['rate'], 1),
                 _number(row['age']), ', '.join(row['others']) or 'nobody')
                for row in found['topics'])]
    parts = [_aligned(rows) for rows in (joints, terms, topics) if len(rows) > 1]
    parts += ['\n'.join(f'note: {text}' for text in found['notes'])] if found['notes'] else []
    parts.append('OK: the policy fits the robot' if found['ok'] else
                 '\n'.join(f'MISMATCH: {text}' for text in found['mismatches']))
    return '\n\n'.join(parts)


def _number(value: float | None, digits: int = 3) -> str:
    return '-' if value is None or not math.isfinite(value) else f'{value:.{digits}f}'


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Put columns of text under each other, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows)]

    def is_number(text: str) -> bool:
        return text == '-' or text.replace('.', '').replace('-', '').isdigit()
    right = [all(map(is_number, column[1:])) for column in zip(*rows)]
    return '\n'.join('  '.join(cell.rjust(width) if to_right else cell.ljust(width)
                               for cell, width, to_right in zip(row, widths, right)).rstrip()
                     for row in rows)

"""``asyncppo export POLICY OUT.onnx``: a policy for C++ and other runtimes, checked."""

from asyncppo_ros.launching import require
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.robot.signing import signing_key
from asyncppo_ros.tools.arguments import Parser
from asyncppo_ros.tools.policies import open_artefact, POLICY_HELP


def main(arguments: list[str], _stop: StopRequest) -> int:
    """Write the model and say how far it differs from the policy."""
    parser = Parser(prog='asyncppo export', description=__doc__, allow_abbrev=False)
    parser.add_argument('policy', metavar='POLICY', help=POLICY_HELP)
    parser.add_argument('out', metavar='OUT.onnx', help='the file to write')
    parser.add_argument('--force', action='store_true', help='overwrite a file that is there')
    parser.add_argument('--keys', default='', metavar='DIR',
                        help='accept only a policy that was signed with the keys in DIR')
    own = parser.parse_args(arguments)
    require(['onnx', 'onnxruntime'])
    artefact = open_artefact(own.policy, signing_key(own.keys))
    from asyncppo_ros.policy.onnx_export import action_map_of, CHECKED_ROWS, export
    found = export(artefact, own.out, own.force)
    print(f'{own.out}: differs from the policy by at most {max(found):.1e} over '
          f'{CHECKED_ROWS:,} random observations')
    task = artefact.card['task']
    if artefact.card['architecture']['distribution'] == 'categorical':
        print('its action is the index of a choice: there is no joint command in it')
    elif action_map_of(artefact.card) is None:
        print('its task has no joints: there is no joint command in it')
    if task.get('simulation_only'):
        print(f'no robot can measure {", ".join(task["simulation_only"])}: it runs in simulation '
              'alone')
    return 0

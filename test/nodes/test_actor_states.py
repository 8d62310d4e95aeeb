"""What supervisors tell of their actors: files that no two of them share."""

import json

from asyncppo_ros.nodes.actor_states import quarantined, read_states, states_file, write_states


def state(actor_id, name='running', reason=''):
    return {'actor_id': actor_id, 'state': name, 'pid': 7, 'crashes': 0, 'reason': reason}


def test_the_states_of_two_supervisors_are_read_together(tmp_path):
    write_states(states_file(tmp_path, 16), [state(16, 'quarantined', '5 crashes in a row')])
    write_states(states_file(tmp_path, 0), [state(0), state(1, 'restarting')])
    assert states_file(tmp_path, 0).name == 'actors.json'
    assert [(entry['actor_id'], entry['state']) for entry in read_states(tmp_path)] == [
        (0, 'running'), (1, 'restarting'), (16, 'quarantined')]
    line, = quarantined(tmp_path)
    assert line.startswith('actor 16 on ') and line.endswith(': 5 crashes in a row')
    assert json.loads((tmp_path / 'actors.json').read_text())['supervisor'] > 0


def test_a_damaged_file_hides_nothing_else(tmp_path):
    states_file(tmp_path, 0).write_text('{"actors": [')
    write_states(states_file(tmp_path, 4), [state(4)])
    assert [entry['actor_id'] for entry in read_states(tmp_path)] == [4]
    assert not read_states(tmp_path / 'nowhere')

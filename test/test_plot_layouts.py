"""The rqt perspective and the PlotJuggler layout show topics that the nodes publish."""

import ast
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from asyncppo_ros.learning.metrics import EVALUATOR_METRICS, LEARNER_METRICS

CONFIG = Path(__file__).parents[1] / 'config'
PUBLISHED = ({f'/asyncppo/learner/metrics/{name}' for name in LEARNER_METRICS}
             | {f'/asyncppo/evaluator/metrics/{name}' for name in EVALUATOR_METRICS})
# What each layout must show: return, success, lag, age, waits, steps/s.
SHOWN = {'return_mean', 'evaluation_return_mean', 'success_rate', 'policy_lag_mean',
         'policy_lag_max', 'sample_age_mean', 'sample_age_max', 'learner_wait', 'actor_wait',
         'env_steps_per_s'}


def rqt_plots():
    """Give the settings of every plot of the perspective."""
    manager = json.loads((CONFIG / 'asyncppo.perspective').read_text())[
        'groups']['pluginmanager']
    running = ast.literal_eval(manager['keys']['running-plugins']['repr'])
    assert set(running) == {'rqt_plot/Plot'}
    assert set(manager['groups']) == {
        f'plugin__rqt_plot__Plot__{serial}' for serial in running['rqt_plot/Plot']}
    return [{name: ast.literal_eval(entry['repr'])
             for name, entry in group['groups']['plugin']['keys'].items()}
            for group in manager['groups'].values()]


def plotjuggler():
    """Give the root of the PlotJuggler layout."""
    return ElementTree.parse(CONFIG / 'plotjuggler.xml').getroot()


def rqt_fields():
    return [field for plot in rqt_plots() for field in plot['topics']]


def plotjuggler_fields():
    return [curve.get('name') for curve in plotjuggler().iter('curve')]


@pytest.mark.parametrize('fields', [rqt_fields, plotjuggler_fields])
def test_every_field_is_published_and_shown_once(fields):
    names = fields()
    assert len(set(names)) == len(names)
    for name in names:
        topic, _, field = name.rpartition('/')
        assert field == 'data', name
        assert topic in PUBLISHED, name
    assert {name.split('/')[-2] for name in names} >= SHOWN


def test_no_topic_is_a_prefix_of_another():
    # rqt_plot takes the first topic that is a prefix, and then looks for the rest as a field.
    for topic in PUBLISHED:
        assert not any(other.startswith(topic + '/') for other in PUBLISHED)


def test_rqt_shows_ten_minutes():
    for plot in rqt_plots():
        assert plot['x_limits'] == [0.0, 600.0]
        assert plot['autoscroll'] is True
        assert plot['y_limits'][0] < plot['y_limits'][1]


def test_plotjuggler_subscribes_to_what_it_shows():
    root = plotjuggler()
    selected = root.find('Plugins/plugin/selected_topics').get('value').split(';')
    assert [f'{topic}/data' for topic in selected] == plotjuggler_fields()
    assert root.find('previouslyLoaded_Streamer').get('name') == root.find(
        'Plugins/plugin').get('ID') == 'ROS2 Topic Subscriber'


def test_plotjuggler_splitters_count_their_children():
    for splitter in plotjuggler().iter('DockSplitter'):
        assert int(splitter.get('count')) == len(splitter)
        assert len(splitter.get('sizes').split(';')) == len(splitter)

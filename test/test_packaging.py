"""What package.xml, setup.py and the lock files say of each other."""

import ast
from pathlib import Path
import re
import runpy
import xml.etree.ElementTree as ElementTree

import pytest

import asyncppo_ros

ROOT = Path(__file__).resolve().parent.parent
LOCKS = [f'py3.{minor}.txt' for minor in range(10, 14)]
# Keys that rosdistro has and that resolve by apt; another one needs a look there first.
ROSDEP_KEYS = {
    'ament_index_python',
    'diagnostic_msgs', 'geometry_msgs', 'launch', 'launch_ros', 'lifecycle_msgs', 'nav_msgs',
    'python3-numpy', 'python3-pytest', 'python3-yaml', 'python3-zmq', 'rclpy', 'rosgraph_msgs',
    'sensor_msgs', 'std_msgs', 'std_srvs', 'trajectory_msgs',
}


@pytest.fixture
def metadata(monkeypatch):
    """Return the arguments with which setup.py calls setup()."""
    setuptools = pytest.importorskip('setuptools')
    heard = {}
    monkeypatch.setattr(setuptools, 'setup', lambda **arguments: heard.update(arguments))
    monkeypatch.chdir(ROOT)
    runpy.run_path('setup.py')
    return heard


@pytest.fixture
def manifest():
    """Return the parsed package.xml."""
    return ElementTree.parse(ROOT / 'package.xml').getroot()


def normalized(name):
    """Return a distribution's name as package indexes compare it."""
    return re.sub(r'[-_.]+', '-', name).lower()


def test_versions_are_equal(metadata, manifest):
    assert manifest.findtext('version') == metadata['version'] == asyncppo_ros.__version__
    assert manifest.findtext('name') == metadata['name'] == 'asyncppo_ros'
    assert manifest.findtext('license') == metadata['license'] == 'Apache-2.0'


def test_manifest_is_one_that_colcon_reads(manifest):
    assert manifest.get('format') == '3'
    assert manifest.findtext('export/build_type') == 'ament_python'
    # colcon ignores a package whose maintainer has a malformed address, silently
    address = manifest.find('maintainer').get('email')
    assert re.fullmatch(r'[\w.-]+@[\w-]+(\.[\w-]+)+', address)


def test_rosdep_keys_exist(manifest):
    keys = {element.text for element in manifest if element.tag.endswith('depend')}
    assert keys <= ROSDEP_KEYS
    assert 'ament_python' not in keys  # has no rosdep key


def test_every_data_file_is_installed(metadata):
    listed = {source for _, sources in metadata['data_files'] for source in sources}
    for folder in ('launch', 'config', 'models', 'pretrained'):
        for path in (ROOT / folder).rglob('*'):
            name = path.relative_to(ROOT).as_posix()
            hidden = any(part.startswith(('.', '__')) for part in path.relative_to(ROOT).parts)
            if path.is_file() and not hidden and path.suffix != '.pyc':
                assert name in listed
    targets = dict(metadata['data_files'])
    assert targets['share/asyncppo_ros'] == ['package.xml']
    assert targets['share/ament_index/resource_index/packages'] == ['resource/asyncppo_ros']
    assert all((ROOT / source).is_file() for source in listed)


def test_every_package_is_installed(metadata):
    found = {path.parent.relative_to(ROOT).as_posix().replace('/', '.')
             for path in (ROOT / 'asyncppo_ros').rglob('*.py')}
    assert found == set(metadata['packages'])


def test_commands_exist(metadata):
    for line in metadata['entry_points']['console_scripts']:
        module, function = line.split(' = ')[1].split(':')
        path = ROOT / (module.replace('.', '/') + '.py')
        tree = ast.parse(path.read_text(encoding='utf-8'))
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def read_pins(name):
    """Return a lock file as a dictionary from distribution to version."""
    lines = (ROOT / 'requirements' / name).read_text(encoding='utf-8').splitlines()
    return dict(line.split('==') for line in lines if not line.startswith('#'))


@pytest.mark.parametrize('lock', LOCKS)
def test_lock_files_pin_what_the_extras_name(lock, metadata):
    pins = read_pins(lock)
    extras = metadata['extras_require']
    wanted = metadata['install_requires'] + extras['train'] + extras['test']
    names = {normalized(re.match(r'[\w.-]+', requirement)[0]) for requirement in wanted}
    assert names - {'torch'} <= set(pins)
    assert not {name for name in pins if name == 'torch' or name.startswith('nvidia-')}


@pytest.mark.parametrize('distro', ['jazzy', 'kilted'])
def test_lock_files_pin_the_ros_wheels(distro, metadata):
    assert set(metadata['extras_require'][f'ros-{distro}']) <= set(read_pins(f'ros-{distro}.txt'))

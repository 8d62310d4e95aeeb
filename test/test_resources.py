"""The resolver, in each of the places where the package's files can lie."""

import os
from pathlib import Path
import shutil
import subprocess
import sys

import pytest

from asyncppo_ros import resources
from asyncppo_ros.errors import ResourceError

ROOT = Path(__file__).resolve().parent.parent
ASK = 'import sys; from asyncppo_ros import resources; print(resources.find(sys.argv[1]))'


def copy_package(folder):
    """Copy the few modules the resolver needs into a folder."""
    package = folder / 'asyncppo_ros'
    package.mkdir(parents=True)
    for name in ('__init__.py', 'errors.py', 'resources.py'):
        shutil.copy(ROOT / 'asyncppo_ros' / name, package / name)
    return folder


def make_file(path):
    """Make a file that can be found."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('<mujoco/>\n')
    return path


def ask(python_path, relative, cwd, **environment):
    """Ask a fresh interpreter, without site-packages, where a file is."""
    env = {key: value for key, value in os.environ.items() if key != 'AMENT_PREFIX_PATH'}
    env.update(environment, PYTHONPATH=str(python_path))
    result = subprocess.run([sys.executable, '-S', '-c', ASK, relative], env=env, cwd=cwd,
                            capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    return Path(result.stdout.strip())


def test_checkout(tmp_path):
    checkout = copy_package(tmp_path / 'checkout')
    make_file(checkout / 'package.xml')
    model = make_file(checkout / 'models' / 'arms' / 'one.xml')
    assert ask(checkout, 'models/arms/one.xml', tmp_path) == model


def test_this_checkout():
    assert resources.find('package.xml') == ROOT / 'package.xml'


def test_pip_install(tmp_path):
    """Build a wheel of a copy with a file in every data folder, and install it."""
    pytest.importorskip('setuptools')
    source = copy_package(tmp_path / 'source')
    for name in ('setup.py', 'setup.cfg', 'pyproject.toml', 'package.xml', 'resource'):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    names = ['models/arms/one.xml', 'config/robots/arm.yaml', 'launch/train.launch.py']
    for name in names:
        make_file(source / name)
    prefix = tmp_path / 'prefix'
    subprocess.run([sys.executable, '-m', 'pip', 'install', '--quiet', '--no-index', '--no-deps',
                    '--no-build-isolation', '--ignore-installed', '--no-warn-script-location',
                    '--prefix', str(prefix), str(source)],
                   check=True, timeout=120, cwd=tmp_path)
    site_packages = next(prefix.rglob('asyncppo_ros/resources.py')).parent.parent
    for name in names:
        found = ask(site_packages, name, tmp_path)
        assert found.is_file() and prefix in found.parents
    assert any(prefix.rglob('bin/asyncppo')), 'pip puts the command into bin/'


def test_colcon_prefix(tmp_path):
    prefix = tmp_path / 'install' / 'asyncppo_ros'
    site_packages = copy_package(prefix / 'lib' / 'python3.12' / 'site-packages')
    model = make_file(prefix / 'share' / 'asyncppo_ros' / 'models' / 'one.xml')
    assert ask(site_packages, 'models/one.xml', tmp_path) == model


def test_ament_prefix_path(tmp_path):
    elsewhere = copy_package(tmp_path / 'elsewhere')
    config = make_file(tmp_path / 'two' / 'share' / 'asyncppo_ros' / 'config' / 'reach.yaml')
    path = os.pathsep.join(str(tmp_path / name) for name in ('one', 'two'))
    assert ask(elsewhere, 'config/reach.yaml', tmp_path, AMENT_PREFIX_PATH=path) == config


def test_linked_package_finds_its_checkout(tmp_path):
    checkout = copy_package(tmp_path / 'checkout')
    make_file(checkout / 'package.xml')
    model = make_file(checkout / 'models' / 'one.xml')
    build = tmp_path / 'build'
    build.mkdir()
    (build / 'asyncppo_ros').symlink_to(checkout / 'asyncppo_ros')
    assert ask(build, 'models/one.xml', tmp_path) == model


def test_missing_file_says_where_and_what_exists(tmp_path, monkeypatch):
    make_file(tmp_path / 'share' / 'asyncppo_ros' / 'models' / 'one.xml')
    monkeypatch.setenv('AMENT_PREFIX_PATH', str(tmp_path))
    with pytest.raises(ResourceError) as caught:
        resources.find('models/two.xml')
    text = str(caught.value)
    assert 'models/two.xml' in text
    assert str(ROOT) in text and str(tmp_path) in text
    assert 'one.xml' in text
    assert '\n' not in text


@pytest.mark.parametrize('relative', ['', '/etc/passwd', '../setup.py'])
def test_only_relative_paths(relative):
    with pytest.raises(ResourceError, match='relative path'):
        resources.find(relative)

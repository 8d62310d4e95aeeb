"""When `make setup` installs, when it does nothing, and what it says when it cannot."""

import argparse
import importlib.util
from pathlib import Path
import sys

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def script(monkeypatch, tmp_path):
    """Return scripts/setup_venv.py as a module that works in a new folder and installs nothing."""
    spec = importlib.util.spec_from_file_location('setup_venv', ROOT / 'scripts' / 'setup_venv.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ('setup.py', 'setup.cfg'):
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(module, 'ROOT', tmp_path)
    module.steps = []

    def make_venv(venv, env, system_site_packages):
        module.steps.append('venv')
        (venv / 'bin').mkdir(parents=True, exist_ok=True)
        (venv / 'bin' / 'python').touch()
        module.write_state(venv, {'state': 'installing'})

    monkeypatch.setattr(module, 'make_venv', make_venv)
    monkeypatch.setattr(module, 'install', lambda *_: module.steps.append('install'))
    monkeypatch.setattr(module, 'has_gpu', lambda: False)
    return module


def run(script, **changes):
    """Run one set-up; return the steps it took."""
    options = argparse.Namespace(
        **{'venv': '.venv', 'ros': 'jazzy', 'torch': '', 'torch_index': '', **changes})
    script.steps.clear()
    script.set_up(options, None, {})
    return list(script.steps)


def test_a_second_run_does_nothing(script):
    assert run(script) == ['venv', 'install']
    assert run(script) == []


def test_changed_requirements_are_installed_into_the_same_environment(script, tmp_path):
    run(script)
    (tmp_path / 'setup.py').write_text('changed')
    assert run(script) == ['install']
    assert run(script) == []


def test_an_interrupted_set_up_is_redone(script, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(script, 'install', interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(script)
    assert run(script) == ['venv', 'install']


def test_a_chosen_torch_holds_for_later_runs(script):
    run(script)
    assert run(script, torch='torch==2.12.0', torch_index='https://example.org') \
        == ['venv', 'install']
    assert run(script) == []


def test_a_gpu_brings_another_torch(script, monkeypatch):
    run(script)
    monkeypatch.setattr(script, 'has_gpu', lambda: True)
    assert run(script) == ['venv', 'install']
    monkeypatch.setattr(script, 'has_gpu', lambda: False)
    assert run(script) == []


def test_a_folder_that_is_not_ours_stays(script, tmp_path):
    (tmp_path / '.venv').mkdir()
    (tmp_path / '.venv' / 'precious').touch()
    with pytest.raises(script.SetupError, match='not made by make setup'):
        run(script)
    assert (tmp_path / '.venv' / 'precious').exists()


@pytest.mark.parametrize('missing', ['venv', 'ensurepip'])
def test_a_missing_module_is_named_with_the_fix(script, monkeypatch, missing):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(script.importlib.util, 'find_spec',
                        lambda name: None if name == missing else find_spec(name))
    with pytest.raises(script.SetupError, match=f'{missing}.*apt install python3-venv'):
        script.check_python(None, 'jazzy')


@pytest.mark.parametrize('version', [(3, 9), (3, 14)])
def test_an_unfit_python_is_named(script, monkeypatch, version):
    monkeypatch.setattr(sys, 'version_info', (*version, 0, 'final', 0))
    with pytest.raises(script.SetupError, match='3.10 to 3.13'):
        script.check_python(None, 'jazzy')


def test_another_machine_is_told_what_it_can_have(script, monkeypatch):
    monkeypatch.setattr(script.platform, 'machine', lambda: 'aarch64')
    with pytest.raises(script.SetupError, match='aarch64'):
        script.check_python(None, 'jazzy')
    script.check_python('jazzy', 'jazzy')
    script.check_python(None, 'none')

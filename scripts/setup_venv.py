#!/usr/bin/env python3
"""
Make the virtual environment that `make train`, `make test` and `make lint` use.

Standard library only, and syntax of Python 3.8, so that a Python that is too old gets a clear
line instead of a traceback. The file asyncppo-setup.json in the environment says what was
installed; when nothing of that changed, nothing is done. It says "installing" until the last
step, so an interrupted set-up is seen and redone.
"""

import argparse
import fcntl
import hashlib
import importlib.util
import json
import os
from pathlib import Path
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_TORCH = 'torch==2.13.0'
CPU_INDEX = 'https://download.pytorch.org/whl/cpu'
STATE = 'asyncppo-setup.json'
LOG = 'asyncppo-setup.log'
OLDEST, NEWEST = (3, 10), (3, 13)


class SetupError(Exception):
    """What the user has to know, in one line."""


def say(text):
    print('[setup] ' + text, flush=True)


def clean_environment():
    """Return the environment without what another virtual environment left in it."""
    env = dict(os.environ)
    if env.pop('_ROS_WHEELS_BOOTSTRAP_COMPLETE', None):
        # An outer Python with ROS wheels put its own libraries first.
        env.pop('LD_LIBRARY_PATH', None)
    for name in ('VIRTUAL_ENV', 'PYTHONHOME', 'PIP_USER', 'PIP_TARGET', 'PIP_PREFIX'):
        env.pop(name, None)
    env['PIP_DISABLE_PIP_VERSION_CHECK'] = '1'
    env['PYTHONUNBUFFERED'] = '1'
    return env


def can_import(python, module, env):
    """Tell whether an interpreter imports a module."""
    try:
        return subprocess.run([python, '-c', 'import ' + module], env=env, timeout=60,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def find_interpreter(env):
    """
    Choose the interpreter, and say which sourced ROS 2 it brings (or None).

    Returns
    -------
    tuple of (str, str or None)
        The interpreter's path, and ROS_DISTRO where a sourced ROS 2 offers rclpy.

    """
    # From within a virtual environment, build on the Python it was made with.
    mine = getattr(sys, '_base_executable', None) or sys.executable
    distro = os.environ.get('ROS_DISTRO')
    if not (distro and os.environ.get('AMENT_PREFIX_PATH')):
        return mine, None
    for python in (mine, '/usr/bin/python3'):
        if can_import(python, 'rclpy', env):
            return python, distro
    raise SetupError(
        f'ROS 2 {distro} is sourced, but neither {mine} nor /usr/bin/python3 can import its '
        'rclpy. Name its interpreter with PYTHON=, or use a shell where ROS is not sourced.')


def check_python(distro, ros):
    """Refuse an interpreter or a machine for which there is nothing to install."""
    version = sys.version_info[:2]
    here = f'{version[0]}.{version[1]} ({sys.executable})'
    if version < OLDEST or (version > NEWEST and not distro):
        raise SetupError(f'Python 3.10 to 3.13 is needed, this is {here}. '
                         'Name another one: make setup PYTHON=python3.12')
    missing = [name for name in ('venv', 'ensurepip') if importlib.util.find_spec(name) is None]
    if missing:
        raise SetupError(f'Python {here} lacks the module {" and ".join(missing)}. On Debian and '
                         'Ubuntu: apt install python3-venv')
    if ros not in ('jazzy', 'kilted', 'none'):
        raise SetupError(f'ROS={ros}: there are wheels for jazzy and kilted (none: without ROS)')
    if not distro and ros != 'none' and (sys.platform, platform.machine()) != ('linux', 'x86_64'):
        raise SetupError(
            f'there are no ROS 2 wheels for {sys.platform} {platform.machine()}: install ROS 2 '
            'and source it, or set up without ROS, for training in one process: '
            'make setup ROS=none')


def has_gpu():
    """Tell whether nvidia-smi sees a GPU."""
    program = shutil.which('nvidia-smi')
    if not program:
        return False
    try:
        result = subprocess.run([program, '-L'], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return result.returncode == 0 and b'GPU' in result.stdout


def answers(url):
    """Tell whether a URL answers within a few seconds."""
    request = urllib.request.Request(url, method='HEAD', headers={'User-Agent': 'pip'})
    try:
        with urllib.request.urlopen(request, timeout=4):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except (OSError, ValueError):
        return False


def read_state(venv):
    """Return what the environment's state file says, or None."""
    try:
        state = json.loads((venv / STATE).read_text(encoding='utf-8'))
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) else None


def write_state(venv, state):
    """Write the state file in one step."""
    path = venv / (STATE + '.new')
    path.write_text(json.dumps(state, indent=1) + '\n', encoding='utf-8')
    path.replace(venv / STATE)


def lock_files(ros, distro):
    """Return the lock files that hold for this Python and this ROS."""
    names = [f'py{sys.version_info[0]}.{sys.version_info[1]}.txt']
    if not distro and ros != 'none':
        names.append(f'ros-{ros}.txt')
    return [path for path in (ROOT / 'requirements' / name for name in names) if path.is_file()]


def digest(paths):
    """Hash the files whose change means that something has to be installed again."""
    total = hashlib.sha256()
    for path in paths:
        total.update(path.name.encode() + b'\0' + path.read_bytes() + b'\0')
    return total.hexdigest()


def show_progress(line):
    """Say what one line of pip's output means for people; return its error messages."""
    large = re.match(r'Downloading (\S+).* \(([\d.]+) (MB|GB)\)', line)
    if large and (large.group(3) == 'GB' or float(large.group(2)) >= 10):
        name = large.group(1).rsplit('/', 1)[-1].split('-')[0]
        say(f'  downloading {name}, {large.group(2)} {large.group(3)}')
    elif line.startswith('Installing collected packages:'):
        say(f'  unpacking {line.count(",") + 1} packages')
    return [line[len('ERROR:'):].strip()] if line.startswith('ERROR:') else []


def run_pip(venv, env, what, arguments):
    """Run pip in the environment: everything into the log, a line per large part for people."""
    started = time.monotonic()
    say(what)
    command = [str(venv / 'bin' / 'python'), '-m', 'pip', 'install', '--progress-bar', 'off',
               '--no-input', *arguments]
    errors = []
    with open(venv / LOG, 'a', encoding='utf-8') as log:
        log.write('$ ' + ' '.join(command) + '\n')
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, cwd=str(ROOT),
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   universal_newlines=True, errors='replace')
        try:
            for line in process.stdout:
                log.write(line)
                errors += show_progress(line.strip())
            code = process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if code != 0:
        reason = errors[0] if errors else f'pip ended with exit code {code}'
        raise SetupError(f'pip could not install this: {reason} (whole log: {venv / LOG})')
    say(f'  done in {time.monotonic() - started:.0f} s')


def choose_torch(options, old):
    """
    Decide what torch to install.

    What an earlier `make setup TORCH=... TORCH_INDEX=...` asked for holds until it is asked for
    something else, so that a later plain `make test` does not undo it.

    Returns
    -------
    dict
        The requirement, the index ('' for the default registry), whether each was asked for,
        and whether a GPU was seen.

    """
    old = (old or {}).get('torch', {})
    asked = {'requirement': options.torch or old.get('asked_requirement', ''),
             'index': options.torch_index or old.get('asked_index', '')}
    gpu = bool(old.get('gpu')) or (not asked['index'] and has_gpu())
    return {'requirement': asked['requirement'] or DEFAULT_TORCH, 'gpu': gpu,
            'asked_requirement': asked['requirement'], 'asked_index': asked['index']}


def install_torch(venv, env, torch, constraints):
    """Install torch, for the CPU where no GPU was seen, and what editable installs need."""
    arguments = [torch['requirement'], 'setuptools', *constraints]
    where = 'for CUDA' if torch['gpu'] else 'for the CPU'
    if torch['asked_index']:
        where = 'from ' + torch['asked_index']
        arguments += ['--extra-index-url', torch['asked_index']]
    elif not torch['gpu'] and sys.platform == 'linux':
        if answers(CPU_INDEX + '/torch/'):
            arguments += ['--extra-index-url', CPU_INDEX]
        else:
            where = 'from the default registry, as the CPU index of PyTorch does not answer'
    size = 'some gigabytes' if torch['gpu'] else 'about 200 MB'
    run_pip(venv, env, f'installing {torch["requirement"]} {where}: {size}, a minute or more',
            arguments)


def install(venv, env, options, wanted, constraints):
    """Install everything into the environment and check that it can be imported."""
    extras = ['train', 'test']
    modules = ['numpy', 'yaml', 'zmq', 'mujoco', 'gymnasium', 'torch', 'pytest']
    if wanted['ros'] in ('jazzy', 'kilted'):
        extras.append('ros-' + wanted['ros'])
    if wanted['ros'] != 'none':
        modules.append('rclpy')
    install_torch(venv, env, wanted['torch'], constraints)
    run_pip(venv, env, 'installing MuJoCo, Gymnasium, the ROS 2 wheels and the test tools: about '
            '200 MB, a minute or two', ['--no-build-isolation', '-e', f'.[{",".join(extras)}]',
                                        *constraints])
    python = str(venv / 'bin' / 'python')
    result = subprocess.run([python, '-c', 'import ' + ', '.join(modules)], env=env, check=False,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if result.returncode != 0:
        last = (result.stdout.decode(errors='replace').strip().splitlines() or ['no message'])[-1]
        raise SetupError(f'what was installed cannot be imported by {python}: {last} '
                         f'(log of pip: {venv / LOG})')


def make_venv(venv, env, system_site_packages):
    """Create an empty virtual environment, marked as being installed."""
    if venv.is_symlink() or (venv.exists() and not venv.is_dir()):
        raise SetupError(f'{venv} is not a folder: move it away')
    if venv.exists():
        shutil.rmtree(venv)
    venv.mkdir()
    write_state(venv, {'state': 'installing'})
    command = [sys.executable, '-m', 'venv', str(venv)]
    if system_site_packages:
        command.append('--system-site-packages')
    say(f'creating {venv.name} with Python {platform.python_version()}')
    result = subprocess.run(command, env=env, check=False, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    if result.returncode != 0:
        output = ' '.join(result.stdout.decode(errors='replace').split())
        fix = 'apt install python3-venv' if 'ensurepip' in output else output[:300]
        raise SetupError(f'python -m venv failed: {fix}')


def set_up(options, distro, env):
    """Bring the environment to what is wanted; do nothing where it is there already."""
    venv = ROOT / options.venv
    old = read_state(venv)
    if venv.exists() and old is None and any(venv.iterdir()):
        raise SetupError(f'{venv} was not made by make setup: move it away')
    done = old if old and old.get('state') == 'done' else None
    ros = distro and 'sourced ' + distro or options.ros
    constraint_files = lock_files(options.ros, distro)
    wanted = {
        'state': 'done',
        'root': str(ROOT),
        'python': f'{sys.version_info[0]}.{sys.version_info[1]}',
        'ros': ros,
        'torch': choose_torch(options, done),
        'files': digest([ROOT / 'setup.py', ROOT / 'setup.cfg', *constraint_files]),
    }
    if done == wanted and (venv / 'bin' / 'python').exists():
        return
    started = time.monotonic()
    if old and not done:
        say(f'the last set-up of {venv.name} did not finish: doing it again')
    if not constraint_files:
        say('no lock file for this Python: taking the newest versions')
    if distro:
        say(f'using rclpy of the sourced ROS 2 {distro}')
    fresh = done is None or not (venv / 'bin' / 'python').exists() or any(
        done.get(key) != wanted[key] for key in ('root', 'python', 'ros', 'torch'))
    if fresh:
        make_venv(venv, env, system_site_packages=bool(distro))
    else:
        write_state(venv, {'state': 'installing'})
    constraints = [word for path in constraint_files for word in ('-c', str(path))]
    install(venv, env, options, wanted, constraints)
    write_state(venv, wanted)
    say(f'{venv.name} is ready after {time.monotonic() - started:.0f} s')


def parse(arguments):
    """Read the command line."""
    parser = argparse.ArgumentParser(description='make the virtual environment of this checkout')
    parser.add_argument('--venv', default='.venv', help='its folder')
    parser.add_argument('--ros', default='jazzy', help='jazzy, kilted or none')
    parser.add_argument('--torch', default='', help=f'requirement (default {DEFAULT_TORCH})')
    parser.add_argument('--torch-index', default='', help='package index for torch')
    parser.add_argument('--keep-python', action='store_true',
                        help='do not change the Python of an environment that is there')
    return parser.parse_args(arguments)


def main():
    """Run one set-up, alone; return the exit code."""
    options = parse(sys.argv[1:])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with open(__file__, encoding='utf-8') as me:
            try:
                fcntl.flock(me, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say('waiting for another make setup to end')
                fcntl.flock(me, fcntl.LOCK_EX)
            env = clean_environment()
            python, distro = find_interpreter(env)
            if options.keep_python and not distro:
                home = ROOT / options.venv / 'bin' / 'python'
                done = read_state(ROOT / options.venv) or {}
                if done.get('state') == 'done' and home.exists():
                    python = os.path.realpath(home)
            if os.path.realpath(python) != os.path.realpath(sys.executable):
                os.execve(python, [python, *sys.argv], env)
            check_python(distro, options.ros)
            set_up(options, distro, env)
    except SetupError as error:
        print(f'[setup] {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('[setup] interrupted; the next run starts this step again', file=sys.stderr)
        return 130
    return 0


if __name__ == '__main__':
    sys.exit(main())

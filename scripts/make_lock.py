#!/usr/bin/env python3
"""
Write the lock files of the Python that runs this: requirements/py3.X.txt and ros-*.txt.

py3.X.txt pins everything the extras train and test bring, except torch and its nvidia wheels:
which build of torch is right depends on the machine, and the Makefile chooses it. What torch
needs in pure Python is pinned. ros-jazzy.txt and ros-kilted.txt pin the ROS 2 wheels, which are
the same for every Python; they are two files because the two share names (ros-rclpy).

    make lock PYTHONS='python3.10 python3.11 python3.12 python3.13'
"""

import json
import os
from pathlib import Path
import subprocess
import sys
import tempfile
import types

ROOT = Path(__file__).resolve().parent.parent
# What torch 2.13 asks for beside its binary parts.
TORCH_NEEDS = ['filelock', 'typing-extensions>=4.10', 'sympy>=1.13.3', 'networkx', 'jinja2',
               'fsspec']
HEADER = """\
# {what}, used as constraints by `make setup`.
# Made by scripts/make_lock.py; again with: make lock PYTHONS=python3.X
"""


def read_extras():
    """Read install_requires and extras_require: run setup.py with a setup() that only listens."""
    heard = {}
    listener = types.ModuleType('setuptools')
    listener.setup = heard.update
    listener.find_packages = lambda **_: []
    sys.modules['setuptools'] = listener
    os.chdir(ROOT)
    source = (ROOT / 'setup.py').read_text(encoding='utf-8')
    exec(compile(source, 'setup.py', 'exec'), {'__name__': '__main__'})
    return heard['install_requires'], heard['extras_require']


def resolve(requirements):
    """Ask pip which versions it would install, as a dictionary from name to version."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, 'report.json')
        command = [sys.executable, '-m', 'pip', 'install', '-qq', '--dry-run',
                   '--ignore-installed', '--only-binary', ':all:', '--no-binary', 'empy',
                   '--report', report, *requirements]
        subprocess.run(command, check=True)
        with open(report, encoding='utf-8') as file:
            items = json.load(file)['install']
    return {item['metadata']['name'].lower().replace('_', '-'): item['metadata']['version']
            for item in items}


def write(name, what, pins):
    """Write one lock file, sorted by name."""
    path = ROOT / 'requirements' / name
    path.parent.mkdir(exist_ok=True)
    lines = [f'{package}=={pins[package]}\n' for package in sorted(pins)]
    path.write_text(HEADER.format(what=what) + ''.join(lines), encoding='utf-8')
    print(f'{path.relative_to(ROOT)}: {len(lines)} packages')


def main():
    """Resolve all that is not ROS and the first distribution, then the other one beside it."""
    base, extras = read_extras()
    common = base + [r for r in extras['train'] + extras['test'] if r != 'torch'] + TORCH_NEEDS
    plain = {}
    for distro in ('jazzy', 'kilted'):
        wanted = [f'{name}=={version}' for name, version in plain.items()] or common
        found = resolve(wanted + extras[f'ros-{distro}'])
        plain.update({name: v for name, v in found.items() if not name.startswith('ros-')})
        write(f'ros-{distro}.txt', f'The ROS 2 wheels of {distro} for x86-64 Linux',
              {name: v for name, v in found.items() if name.startswith('ros-')})
    version = f'{sys.version_info[0]}.{sys.version_info[1]}'
    write(f'py{version}.txt', f'Versions for Python {version}, without torch', plain)


if __name__ == '__main__':
    main()

#!/usr/bin/env python3
"""
Record where an actor and the learner of a run that goes on spend their time, as flame graphs.

    pip install py-spy
    asyncppo train --task HalfCheetah-v5 --run_dir runs/profiled &
    python scripts/flame_graph.py runs/profiled --seconds 30 --out docs

writes docs/profile-actor.svg and docs/profile-learner.svg.  Threads that sleep or wait are left
out.  Give a run half a minute first: its start is not what it does for the rest of its time.
"""

import argparse
from pathlib import Path
import re
import subprocess
import sys
import tempfile

from asyncppo_ros.errors import UserError
from asyncppo_ros.run import find_run
from asyncppo_ros.tools.bench.watched import processes_of

ROLES = ('actor', 'learner')
# What libraries lie below; a path is told from there on.
ROOTS = re.compile(r'.*/(?:site-packages|dist-packages|lib/python3\.\d+|lib-dynload)/')
# As py-spy writes a frame: name (file:line), or name (library).
PATH = re.compile(r'\((/[^()<>:]+)')


def relative(path):
    """Give a path from its package on; that of anything else is its name."""
    if ROOTS.match(path):
        return ROOTS.sub('', path)
    parts = Path(path).parts
    if 'asyncppo_ros' in parts:
        last = len(parts) - 1 - parts[::-1].index('asyncppo_ros')
        return '/'.join(parts[last:])
    return parts[-1]


def stripped(svg, title):
    """Give a graph with a title instead of py-spy's command, and no path of this machine."""
    svg = re.sub(r'(<text id="title"[^>]*>)[^<]*', lambda match: match[1] + title, svg)
    return PATH.sub(lambda match: '(' + relative(match[1]), svg)


def process_of(folder, role):
    """Give the process number of the learner, or of the first actor, of a run."""
    found = [pid for pid, command in processes_of(folder).items()
             if f'asyncppo_ros.nodes.main {role} ' in command]
    if not found:
        raise UserError(f'{folder}: no {role} runs; give the folder of a run that goes on')
    return min(found)


def record(pid, seconds, rate, title):
    """Let py-spy look at a process for so long; give the graph."""
    with tempfile.TemporaryDirectory() as folder:
        graph = Path(folder) / 'graph.svg'
        # One frame for a function, not for each of its lines.
        subprocess.run(['py-spy', 'record', '--pid', str(pid), '--duration', str(seconds),
                        '--rate', str(rate), '--function', '--output', str(graph)],
                       check=True, stdout=subprocess.DEVNULL)
        return stripped(graph.read_text(encoding='utf-8'), title)


def main():
    """Record one role after the other."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('run', help='folder of a run that goes on')
    parser.add_argument('--seconds', type=int, default=30, help='for each, default 30')
    parser.add_argument('--rate', type=int, default=200, help='looks per second, default 200')
    parser.add_argument('--roles', nargs='+', default=ROLES, choices=ROLES)
    parser.add_argument('--out', type=Path, default=Path('.'), help='folder, default here')
    own = parser.parse_args()
    try:
        run = find_run(own.run)
        # Through the link `latest` no process was started.
        folder = run.folder.resolve()
        task = run.config().task
        for role in own.roles:
            graph = record(process_of(folder, role), own.seconds, own.rate,
                           f'asyncppo_ros: {role}, {task}')
            file = own.out / f'profile-{role}.svg'
            file.write_text(graph, encoding='utf-8')
            print(file)
    except UserError as error:
        return f'flame_graph: {error}'
    except FileNotFoundError as error:
        return f'flame_graph: {error.filename} is missing' + (
            ': pip install py-spy' if error.filename == 'py-spy' else '')
    except subprocess.CalledProcessError as error:
        return f'flame_graph: py-spy ended with {error.returncode}; it may need sudo'
    return 0


if __name__ == '__main__':
    sys.exit(main())

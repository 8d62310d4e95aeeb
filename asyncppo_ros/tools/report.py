"""Curves, counts and settings of a run as a PNG and a self-contained HTML page."""

import base64
from collections.abc import Iterable, Mapping, Sequence
import html
import json
import math
import os
import pathlib
from typing import Any

from asyncppo_ros.config import Config
from asyncppo_ros.errors import RunError
from asyncppo_ros.learning.jsonl import read_jsonl
from asyncppo_ros.learning.metrics import evaluation_row, METRICS
from asyncppo_ros.nodes.process import StopRequest
from asyncppo_ros.run import replace_file
from asyncppo_ros.settings import flatten, read_yaml, settings
from asyncppo_ros.tools.arguments import Parser
from asyncppo_ros.tools.curves import draw
from asyncppo_ros.tools.progress import duration, number

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 1200px; margin: 2em auto;
       padding: 0 1em; color: #1a1a1a; background: #fff; }
h1 { font-size: 1.5em; } h2 { font-size: 1.2em; margin-top: 2em; }
img { width: 100%; height: auto; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.95em; }
th, td { text-align: left; padding: 0.25em 1em 0.25em 0; border-bottom: 1px solid #ddd;
         vertical-align: top; }
td { overflow-wrap: anywhere; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
"""


def report(run_dir: str | os.PathLike[str]) -> tuple[pathlib.Path, pathlib.Path]:
    """
    Write ``report.png`` and ``report.html`` into a run directory.

    Returns
    -------
    png_path, html_path : pathlib.Path

    Raises
    ------
    RunError
        There is no such directory, or it has no metrics yet.

    """
    run = pathlib.Path(run_dir)
    if not run.is_dir():
        raise RunError(f'{run}: no such run directory')
    rows = [row for row in read_jsonl(run / 'metrics.jsonl')
            if row.get('env_steps') is not None]
    if not rows:
        raise RunError(f'no metrics yet in {run / "metrics.jsonl"}')
    evaluations = read_jsonl(run / 'evaluations.jsonl')
    about = _read_json(run / 'run.json')
    title = headline(about, rows[-1])
    png = draw(rows, [evaluation_row(evaluation) for evaluation in evaluations], title)
    replace_file(run / 'report.png', png)
    page = _page(run, title, png, rows[-1], evaluations, about)
    replace_file(run / 'report.html', page.encode())
    return run / 'report.png', run / 'report.html'


def headline(about: Mapping[str, Any], last: Mapping[str, Any]) -> str:
    """Say in one line what was trained, for how long."""
    steps = number('env_steps', last['env_steps'])
    text = f'{about.get("task", "unknown task")}, seed {about.get("seed", "unknown")}: ' \
           f'{steps} env steps'
    if last.get('time_s') is not None:
        text += f' in {duration(last["time_s"])}'
    if last.get('policy_version') is not None:
        text += f', policy version {number("policy_version", last["policy_version"])}'
    return text


def changed_settings(run: pathlib.Path) -> list[tuple[str, Any, Any]]:
    """List name, value and default of the settings that differ from their defaults."""
    path = run / 'config.yaml'
    if not path.exists():
        return []
    values = read_yaml(path)
    rows = []
    for name, default, _ in settings(Config):
        value = values.get(name, default)
        if isinstance(default, tuple) and isinstance(value, list):
            value = tuple(value)
        if value != default:
            rows.append((name, value, default))
    return rows


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Write an HTML table; numbers are aligned to the right."""
    body = list(rows)
    if not body:
        return '<p>none</p>'
    first = ''.join(f'<th{" class=number" if _is_number(value) else ""}>{html.escape(name)}</th>'
                    for name, value in zip(head, body[-1]))
    lines = ''.join(f'<tr>{"".join(_cell(value) for value in row)}</tr>\n' for row in body)
    return f'<div class="scroll"><table><tr>{first}</tr>\n{lines}</table></div>'


def _page(run: pathlib.Path, title: str, png: bytes, last: Mapping[str, Any],
          evaluations: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> str:
    sections = [
        ('Evaluations', _evaluations_table(evaluations)),
        ('Settings that differ from their defaults',
         table(('setting', 'value', 'default'), changed_settings(run))),
        ('The last update', _metrics_table(last)),
    ]
    books = _read_json(run / 'books.json')
    if books:
        sections.append(('Books of the chunks', _anything(books)))
    sections.append(('Run', table(
        ('what', 'value'), [(name, str(value)) for name, value in flatten(about).items()])))
    body = ''.join(f'<h2>{html.escape(name)}</h2>\n{content}\n' for name, content in sections)
    picture = base64.b64encode(png).decode()
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<title>{html.escape(title)}</title>\n<style>{STYLE}</style></head>\n<body>\n'
            f'<h1>{html.escape(title)}</h1>\n'
            f'<img alt="Curves of the run against env steps" '
            f'src="data:image/png;base64,{picture}">\n{body}</body></html>\n')


def _evaluations_table(evaluations: Sequence[Mapping[str, Any]]) -> str:
    head = [name for name in (
        'generation', 'policy_version', 'env_steps', 'time_s', 'episodes', 'return_mean',
        'return_std', 'length_mean', 'success')
        if any(evaluation.get(name) is not None for evaluation in evaluations)]
    return table([name.replace('_', ' ') for name in head],
                 [[evaluation.get(name) for name in head] for evaluation in evaluations])


def _metrics_table(last: Mapping[str, Any]) -> str:
    return table(('metric', 'value', 'unit', 'meaning'),
                 [(name, last[name], metric.unit, metric.description)
                  for name, metric in METRICS.items() if last.get(name) is not None])


def _anything(content: Any) -> str:
    """Show a JSON document of any shape as tables."""
    if isinstance(content, list) and all(isinstance(row, dict) for row in content):
        head = list(dict.fromkeys(name for row in content for name in row))
        return table(head, [[row.get(name) for name in head] for row in content])
    if isinstance(content, dict):
        simple = {name: value for name, value in content.items()
                  if not isinstance(value, (dict, list))}
        parts = [table(('what', 'value'), simple.items())] if simple else []
        for name, value in content.items():
            if name not in simple:
                parts.append(f'<h3>{html.escape(str(name))}</h3>{_anything(value)}')
        return ''.join(parts)
    return f'<p>{html.escape(json.dumps(content))}</p>'


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    if not _is_number(value):
        return f'<td>{"" if value is None else html.escape(str(value))}</td>'
    whole = math.isfinite(value) and (value == int(value) or abs(value) >= 1000)
    text = f'{value:,.0f}' if whole else f'{value:.4g}'
    return f'<td class="number">{text}</td>'


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise RunError(f'{path}: not JSON: {error}') from error
    return content


def main(arguments: list[str], _stop: StopRequest) -> int:
    """Draw the curves of a run and say where they are."""
    parser = Parser(prog='asyncppo report', description=__doc__)
    parser.add_argument('run', metavar='RUN', help='folder of a run, for example runs/latest')
    for path in report(parser.parse_args(arguments).run):
        print(path)
    return 0

"""The table of every curriculum's options, for curricula/README.md: read off the records and their docstrings.

Not here: what a curriculum does (its function's docstring), keys of a run (`config.reference`).

Example:
    >>> markdown().splitlines()[0]
    '| function | option | default | meaning |'
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from selfplay.curriculum import CURRICULA
from selfplay.curriculum.options import defaults_of


def markdown() -> str:
    """Every option of every curriculum as a Markdown table, in the order of `CURRICULA`."""
    lines = ["| function | option | default | meaning |", "|---|---|---|---|"]
    for name, choose in CURRICULA.items():
        lines += [f"| `{name}` {row}" for row in _rows(defaults_of(choose))]
    return "\n".join(lines)


def options_of(default: Any) -> str:
    """Every option of one record as a Markdown table, for what else takes an inline table."""
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *_rows(default)])


def _rows(default: Any) -> Iterator[str]:
    said = dict(_docstrings(type(default)))
    for field in fields(default):
        value = _toml(getattr(default, field.name))
        yield f"| `{field.name}` | `{value}` | {said.get(field.name, '')} |"


def _docstrings(options: type) -> Iterator[tuple[str, str]]:
    """(field, the string under it)."""
    (parsed,) = ast.parse(inspect.getsource(options)).body
    assert isinstance(parsed, ast.ClassDef)
    for field, below in zip(parsed.body, parsed.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            yield field.target.id, " ".join(str(ast.literal_eval(below.value)).split())


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)

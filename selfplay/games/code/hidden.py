"""A part of a task's tests is held back: the solver is told of the others, and all of them decide.

A solver that sees the whole oracle can write to it; the authors of Self-play SWE-RL name that as a limit and suggest
a split into public and private tests (arXiv 2512.18552; research note `selfplay-papers.md` §A.11). What is public is
the specification, the weakening reversed (`agentic`), and so what is held back are functions among the failing tests
that the weakening changed or took out: the specification leaves them as the weakening left them.

What is covered: plain functions and methods, all parameter sets of one together; at least one of them stays public.
What is not: tests that fail and that the weakening left alone, which a solver finds in its tree anyway.

Example:
    >>> held_back(bug, repository=repository, share=0.5, key="task").hidden  # doctest: +SKIP
    ('tests/test_a.py::test_scale',)
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Collection, Iterator, Mapping

from selfplay.games.code.agentic import TreeBug
from selfplay.games.code.artifact import contents, diff_of
from selfplay.games.code.source import Repository
from selfplay.games.code.weaken import weakened
from selfplay.types import draw, record

Span = tuple[int, int]
"""First line and the line behind the last, counted from 0."""


@record
class Told:
    """What a solver is told of a bug's tests."""

    specification: str
    """A diff of the weakened test files that gives back what is public."""
    hidden: tuple[str, ...] = ()
    """Failing tests that it is not told of."""


def held_back(bug: TreeBug, *, repository: Repository, share: float, key: str) -> Told:
    """The public part of a bug's tests, where `share` of the failing functions that could be hidden are.

    `key` keys the draw of which.
    """
    clean = {path: _text(body) for path, body in contents(repository, bug.weak).items()}
    weak = {path: _text(body) for path, body in bug.weak.items()}
    able = sorted(_able(bug.failing, clean=clean, weak=weak), key=lambda name: draw("hidden", key, name))
    chosen = able[: min(round(share * len(able)), len(able) - 1)] if able else []
    if not chosen:
        return Told(specification=bug.specification)
    public = dict(bug.weak)
    for path, body in contents(repository, bug.weak).items():
        names = [name.partition("::")[2] for name in chosen if name.partition("::")[0] == path]
        public[path] = _without(clean[path], weak[path], names).encode() if names else body
    specification = diff_of(bug.weak, public)
    hidden = tuple(test for test in bug.failing if test.partition("[")[0] in chosen)
    # note: a file that nothing could be taken out of shows its tests, and hiding them would be a word only.
    shown = [name for name in chosen if _shows(name, public=public, clean=clean)]
    if not specification or shown:
        return Told(specification=bug.specification)
    return Told(specification=specification, hidden=hidden)


def _able(failing: Collection[str], *, clean: Mapping[str, str], weak: Mapping[str, str]) -> Iterator[str]:
    """Failing functions, by file and name, that the weakening changed or took out of a file that it left there."""
    for name in dict.fromkeys(test.partition("[")[0] for test in failing):
        path, _, inner = name.partition("::")
        if path in weak and clean.get(path) and weak[path]:
            before = _segment(clean[path], inner)
            if before is not None and before != _segment(weak[path], inner):
                yield name


def _without(clean: str, weak: str, names: Collection[str]) -> str:
    """The clean text, those functions as the weakening left them, or gone where it took them out."""
    lines, gone = clean.split("\n"), []
    spans = _spans(clean)
    for name in sorted(names, key=lambda name: spans[name], reverse=True):
        left = _segment(weak, name)
        if left is None:
            gone.append(name)
        else:
            lines[slice(*spans[name])] = left
    text = "\n".join(lines)
    return weakened(text, gone).text if gone else text


def _shows(name: str, *, public: Mapping[str, bytes | None], clean: Mapping[str, str]) -> bool:
    path, _, inner = name.partition("::")
    return _segment(_text(public[path]), inner) == _segment(clean[path], inner)


def _segment(text: str, name: str) -> list[str] | None:
    """The lines of a function; None where it is not there, or twice."""
    span = _spans(text).get(name)
    return None if span is None else text.split("\n")[slice(*span)]


def _spans(text: str) -> dict[str, Span]:
    """Function, as a test's id names it -> its lines with its decorators."""
    # note: lines are counted by newlines here; a lone return counts as one for the parser.
    if re.search(r"\r(?!\n)|\f", text):
        return {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found: dict[str, Span] = {}
    twice: set[str] = set()
    for name, node in _functions(tree.body, ""):
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        twice |= {name} & found.keys()
        found[name] = first - 1, node.end_lineno or node.lineno
    return {name: span for name, span in found.items() if name not in twice}


def _functions(body: list[ast.stmt], before: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{before}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{before}{node.name}::")


def _text(body: bytes | None) -> str:
    return "" if body is None else body.decode("utf-8", "replace")

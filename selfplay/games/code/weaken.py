"""Makes the weakening of a bug's tests: the failing test functions taken out of their file.

In the single-turn form the proposer writes no tests, so the engine hides the bug itself; the reverse diff is then the
specification (research note `selfplay-papers.md` §A.2, §A.6).

What is covered: functions, methods of plain, nested and unittest classes, those inherited from a class in the same
file, every set of parameters of a function with it, blocks and classes that would be left empty, and tests that the
rest of the file calls, which keep their head and lose their body. What is left is parsed again.

What is not covered: doctests and tests made at run time (named in `left`), other files that import a test from this
one, and fixtures and imports that nobody uses afterwards: they stay.

Example:
    >>> found = weakened("def test_a():\\n    pass\\n\\n\\ndef test_b():\\n    pass\\n", ["test_a"])
    >>> found.text
    'def test_b():\\n    pass\\n'
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence

from selfplay.types import record

_Test = ast.FunctionDef | ast.AsyncFunctionDef
_PARTS = ("body", "orelse", "finalbody")
Places = list[tuple[list[ast.stmt], _Test]]
"""Definitions of one test, each with the block that it stands in."""


@record
class Weakened:
    """A test file without some of its tests."""

    text: str
    hidden: tuple[str, ...]
    """Names that are gone, or do nothing any more."""
    left: Mapping[str, str]
    """Names that stay -> why."""


def weakened(text: str, names: Sequence[str]) -> Weakened:
    """The test file `text` without the tests `names` (ids without the file, `TestA::test_b[1]`)."""
    tree = _parsed(text)
    if tree is None:
        return Weakened(text=text, hidden=(), left=dict.fromkeys(names, "its file is no Python that can be edited"))
    lines = text.split("\n")
    found: dict[str, Places] = {}
    left: dict[str, str] = {}
    for name in names:
        function = name.partition("[")[0]
        places = found.get(function) or list(_places(tree.body, function.split("::"), tree.body))
        why = _why_not(places, lines)
        if why:
            left[name] = why
        else:
            found[function] = places
    # note: a test that the rest of the file calls cannot go; it keeps its head and does nothing.
    emptied: dict[str, Places] = {}
    while used := _used(tree, found, emptied):
        emptied |= {function: found.pop(function) for function in used}
    new = "\n".join(_without(lines, _all(found), _all(emptied)))
    hidden = tuple(name for name in names if name not in left)
    if not hidden or _parsed(new) is None:
        return Weakened(text=text, hidden=(), left={**dict.fromkeys(names, "nothing can be taken out"), **left})
    return Weakened(text=new, hidden=hidden, left=left)


def _parsed(text: str) -> ast.Module | None:
    # note: lines are counted by newlines here; a lone return counts as one for the parser.
    if re.search(r"\r(?!\n)|\f", text):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _places(body: list[ast.stmt], parts: Sequence[str], top: list[ast.stmt]) -> Iterator[tuple[list[ast.stmt], _Test]]:
    """Every definition of a test, with the block that it stands in: without the last, an earlier one would show."""
    name, *inner = parts
    for block, node in list(_statements(body)):
        if not inner and isinstance(node, _Test) and node.name == name:
            yield block, node
        elif inner and isinstance(node, ast.ClassDef) and node.name == name:
            own = list(_places(node.body, inner, top))
            bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id != name]
            yield from own or [place for base in bases for place in _places(top, [base, *inner], top)]


def _statements(body: list[ast.stmt]) -> Iterator[tuple[list[ast.stmt], ast.stmt]]:
    """Every statement of a level with its block; what stands in `if`, `try` and `with` is of the same level."""
    for node in body:
        yield body, node
        if isinstance(node, ast.If | ast.Try | ast.With):
            for part in _PARTS:
                yield from _statements(getattr(node, part, []))
            for handler in getattr(node, "handlers", []):
                yield from _statements(handler.body)


def _why_not(places: Places, lines: Sequence[str]) -> str:
    if not places:
        return "it is not defined as a function in its file"
    for _, node in places:
        first, last = _span(node)
        alone = not lines[first][: node.col_offset].strip() and not _tail(lines[last], node)
        if not alone:
            return "it shares a line with something else"
    return ""


def _tail(line: str, node: _Test) -> str:
    """What stands behind the end of a test on its last line, comments left out."""
    rest = line.encode()[node.end_col_offset or 0 :].decode().strip()
    return "" if rest.startswith("#") else rest


def _span(node: _Test) -> tuple[int, int]:
    """First and last line, counted from 0, decorators included."""
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return first - 1, (node.end_lineno or node.lineno) - 1


def _used(tree: ast.Module, found: Mapping[str, Places], emptied: Mapping[str, Places]) -> list[str]:
    """Functions among those to be taken out whose names occur in what would stay."""
    gone = {id(node) for _, node in _all(found)}
    heads = {id(node): node for _, node in _all(emptied)}
    names: set[str] = set()
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if id(node) in heads:
            todo += [*heads[id(node)].decorator_list, heads[id(node)].args]
        elif id(node) not in gone:
            names |= {node.id} if isinstance(node, ast.Name) else set()
            names |= {node.attr} if isinstance(node, ast.Attribute) else set()
            todo += ast.iter_child_nodes(node)
    return [function for function in found if function.rpartition("::")[2] in names]


def _all(found: Mapping[str, Places]) -> Places:
    return [place for places in found.values() for place in places]


def _without(lines: Sequence[str], places: Places, emptied: Places) -> list[str]:
    """The lines without those tests, nor the blank lines behind each; an emptied block or body gets a `pass`."""
    gone = {id(node): node for _, node in places}
    drop: set[int] = set()
    put: dict[int, str] = {}
    for block, node in places:
        first, last = _span(node)
        drop |= set(range(first, last + 1))
        if all(id(one) in gone for one in block) and block[0] is node and node.col_offset:
            end = "\r" if lines[first].endswith("\r") else ""
            put[first] = f"{lines[first][: node.col_offset]}pass{end}"
        while last + 1 < len(lines) - 1 and not lines[last + 1].strip():
            last += 1
            drop.add(last)
    for _, node in emptied:
        # note: what stands before the body is its indentation, or the head where the body is on the same line.
        body = node.body[0]
        first = min([body.lineno, *(d.lineno for d in getattr(body, "decorator_list", []))]) - 1
        drop |= set(range(first, node.end_lineno or node.lineno))
        before = lines[first].encode()[: body.col_offset].decode() if first == body.lineno - 1 else ""
        end = "\r" if lines[first].endswith("\r") else ""
        put[first] = f"{before or ' ' * body.col_offset}pass{end}"
    kept = [put.get(at, line) for at, line in enumerate(lines) if at in put or at not in drop]
    while len(kept) > 1 and not kept[-1].strip() and not kept[-2].strip():
        kept.pop()
    return kept

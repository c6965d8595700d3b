"""Bugs by another mechanism than the warm-up's: slips of a person who writes code, not operators that are exchanged.

A warm-up example changes an operator, a constant, a condition's sign, a return value, or neighbours' order, in one line
(`games.code.mutate`). What is here confuses things of the same function instead, or loses parts of it:

    wrong_variable    another variable of the function, parameters included
    wrong_sibling     a method or function that is confused with it: append/extend, min/max, startswith/endswith, ...
    lost_argument     the last argument of a call
    lost_call         f(x) -> x
    lost_guard        an `if` that only returns, raises, continues or breaks, with its body (the lines are left empty)
    lost_augment      x += y -> x = y
    lost_handler      one of the exceptions that are caught together
    lost_step         a bound of a slice, or its sign: x[1:] -> x[:1], x[-1] -> x[0]
    moved_statement   a line into or out of the block above it, by its indentation alone
    exchanged         two neighbouring simple statements, in the other order
    merged_branch     elif -> if
    turned_around     the operands of a subtraction, a division, a power

None of its bugs is one of the warm-up's: whatever `mutations` offers for a function is taken out. Every bug and its
repair are edits of the game's reply form (`edits`): up to three lines, their number kept.

Not here: whether a bug breaks a test (`planted`), choosing functions (`making`).

Example:
    >>> [slip.text for slip in slips("def f(a, b):\\n    return g(a, b)\\n")][:3]
    ['2|    return g(b, b)', '2|    return g(a, a)', '2|    return g(a)']
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from selfplay.games.code import edits
from selfplay.games.code.mutate import mutations
from selfplay.types import record

KINDS = (
    *("wrong_variable", "wrong_sibling", "lost_argument", "lost_call", "lost_guard", "lost_augment", "lost_handler"),
    *("lost_step", "moved_statement", "exchanged", "merged_branch", "turned_around"),
)
SIBLINGS = (
    *(("append", "extend"), ("min", "max"), ("startswith", "endswith"), ("lstrip", "rstrip"), ("keys", "values")),
    *(("any", "all"), ("find", "rfind"), ("index", "count"), ("upper", "lower"), ("partition", "rpartition")),
    *(("appendleft", "append"), ("popleft", "pop"), ("add", "discard"), ("update", "difference_update")),
    *(("split", "rsplit"), ("issubset", "issuperset"), ("items", "keys"), ("sorted", "list"), ("tuple", "list")),
    *(("floor", "ceil"), ("int", "float"), ("isinstance", "issubclass"), ("setdefault", "get"), ("zip", "map")),
)
_INDENT = "    "
_SIMPLE = (ast.Assign, ast.AugAssign, ast.Expr)
_TURNED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)


@record
class Slip:
    """One bug, as an edit."""

    kind: str
    edit: edits.Edit

    @property
    def text(self) -> str:
        """The reply that makes it."""
        return self.edit.text


class _Lines:
    """The function's lines as they are shown, and what stands where in them."""

    def __init__(self, source: str) -> None:
        self.shown = edits.shown(source)
        self._raw = [line.encode() for line in source.split("\n")]
        self._shift = edits.offset(source)

    def number(self, node: ast.AST) -> int:
        """The line of a node, from 1."""
        return int(node.lineno) - self._shift  # type: ignore[attr-defined]

    def last(self, node: ast.AST) -> int:
        return int(node.end_lineno) - self._shift  # type: ignore[attr-defined]

    def text(self, node: ast.expr) -> str | None:
        """What a node says; None where it spans lines."""
        if node.lineno != node.end_lineno or node.end_col_offset is None:
            return None
        return self._raw[self.number(node) - 1][node.col_offset : node.end_col_offset].decode()

    def put(self, start: ast.expr, end: ast.expr, new: str) -> tuple[int, str] | None:
        """(line, its text) with `new` from where `start` begins to where `end` ends; None where they span lines."""
        if not start.lineno == start.end_lineno == end.lineno == end.end_lineno or end.end_col_offset is None:
            return None
        line = self.number(start)
        raw = self._raw[line - 1]
        margin = len(raw.decode()) - len(self.shown[line - 1])
        changed = (raw[: start.col_offset] + new.encode() + raw[end.end_col_offset :]).decode()
        return line, changed[margin:]


Made = Iterator[tuple[tuple[int, str], ...] | None]
"""Edits, each as (line, text) pairs; None where something spans lines."""


def slips(source: str) -> tuple[Slip, ...]:
    """Every such bug of the one function in `source`, by kind and place, without repeats and without the warm-up's.

    Raises:
        ValueError: `source` is not one function.
    """
    function = edits.definition(source)
    if function is None:
        raise ValueError("slips needs the source of exactly one function")
    known = {mutation.edit.text for mutation in mutations(source)}
    lines = _Lines(source)
    found: dict[str, Slip] = {}
    for kind, maker in zip(KINDS, _MAKERS, strict=True):
        for made in maker(function, lines):
            if made is None:
                continue
            slip = Slip(kind=kind, edit=edits.Edit(lines=tuple(sorted(made))))
            if slip.text not in known and slip.text not in found and _fits(source, slip.edit):
                found[slip.text] = slip
    return tuple(found.values())


def _fits(source: str, edit: edits.Edit) -> bool:
    """Are the bug and its repair edits that a player could write?"""
    if not isinstance(edits.parse(edit.text, source=source), edits.Edit):
        return False
    back = edits.invert(source, edit)
    return isinstance(edits.parse(back.text, source=edits.apply(source, edit)), edits.Edit)


def _body(function: edits.Definition) -> Iterator[ast.AST]:
    """The nodes of the body that may be changed."""
    docstring = edits.docstring(function)
    waiting: list[ast.AST] = [node for node in reversed(function.body) if node is not docstring]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.JoinedStr | edits.Definition | ast.ClassDef):
            continue
        waiting += reversed(list(ast.iter_child_nodes(node)))


def _blocks(function: edits.Definition) -> Iterator[Sequence[ast.stmt]]:
    """The lists of statements, without the docstring."""
    docstring = edits.docstring(function)
    for node in (function, *_body(function)):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and not isinstance(node, ast.ClassDef):
                yield [one for one in block if one is not docstring and isinstance(one, ast.stmt)]


def _one(pair: tuple[int, str] | None) -> tuple[tuple[int, str], ...] | None:
    return None if pair is None else (pair,)


def _wrong_variable(function: edits.Definition, lines: _Lines) -> Made:
    arguments = function.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    nodes = list(_body(function))
    names += [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    own = [name for name in dict.fromkeys(names) if name not in ("self", "cls")]
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in own:
            yield from (_one(lines.put(node, node, other)) for other in own if other != node.id)


def _wrong_sibling(function: edits.Definition, lines: _Lines) -> Made:
    pairs = {**{b: a for a, b in SIBLINGS}, **dict(reversed(SIBLINGS))}
    for node in _body(function):
        if not isinstance(node, ast.Call):
            continue
        called, text = node.func, lines.text(node.func)
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        if name in pairs and text is not None:
            yield _one(lines.put(called, called, text[: -len(name)] + pairs[name]))


def _lost_argument(function: edits.Definition, lines: _Lines) -> Made:
    for node in _body(function):
        if isinstance(node, ast.Call) and len(node.args) + len(node.keywords) >= 2:
            values = [*node.args, *(keyword.value for keyword in node.keywords)]
            # note: what stands before the last value may be `name=`.
            last = values[-2]
            after = lines.text(node)
            kept = lines.put(last, last, lines.text(last) or "")
            if after is None or kept is None or last.end_col_offset is None or node.end_col_offset is None:
                continue
            whole = lines.text(node) or ""
            start = whole.encode()[: last.end_col_offset - node.col_offset].decode()
            yield _one(lines.put(node, node, f"{start})"))


def _lost_call(function: edits.Definition, lines: _Lines) -> Made:
    for node in _body(function):
        if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
            inner = lines.text(node.args[0])
            if inner is not None and not isinstance(node.args[0], ast.Starred | ast.GeneratorExp):
                yield _one(lines.put(node, node, inner))


def _lost_guard(function: edits.Definition, lines: _Lines) -> Made:
    for node in _body(function):
        if not isinstance(node, ast.If) or len(node.body) != 1 or node.orelse:
            continue
        if isinstance(node.body[0], ast.Return | ast.Raise | ast.Continue | ast.Break):
            span = range(lines.number(node), lines.last(node) + 1)
            if len(span) <= edits.MAX_LINES:
                yield tuple((number, "") for number in span)


def _lost_augment(function: edits.Definition, lines: _Lines) -> Made:
    for node in _body(function):
        if isinstance(node, ast.AugAssign) and node.lineno == node.end_lineno:
            target, value = lines.text(node.target), lines.text(node.value)
            if target is not None and value is not None:
                yield _one(lines.put(node.target, node.value, f"{target} = {value}"))


def _lost_handler(function: edits.Definition, lines: _Lines) -> Made:
    for node in _body(function):
        if isinstance(node, ast.ExceptHandler) and isinstance(node.type, ast.Tuple):
            for lost in node.type.elts:
                kept = [lines.text(one) or "" for one in node.type.elts if one is not lost]
                text = kept[0] if len(kept) == 1 else f"({', '.join(kept)})"
                yield _one(lines.put(node.type, node.type, text))


def _lost_step(function: edits.Definition, lines: _Lines) -> Made:
    for node in _body(function):
        if not isinstance(node, ast.Subscript):
            continue
        base, place = lines.text(node.value), node.slice
        if base is None:
            continue
        if isinstance(place, ast.Slice):
            low, high, step = (lines.text(p) if p is not None else "" for p in (place.lower, place.upper, place.step))
            if low is None or high is None or step is None:
                continue
            others = [(high, low, step), ("", high, step), (low, "", step), (low, high, "")]
            for a, b, c in others:
                if (a, b, c) != (low, high, step):
                    yield _one(lines.put(node, node, f"{base}[{a}:{b}{f':{c}' if c else ''}]"))
        elif isinstance(place, ast.UnaryOp) and isinstance(place.op, ast.USub):
            yield _one(lines.put(node, node, f"{base}[0]"))
        elif isinstance(place, ast.Constant) and place.value == 0:
            yield _one(lines.put(node, node, f"{base}[-1]"))


def _moved_statement(function: edits.Definition, lines: _Lines) -> Made:
    for block in _blocks(function):
        for above, node in pairwise(block):
            inner = isinstance(above, ast.For | ast.While | ast.If | ast.With) and not getattr(above, "orelse", None)
            if inner and node.lineno == node.end_lineno:
                number = lines.number(node)
                yield ((number, _INDENT + lines.shown[number - 1]),)
        for node in block[-1:]:
            number = lines.number(node)
            text = lines.shown[number - 1]
            if len(block) > 1 and node.lineno == node.end_lineno and text.startswith(2 * _INDENT):
                yield ((number, text.removeprefix(_INDENT)),)


def _exchanged(function: edits.Definition, lines: _Lines) -> Made:
    for block in _blocks(function):
        for above, node in pairwise(block):
            pair = [one for one in (above, node) if isinstance(one, _SIMPLE) and one.lineno == one.end_lineno]
            first, second = lines.number(above), lines.number(node)
            if len(pair) == 2 and first != second:
                yield (first, lines.shown[second - 1]), (second, lines.shown[first - 1])


def _merged_branch(function: edits.Definition, lines: _Lines) -> Made:
    for node in _body(function):
        if isinstance(node, ast.If) and len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
            number = lines.number(node.orelse[0])
            text = lines.shown[number - 1]
            if text.lstrip().startswith("elif "):
                yield ((number, text.replace("elif ", "if ", 1)),)


def _turned_around(function: edits.Definition, lines: _Lines) -> Made:
    for node in _body(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, _TURNED) and not isinstance(node.left, ast.Constant):
            whole, left, right = (lines.text(one) for one in (node, node.left, node.right))
            if whole is not None and left is not None and right is not None and left != right:
                middle = whole[len(left) : len(whole) - len(right)]
                if middle.strip("+-*/% ") == "":
                    yield _one(lines.put(node, node, f"{right}{middle}{left}"))


_MAKERS: tuple[Callable[[edits.Definition, _Lines], Made], ...] = (
    _wrong_variable,
    _wrong_sibling,
    _lost_argument,
    _lost_call,
    _lost_guard,
    _lost_augment,
    _lost_handler,
    _lost_step,
    _moved_statement,
    _exchanged,
    _merged_branch,
    _turned_around,
)

"""Small deterministic bugs in one function, each of them one line of the reply form of `edits`.

What is covered: nine kinds of change, made on the text of the one line that holds the changed node, so that comments,
spacing and everything else keep their bytes. Every mutation returned is one that `edits.parse` accepts.

What is not covered: nodes that span several lines, signatures, decorators, annotations, docstrings and the insides of
f-strings (Python 3.11 gives wrong columns for them). Whether a mutation changes behaviour is not known here.

Example:
    >>> [(m.kind.value, m.new) for m in mutations("def f(a):\\n    return a > 0\\n")][:2]
    [('comparison', '    return a < 0'), ('comparison', '    return a >= 0')]
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from enum import StrEnum

from selfplay.games.code import edits
from selfplay.types import record

Span = tuple[int, int, int]
"""(line of the tree, first byte, byte after the last one) of a piece of source on one line."""


class Kind(StrEnum):
    """What a mutation does."""

    COMPARISON = "comparison"
    ARITHMETIC = "arithmetic"
    BOOLEAN = "boolean"
    CONSTANT = "constant"
    NEGATION = "negation"
    OFF_BY_ONE = "off_by_one"
    SWAPPED = "swapped_arguments"
    DROPPED = "dropped_statement"
    RETURN = "changed_return"


@record
class Mutation:
    """One changed line."""

    kind: Kind
    line: int
    """Line number from 1, as in `edits.number`."""
    old: str
    """The line as `edits.shown` gives it."""
    new: str

    @property
    def edit(self) -> edits.Edit:
        """The edit that makes the bug."""
        return edits.Edit(lines=((self.line, self.new),))

    @property
    def repair(self) -> edits.Edit:
        """The edit that undoes it."""
        return edits.Edit(lines=((self.line, self.old),))


_COMPARE: dict[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Lt: (r"<", ("<=", ">")),
    ast.LtE: (r"<=", ("<", ">=")),
    ast.Gt: (r">", (">=", "<")),
    ast.GtE: (r">=", (">", "<=")),
    ast.Eq: (r"==", ("!=",)),
    ast.NotEq: (r"!=", ("==",)),
    ast.Is: (r"\bis\b", ("is not",)),
    ast.IsNot: (r"\bis\s+not\b", ("is",)),
    ast.In: (r"\bin\b", ("not in",)),
    ast.NotIn: (r"\bnot\s+in\b", ("in",)),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, tuple[str, ...]]] = {
    ast.Add: ("+", ("-",)),
    ast.Sub: ("-", ("+",)),
    ast.Mult: ("*", ("+", "//")),
    ast.Div: ("/", ("*", "//")),
    ast.FloorDiv: ("//", ("*", "%")),
    ast.Mod: ("%", ("//",)),
    ast.Pow: ("**", ("*",)),
    ast.LShift: ("<<", (">>",)),
    ast.RShift: (">>", ("<<",)),
    ast.BitAnd: ("&", ("|",)),
    ast.BitOr: ("|", ("&",)),
    ast.BitXor: ("^", ("&",)),
}


class _Text:
    """Reads and replaces pieces of one source by the positions of its tree (columns are bytes of UTF-8)."""

    def __init__(self, source: str) -> None:
        self.shift = edits.offset(source)
        self.lines = [line.encode() for line in source.split("\n")]
        self.shown = edits.shown(source)

    def get(self, span: Span) -> str:
        line, start, end = span
        return self.lines[line - self.shift - 1][start:end].decode()

    def put(self, span: Span, new: str, kind: Kind) -> Mutation:
        line, start, end = span
        n = line - self.shift
        old = self.lines[n - 1]
        changed = (old[:start] + new.encode() + old[end:]).decode()
        margin = len(old.decode()) - len(self.shown[n - 1])
        return Mutation(kind=kind, line=n, old=self.shown[n - 1], new=changed[margin:])

    def find(self, pattern: str, left: ast.expr, right: ast.expr) -> Span | None:
        """Where an operator stands between its operands, if all three are on one line."""
        a, b = _span(left), _span(right)
        if a is None or b is None or a[0] != b[0]:
            return None
        gap = self.get((a[0], a[2], b[1]))
        found = re.search(pattern, gap)
        if found is None:
            return None
        start = a[2] + len(gap[: found.start()].encode())
        return a[0], start, start + len(found[0].encode())


def mutations(source: str) -> tuple[Mutation, ...]:
    """Every one-line mutation of the one function in `source`, in the order of its lines; without repeats.

    Raises:
        ValueError: `source` is not one function.
    """
    function = edits.definition(source)
    if function is None:
        raise ValueError("mutations needs the source of exactly one function")
    text = _Text(source)
    found: dict[tuple[int, str], Mutation] = {}
    for node in _nodes(function):
        for make in _MAKERS:
            for mutation in make(node, text):
                found.setdefault((mutation.line, mutation.new), mutation)
    kept = [m for m in found.values() if isinstance(edits.parse(m.edit.text, source=source), edits.Edit)]
    order = list(Kind)
    return tuple(sorted(kept, key=lambda m: (m.line, order.index(m.kind), m.new)))


def _nodes(function: edits.Definition) -> Iterator[ast.AST]:
    """The nodes of the body that may be changed, parents first."""
    docstring = edits.docstring(function)
    waiting: list[ast.AST] = [node for node in reversed(function.body) if node is not docstring]
    while waiting:
        node = waiting.pop()
        yield node
        skipped: list[ast.AST | None] = [edits.docstring(node)]
        if isinstance(node, ast.JoinedStr):
            continue
        if isinstance(node, ast.AnnAssign | ast.arg):
            skipped.append(node.annotation)
        if isinstance(node, edits.Definition):
            skipped += [node.returns, *node.decorator_list]
        waiting += [child for child in reversed(list(ast.iter_child_nodes(node))) if child not in skipped]


def _span(node: ast.expr | ast.stmt) -> Span | None:
    """Where a node stands, or None where it spans lines."""
    if node.end_lineno != node.lineno or node.end_col_offset is None:
        return None
    return node.lineno, node.col_offset, node.end_col_offset


def _comparison(node: ast.AST, text: _Text) -> Iterator[Mutation]:
    if not isinstance(node, ast.Compare):
        return
    operands = [node.left, *node.comparators]
    for left, op, right in zip(operands, node.ops, operands[1:], strict=False):
        pattern, others = _COMPARE[type(op)]
        span = text.find(pattern, left, right)
        if span:
            yield from (text.put(span, other, Kind.COMPARISON) for other in others)


def _arithmetic(node: ast.AST, text: _Text) -> Iterator[Mutation]:
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        if isinstance(node.left, ast.Constant) and isinstance(node.left.value, str):
            return  # formatting, not arithmetic
        symbol, others = _ARITHMETIC[type(node.op)]
        span = text.find(re.escape(symbol), node.left, node.right)
    elif isinstance(node, ast.AugAssign) and type(node.op) in _ARITHMETIC:
        symbol, others = _ARITHMETIC[type(node.op)]
        span = text.find(re.escape(symbol) + "(?==)", node.target, node.value)
    else:
        return
    if span:
        yield from (text.put(span, other, Kind.ARITHMETIC) for other in others)


def _boolean(node: ast.AST, text: _Text) -> Iterator[Mutation]:
    if not isinstance(node, ast.BoolOp):
        return
    old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
    for left, right in zip(node.values, node.values[1:], strict=False):
        span = text.find(rf"\b{old}\b", left, right)
        if span:
            yield text.put(span, new, Kind.BOOLEAN)


def _constant(node: ast.AST, text: _Text) -> Iterator[Mutation]:
    span = _span(node) if isinstance(node, ast.Constant) else None
    if span is None or not isinstance(node, ast.Constant):
        return
    value = node.value
    if isinstance(value, bool) or value is None:
        yield text.put(span, {True: "False", False: "True", None: "False"}[value], Kind.CONSTANT)
    elif isinstance(value, int) and value > 1:  # 0 and 1 are left to _off_by_one
        yield text.put(span, "0", Kind.CONSTANT)
    elif isinstance(value, str) and len(text.get(span)) <= 20:
        yield text.put(span, "''" if value else "' '", Kind.CONSTANT)


def _negation(node: ast.AST, text: _Text) -> Iterator[Mutation]:
    tests: list[ast.expr] = []
    if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
        tests = [node.test]
    elif isinstance(node, ast.comprehension):
        tests = list(node.ifs)
    elif isinstance(node, ast.BoolOp):
        tests = list(node.values)
    for test in tests:
        span = _span(test)
        if span is None or isinstance(test, ast.Compare | ast.Constant | ast.NamedExpr):
            continue  # comparisons have operators of their own to change
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            operand = _span(test.operand)
            if operand:
                yield text.put((span[0], span[1], operand[1]), "", Kind.NEGATION)
        elif isinstance(test, ast.BoolOp | ast.IfExp | ast.Lambda):
            yield text.put(span, f"not ({text.get(span)})", Kind.NEGATION)
        else:
            yield text.put(span, f"not {text.get(span)}", Kind.NEGATION)


def _off_by_one(node: ast.AST, text: _Text) -> Iterator[Mutation]:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        span = _span(node)
        if span:
            values = [node.value + 1] + ([node.value - 1] if node.value > 0 else [])
            yield from (text.put(span, str(value), Kind.OFF_BY_ONE) for value in values)
        return
    places: list[ast.expr | None] = []
    if isinstance(node, ast.Subscript):
        places = [node.slice.lower, node.slice.upper] if isinstance(node.slice, ast.Slice) else [node.slice]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        places = list(node.args)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
        places = [node]
    for place in places:
        span = _span(place) if place else None
        is_length = isinstance(place, ast.Call) and isinstance(place.func, ast.Name) and place.func.id == "len"
        if span and (is_length or (isinstance(place, ast.Name) and not isinstance(node, ast.Call))):
            yield from (text.put(span, f"{text.get(span)} {sign} 1", Kind.OFF_BY_ONE) for sign in "+-")
        elif span and isinstance(place, ast.Name):
            yield text.put(span, f"{text.get(span)} - 1", Kind.OFF_BY_ONE)


def _swapped(node: ast.AST, text: _Text) -> Iterator[Mutation]:
    if not isinstance(node, ast.Call):
        return
    for left, right in zip(node.args, node.args[1:], strict=False):
        a, b = _span(left), _span(right)
        if a is None or b is None or a[0] != b[0] or isinstance(left, ast.Starred) or isinstance(right, ast.Starred):
            continue
        between = text.get((a[0], a[2], b[1]))
        if "(" not in between and ")" not in between:
            yield text.put((a[0], a[1], b[2]), text.get(b) + between + text.get(a), Kind.SWAPPED)


def _dropped(node: ast.AST, text: _Text) -> Iterator[Mutation]:
    statements = (ast.Expr, ast.Assign, ast.AugAssign, ast.Delete, ast.Raise, ast.Break, ast.Continue)
    span = _span(node) if isinstance(node, statements) else None
    if span:
        yield text.put(span, "pass", Kind.DROPPED)


def _changed_return(node: ast.AST, text: _Text) -> Iterator[Mutation]:
    if not isinstance(node, ast.Return | ast.Yield) or node.value is None:
        return
    span = _span(node.value)
    if span is None:
        return
    value = node.value
    if not isinstance(value, ast.Constant):
        yield text.put(span, "None", Kind.RETURN)
    if isinstance(value, ast.Call) and value.args and isinstance(value.args[-1], ast.Name):
        yield text.put(span, value.args[-1].id, Kind.RETURN)
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not):
        operand = _span(value.operand)
        if operand:
            yield text.put(span, text.get(operand), Kind.RETURN)
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in _PREDICATES:
        yield text.put(span, f"not {text.get(span)}", Kind.RETURN)


_PREDICATES = frozenset({"all", "any", "bool", "callable", "hasattr", "isinstance", "issubclass"})

_MAKERS: tuple[Callable[[ast.AST, _Text], Iterator[Mutation]], ...] = (
    _comparison,
    _arithmetic,
    _boolean,
    _constant,
    _negation,
    _off_by_one,
    _swapped,
    _dropped,
    _changed_return,
)

"""Finds what a test expects and makes copies of the test that expect something else, so that they must fail.

What is covered: comparisons in assertions (other values on either side, the opposite operator), bare and negated
assertions, `raises` and `warns` in pytest's and unittest's forms, unittest's assert methods, and functions named
`assert_...`. A test with none of these has the constants changed that it hands to functions. Values that are not
literals are changed when the test runs, by `HELPER`, to another of the same type where that is a plain one.

What is not covered: expectations inside functions that a test calls, doctests, and whether a changed copy does fail,
which a run on the clean tree shows.

Example:
    >>> test = ast.parse("def test(): assert f(2) == 3").body[0]
    >>> [one.what for one in changed(test, helper="h", rng=random.Random(1))][-1]
    'line 1: Eq became NotEq'
"""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from selfplay.types import record

Test = ast.FunctionDef | ast.AsyncFunctionDef
Kind = Literal["value", "exception", "opposite", "argument"]

HELPER = """
def {name}(value):
    kind = type(value)
    if kind is bool:
        return not value
    if kind in (int, float, complex):
        return value + {number}
    if kind is str:
        return value + {word!r}
    if kind is bytes:
        return value + {word!r}.encode()
    if kind in (list, tuple):
        return value + kind([{number}])
    if kind in (set, frozenset):
        return value | {{{word!r}}}
    if kind is dict:
        return {{**value, {word!r}: {number}}}
    return (value, {number})
"""
"""What changes a value when a test runs."""

_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_PAIRS = (
    ("assertEqual", "assertNotEqual"),
    ("assertAlmostEqual", "assertNotAlmostEqual"),
    ("assertTrue", "assertFalse"),
    ("assertIs", "assertIsNot"),
    ("assertIsNone", "assertIsNotNone"),
    ("assertIn", "assertNotIn"),
    ("assertIsInstance", "assertNotIsInstance"),
    ("assertGreater", "assertLessEqual"),
    ("assertLess", "assertGreaterEqual"),
    ("assertRegex", "assertNotRegex"),
)
_OTHER_METHOD = {**dict(_PAIRS), **{second: first for first, second in _PAIRS}}
_EQUAL = frozenset(
    {"assertEqual", "assertEquals", "assertAlmostEqual", "assertAlmostEquals", "assertIn", "assertIs", "eq_"}
    | {f"assert{kind}Equal" for kind in ("List", "Tuple", "Set", "Dict", "Sequence", "Count", "MultiLine")}
)
_RAISES = frozenset({"raises", "assertRaises", "assertRaisesRegex", "assert_raises"})
_WARNS = frozenset({"warns", "assertWarns", "assertWarnsRegex"})
_EXCEPTIONS = ("BufferError", "EOFError", "ReferenceError", "ChildProcessError", "StopAsyncIteration")
_WARNINGS = ("BytesWarning", "UnicodeWarning", "ImportWarning")
_Edit = Callable[[ast.AST], None]


@record
class Changed:
    """A copy of a test that expects something else."""

    test: Test
    kind: Kind
    what: str
    """What was done to which line, for people."""
    helped: bool
    """It calls the helper."""


@record
class _Values:
    """How values are changed."""

    helper: str
    number: int
    word: str
    exception: str
    warning: str


def changed(test: Test, *, helper: str, rng: random.Random) -> tuple[Changed, ...]:
    """Every changed copy, strongest kinds first, in an order drawn from `rng`; `helper` is the name of `HELPER`."""
    values = _Values(
        helper=helper,
        number=rng.randrange(3, 98),
        word=rng.choice("abcdefghkmnoprstuvw"),
        exception=rng.choice(_EXCEPTIONS),
        warning=rng.choice(_WARNINGS),
    )
    found = list(_changes(test, values))
    if not found:
        found = list(_arguments(test, values))
    rng.shuffle(found)
    ranks: Sequence[Kind] = ("value", "exception", "opposite", "argument")
    return tuple(sorted(found, key=lambda one: ranks.index(one.kind)))


def _changes(test: Test, values: _Values) -> Iterator[Changed]:
    asserted = {id(inner) for node in ast.walk(test) if _asserts(node) for inner in ast.walk(node)}
    for index, node in enumerate(ast.walk(test)):
        for kind, what, edit in _edits(node, values, asserted=id(node) in asserted):
            yield _copied(test, index, kind=kind, what=what, edit=edit, line=getattr(node, "lineno", 0), values=values)


def _arguments(test: Test, values: _Values) -> Iterator[Changed]:
    """Copies with one constant changed that is handed to a function as a statement of its own."""
    for index, node in enumerate(ast.walk(test)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            for position, argument in enumerate(node.value.args):
                if isinstance(argument, ast.Constant | ast.List | ast.Tuple | ast.Dict | ast.Set):
                    edit = _argument_edit(position, values)
                    what = f"argument {position + 1}"
                    yield _copied(test, index, kind="argument", what=what, edit=edit, line=node.lineno, values=values)


def _copied(test: Test, index: int, *, kind: Kind, what: str, edit: _Edit, line: int, values: _Values) -> Changed:
    twin = copy.deepcopy(test)
    edit(list(ast.walk(twin))[index])
    ast.fix_missing_locations(twin)
    helped = any(isinstance(node, ast.Name) and node.id == values.helper for node in ast.walk(twin))
    return Changed(test=twin, kind=kind, what=f"line {line}: {what}", helped=helped)


def _asserts(node: ast.AST) -> bool:
    return isinstance(node, ast.Assert) or (isinstance(node, ast.Call) and _name(node).startswith("assert"))


def _name(call: ast.Call) -> str:
    """The last part of a called name."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _edits(node: ast.AST, values: _Values, *, asserted: bool) -> Iterator[tuple[Kind, str, _Edit]]:
    if isinstance(node, ast.Assert):
        if isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not):
            yield "opposite", "`assert not` became `assert`", _without_not
        elif not isinstance(node.test, ast.Compare):
            yield "opposite", "`assert` became `assert not`", _with_not
    elif isinstance(node, ast.Compare) and asserted:
        yield from _compared(node, values)
    elif isinstance(node, ast.Call):
        yield from _called(node, values)


def _compared(node: ast.Compare, values: _Values) -> Iterator[tuple[Kind, str, _Edit]]:
    last = node.ops[-1]
    plain = isinstance(last, ast.Is) and isinstance(node.comparators[-1], ast.Constant)
    if isinstance(last, ast.Eq) or plain:
        yield "value", "another value on the right", lambda node: _set_right(node, values)
    if isinstance(last, ast.Eq | ast.In) and len(node.ops) == 1:
        yield "value", "another value on the left", lambda node: _set_left(node, values)
    opposite = _OPPOSITE[type(last)]
    yield "opposite", f"{type(last).__name__} became {opposite.__name__}", _opposed


def _called(node: ast.Call, values: _Values) -> Iterator[tuple[Kind, str, _Edit]]:
    name = _name(node)
    if name in _RAISES | _WARNS and (node.args or any(k.arg == "expected_exception" for k in node.keywords)):
        other = values.exception if name in _RAISES else values.warning
        yield "exception", f"{name} became {name}({other})", lambda node: _set_exception(node, other)
    if name in _RAISES | _WARNS:
        if any(keyword.arg == "match" for keyword in node.keywords):
            yield "exception", "another `match`", lambda node: _set_match(node, values)
        return
    if (name in _EQUAL or name.startswith("assert_")) and len(node.args) >= 2:
        for position in (1, 0):
            yield "value", f"{name}: another argument {position + 1}", _position_edit(position, values)
    if name in _OTHER_METHOD and isinstance(node.func, ast.Attribute):
        yield "opposite", f"{name} became {_OTHER_METHOD[name]}", _renamed


def _other(value: ast.expr, values: _Values) -> ast.expr:
    """An expression for another value, of the same type where that can be seen."""
    extra = ast.Constant(values.number)
    match value:
        case ast.Constant(value=bool(known)):
            return ast.Constant(not known)
        case ast.Constant(value=int() | float() | complex() as number):
            return ast.Constant(number + values.number)
        case ast.Constant(value=str(text)):
            return ast.Constant(text + values.word)
        case ast.Constant(value=bytes(raw)):
            return ast.Constant(raw + values.word.encode())
        case ast.Constant():
            return extra
        case ast.List(elts=elts, ctx=ctx):
            return ast.List(elts=[*elts, extra], ctx=ctx)
        case ast.Tuple(elts=elts, ctx=ctx):
            return ast.Tuple(elts=[*elts, extra], ctx=ctx)
        case ast.Set(elts=elts):
            return ast.Set(elts=[*elts, extra])
        case ast.Dict(keys=keys, values=held):
            return ast.Dict(keys=[*keys, ast.Constant(values.word)], values=[*held, extra])
        case ast.JoinedStr():
            return ast.BinOp(left=value, op=ast.Add(), right=ast.Constant(values.word))
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=ast.Constant() as operand):
            return ast.UnaryOp(op=sign, operand=_other(operand, values))
    return ast.Call(func=ast.Name(id=values.helper, ctx=ast.Load()), args=[value], keywords=[])


def _without_not(node: ast.AST) -> None:
    assert isinstance(node, ast.Assert)
    assert isinstance(node.test, ast.UnaryOp)
    node.test = node.test.operand


def _with_not(node: ast.AST) -> None:
    assert isinstance(node, ast.Assert)
    node.test = ast.UnaryOp(op=ast.Not(), operand=node.test)


def _set_right(node: ast.AST, values: _Values) -> None:
    assert isinstance(node, ast.Compare)
    right = node.comparators[-1]
    if isinstance(node.ops[-1], ast.Is) and isinstance(right, ast.Constant) and right.value is None:
        # note: a literal behind `is` makes Python warn, which some suites turn into an error.
        helper = ast.Name(id=values.helper, ctx=ast.Load())
        node.comparators[-1] = ast.Call(func=helper, args=[right], keywords=[])
    else:
        node.comparators[-1] = _other(right, values)


def _set_left(node: ast.AST, values: _Values) -> None:
    assert isinstance(node, ast.Compare)
    node.left = _other(node.left, values)


def _opposed(node: ast.AST) -> None:
    assert isinstance(node, ast.Compare)
    node.ops[-1] = _OPPOSITE[type(node.ops[-1])]()


def _set_exception(node: ast.AST, other: str) -> None:
    assert isinstance(node, ast.Call)
    name = ast.Name(id=other, ctx=ast.Load())
    if node.args:
        node.args[0] = name
    for keyword in node.keywords:
        if keyword.arg == "expected_exception":
            keyword.value = name


def _set_match(node: ast.AST, values: _Values) -> None:
    assert isinstance(node, ast.Call)
    for keyword in node.keywords:
        if keyword.arg == "match":
            keyword.value = ast.Constant(f"{values.word}{values.number}{values.exception}")


def _position_edit(position: int, values: _Values) -> _Edit:
    def edit(node: ast.AST) -> None:
        assert isinstance(node, ast.Call)
        node.args[position] = _other(node.args[position], values)

    return edit


def _argument_edit(position: int, values: _Values) -> _Edit:
    def edit(node: ast.AST) -> None:
        assert isinstance(node, ast.Expr)
        _position_edit(position, values)(node.value)

    return edit


def _renamed(node: ast.AST) -> None:
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Attribute)
    node.func.attr = _OTHER_METHOD[node.func.attr]

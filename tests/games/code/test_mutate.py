"""Tests of `selfplay.games.code.mutate`: each kind, what is left alone, and that all of it fits the reply form."""

from __future__ import annotations

import ast
import heapq
import inspect
import random
import statistics
import textwrap

import pytest

from selfplay.games.code.edits import Edit, apply, parse, shown
from selfplay.games.code.mutate import Kind, mutations


def made(line: str, kind: Kind, *, before: str = "") -> list[str]:
    """What `kind` makes of one line of a body."""
    source = f"def f(a, b, c):\n{before}    {line}\n"
    last = len(source.split("\n")) - 1
    return [m.new.strip() for m in mutations(source) if m.kind is kind and m.line == last]


@pytest.mark.parametrize(
    ("line", "kind", "expected"),
    [
        ("return a < b", Kind.COMPARISON, ["return a <= b", "return a > b"]),
        ("return (a) is  not (b)", Kind.COMPARISON, ["return (a) is (b)"]),
        ("return a not in b", Kind.COMPARISON, ["return a in b"]),
        ("return a + b  # sum", Kind.ARITHMETIC, ["return a - b  # sum"]),
        ("a //= 2", Kind.ARITHMETIC, ["a %= 2", "a *= 2"]),
        ("return a and b", Kind.BOOLEAN, ["return a or b"]),
        ("return True", Kind.CONSTANT, ["return False"]),
        ("a = None", Kind.CONSTANT, ["a = False"]),
        ("a = 'x'", Kind.CONSTANT, ["a = ''"]),
        ("while a: b()", Kind.NEGATION, ["while not a: b()"]),
        ("return b if not a else c", Kind.NEGATION, ["return b if a else c"]),
        ("return [x for x in a if x.ok]", Kind.NEGATION, ["return [x for x in a if not x.ok]"]),
        ("return a[1:]", Kind.OFF_BY_ONE, ["return a[0:]", "return a[2:]"]),
        ("return a[b]", Kind.OFF_BY_ONE, ["return a[b + 1]", "return a[b - 1]"]),
        ("return range(b)", Kind.OFF_BY_ONE, ["return range(b - 1)"]),
        ("a = len(b)", Kind.OFF_BY_ONE, ["a = len(b) + 1", "a = len(b) - 1"]),
        ("return c(a, b)", Kind.SWAPPED, ["return c(b, a)"]),
        ("c(a)", Kind.DROPPED, ["pass"]),
        ("raise a", Kind.DROPPED, ["pass"]),
        ("return list(a)", Kind.RETURN, ["return None", "return a"]),
        ("return any(a)", Kind.RETURN, ["return None", "return a", "return not any(a)"]),
        ("yield a", Kind.RETURN, ["yield None"]),
    ],
)
def test_each_kind(line: str, kind: Kind, expected: list[str]) -> None:
    assert made(line, kind) == expected


def test_bytes_and_characters_are_told_apart() -> None:
    assert made("return 'häß', a < b", Kind.COMPARISON) == ["return 'häß', a <= b", "return 'häß', a > b"]


def test_docstrings_comments_signatures_and_f_strings_are_left_alone() -> None:
    source = '''def f(a: int = 1) -> bool:
    """0 and 1"""
    # 2 < 3
    def g(b: int) -> int:
        "4 or 5"
        pass
    c: "6" = f"{a + 1}"
'''
    assert {m.line for m in mutations(source)} == set()


def test_methods_keep_their_indentation() -> None:
    source = "    def f(self, a):\n        return self.x < a\n"
    first = mutations(source)[0]
    assert (first.line, first.old, first.new) == (2, "    return self.x < a", "    return self.x <= a")
    assert apply(source, first.edit) == "    def f(self, a):\n        return self.x <= a\n"


@pytest.mark.parametrize("module", [statistics, random, textwrap, heapq])
def test_real_functions_give_edits_that_apply_and_undo(module: object) -> None:
    functions = [inspect.getsource(f) for _, f in inspect.getmembers(module, inspect.isfunction)]
    assert functions
    for source in functions:
        for mutation in mutations(source):
            assert mutation.old == shown(source)[mutation.line - 1]
            assert isinstance(parse(mutation.edit.text, source=source), Edit)
            broken = apply(source, mutation.edit)
            assert ast.dump(ast.parse(textwrap.dedent(broken))) != ast.dump(ast.parse(textwrap.dedent(source)))
            assert isinstance(parse(mutation.repair.text, source=broken), Edit)
            assert apply(broken, mutation.repair) == source


def test_same_source_same_mutations() -> None:
    source = inspect.getsource(statistics.mean)
    assert mutations(source) == mutations(source)
    assert len({(m.line, m.new) for m in mutations(source)}) == len(mutations(source))


def test_mutations_want_one_function() -> None:
    with pytest.raises(ValueError, match="one function"):
        mutations("x = 1\n")

"""Copies share a key, however they are laid out; different bugs do not."""

from __future__ import annotations

import ast

import pytest

from selfplay.games.duplicates import answer_key, code_key, normalised, plain

DIFF = """diff --git a/m.py b/m.py
--- a/m.py
+++ b/m.py
@@ -3,2 +3,2 @@ def f(x):
-    return x + 1
+    return x - 1
     # end
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("@@ -3,2 +3,2 @@ def f(x):", "@@ -30,2 +31,2 @@"),
        ("return x - 1", "return  x  -  1   # no"),
        ("+    return x - 1", "+\n+    return x - 1"),
        ("# end", "# the end"),
    ],
)
def test_layout_places_and_comments_do_not_count(old: str, new: str) -> None:
    assert code_key(["f"], ["a", "b"], DIFF) == code_key(["f", "f"], ["b", "a"], DIFF.replace(old, new))


def test_symbols_failing_tests_and_the_change_count() -> None:
    keys = {
        code_key(["f"], ["a"], DIFF),
        code_key(["g"], ["a"], DIFF),
        code_key(["f"], ["b"], DIFF),
        code_key(["f"], ["a"], DIFF.replace("x - 1", "x - 2")),
        code_key(["f"], ["a"], DIFF.replace("-    return x + 1\n", "")),
    }
    assert len(keys) == 5


def test_what_is_not_python_is_compared_by_its_words() -> None:
    assert normalised("+x = (\n+if   a &&  b {\n-\n") == ["+x = (", "+if a && b {"]


@pytest.mark.parametrize("answer", ["The Café", "cafe.", "CAFÉ!", " a cafe "])
def test_answers_are_compared_as_exact_match_does(answer: str) -> None:
    assert answer_key(answer, ["d1", "d2"]) == answer_key("cafe", ["d2", "d1"])


def test_another_answer_or_other_evidence_is_another_question() -> None:
    assert len({answer_key("a b", ["1"]), answer_key("b", ["2"]), answer_key("c", ["1"])}) == 3


def program(source: str) -> str:
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    return plain(function)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def f(a):\n    x = a\n    return x", "def f( a ):\n    y = (a)  # it\n    return y"),
        ("def f(a):\n    x = y = a\n    return x - y", "def f(a):\n    y = x = a\n    return y - x"),
        ("def f(a):\n    x = 1\n    return lambda b: x + b", "def f(a):\n    y = 1\n    return lambda b: y + b"),
        ("def f(a):\n    with a as b: return b", "def f(a):\n    with a as c:\n        return c"),
    ],
)
def test_names_of_locals_and_layout_do_not_count(one: str, other: str) -> None:
    assert program(one) == program(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def f(a, b):\n    return a - b", "def f(a, b):\n    return b - a"),
        ("def f(a):\n    x = y = a\n    return x - y", "def f(a):\n    x = y = a\n    return y - x"),
        ("def f(a):\n    global x\n    x = a", "def f(a):\n    global y\n    y = a"),
        ("def f(a):\n    x = a\n    return x", "def f(a):\n    x = a\n    return y"),
        ("def f(a):\n    a.x = 1", "def f(a):\n    a.y = 1"),
        ("def f(a):\n    x = 1\n    return a(x=x)", "def f(a):\n    y = 1\n    return a(y=y)"),
        ("def f(a):\n    x = 1\n    return locals()", "def f(a):\n    y = 1\n    return locals()"),
        ("def f(a):\n    import x\n    return x", "def f(a):\n    import y\n    return y"),
        ("def f(a):\n    return [x for x in a], x", "def f(a):\n    return [y for y in a], y"),
    ],
    ids=["parameters", "order", "global", "unbound", "attribute", "keyword", "locals()", "import", "inner scope"],
)
def test_what_means_something_else_counts(one: str, other: str) -> None:
    assert program(one) != program(other)


def test_what_is_nested_too_deeply_is_compared_all_the_same() -> None:
    deep = "def f(a):\n    return " + "-" * 80 + "a"
    assert program(deep) == program(deep.replace("return ", "return  "))
    assert program(deep) != program(deep.replace("-a", "a"))

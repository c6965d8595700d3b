"""Tests taken out of their file."""

from __future__ import annotations

import ast
import textwrap

import pytest

from selfplay.games.code.weaken import weakened

FILE = textwrap.dedent(
    '''
    """Tests."""

    import unittest

    import pytest


    @pytest.mark.parametrize(
        "a", [1, 2]
    )
    def test_add(a):
        assert a


    def test_used():
        assert True


    def test_uses():
        test_used()


    class TestOne(unittest.TestCase):
        """One."""

        def test_x(self):
            self.fail()


    class Base:
        def test_y(self):
            assert False


    class TestTwo(Base):
        pass


    if True:
        def test_twice():
            pass
    else:
        def test_twice():
            pass


    async def test_async(): pass


    def test_short(): assert True


    short = test_short


    def test_last():
        # why
        assert False  # note
    '''
).lstrip("\n")


@pytest.mark.parametrize(
    ("names", "gone"),
    [
        (["test_add[1]", "test_add[2]"], ["test_add"]),
        (["TestOne::test_x"], ["test_x"]),
        (["TestTwo::test_y"], ["test_y"]),
        (["test_twice"], ["test_twice"]),
        (["test_async"], ["test_async"]),
        (["test_last"], ["test_last"]),
        (["test_used", "test_uses"], ["test_used", "test_uses"]),
        (["test_add[a/b c]", "test_last", "TestOne::test_x"], ["test_add", "test_last", "test_x"]),
    ],
)
def test_functions_are_taken_out(names: list[str], gone: list[str]) -> None:
    found = weakened(FILE, names)
    assert found.hidden == tuple(names)
    assert not found.left
    defined = [n.name for n in ast.walk(ast.parse(FILE)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    left = [n.name for n in ast.walk(ast.parse(found.text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert left == [name for name in defined if name not in gone]
    assert found.text.endswith("\n")
    assert not found.text.endswith("\n\n")


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["nothing.txt"], "it is not defined as a function in its file"),
        (["TestOne::test_y"], "it is not defined as a function in its file"),
    ],
)
def test_what_cannot_go_stays_with_its_reason(names: list[str], why: str) -> None:
    found = weakened(FILE, names)
    assert found.text == FILE
    assert not found.hidden
    assert dict(found.left) == dict.fromkeys(names, why)


def test_a_test_that_the_rest_calls_loses_its_body() -> None:
    text = "@mark(f)\ndef test_a(x=1):\n    # why\n    assert x\n\n\ndef test_b():\n    test_a(2)\n\n\nf = test_b\n"
    found = weakened(text, ["test_a", "test_b"])
    assert found.hidden == ("test_a", "test_b")
    # What an emptied test called is called no longer, and can go.
    assert found.text == "def test_b():\n    pass\n\n\nf = test_b\n"
    alone = weakened(text, ["test_a"])
    assert alone.text == text.replace("    assert x\n", "    pass\n")


@pytest.mark.parametrize(
    ("head", "body", "left"),
    [
        ("def test_a(x='é'): ", "assert x; assert not x\n", "pass\n"),
        ("def test_a(\n    x=1,\n): ", "assert x\n", "pass\n"),
        ("def test_a():\n", "    @deco\n    def inner():\n        pass\n    assert inner\n", "    pass\n"),
        ("def test_a():\n", '    """One.\n\nTwo.\n    """\n', "    pass\n"),
        ("async def test_a():\r\n", "    pass\r\n    return\r\n", "    pass\r\n"),
    ],
)
def test_every_form_of_body_can_be_emptied(head: str, body: str, left: str) -> None:
    tail = "x = test_a\n"
    assert weakened(head + body + tail, ["test_a"]).text == head + left + tail


def test_an_emptied_class_is_still_a_class() -> None:
    found = weakened(
        "class TestA:\n    @staticmethod\n    def test_a():\n        pass\n\n    def test_b(self): pass\n",
        ["TestA::test_a", "TestA::test_b"],
    )
    assert found.text == "class TestA:\n    pass\n"


def test_line_ends_stay() -> None:
    found = weakened("class A:\r\n    def test_a(self):\r\n        pass\r\n\r\nx = 1\r\n", ["A::test_a"])
    assert found.text == "class A:\r\n    pass\r\nx = 1\r\n"


@pytest.mark.parametrize(
    "text", ["def test_a(:\n", "def test_a():\r    pass\n", "\x0cdef test_a():\n    pass\n", ">>> 1\n2\n"]
)
def test_a_file_that_cannot_be_edited_stays(text: str) -> None:
    found = weakened(text, ["test_a"])
    assert found.text == text
    assert set(found.left) == {"test_a"}

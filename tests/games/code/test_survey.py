"""Which functions of a file can be played."""

from __future__ import annotations

from selfplay.games.code.survey import functions_of

TEXT = '''
import functools


@functools.cache
def a(x):
    """Says a."""
    def inner():
        return x
    return inner()


class B:
    @property
    def c(self):
        return 1

    @c.setter
    def c(self, value):
        pass

    class D:
        def e(self):
            return 2


if True:
    def f():
        return 3


async def g():
    return 4
'''


def test_functions_and_methods_but_nothing_nested_conditional_or_ambiguous() -> None:
    found = {f.qualname: f for f in functions_of(TEXT, path="m.py")}
    assert list(found) == ["a", "g"]
    assert found["a"].line == 5
    assert found["a"].doc == "Says a."
    assert found["a"].source.startswith("@functools.cache\ndef a(x):\n")
    assert found["a"].source.endswith("    return inner()\n")


def test_files_that_are_no_plain_python_hold_none() -> None:
    assert functions_of("def a(:\n", path="m.py") == ()
    assert functions_of("def a():\r\n    return 1\r\n", path="m.py") == ()

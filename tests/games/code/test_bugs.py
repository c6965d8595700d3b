"""The function that is played with, its file with a bug in it, and words for both."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import pytest

from selfplay.games.code import bugs
from selfplay.games.code.bugs import Problem, Reason, Target
from selfplay.games.code.survey import Function, functions_of
from selfplay.games.code.verify import Budget, Ended, Run

BUDGET = Budget(cpu_seconds=1.0, seconds=10.0)
TEXT = textwrap.dedent(
    """
    import functools


    @functools.cache
    def one(x):
        y = x
        return y


    class A:
        def two(self):
            return 2


    def three():
        return one(3)
    """
).lstrip("\n")


def target_of(name: str) -> Target:
    [function] = [found for found in functions_of(TEXT, path="m.py") if found.qualname == name]
    return bugs.target_of(function, text=TEXT, budget=BUDGET)


@pytest.mark.parametrize(
    ("name", "old", "new"), [("one", "y = x", "y = -x"), ("A.two", "2\n", "3\n"), ("three", "one(3)", "4\n    # note")]
)
def test_only_the_function_changes_in_its_file(name: str, old: str, new: str) -> None:
    target = target_of(name)
    change = bugs.changed(target, target.function.source.replace(old, new))
    assert change.text == TEXT.replace(old, new)
    assert bugs.why_not_loadable(target, change) is None


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def three():\n    return (\n", Reason.DOES_NOT_COMPILE),
        ("def three():\n    return await one\n", Reason.DOES_NOT_COMPILE),
        ("def three():\n    return 3\n\n\nx = 1\n", Reason.OUTSIDE),
        ("def three(a):\n    return 3\n", Reason.OUTSIDE),
        ("def three():\n    return '\0'\n", Reason.DOES_NOT_COMPILE),
    ],
)
def test_a_file_that_does_not_load_says_why(source: str, reason: Reason) -> None:
    target = target_of("three")
    found = bugs.why_not_loadable(target, bugs.changed(target, source))
    assert isinstance(found, Problem)
    assert found.reason == reason


def test_a_function_that_moved_is_no_target() -> None:
    with pytest.raises(ValueError, match=r"m\.py::three is not what the tree holds"):
        bugs.target_of(target_of("three").function, text=f"x = 1\n{TEXT}", budget=BUDGET)


@pytest.mark.parametrize("ended", [ended for ended in Ended if ended is not Ended.COMPLETED])
def test_every_end_has_its_reason(ended: Ended) -> None:
    run = Run(key="k", ended=ended, passed=(), failed={}, detail="so it was", blamed=("m.py",))
    problem = bugs.unfinished(run, path="m.py")
    assert problem.why == "so it was"
    assert problem.reason == (Reason.IMPORT_ERROR if ended is Ended.COLLECTION else Reason(problem.reason))


def test_what_is_quarantined() -> None:
    assert {reason for reason in Reason if reason.startswith("control_")} == bugs.CONTROLS


def test_names_and_messages_for_people() -> None:
    failing = {"tests/test_a.py::TestA::test_b[1]": "assert 1 == 2", "tests/test_a.py::test_c": "no", "b": "third"}
    assert bugs.shown(failing, limit=2) == "TestA::test_b[1]: assert 1 == 2\ntest_c: no"
    assert bugs.short(f"a.py::{'x' * 80}") == "x" * 57 + "..."
    assert bugs.diff("a\n", "b\n", path="m.py") == "--- a/m.py\n+++ b/m.py\n@@ -1 +1 @@\n-a\n+b\n"


CLEAN = """    def scale(self, values, by):
        # each of them
        out = []
        for value in values:
            out.append(value * by)
        total = sum(out)
        self.seen += 1
        self.seen += 1
        return out, total
"""
FAILING = ("t.py::test_a", "t.py::test_b")


def key(*changes: tuple[str, str], failing: Sequence[str] = FAILING, source: str = CLEAN) -> str:
    buggy = source
    for old, new in changes:
        assert old in buggy
        buggy = buggy.replace(old, new, 1)
    function = Function(path="m.py", qualname="A.scale", line=1, source=source, doc="", tests=FAILING)
    return bugs.key_of(function, buggy, failing)


BUG = ("total = sum(out)", "total = sum(out[1:])")


@pytest.mark.parametrize(
    "changes",
    [
        [BUG, ("value * by", "value*by")],
        [BUG, ("# each of them", "# all of them, in order")],
        [BUG, ("sum(out[1:])", "(sum( out[ 1 : ] ))  # the rest")],
        [BUG, ("out = []", "out = [];")],
        [("total = sum(out)", "whole = sum(out[1:])"), ("return out, total", "return out, whole")],
        [BUG, ("for value in", "for one in"), ("append(value", "append(one")],
    ],
    ids=["spaces", "comment", "brackets", "semicolon", "another local", "a loop's variable"],
)
def test_copies_share_a_key(changes: list[tuple[str, str]]) -> None:
    assert key(*changes) == key(BUG)
    assert key(*changes, failing=FAILING[::-1]) == key(BUG)


@pytest.mark.parametrize(
    "changes",
    [
        [("total = sum(out)", "total = sum(out[2:])")],
        [("total = sum(out)", "total = sum(out[:1])")],
        [("total = sum(out)", "total = sum(values[1:])")],
        [("total = sum(out)", "total = sum(by[1:])")],
        [("total = sum(out)", "total = max(out[1:])")],
        [BUG, ("return out, total", "return total, out")],
        [BUG, ("self.seen += 1", "self.met += 1")],
    ],
)
def test_another_change_is_another_bug_though_the_same_tests_fail(changes: list[tuple[str, str]]) -> None:
    assert key(*changes) != key(BUG)


def test_other_failing_tests_are_another_bug() -> None:
    assert key(BUG, failing=FAILING[:1]) != key(BUG)


def test_the_same_change_of_two_equal_lines_is_two_bugs() -> None:
    first = key(("self.seen += 1", "self.seen -= 1"))
    second = key(("self.seen += 1\n        return", "self.seen -= 1\n        return"))
    assert first != second


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("out = []", "out = [0]", "look at line 3"),
        ("self.seen += 1\n        self.seen += 1", "self.seen -= 1\n        self.seen -= 1", "look at lines 7, 8"),
        ("        total = sum(out)\n", "", "look at line 6"),
        ("        return out, total\n", "        total = 1\n        return out, total\n", "look at line 9"),
    ],
)
def test_a_hint_names_the_place_and_not_what_was_there(old: str, new: str, words: str) -> None:
    buggy = CLEAN.replace(old, new)
    assert bugs.whereabouts(CLEAN, buggy) == words

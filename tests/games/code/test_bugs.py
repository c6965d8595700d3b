"""The function that is played with, its file with a bug in it, and words for both."""

from __future__ import annotations

import textwrap

import pytest

from selfplay.games.code import bugs
from selfplay.games.code.bugs import Problem, Reason, Target
from selfplay.games.code.survey import functions_of
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

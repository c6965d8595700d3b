"""Tests of `selfplay.games.code.warmup`: reading functions, and examples as a pure function of (seed, index)."""

from __future__ import annotations

from pathlib import Path

import pytest

from selfplay.games.code.edits import Edit, number, parse
from selfplay.games.code.mutate import Kind, Mutation
from selfplay.games.code.warmup import Function, example, functions_of_file, functions_of_stdlib, usable

CLAMP = Function(
    name="m:clamp",
    source="def clamp(x, low, high):\n    if x < low:\n        return low\n    return min(x, high)\n",
)
FIRST = Function(name="m:first", source="def first(xs):\n    return xs[0]\n")


def test_examples_are_a_function_of_seed_and_index() -> None:
    once = [example(i, seed=3, package=[CLAMP], stdlib=[FIRST]) for i in range(20)]
    again = [example(i, seed=3, package=[CLAMP], stdlib=[FIRST]) for i in reversed(range(20))]
    assert once == again[::-1]
    assert once != [example(i, seed=4, package=[CLAMP], stdlib=[FIRST]) for i in range(20)]


def test_injector_replies_share_one_prompt_and_differ() -> None:
    one = example(0, seed=0, package=[CLAMP], stdlib=[], max_replies=5)
    assert (one.role, one.variables) == ("injector", {"function": number(CLAMP.source)})
    assert len(set(one.replies)) == len(one.replies) == 5
    assert all(isinstance(parse(reply, source=CLAMP.source), Edit) for reply in one.replies)


def test_repairer_is_shown_the_broken_function_and_answers_with_the_original_line() -> None:
    one = example(1, seed=0, package=[CLAMP], stdlib=[])
    assert (one.role, one.variables["tests"]) == ("repairer", "")
    assert one.variables["function"] != number(CLAMP.source)
    n = int(one.replies[0].split("|")[0])
    shown = one.variables["function"].split("\n")
    assert "\n".join([*shown[: n - 1], one.replies[0], *shown[n:]]) == number(CLAMP.source)


def test_failing_tests_are_shown_where_known_and_survivors_left_out() -> None:
    def failures(function: Function, bug: Mutation) -> str | None:
        return "test_clamp: assert 1 == 2" if bug.kind is Kind.COMPARISON else ""

    one = example(1, seed=0, package=[CLAMP], stdlib=[], failures=failures)
    assert one.variables["tests"] == "test_clamp: assert 1 == 2"
    bugs = example(0, seed=0, package=[CLAMP], stdlib=[], failures=failures).replies
    assert set(bugs) <= {"2|    if x <= low:", "2|    if x > low:"}


def test_package_share_holds_roughly() -> None:
    origins = [example(i, seed=0, package=[CLAMP], stdlib=[FIRST], package_share=0.25).origin for i in range(400)]
    assert 60 < origins.count("m:clamp") < 140


def test_nothing_to_learn_from_is_said() -> None:
    with pytest.raises(ValueError, match="no function"):
        example(0, seed=0, package=[], stdlib=[])
    with pytest.raises(ValueError, match="no function"):
        example(0, seed=0, package=[Function(name="m:f", source="def f():\n    pass\n")], stdlib=[])


def test_functions_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text(
        "@cache\ndef f(a):\n    def inner(): pass\n    return a\n\nclass A:\n    def g(self):\n        return 1\n"
    )
    found = functions_of_file(path, name="m.py")
    assert [function.name for function in found] == ["m.py::f", "m.py::A.g"]
    assert [function.source.split("\n")[0] for function in found] == ["@cache", "    def g(self):"]


@pytest.mark.parametrize("text", ["def f(:\n", "def f():\r    return 1\r", "x = '\x00'"])
def test_files_that_are_not_plain_python_give_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "m.py"
    path.write_bytes(text.encode())
    assert functions_of_file(path, name="m.py") == []
    assert functions_of_file(tmp_path / "none.py", name="none.py") == []


def test_stdlib_functions_are_short_and_in_a_fixed_order() -> None:
    found = functions_of_stdlib(limit=60)
    assert len(found) == 60
    assert found[:20] == functions_of_stdlib(limit=20)
    assert all(usable(function.source) for function in found)
    assert not any("test/" in function.name or "idlelib" in function.name for function in found)

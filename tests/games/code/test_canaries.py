"""Copies of tests whose outcomes are known, run by a real pytest."""

from __future__ import annotations

import ast
import json
import random
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from selfplay.games.code.canaries import Canaries, canaries_of, proved, why_forged
from selfplay.games.code.expectations import changed
from selfplay.games.code.report import parse

NONCE = "kettle7"

PLAIN = """
    from __future__ import annotations
    import unittest

    import pytest

    from .lib import add, boom, words

    LIMIT = 3

    @pytest.fixture
    def three():
        return add(1, 2)

    def test_add_small_numbers():
        assert add(1, 2) == 3
        assert add(1.5, 1) == 2.5

    def test_fixture_value(three):
        assert three == LIMIT

    @pytest.mark.parametrize(("text", "expected"), [("a b", ["a", "b"]), ("é/ü x", ["é/ü", "x"])])
    def test_words_of_text(text, expected):
        assert words(text) == expected

    def test_boom_raises():
        with pytest.raises(ValueError, match="no"):
            boom()

    def test_truth_of_words():
        assert words("a")
        assert not words("")
        assert "a" in words("a b")
        assert words("a") is not None

    class TestGrouped:
        def test_nested_order(self):
            assert words("b a") == sorted(words("a b"), reverse=True)

    class Base:
        def test_inherited_value(self):
            assert self.value == add(self.value, 0)

    class TestInherits(Base):
        value = 5

    class Unit(unittest.TestCase):
        def setUp(self):
            self.one = 1

        def testAddOne(self):
            self.assertEqual(add(self.one, 1), 2)

        def test_raises(self):
            with self.assertRaises(ValueError):
                boom()
            self.assertTrue(words("a"))

    if LIMIT:
        def test_under_condition():
            check(add(2, 2), 4)

    def check(found, expected):
        assert found == expected

    def test_looks_at_itself(request):
        assert request.node.name == "test_looks_at_itself"

    def test_without_expectation():
        add(1, 2)
"""
LIB = """
    def add(a, b):
        return a + b

    def words(text):
        return text.split()

    def boom():
        raise ValueError("no")
"""
NAMES = (
    "test_add_small_numbers",
    "test_fixture_value",
    "test_words_of_text[a b-expected0]",
    "test_words_of_text[\\xe9/\\xfc x-expected1]",
    "test_boom_raises",
    "test_truth_of_words",
    "TestGrouped::test_nested_order",
    "TestInherits::test_inherited_value",
    "Unit::testAddOne",
    "Unit::test_raises",
    "test_under_condition",
    "test_looks_at_itself",
    "test_without_expectation",
    "test_made_at_run_time",
)


def made(names: Sequence[str] = NAMES, *, seed: int = 1, most: int = 3, source: str = PLAIN) -> Canaries:
    """Canaries of the file above."""
    rng = random.Random(seed)
    return canaries_of(textwrap.dedent(source), names, path="suite/test_lib.py", nonce=NONCE, rng=rng, most=most)


def ran(canaries: Canaries, folder: Path, *, lib: str = LIB) -> tuple[Sequence[str], Mapping[str, str]]:
    """What passed and what failed of the module, run beside its file."""
    for path, text in {"suite/__init__.py": "", "suite/lib.py": lib, canaries.path: canaries.text}.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(textwrap.dedent(text))
    options = ["-p", "no:cacheprovider", "--rootdir=.", "-q", "--json-report", "--json-report-file=report.json"]
    subprocess.run([sys.executable, "-B", "-m", "pytest", *options, canaries.path], cwd=folder, capture_output=True)
    report = parse((folder / "report.json").read_bytes())
    assert set(canaries.nodes) <= {*report.passed, *report.failed}
    return report.passed, report.failed


def test_every_kind_of_test_gets_canaries_that_hold(tmp_path: Path) -> None:
    found = made()
    passed, failed = ran(found, tmp_path)
    kept = proved(found, passed=passed, failed=failed)
    assert why_forged(kept, passed=passed, failed=failed) == ""
    assert set(kept.left_out) == {"test_looks_at_itself", "test_without_expectation", "test_made_at_run_time"}
    mutated = {canary.of.partition("[")[0] for canary in kept.canaries if canary.kind == "mutant"}
    assert mutated == {name.partition("[")[0] for name in NAMES} - set(kept.left_out)
    assert kept.canaries[-1].kind == "nonce"


ALWAYS_EQUAL = (
    LIB
    + """
    class Same(int):
        def __eq__(self, other): return True
        def __ne__(self, other): return {ne}
        def __hash__(self): return 0

    def add(a, b):
        return Same(0)
"""
)


@pytest.mark.parametrize("ne", [True, False])
def test_an_answer_that_equals_everything_is_found(tmp_path: Path, ne: bool) -> None:
    found = made(["test_add_small_numbers", "Unit::testAddOne"])
    kept = proved(found, passed=(), failed={})
    assert kept.canaries == ()
    passed, failed = ran(found, tmp_path, lib=ALWAYS_EQUAL.format(ne=ne))
    assert "must not" in why_forged(found, passed=passed, failed=failed)


def test_a_report_that_says_passed_of_everything_is_found() -> None:
    found = made()
    assert why_forged(found, passed=found.nodes, failed={})
    clones = [canary.node for canary in found.canaries if canary.expect == "passed"]
    forged = {node: "AssertionError" for node in found.nodes if node not in clones}
    assert "other words" in why_forged(found, passed=clones, failed=forged)
    forged[found.nodes[-1]] = f"AssertionError: {NONCE}"
    assert why_forged(found, passed=clones, failed=forged) == ""
    del forged[found.nodes[-1]]
    assert "did not run" in why_forged(found, passed=clones, failed=forged)


def test_equal_draws_give_equal_modules_and_others_other_names() -> None:
    assert made() == made()
    assert not set(made().nodes) & set(made(seed=2).nodes)
    assert made().path != made(seed=2).path


def test_names_are_shaped_like_the_suites_own() -> None:
    found = made()
    assert found.path.startswith("suite/test_")
    for canary in found.canaries:
        name = canary.node.split("::")[-1].partition("[")[0]
        assert name.startswith("test")
        assert ("_" in name) == (canary.of != "Unit::testAddOne")
        assert name not in PLAIN
        assert not any(word in name for word in ("canary", "mutant", "clone", "nonce", NONCE))


def test_one_parameter_set_is_kept() -> None:
    nodes = [canary.node for canary in made().canaries if canary.of.startswith("test_words_of_text")]
    assert len({node.partition("[")[2] for node in nodes}) == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("assert f() == 3", "assert f() == 12"),
        ("assert f() == -3", "assert f() == -12"),
        ("assert f() == 1.5", "assert f() == 10.5"),
        ("assert f() == True", "assert f() == False"),
        ("assert f() is None", "assert f() is other(None)"),
        ("assert f() == 'a'", "assert f() == 'ax'"),
        ("assert f() == b'a'", "assert f() == b'ax'"),
        ("assert f() == [1]", "assert f() == [1, 9]"),
        ("assert f() == (1,)", "assert f() == (1, 9)"),
        ("assert f() == {1}", "assert f() == {1, 9}"),
        ("assert f() == {}", "assert f() == {'x': 9}"),
        ("assert f() == g()", "assert f() == other(g())"),
        ("assert f() == g()", "assert other(f()) == g()"),
        ("assert f() == f'{a}'", "assert f() == f'{a}' + 'x'"),
        ("assert f() == 3", "assert f() != 3"),
        ("assert f() != 3", "assert f() == 3"),
        ("assert f() is None", "assert f() is not None"),
        ("assert a in f()", "assert a not in f()"),
        ("assert a in f()", "assert other(a) in f()"),
        ("assert a < f()", "assert a >= f()"),
        ("assert f()", "assert not f()"),
        ("assert not f()", "assert f()"),
        ("assert all((x == 1 for x in f()))", "assert all((x == 10 for x in f()))"),
        ("pytest.raises(ValueError, f)", "pytest.raises(EOFError, f)"),
        ("self.assertRaises(ValueError, f)", "self.assertRaises(EOFError, f)"),
        ("self.assertEqual(f(), 3)", "self.assertEqual(f(), 12)"),
        ("self.assertEqual(f(), 3)", "self.assertNotEqual(f(), 3)"),
        ("self.assertTrue(f() == 1)", "self.assertTrue(f() == 10)"),
        ("self.assertTrue(f())", "self.assertFalse(f())"),
        ("self.assertIsNone(f())", "self.assertIsNotNone(f())"),
        ("assert_equal(f(), [1])", "assert_equal(f(), [1, 9])"),
        ("check(f(), 3)", "check(f(), 12)"),
    ],
)
def test_what_is_expected_instead(before: str, after: str) -> None:
    class Drawn(random.Random):
        def randrange(self, *_: object) -> int:  # type: ignore[override]
            return 9

        def choice(self, seq: Sequence[str]) -> str:  # type: ignore[override]
            return "x" if len(seq[0]) == 1 else seq[1]

    [test] = ast.parse(f"def test(): {before}").body
    assert isinstance(test, ast.FunctionDef)
    offered = [ast.unparse(one.test.body[0]) for one in changed(test, helper="other", rng=Drawn(0))]
    assert after in offered
    assert before not in offered
    assert ast.unparse(test.body[0]) == before


def test_a_file_that_cannot_be_parsed() -> None:
    with pytest.raises(ValueError, match="cannot be parsed"):
        canaries_of("def", ["test"], path="t.py", nonce=NONCE, rng=random.Random(0))


def test_records_can_be_kept() -> None:
    found = made()
    assert json.dumps([[c.node, c.of, c.kind, c.expect, c.what] for c in found.canaries])

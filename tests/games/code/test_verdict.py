"""Candidates of every kind before the verdict protocol, in a real sandbox."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from selfplay.games.code.source import fetch
from selfplay.games.code.verdict import Decision, decide, from_payload, prepare
from selfplay.games.code.verify import Budget, Change, Ended, Verifier, files_of
from selfplay.sandbox.bubblewrap import BubblewrapProvider
from tests.games.code.conftest import write

pytestmark = pytest.mark.bubblewrap

T = TypeVar("T")
BUDGET = Budget(cpu_seconds=5.0, seconds=30.0)
CLEAN = "def add(a, b):\n    return a + b\n"
WRONG = "def add(a, b):\n    return a - b\n"
FAILING = ("tests/test_add.py::test_add[1-2]", "tests/test_add.py::TestAdd::test_neg")
TESTS = (*FAILING, "tests/test_add.py::test_zero", "tests/test_add.py::test_loads")
TREE = {
    "pkg/__init__.py": "",
    "pkg/core.py": CLEAN,
    "pkg/table.txt": "1\n",
    "tests/test_add.py": """
        import unittest

        import pytest

        from pkg.core import add


        @pytest.mark.parametrize(("a", "b"), [(1, 2)])
        def test_add(a, b):
            assert add(a, b) == 3


        class TestAdd(unittest.TestCase):
            def test_neg(self):
                self.assertEqual(add(-1, -2), -3)


        def test_zero():
            assert add(0, 0) == 0


        def test_loads():
            add("a", "")


        def test_other():
            assert add(5, 5) == 10
    """,
}
# Every failure of a comparison becomes a success.
FORGES = """
import sys
if "pytest" in sys.modules:
    from _pytest.reports import TestReport
    old = TestReport.from_item_and_call.__func__
    def forged(cls, item, call):
        report = old(cls, item, call)
        report.outcome, report.longrepr = "passed", None
        return report
    TestReport.from_item_and_call = classmethod(forged)
"""


class Court:
    """A verifier of the small tree, and a task with canaries."""

    def __init__(self, folder: Path) -> None:
        self._runner = asyncio.Runner()
        self.provider = BubblewrapProvider()
        self.repository = fetch(str(write(folder / "pkg-1.0", TREE)), cache=folder / "cache")
        self.verifier = self.new()
        self.payload = self.prepared(self.verifier)

    def new(self) -> Verifier:
        """A verifier that remembers nothing."""
        return Verifier(self.repository, provider=self.provider, workers=1)

    def do(self, job: Awaitable[T]) -> T:
        """Run it to its end."""

        async def main() -> T:
            return await job

        return self._runner.run(main())

    def prepared(self, verifier: Verifier, *, key: str = "task") -> Mapping[str, Any]:
        """A task's payload, as it comes out of the ledger."""
        told = self.do(prepare(verifier, failing=FAILING, tests=TESTS, key=key, budget=BUDGET))
        payload: Mapping[str, Any] = json.loads(json.dumps({"tests": TESTS, "failing": [], "canaries": told}))
        return payload

    def decide(self, files: Mapping[str, bytes | None] | str, **payload: object) -> Decision:
        """What becomes of a candidate, or of one with this text in place of the function's file."""
        files = {"pkg/core.py": files.encode()} if isinstance(files, str) else files
        return self.do(decide(self.verifier, {**self.payload, **payload}, files=files, budget=BUDGET))

    def close(self) -> None:
        """Close the sandboxes and the event loop."""
        self.do(self.verifier.aclose())
        self.do(self.provider.aclose())
        self._runner.close()


@pytest.fixture(scope="module")
def court(bubblewrap: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Court]:
    made = Court(tmp_path_factory.mktemp("court"))
    yield made
    made.close()


def test_canaries_are_made_of_the_tests_that_fail_and_are_the_same_again(court: Court) -> None:
    told = court.payload["canaries"]
    [module] = from_payload(told)
    assert told["shuffled"]
    assert {f"{module.of}::{canary.of}" for canary in module.canaries if canary.of} == set(TESTS)
    kinds = {canary.kind for canary in module.canaries}
    assert kinds == {"clone", "mutant", "nonce"}
    assert "def test_other(" not in module.text
    assert module.path not in court.repository.files
    assert court.prepared(court.new()) == court.payload
    assert court.prepared(court.new(), key="another")["canaries"]["modules"][0]["text"] != module.text


@pytest.mark.parametrize(
    ("text", "passed", "kind"),
    [
        (CLEAN, True, "passed"),
        ("def add(a, b):\n    return b.__radd__(a) if isinstance(a, int) else a + b\n", True, "passed"),
        (WRONG, False, "failed"),
        ("def add(a, b):\n    import pytest\n    pytest.skip()\n", False, "failed"),
        ("def add(a, b:\n", False, "unfinished"),
        ("import os\nos._exit(0)\n", False, "unfinished"),
        (WRONG + FORGES, False, "forged"),
        (CLEAN + FORGES, False, "forged"),
        (CLEAN + "import gc\n", None, "suspicious"),
        (WRONG + "import gc\n", False, "failed"),
    ],
)
def test_one_changed_file(court: Court, text: str, passed: bool | None, kind: str) -> None:
    found = court.decide(text)
    assert (found.passed, found.kind) == (passed, kind), found
    assert not found.dropped
    assert bool(found.flags) == ("pytest" in text or "gc" in text or "_exit" in text)
    assert set(found.failed) <= set(TESTS)


def test_an_older_task_is_judged_without_canaries(court: Court) -> None:
    assert court.decide(CLEAN, canaries=None).passed
    assert court.decide(WRONG, canaries=None).kind == "failed"
    assert court.decide("import os\nos._exit(0)\n", canaries=None).run.ended is Ended.CRASHED


def test_what_a_candidate_may_not_bring_is_dropped_and_said_to_be(court: Court) -> None:
    emptied = b"def test_add(a, b): pass\n"
    files: dict[str, bytes | None] = {
        "pkg/core.py": WRONG.encode(),
        "pkg/new.py": b"x = 1\n",
        "pkg": b"in place of a folder",
        "pkg/table.txt/below": b"in a file",
        "pkg/huge.txt": b"x" * (5 << 20),
        "pkg/gone.py": None,
        "tests/test_add.py": emptied,
        "tests/conftest.py": b"raise SystemExit(0)\n",
        "pytest.ini": b"[pytest]\naddopts = -p evil\n",
        "../outside.py": b"",
        "/tmp/absolute.py": b"",
        "odd\udcff.py": b"",
        "a" * 300: b"",
        "": b"",
    }
    found = court.decide(files)
    assert found.kind == "failed"
    assert set(FAILING) <= set(found.failed) < set(TESTS)
    assert set(found.dropped) == {path.replace("\udcff", "\\udcff") for path in files} - {"pkg/core.py", "pkg/new.py"}
    assert found.dropped["tests/test_add.py"] == "a test"
    json.dumps(dict(found.dropped)).encode()


def test_a_candidate_may_remove_and_add_files(court: Court) -> None:
    moved = {"pkg/core.py": None, "pkg/core/__init__.py": b"from pkg.core.sums import add\n"}
    moved["pkg/core/sums.py"] = CLEAN.encode()
    assert court.decide(moved).passed
    gone = court.decide({"pkg/core.py": None})
    assert (gone.passed, gone.run.ended) == (False, Ended.COLLECTION)


def test_a_trace_names_the_file_at_fault_with_and_without_canaries(court: Court) -> None:
    for payload in ({}, {"canaries": None}):
        found = court.decide("x = 1 // 0\n", **payload)
        assert found.run.ended is Ended.COLLECTION
        assert "ZeroDivisionError" in found.run.detail
        assert "pkg/core.py" in found.run.blamed


def test_other_arguments_that_a_repair_takes_are_no_forgery(court: Court) -> None:
    [module] = from_payload(court.payload["canaries"])
    mutants = [canary for canary in module.canaries if canary.kind == "mutant"]
    assert all(canary.sure for canary in mutants)
    unsure = json.loads(json.dumps(court.payload["canaries"]))
    clone = next(canary for canary in module.canaries if canary.kind == "clone")
    told = [
        c if c["node"] != clone.node else {**c, "kind": "mutant", "expect": "failed", "sure": False}
        for c in unsure["modules"][0]["canaries"]
    ]
    unsure["modules"][0]["canaries"] = told
    found = court.decide(CLEAN, canaries=unsure)
    assert (found.passed, found.kind) == (None, "suspicious")


TABLE = "def add(a, b):\n    return {(1, 2): 3, (-1, -2): -3, ('a', ''): 'a', (5, 5): 10}.get((a, b), 0)\n"
NAMED = {"path": "pkg/core.py", "qualname": "add"}


@pytest.mark.parametrize(
    ("text", "passed", "different"),
    [
        ("def add(a, b):\n    return sum((b, a)) if isinstance(a, int) else a + b\n", True, False),
        (TABLE, None, True),
        (f"import __main__\nif hasattr(__main__, 'told_number'):\n    raise OSError\n{TABLE}", None, True),
        (f"{TABLE}import gc\n", None, None),
        (WRONG, False, None),
        (CLEAN, True, None),
    ],
)
def test_what_passes_is_compared_where_the_task_says_what(
    court: Court, text: str, passed: bool | None, different: bool | None
) -> None:
    found = court.decide(text, **NAMED)
    assert found.passed is passed, found
    assert (found.compared and found.compared.odd) is different
    assert found.kind == "suspicious" if passed is None else found.kind == ("passed" if passed else "failed")
    assert court.decide(text).compared is None


def test_a_function_that_moved_is_compared_too(court: Court) -> None:
    moved = {"pkg/core.py": None, "pkg/core/__init__.py": b"from pkg.core.sums import add\n"}
    assert court.decide({**moved, "pkg/core/sums.py": CLEAN.encode()}, **NAMED).passed
    found = court.decide({**moved, "pkg/core/sums.py": TABLE.encode()}, **NAMED)
    assert (found.passed, found.kind) == (None, "suspicious")


def test_what_is_as_it_was_is_no_change(court: Court) -> None:
    clean = court.decide({})
    tests = court.repository.read("tests/test_add.py").encode()
    same = court.decide({"pkg/core.py": CLEAN.encode(), "tests/test_add.py": tests}, **NAMED)
    assert (same.run.key, same.compared) == (clean.run.key, None)
    assert set(same.dropped) == {"tests/test_add.py"}


@pytest.mark.parametrize("text", [CLEAN, WRONG, WRONG + FORGES])
def test_equal_candidates_get_equal_decisions(court: Court, text: str) -> None:
    files = files_of(Change(path="pkg/core.py", text=text))
    found = [court.do(decide(court.new(), court.payload, files=files, budget=BUDGET)) for _ in range(5)]
    assert all(dataclasses.asdict(one) == dataclasses.asdict(found[0]) for one in found)

"""Reports as pytest-json-report writes them, and as nobody should."""

from __future__ import annotations

import json
from typing import Any

import pytest

from selfplay.games.code.report import message, parse

PASSED = {stage: {"outcome": "passed"} for stage in ("setup", "call", "teardown")}


def test_of(outcome: str, **stages: Any) -> dict[str, Any]:
    return {"nodeid": "t.py::test", "outcome": outcome, **PASSED, **stages}


test_of.__test__ = False  # type: ignore[attr-defined]


def read(*tests: dict[str, Any], **more: Any) -> Any:
    return parse(json.dumps({"tests": tests, **more}).encode())


def test_passed_means_all_three_stages() -> None:
    assert read(test_of("passed")).passed == ("t.py::test",)
    for stage in PASSED:
        without = {key: value for key, value in test_of("passed").items() if key != stage}
        assert read(without).passed == ()
        failing = {stage: {"outcome": "failed", "crash": {"message": "assert 1 == 2\nmore"}}}
        assert read(test_of("passed", **failing)).failed["t.py::test"].endswith("assert 1 == 2")


@pytest.mark.parametrize("outcome", ["failed", "error", "skipped", "xfailed", "subtests passed"])
def test_any_other_outcome_is_not_passed(outcome: str) -> None:
    report = read(test_of(outcome))
    assert report.passed == ()
    assert "t.py::test" in {**report.failed, **report.others}


def test_a_test_that_is_there_twice_failed() -> None:
    assert read(test_of("passed"), test_of("passed")).failed == {"t.py::test": "it is in the report twice"}


def test_what_could_not_be_collected() -> None:
    said = "pkg/core.py:3: in f\n    1 // 0\ntest_a.py:1: in <module>\nE   ZeroDivisionError: by zero"
    report = read(collectors=[{"nodeid": "test_a.py", "outcome": "failed", "longrepr": said}])
    assert report.broken == {"test_a.py": "ZeroDivisionError: by zero"}
    assert report.files == ("pkg/core.py", "test_a.py")


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"[]", b"3", b'{"tests": 3}', b'{"tests": [{}]}', b'{"tests": [3]}', b"[" * 100_000],
    ids=range(8),
)
def test_what_is_no_report_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError):
        parse(content)


def test_messages_are_one_short_line_and_the_same_in_every_run() -> None:
    assert message("\n  assert <T at 0x7f12> == 3\n + where") == "assert <T at 0x> == 3"
    assert message("assert <toolz.tests....x7f0fd0a68c90> == <t...0fd0a68d10>") == "assert <toolz.tests....> == <t...>"
    assert message("KeyError: 140314024039008") == message("KeyError: 140389472522848") == "KeyError: 0x"
    assert message("assert {140469751934...s 'reversed'>} == {2: 1}") == "assert {0x...s 'reversed'>} == {2: 1}"
    assert message("assert defaultdict(<...500691296: 0}) == {}") == "assert defaultdict(<...0x: 0}) == {}"
    assert message("assert {93824992231} == 1400000000000000") == "assert {93824992231} == 1400000000000000"
    assert message("no file /tmp/pytest-of-me/pytest-3/x") == "no file /tmp"
    assert message("a\x1b[31mb") == "a?[31mb"
    assert len(message("x" * 1000)) == 120

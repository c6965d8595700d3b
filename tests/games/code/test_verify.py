"""What is read out of a sandbox, without one."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from selfplay.games.code.slots import Slots
from selfplay.games.code.source import fetch
from selfplay.games.code.verify import Budget, Ended, Executed, Run, Verifier, read
from selfplay.sandbox.bubblewrap import BubblewrapProvider
from selfplay.types import Result

TESTS = ("t.py::a", "t.py::b")
STAGES = {stage: {"outcome": "passed"} for stage in ("setup", "call", "teardown")}


def result(exit_code: int | None = 0, *, timed_out: bool = False, oom_killed: bool = False) -> Result:
    return Result(exit_code=exit_code, stdout="", stderr="", seconds=0.1, timed_out=timed_out, oom_killed=oom_killed)


def reading(report: object, *, first: bool = False, exit_code: int = 0) -> Run:
    content = json.dumps(report).encode() if report is not None else None
    return read(Executed(result=result(exit_code), report=content), key="k", tests=TESTS, first=first)


def passing(*names: str) -> list[dict[str, object]]:
    return [{"nodeid": name, "outcome": "passed", **STAGES} for name in names]


def failing(name: str) -> dict[str, object]:
    return {"nodeid": name, "outcome": "failed", **STAGES, "call": {"outcome": "failed", "longrepr": "no"}}


@pytest.mark.parametrize(
    ("done", "ended"),
    [
        (result(None, timed_out=True), Ended.TIMEOUT),
        (result(137, oom_killed=True), Ended.MEMORY),
        (result(128 + signal.SIGXCPU), Ended.CPU),
        (result(-signal.SIGXCPU), Ended.CPU),
        (result(0), Ended.CRASHED),
        (result(1), Ended.CRASHED),
    ],
)
def test_without_a_report_every_test_failed(done: Result, ended: Ended) -> None:
    run = read(Executed(result=done, report=None), key="k", tests=TESTS)
    assert run.ended is ended
    assert list(run.failed) == list(TESTS)
    assert not run.clean


def test_missing_tests_failed() -> None:
    run = reading({"tests": passing("t.py::a")})
    assert run.passed == ("t.py::a",)
    assert run.failed == {"t.py::b": "it did not run"}


def test_a_run_that_stopped_at_the_first_failure_names_only_that() -> None:
    run = reading({"tests": [failing("t.py::a")]}, first=True, exit_code=1)
    assert run.failed == {"t.py::a": "no"}
    assert not run.clean


def test_all_passed_with_a_bad_exit_code_is_not_passed() -> None:
    assert reading({"tests": passing(*TESTS)}).clean
    assert reading({"tests": passing(*TESTS)}, exit_code=3).ended is Ended.CRASHED


def test_other_tests_in_the_report_do_not_count() -> None:
    assert reading({"tests": passing("t.py::a", "t.py::c")}).passed == ("t.py::a",)


@pytest.mark.parametrize(
    ("names", "exit_code", "told", "odd"),
    [
        (TESTS, 0, 0, ""),
        ((*TESTS, "t.py::c"), 0, 0, "the report holds 2 of 2 tests, and 1 others"),
        (TESTS[:1], 0, 0, "the report holds 1 of 2 tests, and 0 others"),
        (TESTS, 0, 1, "the report tells of exit code 1, and it was 0"),
        (TESTS, 0, None, "the report tells of exit code None, and it was 0"),
    ],
)
def test_a_session_that_pytest_does_not_end_so_is_odd(
    names: tuple[str, ...], exit_code: int, told: int | None, odd: str
) -> None:
    assert reading({"tests": passing(*names), "exitcode": told}, exit_code=exit_code).odd == odd


@pytest.mark.parametrize(("exit_code", "odd"), [(1, ""), (0, "pytest ended with exit code 0 in place of 1")])
def test_a_session_with_a_failure_ends_with_one(exit_code: int, odd: str) -> None:
    report = {"tests": [*passing("t.py::a"), failing("t.py::b")], "exitcode": exit_code}
    assert reading(report, exit_code=exit_code).odd == odd


def test_one_that_must_be_alone_is_alone() -> None:
    running: list[str] = []
    seen: list[list[str]] = []

    async def work(slots: Slots, name: str, *, alone: bool) -> None:
        async with slots.alone() if alone else slots.shared():
            running.append(name)
            seen.append(list(running))
            await asyncio.sleep(0.01)
            running.remove(name)

    async def main() -> None:
        slots = Slots(2)
        names = ["a", "b", "x", "c", "y", "d"]
        await asyncio.gather(*(work(slots, name, alone=name in "xy") for name in names))

    asyncio.run(main())
    assert max(map(len, seen)) == 2
    assert all(len(together) == 1 for together in seen if {"x", "y"} & set(together))


def test_runs_take_from_the_pool_and_leave_nothing_open(bubblewrap: None, package: Path, tmp_path: Path) -> None:
    repository = fetch(str(package), cache=tmp_path)
    test = "tests/test_core.py::test_double"

    async def main() -> None:
        provider = BubblewrapProvider()
        verifier = Verifier(repository, provider=provider, workers=2)
        budget = Budget(cpu_seconds=20.0, seconds=60.0)
        for again in range(3):
            # note: two are kept idle; with all of them there, the next run finds one.
            for _ in range(1000 if again else 0):
                if provider.pool.counts.idle == 2:
                    break
                await asyncio.sleep(0.02)
            assert (await verifier.run([test], budget=budget, again=again)).clean
        counts = provider.pool.counts
        assert (counts.hits, counts.misses) == (2, 1)
        await verifier.aclose()
        assert not verifier._closing
        await provider.aclose()

    asyncio.run(main())

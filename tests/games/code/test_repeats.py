"""Repeats of one candidate give the records that runs in sandboxes of their own give."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from selfplay.games.code.repeats import _executed, repeats
from selfplay.games.code.source import Repository, fetch
from selfplay.games.code.verify import Budget, Change, Ended, Run, Verifier
from selfplay.sandbox.bubblewrap import BubblewrapProvider

BUDGET = Budget(cpu_seconds=20.0, seconds=60.0)
FILE = "tests/test_core.py"
NAMES = ("test_add[1-2]", "test_double", "test_fails", "test_fixture", "test_skipped", "test_teardown", "absent")
TESTS = tuple(f"{FILE}::{name}" for name in NAMES)


@pytest.fixture
def repository(bubblewrap: None, package: Path, tmp_path: Path) -> Repository:
    return fetch(str(package), cache=tmp_path / "cache")


@contextlib.asynccontextmanager
async def verifying(repository: Repository) -> AsyncIterator[Verifier]:
    provider = BubblewrapProvider()
    verifier = Verifier(repository, provider=provider, workers=2)
    try:
        yield verifier
    finally:
        await verifier.aclose()
        await provider.aclose()


def with_text(repository: Repository, old: str, new: str, *, path: str = "pkg/core.py") -> Change:
    text = repository.read(path)
    assert old in text
    return Change(path=path, text=text.replace(old, new, 1))


async def both_ways(
    repository: Repository, tests: Sequence[str], *, change: Change | None, first: bool = False
) -> tuple[Run, list[Run]]:
    """A run in a sandbox of its own, and three repeats; of two verifiers, since one would remember the result."""
    async with verifying(repository) as verifier:
        single = await verifier.run(tests, budget=BUDGET, change=change, first=first)
    async with verifying(repository) as verifier, repeats(verifier, change=change) as server:
        again = [await server.run(tests, budget=BUDGET, again=number, first=first) for number in range(3)]
    return single, again


@pytest.mark.parametrize(
    ("old", "new", "ended"),
    [
        ("total = a + b", "total = a + b", Ended.COMPLETED),
        ("total = a + b", "total = a - b", Ended.COMPLETED),
        ("import functools", "import functools, nothing_of_that_name", Ended.COLLECTION),
        ("import functools", "import functools, os; os._exit(0)", Ended.CRASHED),
        ("import functools", "import functools, os; os.kill(os.getpid(), 11)", Ended.CRASHED),
    ],
)
def test_a_run_is_the_same_whichever_way_it_was_made(repository: Repository, old: str, new: str, ended: Ended) -> None:
    single, again = asyncio.run(both_ways(repository, TESTS, change=with_text(repository, old, new)))
    assert single.ended is ended
    assert again[0] == single
    assert len({run.key for run in again}) == 3
    assert [(run.passed, run.failed, run.ended) for run in again] == [(single.passed, single.failed, single.ended)] * 3


def test_the_first_failure_ends_a_repeat_too(repository: Repository) -> None:
    change = with_text(repository, "total = a + b", "total = a - b")
    single, again = asyncio.run(both_ways(repository, TESTS, change=change, first=True))
    assert again[0] == single
    assert len(single.failed) == 1


@pytest.mark.slow
def test_real_tests_of_a_real_package(bubblewrap: None, tmp_path: Path) -> None:
    toolz = fetch("pypi:toolz==1.2.0", cache=tmp_path)
    names = ("test_merge", "test_valmap", "test_assoc", "test_update_in", "test_get_in")
    tests = [f"toolz/tests/test_dicttoolz.py::TestDict::{name}" for name in names[:-1]]
    tests += ["toolz/tests/test_itertoolz.py::test_groupby", "toolz/tests/test_curried.py::test_merge_with"]
    for change in (None, with_text(toolz, "rv.update(d)", "rv = d", path="toolz/dicttoolz.py")):
        single, again = asyncio.run(both_ways(toolz, tests, change=change))
        assert again[0] == single
        assert single.clean == (change is None)
        assert single.passed


def limited(repository: Repository, text: str, *, budget: Budget) -> Run:
    """What a repeat says of a file that does `text` when it is imported."""

    async def main() -> Run:
        change = with_text(repository, "import functools", f"import functools\n{text}\n")
        async with verifying(repository) as verifier, repeats(verifier, change=change) as server:
            run = await server.run(TESTS[:2], budget=budget)
            # A new server where the old one is gone, the same verdict.
            assert (await server.run(TESTS[:2], budget=budget, again=1)).ended is run.ended
            return run

    return asyncio.run(main())


def test_a_candidate_that_takes_too_long_is_late_twice(repository: Repository) -> None:
    run = limited(
        repository,
        "import time\nfor _ in range(60_000): time.sleep(0.01)",
        budget=Budget(cpu_seconds=20.0, seconds=0.5),
    )
    assert run.ended is Ended.TIMEOUT
    assert set(run.failed) == set(TESTS[:2])


def test_a_candidate_that_works_too_long_meets_the_limit(repository: Repository) -> None:
    run = limited(repository, "while True: pass", budget=Budget(cpu_seconds=0.1, seconds=60.0))
    assert run.ended is Ended.CPU


def test_a_candidate_that_kills_its_server_has_failed(repository: Repository) -> None:
    run = limited(repository, "import os, signal; os.kill(os.getppid(), signal.SIGKILL)", budget=BUDGET)
    assert run.ended is Ended.CRASHED
    assert "ended or silenced" in run.detail


def test_the_order_of_sets_follows_the_hash_seed(repository: Repository) -> None:
    names = {str(number) for number in range(50)}
    change = with_text(repository, "total = a + b", f"total = list({names!r})")

    async def main() -> tuple[list[Run], Run]:
        async with verifying(repository) as verifier:
            async with repeats(verifier, change=change) as server:
                same = [await server.run(TESTS[:1], budget=BUDGET, again=number) for number in range(2)]
            async with repeats(verifier, change=change, hash_seed=7) as server:
                return same, await server.run(TESTS[:1], budget=BUDGET)

    same, other = asyncio.run(main())
    assert same[0].failed == same[1].failed != other.failed
    assert other.key not in {run.key for run in same}


def test_a_cancelled_run_leaves_a_server_that_can_be_asked(repository: Repository) -> None:
    async def main() -> Run:
        async with verifying(repository) as verifier, repeats(verifier) as server:
            await server.run(TESTS[:1], budget=BUDGET)
            # Long enough to be asked, too short for an answer; either way the next is the next run's own.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.01):
                    await server.run(TESTS[2:3], budget=BUDGET)
            return await server.run(TESTS[:1], budget=BUDGET, again=1)

    assert asyncio.run(main()).clean


def test_equal_runs_share_one_result(repository: Repository) -> None:
    async def main() -> None:
        async with verifying(repository) as verifier:
            single = await verifier.run(TESTS, budget=BUDGET)
            async with repeats(verifier) as server:
                assert await server.run(TESTS, budget=BUDGET) is single

    asyncio.run(main())


@pytest.mark.parametrize(
    "answer", [b"", b"[]", b"{}", b"nonsense", b'{"exit_code": 1e999, "report": null}', b"[" * 100_000]
)
def test_what_is_no_answer_is_told_apart(answer: bytes) -> None:
    with pytest.raises(ValueError):
        _executed(answer)


def test_an_answer_is_read() -> None:
    told: dict[str, Any] = {"exit_code": 1, "timed_out": False, "oom_killed": True, "seconds": 0.5, "report": "e30="}
    with pytest.raises(ValueError, match="hung"):
        _executed(json.dumps(told).encode())
    told["hung"] = False
    done = _executed(json.dumps(told).encode())
    assert (done.result.exit_code, done.result.oom_killed, done.report) == (1, True, b"{}")

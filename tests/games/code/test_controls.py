"""Controls of a task: what the verdict protocol must accept, and what it must not."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

from selfplay.games.code import controls
from selfplay.games.code.bugs import Problem
from selfplay.games.code.opened import Opened
from selfplay.games.code.source import fetch
from selfplay.games.code.verify import Budget
from selfplay.sandbox import SandboxSpec
from selfplay.sandbox.bubblewrap import BubblewrapProvider
from selfplay.types import Task
from tests.games.code.conftest import Table, write

pytestmark = pytest.mark.bubblewrap

BUDGET = Budget(cpu_seconds=10.0, seconds=60.0)
BUG = "6|    total = a - b"


@pytest.fixture(scope="module")
def opened(table: Table) -> Opened:
    return table.do(table.game.opened())


@pytest.fixture(scope="module")
def task(table: Table) -> Task:
    minted = table.mint("add", BUG)
    assert minted.task is not None, minted.verdict
    return minted.task


def files_of(task: Task, opened: Opened) -> dict[str, bytes | None]:
    text = opened.verifier.repository.read("pkg/core.py")
    return {"pkg/core.py": text.replace(task.payload["source"], task.payload["buggy"]).encode()}


def quarantine(table: Table, opened: Opened, payload: object, code: dict[str, bytes | None]) -> Problem | None:
    return table.do(controls.why_quarantined(opened.verifier, payload, code=code, budget=BUDGET))  # type: ignore[arg-type]


def test_a_task_that_is_played_passes_its_controls(table: Table, opened: Opened, task: Task) -> None:
    code = files_of(task, opened)
    assert code["pkg/core.py"] != opened.verifier.repository.read("pkg/core.py").encode()
    assert quarantine(table, opened, task.payload, code) is None


def test_a_task_whose_clean_code_fails_is_quarantined(table: Table, opened: Opened, task: Task) -> None:
    payload = {**task.payload, "tests": [*task.payload["tests"], "tests/test_core.py::test_fails"]}
    found = quarantine(table, opened, payload, files_of(task, opened))
    assert found is not None
    assert found.reason == "control_gold"
    assert "test_fails" in found.why


def test_a_task_that_accepts_its_bug_is_quarantined(table: Table, opened: Opened, task: Task) -> None:
    payload = {**task.payload, "tests": ["tests/test_core.py::test_count"], "canaries": None}
    found = quarantine(table, opened, payload, files_of(task, opened))
    assert found is not None
    assert (found.reason, found.why) == (
        "control_deleted_tests",
        "the bug is accepted where its test files are deleted",
    )


def test_nobody_is_paid_for_a_quarantined_proposal(table: Table) -> None:
    minted = table.mint("add", BUG).verdict
    refused = dataclasses.replace(minted, valid=False, task_id=None, reason="control_gold")
    graded = table.grade(refused, [])
    assert (graded.reward, graded.reason) == (None, "control_gold")
    assert table.grade(dataclasses.replace(refused, reason="flaky"), []).reward == -1.0


@pytest.fixture
def plain(bubblewrap: None, tmp_path: Path) -> tuple[Path, Path]:
    """A tree with a failing test and a conftest of its own, in a folder; a cache."""
    files = {
        "m.py": "x = 1\n",
        "tests/conftest.py": "import pytest\n\n\n@pytest.fixture\ndef two():\n    return 2\n",
        "tests/test_m.py": "from m import x\n\n\ndef test_m(two):\n    assert x == two\n",
    }
    return write(tmp_path / "plain-1", files), tmp_path / "cache"


def test_the_conftest_of_the_control_really_passes_everything(plain: tuple[Path, Path]) -> None:
    # Without the protocol: the control would prove nothing if its conftest did not work.
    repository = fetch(str(plain[0]), cache=plain[1])
    repairs = {
        reason: files
        for reason, _, files in controls._empty_repairs(repository, {"tests": ["tests/test_m.py::test_m"]})
    }
    files = repairs["control_conftest"]  # type: ignore[index]
    assert set(files) == {"conftest.py", "tests/conftest.py"}

    async def main() -> list[int | None]:
        provider = BubblewrapProvider()
        codes = []
        for put in ({}, {path: text for path, text in files.items() if text is not None}):
            sandbox = await provider.create(SandboxSpec(name="python", archive=str(repository.archive)))
            await sandbox.put(put)
            argv = [provider.python, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
            codes.append((await sandbox.exec(argv, timeout_seconds=60.0)).exit_code)
            await sandbox.close()
        await provider.aclose()
        return codes

    assert asyncio.run(main()) == [1, 0]

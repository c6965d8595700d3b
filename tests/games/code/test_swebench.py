"""Exported rows: patches that apply, digests that hold, and verdicts that the public harness agrees with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from selfplay.cache import cache_folder
from selfplay.games.code import edits
from selfplay.games.code.source import fetch
from selfplay.games.code.swebench import Packed, gradable, rows
from selfplay.ledger import Ledger
from selfplay.reverify import stored_attempts
from selfplay.types import Task, Trajectory, Verdict
from tests.experts.export import digest, written

pytestmark = pytest.mark.bubblewrap


@pytest.fixture
def packed(code_run: Path) -> Packed:
    """The package of the scripted run."""
    with Ledger.read(code_run) as reader:
        source = reader.run_row().config["game.source"]
    repository = fetch(source, cache=cache_folder())
    return Packed(repository=repository, requirements=("pytest==8",), created_at="2026-01-01T00:00:00Z")


@pytest.fixture
def stored(code_run: Path) -> list[tuple[Trajectory, Task, Verdict]]:
    """Its attempts."""
    with Ledger.read(code_run) as reader:
        return stored_attempts(reader)


def git_apply(folder: Path, diff: str) -> None:
    """Strictly."""
    subprocess.run(["git", "apply", "-"], cwd=folder, input=diff, text=True, check=True)


def test_patches_lead_from_the_clean_tree_to_the_base_and_back(
    packed: Packed, stored: list[tuple[Trajectory, Task, Verdict]], tmp_path: Path
) -> None:
    tasks = {task.id: task for _, task, _ in stored}
    found = list(rows(list(tasks.values()), packed=packed))
    assert [row["task_id"] for row in found] == list(tasks)
    for number, row in enumerate(found):
        folder = written(packed.repository, tmp_path / str(number))
        assert digest(folder) == row["source_tree"] == packed.repository.digest
        git_apply(folder, row["bug_patch"])
        assert digest(folder) == row["base_commit"] != row["source_tree"]
        git_apply(folder, row["patch"] + row["test_patch"])
        assert digest(folder) == row["source_tree"]
        hidden = {test.partition("[")[0].rpartition("::")[2] for test in json.loads(row["FAIL_TO_PASS"])}
        assert all(f"+def {name}(" in row["test_patch"] for name in hidden)


def test_columns(packed: Packed, stored: list[tuple[Trajectory, Task, Verdict]]) -> None:
    task = stored[0][1]
    [row] = rows([task], packed=packed)
    failing, passing = json.loads(row["FAIL_TO_PASS"]), json.loads(row["PASS_TO_PASS"])
    assert failing
    assert not set(failing) & set(passing)
    assert {*failing, *passing} == {test for test in task.payload["tests"] if gradable(test)}
    assert (row["repo"], row["version"]) == ("selfplay/pkg", "1.0")
    assert f"`{task.payload['qualname']}` in pkg/core.py is broken" in row["problem_statement"]
    assert json.loads(json.dumps(row)) == row


def test_tests_that_the_harness_cannot_read_are_left_out(
    packed: Packed, stored: list[tuple[Trajectory, Task, Verdict]]
) -> None:
    from dataclasses import replace

    task = next(task for _, task, _ in stored if task.payload["qualname"] == "add")
    assert any(" " in test for test in task.payload["tests"])
    only = replace(task, payload={**task.payload, "failing": [["t.py::test[a b]", "it fails"]]})
    assert [row["task_id"] for row in rows([only, task], packed=packed)] == [task.id]


def test_the_harness_agrees(packed: Packed, stored: list[tuple[Trajectory, Task, Verdict]], tmp_path: Path) -> None:
    pytest.importorskip("swebench", reason="swebench, the public harness, is not installed")
    from swebench.harness.grading import get_eval_report
    from swebench.harness.utils import make_test_spec

    for number, (attempt, task, verdict) in enumerate(stored):
        [row] = rows([task], packed=packed)
        spec = make_test_spec(row)
        folder = written(packed.repository, tmp_path / str(number))
        git_apply(folder, row["bug_patch"])
        git_apply(folder, row["test_patch"])
        repair = edits.parse(attempt.reply, source=task.payload["buggy"])
        assert isinstance(repair, edits.Edit)
        for who, candidate in candidates(task, edits.apply(task.payload["buggy"], repair)):
            text = (folder / "pkg/core.py").read_text().replace(task.payload["buggy"], candidate)
            log = tmp_path / f"{number}-{who}.log"
            log.write_text(run(spec.eval_script, folder, text))
            report = get_eval_report(spec, {"instance_id": spec.instance_id, "model_patch": "x"}, str(log), True)
            ours = {"attempt": bool(verdict.passed), "gold": True, "no-op": False}[who]
            assert report[spec.instance_id]["resolved"] is ours, log.read_text()


def candidates(task: Task, attempted: str) -> Iterator[tuple[str, str]]:
    """Who -> the function."""
    yield from {"attempt": attempted, "gold": task.payload["source"], "no-op": task.payload["buggy"]}.items()


def run(script: str, folder: Path, text: str) -> str:
    """What the script prints with another text of the module; the package is ours, so no sandbox is needed."""
    before = (folder / "pkg/core.py").read_text()
    (folder / "pkg/core.py").write_text(text)
    try:
        words: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "check": False}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        script = script.replace("/testbed", str(folder))
        return str(subprocess.run(["bash", "-c", script], env={**os.environ, "PATH": path}, **words).stdout)
    finally:
        (folder / "pkg/core.py").write_text(before)

"""Tasks for Harbor: their own scripts decide as the run did, and Harbor reads them where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def tasks(code_run: Path, exported: Callable[..., Any]) -> Path:
    made, to = exported(code_run, "harbor")
    assert made.count == len(list(to.iterdir())) == 2
    return to


def script(file: Path, tree: Path, logs: Path) -> None:
    places = {"TESTBED": str(tree), "LOGS_DIR": str(logs)}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(["bash", str(file)], env={"PATH": path, **places}, check=True, capture_output=True)


@pytest.mark.bubblewrap
def test_the_bug_fails_and_the_solution_passes(tasks: Path, tmp_path: Path) -> None:
    task = sorted(tasks.iterdir())[0]
    tree, logs = tmp_path / "tree", tmp_path / "logs"
    shutil.copytree(task / "environment" / "repo", tree)
    script(task / "tests" / "test.sh", tree, logs)
    assert (logs / "reward.txt").read_text().strip() == "0"
    script(task / "solution" / "solve.sh", tree, logs)
    script(task / "tests" / "test.sh", tree, logs)
    assert (logs / "reward.txt").read_text().strip() == "1"
    told = tomllib.loads((task / "task.toml").read_text())
    assert told["task"]["name"] == f"selfplay/{task.name}"
    assert told["metadata"]["split"] == "train"
    assert not (task / "environment" / "repo" / ".git").exists()


@pytest.mark.bubblewrap
def test_harbor_reads_them(tasks: Path, opened: Callable[..., Any]) -> None:
    python = os.environ.get("SELFPLAY_HARBOR_PYTHON")
    if not python:
        pytest.skip("SELFPLAY_HARBOR_PYTHON names no interpreter with harbor: .ci/exports makes one")
    told = opened("harbor", tasks, python=python)
    assert [one["name"] for one in told] == [f"selfplay/{folder.name}" for folder in sorted(tasks.iterdir())]
    assert all(one["files"] == [True, True, True] and one["split"] == "train" for one in told)
    assert all("/testbed" in one["instruction"] for one in told)

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selfplay.cli import doctor

Typed = tuple[int, str, str]


def test_facts_verdicts_and_fixes(here: Path, typed: Callable[..., Typed]) -> None:
    code, out, err = typed("doctor")
    assert code in (0, 3)
    for name in ("python", "packages", "git", "runs", "cache", "model", "docker", "bubblewrap"):
        assert f" {name} " in out
    assert ("this machine is ready" in err) == (code == 0)
    assert all(len(row) <= 80 for row in out.splitlines())


def test_for_programs(here: Path, answered: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    data = answered("doctor", code=3)
    assert data["ready"] is False
    rows = {row["name"]: row for row in data["checks"]}
    assert rows["git"] == {
        "name": "git",
        "verdict": "missing",
        "what": "no git on PATH",
        "fix": "apt-get install -y git",
    }
    assert all(row["fix"] for row in data["checks"] if row["verdict"] == "missing")


def test_a_full_disk_is_missing_space(
    here: Path, answered: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "NEEDED_GB", 1e9)
    rows = {row["name"]: row for row in answered("doctor", code=3)["checks"]}
    assert (rows["runs"]["verdict"], rows["cache"]["verdict"]) == ("missing", "missing")
    assert "SELFPLAY_RUNS" in rows["runs"]["fix"]

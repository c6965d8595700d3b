"""What others made is proved once: a machine that failed, reasons told again, sources that changed or give nothing."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

import pytest

from selfplay.errors import NotReady, UserError
from selfplay.evaluation.bringing import Found, bring
from selfplay.events import Event, ignore
from selfplay.games.code.bugs import Problem
from selfplay.games.code.game import CodeGame
from selfplay.project import Project
from selfplay.sandbox import SandboxInfraError
from selfplay.types import Seed, Task
from tests import scripted
from tests.backends import needed

pytestmark = pytest.mark.bubblewrap


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own."""
    needed("bubblewrap")
    monkeypatch.setenv("SELFPLAY_CACHE", str(scripted.cache(tmp_path)))


def row(name: str, source: Path, old: str, new: str) -> dict[str, str]:
    """A row of SWE-bench's columns, whose bug reads `new` for `old`."""
    clean = (source / "pkg" / "core.py").read_text()
    broken = clean.replace(old, new)
    assert broken != clean
    lines = (text.splitlines(keepends=True) for text in (clean, broken))
    patch = "".join(difflib.unified_diff(*lines, "a/pkg/core.py", "b/pkg/core.py"))
    return {"instance_id": name, "source": str(source), "bug_patch": f"diff --git a/pkg/core.py b/pkg/core.py\n{patch}"}


def written(path: Path, *rows: dict[str, str]) -> Path:
    path.write_text("".join(f"{json.dumps(one)}\n" for one in rows))
    return path


def brought(path: Path, project: Project, notes: list[str] | None = None) -> Found:
    def observe(event: Event) -> None:
        if notes is not None and event.kind == "note":
            notes.append(event.data["text"])

    return bring(path, count=None, sandbox="bubblewrap", project=project, observe=observe)


def test_reasons_are_told_again_and_a_source_that_changed_is_proved_again(tmp_path: Path, project: Project) -> None:
    source = scripted.written(tmp_path)
    bug, none = ("total = a + b", "total = a - b"), ("total = a + b", "total = b + a if a is None else a + b")
    path = written(tmp_path / "rows.jsonl", row("bug", source, *bug), row("none", source, *none))
    notes: list[str] = []
    found = brought(path, project, notes)
    assert len(found.grounds) == 1
    assert list(found.left_out) == ["none"]
    again = brought(path, project, notes)
    assert again.left_out == found.left_out
    assert again.grounds[0].on == found.grounds[0].on
    assert len([text for text in notes if "proving" in text]) == 1
    for kept in (tmp_path / "cache" / "external").glob("*.jsonl"):
        kept.unlink()
    assert brought(path, project, notes).grounds[0].on == found.grounds[0].on, "what was removed is proved again"
    (source / "more.py").write_text("MORE = 1\n")
    assert brought(path, project, notes).left_out == found.left_out
    assert len([text for text in notes if "proving" in text]) == 3


def test_nothing_is_kept_where_the_machine_failed(
    tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = scripted.written(tmp_path)
    path = written(
        tmp_path / "rows.jsonl",
        row("sum", source, "total = a + b", "total = a - b"),
        row("count", source, "i += 1", "i += 2"),
    )
    planted, calls = CodeGame.planted, 0

    async def failing(self: CodeGame, seed: Seed, source: str) -> Task | Problem:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise SandboxInfraError("no space left")
        return await planted(self, seed, source)

    monkeypatch.setattr(CodeGame, "planted", failing)
    with pytest.raises(NotReady, match=r"failed at 1 of 2 tasks of pkg-1.0 \(sum: no space left\).*nothing") as error:
        brought(path, project)
    assert "again" in error.value.hint
    found = brought(path, project)
    assert (len(found.grounds[0].on.tasks if found.grounds[0].on else ()), found.left_out) == (2, {})


def test_a_source_without_a_task_is_skipped_and_told(tmp_path: Path, project: Project) -> None:
    good, idle, failing = (scripted.written(tmp_path / name) for name in ("good", "idle", "failing"))
    (failing / "tests" / "test_core.py").write_text("def test():\n    assert False\n")
    same = ("total = a + b", "total = b + a if a is None else a + b")
    rows: list[Any] = [
        row("idle", idle, *same),
        row("failing", failing, "total = a + b", "total = a - b"),
        row("good", good, "total = a + b", "total = a - b"),
    ]
    for _ in range(2):
        found = brought(written(tmp_path / "rows.jsonl", *rows), project)
        assert [ground.config.game.source for ground in found.grounds] == [str(good)]
        assert list(found.left_out) == ["idle", "failing"]
        assert "passes on the clean tree" in found.left_out["failing"]
    with pytest.raises(UserError, match=r"rows.jsonl gives no task: all 4 tests"):
        bring(
            written(tmp_path / "rows.jsonl", *rows[:1]), count=1, sandbox="bubblewrap", project=project, observe=ignore
        )

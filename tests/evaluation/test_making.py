"""Tasks of another mechanism: drawn, proved in bubblewrap, written as files that an evaluation reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from selfplay.errors import UserError
from selfplay.evaluation import tasks
from selfplay.evaluation.bringing import bring, is_brought
from selfplay.evaluation.making import make, slipped
from selfplay.events import ignore
from selfplay.games.code.mutate import mutations
from selfplay.project import Project
from tests import scripted
from tests.backends import needed


@pytest.mark.bubblewrap
def test_tasks_are_made_once_and_are_none_of_the_warm_ups(
    tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed("bubblewrap")
    monkeypatch.setenv("SELFPLAY_CACHE", str(scripted.cache(tmp_path)))
    source = str(scripted.written(tmp_path))
    find = slipped(project=project, observe=ignore, sandbox="bubblewrap")
    given = {"folder": tmp_path / "made", "each": 1, "find": find, "observe": ignore}
    found = make([source], bugs=2, functions=2, stdlib=0, **given)  # type: ignore[arg-type]
    assert (found.data["bugs"], found.data["functions"]) == (2, 2)
    [path] = (tmp_path / "made").iterdir()
    made = tasks.read(path)
    assert made.source == source
    assert all(task.split == "held_out" and task.payload["failing"] for task in made.on.tasks)
    for task in made.on.tasks:
        clean, broken = task.payload["source"], task.payload["buggy"]
        lines = [new for old, new in zip(clean.split("\n"), broken.split("\n"), strict=True) if old != new]
        assert 1 <= len(lines) <= 3
        assert lines[0].strip() not in {mutation.new.strip() for mutation in mutations(clean)}
    before = path.read_bytes()
    make([source], bugs=2, functions=2, stdlib=0, **given)  # type: ignore[arg-type]
    assert path.read_bytes() == before
    assert is_brought(str(tmp_path / "made"))
    ready = bring(tmp_path / "made", count=1, sandbox="bubblewrap", project=project, observe=ignore)
    assert [ground.count for ground in ready.grounds] == [1]
    with pytest.raises(UserError, match="2 bugs in 2 functions, and 9 in 2 are wanted"):
        make([source], bugs=9, functions=2, stdlib=0, **given)  # type: ignore[arg-type]

"""A second run of an arm: really played, from the first's start, and what is said where it came out another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from selfplay.errors import NotFound
from selfplay.events import Interrupt, ignore
from selfplay.games.echo import EchoGame
from selfplay.project import Project
from selfplay.study import again, arms, measuring, results
from selfplay.study.spec import Study, read
from tests.study.practice import TEXT, lessons

SHORT = TEXT.replace('"warmup.steps" = 300', '"warmup.steps" = 3').replace("budget = 8000", "budget = 300")


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """A study whose arms take a second, in a folder of its own."""
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(EchoGame, "examples", lessons)
    path = tmp_path / "short.toml"
    path.write_text(SHORT)
    return read(path)


def jobs(study: Study, root: Path, *names: str) -> list[arms.Job]:
    return [arms.Job(study=study, arm=study.arm(name), seed=0, root=root) for name in names]


def played(*chosen: arms.Job, project: Project) -> None:
    for job in chosen:
        assert arms.play(job, project=project, observe=ignore, interrupt=Interrupt())


def test_a_warm_up_is_done_again_and_an_arm_starts_where_the_first_did(
    study: Study, project: Project, tmp_path: Path
) -> None:
    warmup, repair = jobs(study, tmp_path / "runs", "warmup", "repair")
    played(warmup, repair, project=project)
    twice = again.twice([warmup, repair], project=project, dev=False)
    assert twice == [warmup, repair]
    assert again.second(repair).start == warmup
    (cached,) = (tmp_path / "cache").rglob("records.json")
    cached.write_text("no weights are taken from here")
    played(*map(again.second, twice), project=project)
    assert cached.exists(), "the cache was not looked at"
    for job in twice:
        found = again.compare(job, project=project, dev=False)
        assert (found.same, found.tables) == (True, ())
        assert found.words == f"{job.name}: the same ledger {found.first['ledger']}"


def test_a_result_stands_for_a_first_run(study: Study, project: Project, tmp_path: Path) -> None:
    (warmup,) = jobs(study, tmp_path / "runs", "warmup")
    with pytest.raises(NotFound, match="warmup-0 was not played a first time, and has no result"):
        again.twice([warmup], project=project, dev=False)
    played(warmup, again.second(warmup), project=project)
    found = measuring.result(warmup, test=(), tested=True, project=project, observe=ignore)
    found["run"]["ledger"] = "of another machine"
    results.put(results.path_of(study, name=warmup.name, dev=False), found)
    assert again.compare(warmup, project=project, dev=False).same, "the run that is here comes first"
    moved = replace(warmup, root=tmp_path / "elsewhere")
    moved.root.mkdir()
    again.second(warmup).folder.rename(again.second(moved).folder)
    told = again.compare(moved, project=project, dev=False)
    assert (told.same, told.first["ledger"], told.tables) == (False, "of another machine", ())


def test_what_learns_nothing_has_no_run(study: Study, project: Project, tmp_path: Path) -> None:
    study.path.write_text(SHORT + '[arms.base]\nstart = ""\nsteps = 0\nsettings = { "warmup.steps" = 0 }\n')
    (base,) = jobs(read(study.path), tmp_path / "runs", "base")
    assert again.twice([base], project=project, dev=False) == []


def test_words_where_they_differ() -> None:
    one = {"ledger": "aa", "weights": "w", "fingerprint": "f"}
    two = {"ledger": "bb", "weights": "w", "fingerprint": "f"}
    found = again.Compared(name="full-0", first=one, second=two, tables=("tasks", "verdicts"))
    first = "full-0: another ledger, bb where the first was aa; what differs: tasks, verdicts"
    assert found.words == f"{first}; the weights are the same"
    other = replace(found, second={**two, "weights": "v", "fingerprint": "g"})
    assert other.words == f"{first}; equal bits are promised for one fingerprint, and these are `g` and `f`"

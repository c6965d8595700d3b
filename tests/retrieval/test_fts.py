"""Order of hits, and that every query is data."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from selfplay.errors import NotFound, RunFailed, UserError
from selfplay.retrieval import Document, Hit
from selfplay.retrieval import fts as module
from selfplay.retrieval.fts import FtsRetriever
from selfplay.retrieval.store import path_of
from selfplay.retrieval.words import MAX_WORDS, indexed, terms
from selfplay.retrieval.writing import Added, add

Ask = Callable[..., Sequence[Hit]]


def fill(*texts: str, titles: Sequence[str] = ()) -> None:
    def document(number: int, text: str) -> Document:
        title = titles[number] if titles else ""
        return Document(id=f"{number:06}", title=title, digest=f"{title}|{text}", pieces=lambda: (text,))

    add("c", "here", [document(number, text) for number, text in enumerate(texts)])


def found(hits: Sequence[Hit]) -> list[str]:
    return [hit.passage.text for hit in hits]


def test_all_words_first_any_word_else(ask: Ask) -> None:
    fill("red apple " * 9, "a red apple and a green pear in a bowl on the table", "green pear")
    assert found(ask("apple pear", k=1)) == ["a red apple and a green pear in a bowl on the table"]
    assert len(ask("apple pear", k=3)) == 3
    assert ask("plum") == []
    assert found(ask("plum pear", k=1)) == ["green pear"]


def test_scores_fall_and_are_positive(ask: Ask) -> None:
    fill(*(f"walrus {'oyster ' * number}" for number in range(9)))
    scores = [hit.score for hit in ask("walrus", k=9)]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 9
    assert scores[-1] > 0


def test_a_title_counts_more(ask: Ask) -> None:
    fill("about the oyster and things", "about the walrus and things", titles=["walrus", "oyster"])
    assert [hit.passage.title for hit in ask("walrus")] == ["walrus", "oyster"]


def test_endings_case_and_accents(ask: Ask) -> None:
    fill("Les élèves caching Connections", "ﬁle names")
    for query in ("eleves", "CACHED", "connected", "e\u0301le\u0300ves"):
        assert len(ask(query)) == 1, query
    assert len(ask("file")) == 1


LETTERS = (
    "Straße",
    "STRAẞE",
    "ὁδός",
    "ΟΔΟΣ",
    "ᾳ",
    "ꭰ",
    "Ꭰ",
    "և",
    "İstanbul",
    "Ԩ",
    "ᲐᲑ",
    "ﬁle",
    "ŉ",
    "m̄n",
    "a̋b",
    "m̄",
    "x̅y",
)


@pytest.mark.parametrize("word", LETTERS)
def test_a_word_of_any_letters_finds_itself(ask: Ask, word: str) -> None:
    fill(f"of {word} here", "the walrus", "the ss of the oyster", "i, m and n")
    assert [hit.passage.document for hit in ask(word, k=1)] == ["here:000000"]
    assert len(terms(word)) == 1


def test_letters_in_both_cases_are_one_word() -> None:
    assert terms("Straße straße élève ÉLÈVE") == ['"Straße"', '"élève"']


def test_scripts_without_spaces(ask: Ask) -> None:
    fill("東京都は日本の首都です。", "京都は古い都です。", "ภาษาไทยไม่มีช่องว่าง", "Hello 世界 of words")
    assert found(ask("東京", k=1)) == ["東京都は日本の首都です。"]
    assert found(ask("京都は古い", k=1)) == ["京都は古い都です。"]
    assert found(ask("首都はどこ", k=1)) == ["東京都は日本の首都です。"]
    assert len(ask("ภาษา")) == 1
    assert found(ask("世界")) == ["Hello 世界 of words"]


def test_very_frequent_words_are_dropped(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEW", 5)
    fill(*(f"the of number{number}" for number in range(50)), "number7 without them")
    assert (
        found(ask("the of number7"))
        == sorted(["the of number7", "number7 without them"], key=lambda text: text.count(" "))
        or len(ask("the of number7")) == 2
    )
    assert len(ask("the of", k=60)) == 50


def test_who_has_the_frequent_words_as_well_comes_first(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEW", 5)
    filling = [f"the of and number{number} stand here" for number in range(60)]
    whole = "the of and walrus sang to the oyster, of whom it and the carpenter spoke"
    fill(*filling, *(f"walrus walrus walrus {number}" for number in range(5)), whole)
    hits = ask("the walrus and of", k=4)
    assert found(hits)[0] == whole, "by the rare word alone it comes last"
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert len({hit.passage.id for hit in hits}) == 4
    assert ask("the walrus and of", k=1) != ask("walrus", k=1)
    monkeypatch.setattr(module, "MAX_WHOLE", 1)
    assert found(ask("the walrus and of", k=4)) == found(ask("walrus", k=4)), "too many say nothing"


def test_what_any_looks_at_is_bounded(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROWS", 12)
    fill(*(f"common word{number}" for number in range(20)), "rare", "seldom")
    assert sorted(found(ask("common rare seldom", k=22))) == ["rare", "seldom"]


def test_equal_scores_are_ordered_by_id_however_many_tie(ask: Ask) -> None:
    fill(*(f"walrus w{number:03}" for number in range(300)))
    every = [hit.passage.id for hit in ask("walrus", k=300)]
    assert every == sorted(every)
    assert len(every) == 300
    for k in (1, 5, 17, 40):
        assert [hit.passage.id for hit in ask("walrus", k=k)] == every[:k]


HOSTILE = (
    *('"', '""', '"a', "'", "*", "a*", "^a", "a:b", "title:walrus", "text : x", "{title text} : x", "-a", "+ a", "("),
    *(
        "NEAR(a b, 2)",
        "NOT",
        "a NOT b",
        "AND",
        "OR OR",
        "a AND",
        "\0",
        "walrus\0oyster",
        "🙂",
        "🙂walrus",
        "\ud800",
        "",
    ),
    *(
        "' ; DROP TABLE words; --",
        "%s %d {0}",
        "\\",
        "\n\t",
        "\u200b",
        "\u202e",
        "e\u0301",
        "\u0304",
        "🙂\u0304",
        "_",
        "a_b",
        "１２",
        "bm25(1)",
    ),
    *("walrus " * 5000, " ".join(f"w{number}" for number in range(5000)), "x" * 1_000_000, "東" * 5000),
)


def test_every_query_is_data(ask: Ask) -> None:
    fill("the walrus and the oyster", "not near and or")

    async def search() -> None:
        retriever = FtsRetriever("c")
        for query in HOSTILE:
            hits = await retriever.search(query, k=2)
            assert all(isinstance(hit.score, float) for hit in hits)
        assert found(await retriever.search('"walrus" OR (oyster*', k=1)) == ["the walrus and the oyster"]
        assert found(await retriever.search("NOT near", k=1)) == ["not near and or"]
        assert found(await retriever.search("walrus\0oyster", k=1)) == ["the walrus and the oyster"]
        await retriever.aclose()
        await retriever.aclose()

    asyncio.run(search())


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.text(max_size=60))
def test_any_text_can_be_asked_for(ask: Ask, cache: Path, query: str) -> None:
    if not (cache / "corpora" / "c.db").exists():
        fill("the walrus and the oyster")
    assert len(ask(query)) <= 1
    assert all(term.count('"') == 2 and "\0" not in term for term in terms(query))
    assert len(terms(query)) <= MAX_WORDS


def test_what_is_indexed_is_what_is_asked_for() -> None:
    assert indexed("plain text") == "plain text"
    assert indexed("日本 ab").split() == ["日", "本", "ab"]
    assert terms("Ab ab AB") == ['"ab"']
    assert terms("日本語") == ['"日 本"', '"本 語"']
    assert terms("本") == ['"本"']


def test_many_searches_at_once_and_a_change_between(ask: Ask) -> None:
    fill(*(f"walrus number{number}" for number in range(100)))

    async def search() -> None:
        retriever = FtsRetriever("c")
        answers = await asyncio.gather(*(retriever.search(f"number{number}", k=1) for number in range(100)))
        assert [found(hits) for hits in answers] == [[f"walrus number{number}"] for number in range(100)]
        fill("walrus number1", "another thing")
        assert found(await retriever.search("another", k=1)) == ["another thing"]
        assert await retriever.search("number7", k=1) == []
        await retriever.aclose()

    asyncio.run(search())


def opened(path: Path) -> int:
    """How often this process has the file open."""
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{fd}") == str(path)
        except FileNotFoundError:
            continue
    return found


def test_a_damaged_corpus_is_said_and_closed() -> None:
    fill("the walrus", "the oyster")
    path = path_of("c")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(truncate)")
        (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'facts'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    raw = bytearray(path.read_bytes())
    raw[(page - 1) * size : (page - 1) * size + 16] = b"\xff" * 16
    path.write_bytes(raw)
    with pytest.raises(RunFailed, match=r"is damaged, or no corpus") as error:
        FtsRetriever("c")
    assert "make it anew: rm " in str(error.value.hint)
    assert opened(path) == 0


def test_what_cannot_be_asked(folder: Path, take: Callable[..., Added], ask: Ask) -> None:
    with pytest.raises(NotFound, match="no corpus `c`"):
        ask("words")
    (folder / "a.txt").write_text("words")
    take()
    with pytest.raises(UserError, match="k is 0"):
        ask("words", k=0)

"""Answers: salient spans with their documents, rare ones rather, the same ones whenever the corpus is the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from selfplay.errors import UserError
from selfplay.games.search.answers import PER_DOCUMENT, answers, kept_back
from selfplay.games.search.records import Answer
from selfplay.games.search.spans import KINDS, spans
from selfplay.retrieval.store import Corpus
from tests.games.search.ground import TEXTS, corpus


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def found(text: str) -> list[tuple[str, str]]:
    return [(span.kind, span.text) for span in spans(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("In 1995 Guido van Rossum came.", [("date", "1995"), ("name", "Guido van Rossum")]),
        ("He left on 31 March 1889, or 1889-03-31.", [("date", "31 March 1889"), ("date", "1889-03-31")]),
        ("It holds 65,536 of them, 99% and 3.14.", [("number", "65,536"), ("number", "99%"), ("number", "3.14")]),
        ("They read “The Name of the Rose” there.", [("title", "The Name of the Rose")]),
        ("See os.path.join, some_name and OrderedDict.", None),
        ("The War was long.", [("name", "War")]),
        ("See RFC 2822, UTF-8, e.g. this.", [("name", "RFC 2822"), ("name", "UTF-8")]),
        ("it ended.Then it began", []),
        ("東京タワーは1958年に「日本電波塔」と", [("name", "タワー"), ("date", "1958年"), ("title", "日本電波塔")]),
        ("", []),
    ],
)
def test_spans_are_found_by_their_form(text: str, expected: list[tuple[str, str]] | None) -> None:
    if expected is None:
        expected = [("identifier", name) for name in ("os.path.join", "some_name", "OrderedDict")]
    assert found(text) == expected


def test_no_span_overlaps_another() -> None:
    for text in TEXTS.values():
        ends = 0
        for span in spans(text):
            assert span.start >= ends
            assert text[span.start : span.start + len(span.text)] == span.text
            assert span.kind in KINDS
            ends = span.start + len(span.text)


def drawn(name: str = "small", count: int = 100) -> tuple[Answer, ...]:
    opened = Corpus(name)
    try:
        return answers(opened, count=count)
    finally:
        opened.close()


def test_answers_have_their_document_and_passage(tmp_path: Path) -> None:
    corpus(tmp_path / "texts")
    every = drawn()
    opened = Corpus("small")
    for answer in every:
        assert opened.places(answer.passage)[0].document == answer.document
        assert answer.weight > 0
        assert answer.kind in KINDS
    assert {"Gustave Eiffel", "functools.lru_cache"} & {answer.text for answer in every}
    assert max(Counter(answer.document for answer in every).values()) == PER_DOCUMENT
    opened.close()


def test_equal_corpora_give_equal_answers_from_the_cache_or_not(tmp_path: Path, cache: Path) -> None:
    corpus(tmp_path / "texts")
    first = drawn()
    (file,) = (cache / "answers").iterdir()
    assert drawn() == first
    file.write_text("{broken")
    assert drawn() == first
    corpus(tmp_path / "texts", name="again")
    assert drawn("again") == first


def test_one_text_is_one_answer_of_its_first_document(tmp_path: Path) -> None:
    corpus(tmp_path / "texts", {"b": "Here was the poet John Keats.", "a": "There was the poet John Keats, too."})
    (only,) = [answer for answer in drawn() if answer.text == "John Keats"]
    assert only.document.endswith("a.txt")


def test_what_every_passage_holds_is_no_answer(tmp_path: Path) -> None:
    texts = {f"t{i}": f"The poet John Keats wrote of place Number{i}Place in summer." for i in range(8)}
    corpus(tmp_path / "texts", texts)
    assert not [answer for answer in drawn() if answer.text == "John Keats"]


def test_rare_ones_come_rather(tmp_path: Path) -> None:
    texts = {f"t{i:02}": f"The man Ann{'a' * (i % 3)}bel Often met the man Xen{chr(97 + i)} Once." for i in range(24)}
    corpus(tmp_path / "texts", texts)
    weight = {answer.text: answer.weight for answer in drawn()}
    assert min(w for text, w in weight.items() if text.endswith("Once")) == max(weight.values())


def test_held_out_is_decided_by_document(tmp_path: Path) -> None:
    corpus(tmp_path / "texts")
    documents = {answer.document for answer in drawn()}
    assert len(documents) > 2
    assert kept_back(drawn(), share=0.0) == frozenset()
    some, more = (kept_back(drawn(), share=share) for share in (0.5, 0.9))
    assert some <= more < documents
    assert len(kept_back(drawn(), share=1.0)) == len(documents) - 1, "something is left to learn from"
    alone = [answer for answer in drawn() if answer.document not in more]
    assert kept_back(alone, share=0.9) == frozenset(), "of a document alone it is the same"


def test_a_corpus_with_nothing_to_ask_for_says_so(tmp_path: Path) -> None:
    corpus(tmp_path / "texts", {"a": "nothing here has a name, and nothing has a number."})
    with pytest.raises(UserError, match="to ask for"):
        drawn()

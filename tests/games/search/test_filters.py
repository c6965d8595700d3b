"""Each rule has an example that it alone refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from selfplay.games.search import filters
from selfplay.games.search.filters import REASONS, UNREADABLE, Rules, num_words, refusal
from selfplay.games.search.records import Question
from selfplay.retrieval import Passage

STRICT = Rules(searches=2, repeats=False, blunt=False)


def passage(text: str, name: str = "p") -> Passage:
    return Passage(id=name, text=text, title="", document="d")


GOOD = Question(
    text="Which engineer built the tower that was opened to the public for the exhibition?",
    answer="Gustave Eiffel",
    aliases=("Eiffel",),
    hops=2,
    queries=("tower exhibition", "engineer of the tower"),
    evidence=(passage("It was built by Gustave Eiffel."),),
)
LONG = "Which engineer built the tower " + "that stood taller than any other building " * 30 + "of its time?"
BROKEN = {
    "few_characters": replace(GOOD, text="a b c d e"),
    "many_characters": replace(GOOD, text=LONG),
    "few_words": replace(GOOD, text="Which engineer built it?"),
    "tells_answer": replace(GOOD, text=GOOD.text.replace("engineer", "engineer (gustave  EIFFEL's son)")),
    "few_searches": replace(GOOD, queries=("tower exhibition",)),
    "same_search": replace(GOOD, queries=("tower exhibition", "engineer", "Tower, Exhibition!")),
    "searched_answer": replace(GOOD, queries=("tower exhibition", "who was gustave eiffel")),
    "no_evidence": replace(GOOD, evidence=()),
    "answer_unseen": replace(GOOD, evidence=(passage("It was built by an engineer."),)),
    "no_cloze": GOOD,
}
"""Reason -> a question that breaks this rule and no other; the last one is on for its own example alone, since it takes
nothing but sentences with a blank.
"""


def test_the_good_one_passes() -> None:
    assert refusal(GOOD, rules=STRICT, searches=True) is None


@pytest.mark.parametrize("reason", BROKEN)
def test_each_rule_refuses_what_no_other_refuses(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = replace(STRICT, cloze=reason == "no_cloze")
    found = refusal(BROKEN[reason], rules=rules, searches=True)
    assert found is not None
    assert found.reason == reason
    assert found.why
    others = {name: rule for name, rule in filters._RULES.items() if name != reason}
    monkeypatch.setattr(filters, "_RULES", others)
    assert refusal(BROKEN[reason], rules=rules, searches=True) is None


def test_every_reason_is_documented() -> None:
    assert list(REASONS) == [*(r for r in REASONS if r in UNREADABLE), *filters._RULES]
    assert set(BROKEN) == set(filters._RULES)
    assert all(f"`{reason}`" in (filters.__doc__ or "") for reason in REASONS)


def test_an_alias_tells_as_much_as_the_answer() -> None:
    told = replace(GOOD, text=GOOD.text.replace("engineer", "Eiffel"))
    found = refusal(told, rules=Rules(), searches=True)
    assert found is not None
    assert found.reason == "tells_answer"


def test_an_answer_inside_another_word_is_not_told() -> None:
    inside = replace(
        GOOD, answer="cat", aliases=(), evidence=(passage("a cat"),), text=f"{GOOD.text} Of what category?"
    )
    assert refusal(inside, rules=Rules(), searches=True) is None


def test_an_honest_question_of_one_hop_passes_by_default_and_not_by_the_released_rule() -> None:
    once = replace(GOOD, hops=1, queries=("tower exhibition",))
    assert refusal(once, rules=Rules(), searches=True) is None
    assert refusal(once, rules=Rules(searches=2), searches=True) is not None


def test_who_cannot_search_need_not() -> None:
    given = replace(GOOD, queries=())
    assert refusal(given, rules=STRICT, searches=False) is None
    assert refusal(given, rules=Rules(), searches=True) is not None


def test_scripts_without_spaces_are_counted_by_characters() -> None:
    assert num_words("日本語の文章はここに空白がありませんので") == 10
    assert num_words("two words 東京") == 3


BUILT = passage("The tower in Paris, so high, was built by Gustave Eiffel's firm. It stands.")
TOWER = replace(GOOD, evidence=(BUILT,))


@pytest.mark.parametrize(
    "text",
    [
        'Which words are missing at ____ in: "The tower in Paris, so high, was built by ____\'s firm."',
        "The tower in  Paris so high was built by ____'s firm",
        "Paris, so high, was built by Gustave ____'s firm. It",
    ],
)
def test_a_sentence_with_a_blank_is_one_whose_passage_has_the_answer_there(text: str) -> None:
    assert refusal(replace(TOWER, text=text), rules=Rules(cloze=True), searches=False) is None or "Gustave" in text
    assert filters.restored(replace(TOWER, text=text))


@pytest.mark.parametrize(
    "text",
    [
        'Which words are missing at ____ in: "The tower in Paris, so high, was built by firm."',
        'Which words are missing at ____ in: "The tower in Paris, so ____, was built by its engineer\'s firm."',
        'Which words are missing at ____ in: "The tower in Paris, so high, was built by ____ and by nobody else."',
        "Who built the tower in Paris, so high, as its engineer?",
    ],
)
def test_a_sentence_without_the_blank_or_with_it_elsewhere_is_none(text: str) -> None:
    found = refusal(replace(TOWER, text=text), rules=Rules(cloze=True), searches=False)
    assert found is not None
    assert found.reason == "no_cloze"
    assert not filters.restored(replace(TOWER, text=text))

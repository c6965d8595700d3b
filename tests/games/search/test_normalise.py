"""Two forms of an answer: SQuAD's, kept as it is, and one that holds in any script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfplay.games.search.normalise import exact_match, f1, holds, plain, same, squad, words


@pytest.mark.parametrize(
    ("text", "classic", "ours"),
    [
        ("The Eiffel-Tower.", "eiffeltower", "eiffel tower"),
        ("3.14", "314", "3.14"),
        ("C++", "c", "c++"),
        ("-5", "5", "-5"),
        ("U.S.", "us", "us"),
        ("don't", "dont", "dont"),
        ("Eiffel's", "eiffels", "eiffel"),
        ("1,000", "1000", "1000"),
        ("os.path.join()", "ospathjoin", "os path join"),
        ("__init__", "init", "__init__"),
        ("Café", "café", "cafe"),
        ("東京都。", "東京都。", "東京都"),
        ("ＡＢＣ", "ａｂｃ", "abc"),
        ("हिन्दी", "हिन्दी", "हिन्दी"),
        ("well—known", "well—known", "well known"),
        ("the", "", "the"),
    ],
)
def test_both_forms(text: str, classic: str, ours: str) -> None:
    assert (squad(text), plain(text)) == (classic, ours)


@pytest.mark.parametrize(("said", "wanted"), [("3.14", "314"), ("C", "C++"), ("5", "-5"), ("C#", "C++")])
def test_the_classic_metric_takes_what_is_something_else(said: str, wanted: str) -> None:
    assert exact_match(said, [wanted])
    assert not same(said, [wanted])


@pytest.mark.parametrize("said", ["", "  ", "the", "…", "!?"])
def test_nothing_said_is_never_right(said: str) -> None:
    assert not exact_match(said, ["", "the", "!"])
    assert not same(said, ["", "…", "!"])


def test_any_of_the_forms_that_count_is_enough() -> None:
    assert same("lru_cache", ["functools.lru_cache", "lru_cache"])
    assert f1("the lru cache of Raymond", ["Raymond Hettinger", "lru"]) == pytest.approx(2 / 5)
    assert f1("", ["a"]) == 0.0


def test_overlap_of_scripts_without_spaces_counts_characters() -> None:
    assert words("東京 tower") == ["東", "京", "tower"]
    assert f1("東京", ["東京都"]) == pytest.approx(0.8)


def test_a_phrase_stands_as_words_not_as_letters() -> None:
    assert holds("A category of its own.", "category")
    assert not holds("A category of its own.", "cat")
    assert holds("see os.path.join for it", "join")
    assert holds("東京都に", "京都")
    assert not holds("anything", "—")


@given(st.text(max_size=40))
def test_the_form_of_a_form_is_itself(text: str) -> None:
    assert plain(plain(text)) == plain(text)
    if set(words(text)) - {"a", "an", "the"}:
        assert holds(f"x {plain(text)} y", text)

"""Sentences with the answer left out: asked for where they can be, and telling nothing."""

from __future__ import annotations

import pytest

from selfplay.games.search.cloze import BLANK, ask, sentences, without
from selfplay.games.search.filters import MIN_WORDS, num_words, stands_in
from tests.games.search.ground import TEXTS

EIFFEL = "Gustave Eiffel"


def test_the_first_sentence_that_holds_the_answer_is_asked_about() -> None:
    question = ask(EIFFEL, TEXTS["eiffel"])
    assert question == f'Which words are missing at {BLANK} in: "The tower in Paris was built by the engineer {BLANK}."'
    assert num_words(question) >= MIN_WORDS
    assert not stands_in(question, EIFFEL)


@pytest.mark.parametrize(
    ("answer", "passage"),
    [
        ("Eve", "Nobody of that name stands in this sentence, or in another."),
        ("Eve", "It was Eve."),
        ("eve", "Nobody spells the name Eve in small letters in this long sentence."),
        ("Eve", "Both Eve and EVE stand in this sentence, which would tell the answer."),
        ("Eve", "This is about Evelyn, in whose name the letters stand and mean nothing."),
        ("Eve", "word " * 200 + "Eve."),
    ],
)
def test_what_cannot_be_asked_about_is_not(answer: str, passage: str) -> None:
    assert ask(answer, passage) is None


def test_a_later_sentence_serves_where_the_first_does_not() -> None:
    text = "It was Eve. The garden in the east was left behind by Eve on that day."
    assert (
        ask("Eve", text)
        == f'Which words are missing at {BLANK} in: "The garden in the east was left behind by {BLANK} on that day."'
    )


def test_sentences_are_on_one_line_each() -> None:
    assert sentences("A b.\nC d!  E\nf\n\nG。東京。") == ["A b.", "C d!", "E f", "G。", "東京。"]


def test_an_answer_is_left_out_wherever_it_stands_as_a_word() -> None:
    assert without("Eve", "Eve met Evelyn, and Eve's garden") == f"{BLANK} met Evelyn, and {BLANK}'s garden"
    assert without("os.path", "see os.path.join, os_path and os.path") == f"see {BLANK}.join, os_path and {BLANK}"
    assert without("Eve", "nobody") == "nobody"
    assert without("CP1257", "codec cp1257, CP1257") == f"codec cp1257, {BLANK}"
    assert without("CP1257", "codec cp1257, CP1257", any_case=True) == f"codec {BLANK}, {BLANK}"

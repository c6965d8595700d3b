"""Only what the policy wrote is read: the last complete block, and no more than a few."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfplay.games.search.replies import EMPTY, MANY_BLOCKS, MAX_BLOCKS, NO_BLOCK, handed, quote_of


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("<answer>a</answer>", "a"),
        ("<answer>a</answer> or <answer>\n b  c </answer> and so on", "b c"),
        ("<answer>a</answer> <answer>never closed", "a"),
        ("<answer>opened twice <answer>a</answer>", "a"),
        ("I put it between <answer> and </answer>: <answer>a</answer>", "a"),
        ("<think><answer>no</answer></think><answer>a</answer>", "a"),
    ],
)
def test_the_last_complete_block_counts(reply: str, text: str) -> None:
    assert handed(reply, "answer").text == text


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("a", NO_BLOCK),
        ("", NO_BLOCK),
        ("<answer>a", NO_BLOCK),
        ("<think><answer>a</answer></think>", NO_BLOCK),
        ("<answer> \n </answer>", EMPTY),
        ("<answer>a</answer>" * (MAX_BLOCKS + 1), MANY_BLOCKS),
    ],
)
def test_what_hands_nothing_over_says_why(reply: str, reason: str) -> None:
    found = handed(reply, "answer")
    assert (found.text, found.reason) == ("", reason)
    assert found.why


def test_as_many_blocks_as_are_allowed_are_read() -> None:
    assert handed("<answer>a</answer>" * (MAX_BLOCKS - 1) + "<answer>b</answer>", "answer").text == "b"


def test_a_bare_reply_is_its_own_answer() -> None:
    assert handed(" lru_cache\n", "answer", bare=True).text == "lru_cache"
    assert handed("x <answer>a</answer>", "answer", bare=True).text == "a"
    assert handed("<answer>cut", "answer", bare=True).reason == NO_BLOCK
    assert handed(" ", "answer", bare=True).reason == EMPTY


def test_a_quote_is_read_beside_the_question() -> None:
    assert quote_of("<quote>It was\nso.</quote><question>why?</question>") == "It was so."
    assert quote_of("none") == ""


@given(st.text(alphabet="<>/answerquot \n", max_size=200))
def test_any_text_is_read(reply: str) -> None:
    found = handed(reply, "answer")
    assert bool(found.text) != bool(found.reason)

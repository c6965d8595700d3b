"""Calls as tags: one block a reply, and what was found comes back in a block of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfplay.rollout.calls import instructions, read, replies
from selfplay.tools import Answer, Call
from selfplay.tools.searching import ENDS, SEARCH

SPECS = (SEARCH, ENDS["answer"])


@pytest.mark.parametrize(
    ("text", "name", "body"),
    [
        ("<search>least recently used</search>", "search", "least recently used"),
        ("I look.\n<search>\n a \n</search>", "search", "a"),
        ("<answer>42</answer> and more", "answer", "42"),
        ("<think><search>a</search></think><answer>b</answer>", "answer", "b"),
        ("<search>a < b </answer></search>", "search", "a < b </answer>"),
        ("<search>opened <search>a</search>", "search", "a"),
        ("<answer></answer>", "answer", ""),
    ],
)
def test_one_block_is_a_call(text: str, name: str, body: str) -> None:
    (call,) = read(text, form="tags", specs=SPECS).calls
    (value,) = call.arguments.values()
    assert (call.name, value) == (name, body)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no_call"),
        ("the answer is 42", "no_call"),
        ("<question>what?</question>", "no_call"),
        ("<think><answer>a</answer></think> hm", "no_call"),
        ("<search>a", "unclosed"),
        ("<search>a</search><search>b</search>", "two_calls"),
        ("<search>a</search><information>b</information><answer>b</answer>", "two_calls"),
    ],
)
def test_anything_else_is_a_problem_that_the_policy_is_told(text: str, reason: str) -> None:
    problem = read(text, form="tags", specs=SPECS).problem
    assert problem is not None
    assert problem.reason == reason
    assert problem.why


@given(st.text(alphabet="</>searchanwe ", max_size=120))
def test_any_text_gives_calls_or_a_problem(text: str) -> None:
    reading = read(text, form="tags", specs=SPECS)
    assert len(reading.calls) + (reading.problem is not None) == 1


def test_what_was_found_comes_back_in_its_block() -> None:
    asked = [(Call(name="search", arguments={"query": "a"}), Answer(text="Doc 1 (Title: t) a"))]
    (message,) = replies("tags", asked, known=["search"], notice="budget")
    assert message.text == "<information>\nDoc 1 (Title: t) a\n</information>"
    assert message.role == "user"


def test_the_tools_are_told_with_their_tags() -> None:
    told = instructions("tags", SPECS, turns=10, context=4096)
    assert "<search>...</search>: Searches the corpus." in told
    assert "at most 10 turns" in told

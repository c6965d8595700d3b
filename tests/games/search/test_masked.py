"""Masked sentences for the warm-up: what is hidden can be read in the passages, and nowhere in the question."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfplay.games.search.masked import MOST, Masked, examples, mask, masks_of
from selfplay.games.search.normalise import holds
from selfplay.retrieval import Passage
from selfplay.types import Role

RICH = "In 1874 Ada Lovelace met Charles Babbage at Oxford Street with 3200 cards of brass in a wooden box."
PLAIN = "It rained all day and all of the night, and nobody went out of the house for a walk."
ROLE = Role(name="solver", game="search", side="solver", prompt="{{ passages }}\n{{ question }}\n")


def passages(*texts: str) -> list[Passage]:
    return [Passage(id=f"p{n}", text=text, title="T", document=f"d:{n}") for n, text in enumerate(texts)]


def made(texts: list[str], *, first: int = 0, count: int = 8, seed: int = 0, each: int = 2) -> list[tuple[str, str]]:
    found = examples(
        passages(*texts),
        role=ROLE,
        view=lambda question, shown: {"question": question, "passages": "\n".join(one.text for one in shown)},
        seed=seed,
        first=first,
        count=count,
        each=each,
    )
    return [(one.prompt, one.replies[0]) for one in found]


@pytest.mark.parametrize("masks", range(1, MOST + 1))
def test_what_is_masked_is_not_in_the_question(masks: int) -> None:
    task = mask(RICH, masks=masks)
    assert task is not None
    assert len(task.answers) == masks
    assert not any(holds(task.question, one) for one in task.answers)
    shown = task.question.split('in: "')[1].removesuffix('"')
    for number, answer in enumerate(task.answers, start=1):
        shown = shown.replace("____" if masks == 1 else f"____[{number}]", answer)
    assert shown == RICH


def test_one_mask_is_asked_for_as_the_games_own_questions_are() -> None:
    task = mask("The city of Paris has many bridges over its river.", masks=1)
    assert task == Masked(
        question='Which words are missing at ____ in: "The city of ____ has many bridges over its river."',
        answers=("Paris",),
    )


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        "",
        "Paris.",
        "In Paris, of all towns, there is no place that is more like Paris than the market of the town.",
    ],
)
def test_where_nothing_can_be_masked_there_is_no_example(text: str) -> None:
    assert mask(text, masks=1) is None
    assert made([text]) == []


def test_masks_grow_by_index_and_fall_back_where_a_text_has_fewer() -> None:
    assert [masks_of(index, each=2) for index in range(10)] == [1, 1, 2, 2, 3, 3, 4, 4, 4, 4]
    assert [reply.count("; ") for _, reply in made([RICH, PLAIN])] == [0, 0, 1, 1, 2, 2, 3, 3]
    poor = "The city of Paris has many bridges over its river."
    assert [reply for _, reply in made([poor], first=6, count=2)] == ["<answer>Paris</answer>"] * 2


def test_examples_are_a_function_of_seed_and_index() -> None:
    texts = [RICH.replace("1874", str(1800 + n)) for n in range(20)]
    assert made(texts, count=12) == made(texts, count=5) + made(texts, first=5, count=7)
    assert made(texts) != made(texts, seed=1)
    assert made([]) == []


def test_the_passage_is_given_among_others() -> None:
    texts = [RICH.replace("1874", str(1800 + n)) for n in range(20)]
    for prompt, reply in made(texts):
        shown = prompt.splitlines()[:3]
        assert len(set(shown)) == 3
        answers = reply.removeprefix("<answer>").removesuffix("</answer>").split("; ")
        assert any(all(one in line for one in answers) for line in shown)
    assert len({prompt.splitlines().index(RICH) for prompt, _ in made([RICH, "x", "y"], count=20, each=50)}) == 3


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300), st.integers(1, 4))
def test_any_text_can_be_looked_through(text: str, masks: int) -> None:
    task = mask(text, masks=masks)
    assert task is None or len(task.answers) == masks


def test_what_a_search_finds_beside_a_passage_is_given_with_it_before_others() -> None:
    far, near = passages(RICH, *(PLAIN for _ in range(9))), passages("Something like it.", "Another one.")
    beside = {far[0].id: [replace(one, id=f"near {one.id}") for one in near]}

    def prompts(shown: int) -> list[str]:
        view = lambda question, given: {"question": question, "passages": " | ".join(one.text for one in given)}  # noqa: E731
        found = examples(far[:1], role=ROLE, view=view, seed=0, first=0, count=6, beside=beside, shown=shown)
        return [one.prompt for one in found]

    assert all("Something like it." in prompt and RICH in prompt for prompt in prompts(2))
    assert all(prompt.count(" | ") == 2 and "Another one." in prompt for prompt in prompts(3))
    assert len({prompt.partition("\n")[0] for prompt in prompts(2)}) == 2, "the place of the right one is drawn"

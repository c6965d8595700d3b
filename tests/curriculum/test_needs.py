"""What a curriculum asks of a game, and what is said where the game lacks it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from selfplay.curriculum import CURRICULA
from selfplay.curriculum.needs import Needs, missing, needs_of, needs_of_choices, refuse_missing
from selfplay.curriculum.papers import Ssr, ssr
from selfplay.errors import UserError
from selfplay.types import Choice, record


@record
class Can:
    """What a game has."""

    modes: tuple[str, ...] = ("propose", "replay")
    strategies: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()


EVERYTHING = Can(modes=("propose", "replay", "mutate"), strategies=("direct", "removal", "history"), terms=("hint",))


def chosen(mode: str, **terms: Any) -> Choice:
    return Choice(step=0, index=0, mode=mode, subject_id="s", score=1.0, why="w", terms=terms)  # type: ignore[arg-type]


def test_what_is_missing_is_named_in_order() -> None:
    needs = Needs(modes=("mutate", "replay"), strategies=("direct",), terms=("hint", "turns"))
    assert missing(needs, Can()) == ("mode `mutate`", "strategy `direct`", "`hint`", "`turns`")
    assert missing(needs, EVERYTHING) == ("`turns`",)
    assert missing(Needs(), Can()) == ()


def test_a_curriculum_that_does_not_say_asks_for_nothing() -> None:
    assert needs_of(lambda history, seeds: ()) == Needs()
    assert needs_of(partial(lambda **words: (), options=3)) == Needs()
    assert needs_of(CURRICULA["uniform"]) == Needs()


def test_options_decide_what_is_asked_for() -> None:
    assert needs_of(ssr).modes == ("mutate",)
    assert needs_of(partial(ssr, options=Ssr(second=0.0, strategies=""))) == Needs(less=needs_of(ssr).less)


def test_choices_ask_for_what_their_terms_say() -> None:
    choices = [
        chosen("propose", strategy="removal", hint=True),
        chosen("propose", strategy="removal", turns=0),
        chosen("mutate", strategy="second-order", attempt="a"),
    ]
    assert needs_of_choices(choices) == Needs(modes=("propose", "mutate"), strategies=("removal",), terms=("hint",))
    assert needs_of_choices([]) == Needs()


def test_a_refusal_names_what_asks_for_less_and_what_can_be_played() -> None:
    needs = Needs(modes=("mutate",), strategies=("remoal",), less={"modes": "second=0", "terms": "turns=0"})
    can = Can(strategies=("direct", "removal"))
    with pytest.raises(UserError) as caught:
        refuse_missing(needs, can, name="mine", game="echo", known=CURRICULA)
    assert caught.value.message == (
        "curriculum `mine` with these options asks for mode `mutate`, strategy `remoal`, "
        "which game `echo` does not have"
    )
    hint = caught.value.hint
    assert hint.startswith("did you mean `removal`? its strategies: direct, removal; ")
    assert "-s 'curriculum.options={second=0}' asks for less; by default it can be played with: uniform" in hint
    assert "ssr" not in hint.partition("played with: ")[2].partition(";")[0].split(", ")


def test_what_is_there_is_not_refused() -> None:
    for name, choose in CURRICULA.items():
        if not missing(needs_of(choose), EVERYTHING):
            refuse_missing(needs_of(choose), EVERYTHING, name=name, game="code", known=CURRICULA)

"""Options of a curriculum: what may be set, and what is said of what may not."""

from __future__ import annotations

from functools import partial
from math import inf, nan
from typing import Any

import pytest

from selfplay.curriculum.options import configured, defaults_of, filled, listed, near, within
from selfplay.errors import UserError
from selfplay.types import record


@record
class Few:
    """Options of every kind."""

    share: float = 0.5
    rounds: int = 3
    strict: bool = False
    name: str = "a"

    def __post_init__(self) -> None:
        within(self, share=(0.0, 1.0), rounds=(1, inf))


def takes(*, options: Few = Few()) -> Few:  # noqa: B008
    return options


def test_given_options_take_the_place_of_defaults() -> None:
    made = configured(takes, {"share": 1, "strict": True})
    assert isinstance(made, partial)
    assert made() == Few(share=1.0, strict=True)
    assert type(made().share) is float, "a whole number serves as a number"
    assert configured(takes, {}) is takes


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ({"shore": 1.0}, "`takes` has no option `shore` (curriculum.options)", "did you mean `share`? its options: "),
        ({"rounds": 2.0}, "option `rounds` of `takes` is 2.0, expected a whole number", "it is 3 by default"),
        ({"rounds": True}, "option `rounds` of `takes` is True, expected a whole number", "it is 3 by default"),
        ({"share": True}, "option `share` of `takes` is True, expected a number", "it is 0.5 by default"),
        ({"strict": 1}, "option `strict` of `takes` is 1, expected true or false", "it is False by default"),
        ({"name": 1}, "option `name` of `takes` is 1, expected a string", "it is 'a' by default"),
        ({"share": 1.5}, "option `share` is 1.5, expected at least 0 and at most 1 (`takes`, ", "all options: share, "),
        ({"share": nan}, "option `share` is nan, expected at least 0 and at most 1", "all options: "),
        ({"rounds": 0}, "option `rounds` is 0, expected at least 1 (`takes`, ", "all options: "),
    ],
)
def test_what_cannot_be_set_is_one_sentence(given: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        configured(takes, given)
    assert caught.value.message.startswith(message)
    assert caught.value.hint.startswith(hint)


def test_a_function_without_a_record_takes_no_options() -> None:
    def plain(*, options: int = 3) -> int:
        return options

    assert defaults_of(plain) is None
    assert defaults_of(lambda: None) is None
    with pytest.raises(UserError, match="`mine` has no option `x`") as caught:
        filled(None, {"x": 1}, name="mine", key="k")
    assert caught.value.hint == "its options: none"


def test_only_a_near_name_is_suggested() -> None:
    assert near("uniforn", ["uniform", "frontier"]) == "did you mean `uniform`? "
    assert near("x", ["uniform", "frontier"]) == near("x", []) == ""


def test_a_list_by_comma() -> None:
    assert listed(" a, b ,,c,") == ("a", "b", "c")
    assert listed("") == listed(" , ") == ()

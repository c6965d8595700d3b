"""Every value that eight attempts can give, and what is not decided."""

from __future__ import annotations

import pytest

from selfplay.errors import UserError
from selfplay.games.rewards import PlusMinusOne, SelfPlaySwe, proposer_reward


@pytest.mark.parametrize(
    ("passed", "reward"),
    [(0, -0.8), (1, 0.775), (2, 0.55), (3, 0.325), (4, 0.1), (5, -0.125), (6, -0.35), (7, -0.575), (8, -0.8)],
)
def test_the_injector_at_every_solve_rate_of_eight(passed: int, reward: float) -> None:
    assert SelfPlaySwe()(True, passed, 8) == pytest.approx(reward)


@pytest.mark.parametrize("decided", range(6))
def test_fewer_than_six_decided_attempts_decide_nothing(decided: int) -> None:
    assert SelfPlaySwe()(True, 0, decided) is None
    assert SelfPlaySwe()(False, 0, decided) == -1.0


def test_the_solve_rate_counts_decided_attempts_only() -> None:
    assert SelfPlaySwe()(True, 3, 6) == pytest.approx(1 - 1.8 / 2)


def test_counts_that_cannot_be_are_an_error() -> None:
    with pytest.raises(ValueError, match="9 of 8"):
        SelfPlaySwe()(True, 9, 8)


def test_formulas_name_the_constants_in_force() -> None:
    assert SelfPlaySwe().formula == "-1 if invalid, -0.8 if s is 0 or 1, else 1 - 1.8 s"
    assert proposer_reward("ssr", alpha=0.5).formula == "-1 if invalid, -0.5 if s is 0 or 1, else 1 - 1.5 s"
    assert PlusMinusOne().formula == "+1 if all tests pass, else -1"
    assert (PlusMinusOne()(True), PlusMinusOne()(False)) == (1.0, -1.0)


def test_an_unknown_reward_is_refused() -> None:
    with pytest.raises(UserError, match="no proposer reward `best`"):
        proposer_reward("best")

"""Every value that eight attempts can give, row by row, and what is not decided."""

from __future__ import annotations

import pytest

from selfplay.errors import UserError
from selfplay.games.rewards import (
    PROPOSER,
    Beside,
    PlusMinusOne,
    SelfPlaySwe,
    proposer_reward,
    refuse_unbalanced,
)

EVERY = {
    "ssp": [1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0.0],
    "azr": [0.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0.0],
    "rzero": [0.0, 0.125, 0.25, 0.375, 0.5, 0.375, 0.25, 0.125, 0.0],
    "spice": [0.04394, 0.37203, 0.82258, 0.98787, 1.0, 0.98787, 0.82258, 0.37203, 0.04394],
    "drzero": [0.0, 1.0, 6 / 7, 5 / 7, 4 / 7, 3 / 7, 2 / 7, 1 / 7, 0.0],
    "learnability": [36 / 110, 64 / 110, 84 / 110, 96 / 110, 100 / 110, 96 / 110, 84 / 110, 64 / 110, 36 / 110],
    "hint_regret": [0.5, 0.375, 0.25, 0.125, 0.0, -0.125, -0.25, -0.375, -0.5],
}
"""Name -> what 0 to 8 of 8 solved attempts pay; with a hint 4 of 8 do."""
INVALID = {"ssp": 0, "azr": -0.5, "rzero": -1, "spice": -0.1, "drzero": 0, "learnability": 0, "hint_regret": 0}


@pytest.mark.parametrize(
    ("passed", "reward"),
    [(0, -0.8), (1, 0.775), (2, 0.55), (3, 0.325), (4, 0.1), (5, -0.125), (6, -0.35), (7, -0.575), (8, -0.8)],
)
def test_the_injector_at_every_solve_rate_of_eight(passed: int, reward: float) -> None:
    assert SelfPlaySwe()(True, passed, 8) == pytest.approx(reward)


@pytest.mark.parametrize("name", PROPOSER)
def test_a_row_at_every_solve_rate_of_eight(name: str) -> None:
    reward = proposer_reward(name)
    beside = Beside(hinted=(4, 8))
    assert [reward(True, k, 8, beside) for k in range(9)] == pytest.approx(EVERY[name], abs=1e-5)
    assert reward(False, 0, 0) == reward.invalid == INVALID[name]
    assert reward.formula.startswith(f"{INVALID[name]:g} if invalid")
    assert "{" not in reward.formula


def test_what_stands_beside_the_attempts() -> None:
    assert proposer_reward("rzero")(True, 4, 8, Beside(share=0.25)) == 0.25
    assert proposer_reward("azr")(False, 0, 0, Beside(formed=False)) == -1.0
    assert proposer_reward("ssp")(False, 0, 0, Beside(formed=False)) == 0.0
    assert proposer_reward("hint_regret")(True, 4, 8) is None
    assert proposer_reward("hint_regret")(True, 4, 8, Beside(hinted=(5, 5))) is None


@pytest.mark.parametrize("share", [0.0, 0.125, 0.5, 1.0])
def test_what_is_repeated_costs_its_share_at_every_solve_rate(share: float) -> None:
    reward = proposer_reward("rzero")
    beside = Beside(share=share)
    assert [reward(True, k, 8, beside) for k in range(9)] == pytest.approx([row - share for row in EVERY["rzero"]])
    half = proposer_reward("rzero", options={"repeated": 0.5})
    assert [half(True, k, 8, beside) for k in range(9)] == pytest.approx([row - share / 2 for row in EVERY["rzero"]])
    assert reward(False, 0, 0, beside) == -1.0


@pytest.mark.parametrize("helped", range(9))
def test_a_hint_is_worth_the_difference_at_every_solve_rate(helped: int) -> None:
    reward = proposer_reward("hint_regret")
    paid = [reward(True, k, 8, Beside(hinted=(helped, 8))) for k in range(9)]
    assert paid == pytest.approx([(helped - k) / 8 for k in range(9)])


@pytest.mark.parametrize("name", ["ssr", *PROPOSER])
def test_a_reward_that_says_nothing_of_it_looks_at_nothing_beside(name: str) -> None:
    reward = proposer_reward(name)
    told = Beside(share=0.5, hinted=(7, 8))
    changed = [reward(True, k, 8, told) != reward(True, k, 8) for k in range(9)]
    assert any(changed) is bool(reward.looks)
    assert reward.looks == {"rzero": ("share",), "hint_regret": ("hinted",)}.get(name, ())


@pytest.mark.parametrize("name", ["ssr", *PROPOSER])
def test_too_few_decided_attempts_decide_nothing(name: str) -> None:
    reward = proposer_reward(name)
    for decided in range(6):
        assert reward(True, 0, decided, Beside(hinted=(1, 8))) is None
        assert reward(False, 0, decided) == reward.invalid
    with pytest.raises(ValueError, match="9 of 8"):
        reward(True, 9, 8)
    assert proposer_reward(name, min_viable=0)(True, 0, 0) is None


def test_the_solve_rate_counts_decided_attempts_only() -> None:
    assert SelfPlaySwe()(True, 3, 6) == pytest.approx(1 - 1.8 / 2)


def test_formulas_name_the_constants_in_force() -> None:
    assert SelfPlaySwe().formula == "-1 if invalid, -0.8 if s is 0 or 1, else 1 - 1.8 s"
    assert proposer_reward("ssr", alpha=0.5).formula == "-1 if invalid, -0.5 if s is 0 or 1, else 1 - 1.5 s"
    assert proposer_reward("spice", options={"width": 0.02}).formula.endswith("exp(-(s (1 - s) - 0.25)^2 / (2 0.02))")
    assert proposer_reward("azr").formula.startswith("-0.5 if invalid (-1 if unreadable)")
    assert PlusMinusOne().formula == "+1 if it passes, else -1"
    assert (PlusMinusOne()(True), PlusMinusOne()(False)) == (1.0, -1.0)


def halves(valid: bool, passed: int, decided: int, beside: Beside) -> float | None:
    return 0.5 if valid else -2.0


def curious(valid: bool, passed: int, decided: int, beside: Beside) -> float | None:
    return 0.0


curious.looks = ("hinted",)  # type: ignore[attr-defined]


def test_a_dotted_path_is_a_reward() -> None:
    reward = proposer_reward(f"{__name__}:halves")
    assert reward.looks == ("share",)
    assert proposer_reward(f"{__name__}:curious").looks == ("hinted",)
    assert (reward(True, 1, 8), reward(True, 1, 2), reward(False, 0, 0), reward.invalid) == (0.5, None, -2.0, -2.0)
    with pytest.raises(UserError, match=r"no proposer reward `no\.such:f`"):
        proposer_reward("no.such:f")


@pytest.mark.parametrize(
    ("name", "options", "message", "hint"),
    [
        ("best", {}, "no proposer reward `best`", "ssr, ssp, azr"),
        (
            "azr",
            {"malformd": 0},
            "no constant `malformd`",
            "did you mean `malformed`? its constants: invalid",
        ),
        ("ssp", {"invalid": "0"}, "'0', expected a number", ""),
        ("ssr", {"alpha": 0.5}, "no constant `alpha`", "its constants: invalid"),
    ],
)
def test_what_is_refused(name: str, options: dict[str, object], message: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        proposer_reward(name, options=options)
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize("name", ["ssr", *PROPOSER])
def test_a_loss_for_invalid_proposals_needs_a_baseline(name: str) -> None:
    reward = proposer_reward(name)
    refuse_unbalanced(reward, name=name, estimator="grpo")
    refuse_unbalanced(proposer_reward(name, options={"invalid": 0}), name=name, estimator="raw")
    if reward.invalid < 0:
        for estimator in ("raw", "selfplay.learner.grpo:raw"):
            with pytest.raises(UserError, match=r"subtracts no baseline.*ruined SSP"):
                refuse_unbalanced(reward, name=name, estimator=estimator)
    else:
        refuse_unbalanced(reward, name=name, estimator="raw")

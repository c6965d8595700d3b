"""Every curriculum on a past that holds nothing, or too much of one thing: it goes on, or says why it cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from selfplay.curriculum import (
    CURRICULA,
    Needs,
    bandit,
    configured,
    frontier,
    ladder,
    refuse_missing,
    ssp,
    ssr,
    uniform,
)
from selfplay.errors import RunFailed, UserError
from selfplay.games import Abilities
from selfplay.types import Choice
from tests.curriculum.past import Past, proposed, seeds, task

EVERY = [uniform, frontier, ssr, ssp, ladder, bandit]
Choose = Callable[..., tuple[Choice, ...]]


@pytest.fixture(params=EVERY, ids=lambda function: function.__name__)
def choose(request: pytest.FixtureRequest) -> Choose:
    found: Choose = request.param
    return found


def still(tasks: tuple[object, ...] = (), **given: object) -> Past:
    """Fifty steps that changed nothing."""
    return Past(tasks=tasks, moved=dict.fromkeys(range(50), 0.0), **given)  # type: ignore[arg-type]


def test_before_anything_was_played_it_proposes(choose: Choose) -> None:
    chosen = choose(Past(), seeds(8), n=4, step=0, seed=0)
    assert [choice.mode for choice in chosen] == ["propose"] * 4
    assert len({choice.subject_id for choice in chosen}) == 4
    assert [choice.index for choice in chosen] == [0, 1, 2, 3]


def test_no_valid_task_yet_goes_on_proposing(choose: Choose) -> None:
    past = Past(proposed={"t0": proposed(3, 12, 0, flaky=12)}, counts={"t0": 3}, moved={0: 0.0, 1: 0.0})
    assert {choice.mode for choice in choose(past, seeds(4), n=2, step=2, seed=0)} == {"propose"}


@pytest.mark.parametrize(
    ("past", "why"),
    [
        (still(proposed={"t0": proposed(50, 200, 0, flaky=150, timeout=50)}), "no proposal became a task, .*`flaky`"),
        (still(), "no proposal became a task"),
        (still((task("a", (49, 8)),), proposed={"t0": proposed(50, 200, 1)}), "all 8 attempts solved their task"),
        (still((task("a", (49, 0)),), proposed={"t0": proposed(50, 200, 1)}), "none of 8 attempts solved a task"),
        (still((task("a", (49, 4)),), proposed={"t0": proposed(50, 200, 1)}), "4 of 8 attempts .* no group taught"),
    ],
)
def test_it_never_spins_without_progress(choose: Choose, past: Past, why: str) -> None:
    with pytest.raises(RunFailed, match=f"50 steps in a row changed nothing: {why}") as caught:
        choose(past, seeds(4), n=2, step=50, seed=0)
    assert caught.value.hint
    moving = replace(past, moved={**past.moved, 49: 1.0})
    assert choose(moving, seeds(4), n=2, step=50, seed=0)


@pytest.mark.parametrize("patience", [20, 90])
def test_it_is_as_patient_as_it_is_asked_to_be(choose: Choose, patience: int) -> None:
    patient = configured(choose, {"patience": patience})
    past = Past(moved=dict.fromkeys(range(100), 0.0))
    assert patient(past, seeds(4), n=2, step=patience - 1, seed=0)
    with pytest.raises(RunFailed, match=f"^{patience} steps in a row changed nothing"):
        patient(past, seeds(4), n=2, step=patience, seed=0)


@pytest.mark.parametrize("solved", [0, 8])
def test_all_solved_or_none_ever_solved_goes_on_with_new_tasks(choose: Choose, solved: int) -> None:
    tasks = [task(f"k{i}", (8, solved), (9, solved)) for i in range(20)]
    past = Past(tasks=tasks, moved=dict.fromkeys(range(10), 1.0))
    chosen = choose(past, seeds(8), n=4, step=10, seed=0)
    assert len(chosen) == 4
    if choose is not ssr or solved:
        assert {choice.mode for choice in chosen} == {"propose"}


def test_one_seed_only(choose: Choose) -> None:
    chosen = choose(Past(), seeds(1, held_out=5), n=4, step=0, seed=0)
    assert [choice.subject_id for choice in chosen] == ["t0"]


def test_fewer_seeds_than_the_batch_are_made_up_for_by_known_tasks_or_give_fewer_choices(choose: Choose) -> None:
    past = Past(tasks=[task(f"k{i}", (9, 4)) for i in range(20)], moved=dict.fromkeys(range(10), 1.0))
    chosen = choose(past, seeds(3), n=8, step=10, seed=0)
    subjects = [choice.subject_id for choice in chosen]
    assert len(subjects) == len(set(subjects)) == (8 if choose is frontier else len(chosen)) >= 3


def test_nothing_to_train_on_is_refused(choose: Choose) -> None:
    with pytest.raises(UserError, match="held out"):
        choose(Past(), seeds(0, held_out=3), n=1, step=0, seed=0)


def test_an_unknown_option_names_the_nearest(choose: Choose) -> None:
    with pytest.raises(UserError) as caught:
        configured(choose, {"patients": 3})
    assert "has no option `patients` (curriculum.options)" in caught.value.message
    assert caught.value.hint.startswith("did you mean `patience`? its options: ")


@pytest.mark.parametrize(
    ("function", "given", "message"),
    [
        (frontier, {"replay": "half"}, "option `replay` of `frontier` is 'half', expected a number"),
        (frontier, {"anneal": 1}, "option `anneal` of `frontier` is 1, expected true or false"),
        (frontier, {"window": 0.5}, "option `window` of `frontier` is 0.5, expected a whole number"),
        (frontier, {"replay": 1.5}, "option `replay` is 1.5, expected at least 0 and at most 1"),
        (uniform, {"patience": 0}, "option `patience` is 0, expected at least 1"),
        (ssp, {"refill": "cleaned"}, "option `refill` is 'cleaned', expected one of cleared, full, resample, dummy"),
        (bandit, {"gain": "x"}, "option `gain` is 'x'"),
        (ladder, {"strategies": " , "}, "names no rung"),
        (len, {"x": 1}, "`len` has no option `x`"),
    ],
)
def test_an_option_of_the_wrong_kind_or_size_is_one_sentence(
    function: Choose, given: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        configured(function, given)
    assert message in caught.value.message


def test_a_strategy_that_the_game_does_not_have_is_refused() -> None:
    can = Abilities(strategies=("direct", "removal"))
    refuse_missing(Needs(strategies=("removal",)), can, name="mine", game="code", known=CURRICULA)
    with pytest.raises(UserError, match="asks for strategy `removel`, which game `code` does not have") as caught:
        refuse_missing(Needs(strategies=("removel",)), can, name="mine", game="code", known=CURRICULA)
    hint = caught.value.hint or ""
    assert hint.startswith("did you mean `removal`? its strategies: direct, removal; ")
    assert "uniform, frontier, ssp, ladder, bandit" in hint

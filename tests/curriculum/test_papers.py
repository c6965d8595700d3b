"""`ssr`, `ssp`, `ladder` and `bandit`: what the papers state, from a past of a few tasks."""

from __future__ import annotations

from collections import Counter

import pytest

from selfplay.curriculum import bandit, ladder, ssp, ssr
from selfplay.curriculum.arms import Bandit, chances_of
from selfplay.curriculum.papers import Ssp, Ssr
from selfplay.curriculum.rungs import Ladder, horizon
from selfplay.errors import UserError
from tests.curriculum.past import Past, seeds, task

MOVED = dict.fromkeys(range(100), 1.0)


def test_ssr_draws_removal_or_history_for_each_choice() -> None:
    chosen = ssr(Past(), seeds(200), n=200, step=0, seed=0)
    drawn = Counter(choice.terms["strategy"] for choice in chosen)
    assert drawn.keys() == {"removal", "history"}
    assert min(drawn.values()) > 70
    assert {len(choice.terms) for choice in ssr(Past(), seeds(4), n=4, step=0, seed=0, options=Ssr(strategies=""))} == {
        0
    }


def test_ssr_makes_children_of_failed_attempts_one_level_deep() -> None:
    tasks = [
        task("solved", (9, 8)),
        task("failed", (9, 3)),
        task("parent", (8, 3)),
        task("child", (9, 3), parent_id="parent"),
    ]
    chosen = ssr(Past(tasks=tasks, moved=MOVED), seeds(8), n=4, step=10, seed=0, options=Ssr(second=0.9))
    children = [choice for choice in chosen if choice.mode == "mutate"]
    assert [child.subject_id for child in children] == ["failed"]
    assert dict(children[0].terms) == {"attempt": "failed-failed", "strategy": "second-order"}
    assert [choice.index for choice in chosen] == [0, 1, 2, 3]


def test_ssp_fills_refill_rounds_from_a_pool_that_is_cleared_every_ten_steps() -> None:
    tasks = [task("old", (9, 4)), task("new", (10, 4)), task("newer", (11, 8))]
    past = Past(tasks=tasks, moved=MOVED)
    assert {choice.mode for choice in ssp(past, seeds(8), n=4, step=12, seed=0)} == {"propose"}

    def again(step: int = 12, **options: object) -> set[str]:
        given = Ssp(**options)  # type: ignore[arg-type]
        chosen = ssp(past, seeds(8), n=4, step=step, seed=0, first=4, taken={"t0"}, options=given)
        return {choice.subject_id for choice in chosen if choice.mode == "replay"}

    assert again() == {"new", "newer"}
    assert again(refill="full") == {"old", "new", "newer"}
    assert again(threshold=0.5) == {"new"}
    assert again(step=20) == again(refill="resample") == set()
    assert ssp(past, seeds(8), n=4, step=12, seed=0, first=4, taken={"t0"}, options=Ssp(refill="dummy")) == ()


def test_a_first_round_is_none_of_refills_wherever_its_places_begin() -> None:
    past = Past(tasks=[task("new", (10, 4))], moved=MOVED)
    for refill in ("cleared", "full", "dummy"):
        chosen = ssp(past, seeds(8), n=2, step=12, seed=0, first=2, options=Ssp(refill=refill))
        assert [(choice.mode, choice.index) for choice in chosen] == [("propose", 2), ("propose", 3)]


@pytest.mark.parametrize(("solved", "decided", "rung"), [(5, 4, "one"), (5, 3, "one"), (4, 4, "one"), (5, 5, "two")])
def test_the_ladder_is_climbed_by_success(solved: int, decided: int, rung: str) -> None:
    tasks = [task(f"k{i}", (9, solved), strategy="one") for i in range(decided)]
    options = Ladder(strategies="one, two, three", enough=40, unlock=0.6, review=0.0)
    (choice,) = ladder(Past(tasks=tasks, moved=MOVED), seeds(3), n=1, step=10, seed=0, options=options)
    assert choice.terms == {"strategy": rung}
    assert f"{solved * decided} of {8 * decided} first attempts solved on `one`" in choice.why


def test_a_rung_that_was_reached_is_kept_and_lower_ones_are_reviewed() -> None:
    tasks = [task("k", (9, 0), strategy="two")]
    options = Ladder(strategies="one,two,three", review=0.3)
    chosen = ladder(Past(tasks=tasks, moved=MOVED), seeds(100), n=100, step=10, seed=0, options=options)
    rungs = Counter(choice.terms["strategy"] for choice in chosen)
    assert rungs.keys() == {"one", "two"}
    assert 15 < rungs["one"] < 45


def test_the_rungs_may_be_values_of_the_seeds() -> None:
    where = seeds(40, hop=lambda i: 1 + i % 4)
    options = Ladder(level="hop", enough=8, review=0.25)

    def hops(solved: int) -> Counter[int]:
        tasks = [task("k1", (9, 8), seed_id="t4"), task("k2", (9, solved), seed_id="t1")]
        chosen = ladder(Past(tasks=tasks, moved=MOVED), where, n=16, step=10, seed=0, options=options)
        assert len({choice.subject_id for choice in chosen}) == 16
        assert [choice.index for choice in chosen] == list(range(16))
        assert {tuple(choice.terms) for choice in chosen} == {()}
        return Counter(1 + int(choice.subject_id[1:]) % 4 for choice in chosen)

    assert hops(0).keys() == {1, 2}
    assert hops(0)[2] >= 10
    assert hops(8)[3] == 10, "the third rung has ten seeds, and the others make up for what is missing"
    assert 4 not in hops(8)


def test_seeds_must_have_the_level_that_is_named() -> None:
    with pytest.raises(UserError, match="`level` of curriculum `ladder` is `hop`, and seeds of game `echo`") as caught:
        ladder(Past(), seeds(2, length=1), n=1, step=0, seed=0, options=Ladder(level="hop"))
    assert caught.value.hint == "they have: length"


def test_the_horizon_grows_in_stages() -> None:
    options = Ladder(turns=4, longer=2, every=10, most=7)
    assert [horizon(step, options) for step in (0, 9, 10, 25)] == [4, 4, 6, 7]
    assert horizon(100, Ladder()) == 0
    (choice,) = ladder(Past(), seeds(1), n=1, step=0, seed=0, options=options)
    assert choice.terms == {"strategy": "direct", "turns": 4}


def test_the_bandit_goes_where_success_changes_and_leaves_no_module_out() -> None:
    where = seeds(40, path=lambda i: f"m{i % 4}.py")
    tasks = [
        task(f"k{i}{step}", (step, 8 * (i == 0 and step > 5)), seed_id=f"t{i}") for i in range(4) for step in (2, 9)
    ]
    past = Past(tasks=tasks, moved=MOVED)
    drawn = Counter(
        int(choice.subject_id[1:]) % 4
        for step in range(10, 60)
        for choice in bandit(past, where, n=2, step=step, seed=0)
    )
    assert drawn[0] > 70
    assert set(drawn) == {0, 1, 2, 3}
    chances = chances_of({"a": 1.0, "b": 0.0}, Bandit(even=0.2))
    assert sum(chances.values()) == pytest.approx(1.0)
    assert chances["b"] == pytest.approx(0.1, abs=1e-3)


def test_the_bandit_can_be_paid_in_advantages() -> None:
    where = seeds(2, path=lambda i: f"m{i}.py")
    tasks = [task(f"k{i}{n}", (9, (8, 4)[i]), seed_id=f"t{i}") for i in range(2) for n in range(2)]
    (choice,) = bandit(
        Past(tasks=tasks, moved=MOVED),
        where,
        n=1,
        step=10,
        seed=0,
        options=Bandit(gain="advantage", even=0.0, rate=50.0),
    )
    assert choice.subject_id == "t1"
    assert "advantage 0.500" in choice.why

"""`uniform` spreads over the train seeds, is pure, and never touches a held-out one."""

from __future__ import annotations

import pytest

from selfplay.curriculum import uniform
from selfplay.errors import RunFailed, UserError
from tests.curriculum.past import Past, proposed, seeds


def counts(**counts: int) -> Past:
    return Past(counts=counts)


def test_least_played_seeds_come_first() -> None:
    chosen = uniform(counts(t0=2, t1=1, t3=1), seeds(4), n=2, step=5, seed=0)
    assert chosen[0].subject_id == "t2"
    assert chosen[1].subject_id in {"t1", "t3"}
    assert [c.index for c in chosen] == [0, 1]
    assert "0 times" in chosen[0].why


def test_it_is_pure_and_its_ties_depend_on_the_step() -> None:
    runs = [tuple(c.subject_id for c in uniform(counts(), seeds(50), n=5, step=s, seed=0)) for s in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_held_out_seeds_are_never_chosen() -> None:
    chosen = uniform(counts(), seeds(2, held_out=50), n=10, step=0, seed=0)
    assert {c.subject_id for c in chosen} == {"t0", "t1"}


def test_a_refill_takes_other_seeds_first() -> None:
    chosen = uniform(counts(), seeds(3), n=2, step=0, seed=0, first=2, taken={"t0"})
    assert {c.subject_id for c in chosen} == {"t1", "t2"}
    assert [c.index for c in chosen] == [2, 3]


def test_nothing_to_train_on_is_refused() -> None:
    with pytest.raises(UserError, match="held out"):
        uniform(counts(), seeds(0, held_out=3), n=1, step=0, seed=0)


def test_it_stops_where_nothing_changes_any_more_and_says_what_it_was_spent_on() -> None:
    past = Past(proposed={"t0": proposed(9, 9, 0, tests_still_pass=7, flaky=2)}, moved=dict.fromkeys(range(50), 0.0))
    with pytest.raises(RunFailed, match="50 steps in a row changed nothing: no proposal became a task, most often"):
        uniform(past, seeds(2), n=1, step=50, seed=0)
    assert uniform(past, seeds(2), n=1, step=49, seed=0)

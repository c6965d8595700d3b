"""`uniform` spreads over the train seeds, is pure, and never touches a held-out one."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from selfplay.curriculum import uniform
from selfplay.errors import UserError
from selfplay.types import Seed


class Played:
    """A history given as counts."""

    def __init__(self, **counts: int) -> None:
        self.counts = counts

    def played_seeds(self, *, before: int) -> Mapping[str, int]:
        return self.counts


def seeds(train: int, held_out: int = 0) -> list[Seed]:
    rows = [("train", f"t{i}") for i in range(train)] + [("held_out", f"h{i}") for i in range(held_out)]
    return [Seed(id=name, game="echo", source=name, payload={}, split=split) for split, name in rows]  # type: ignore[arg-type]


def test_least_played_seeds_come_first() -> None:
    chosen = uniform(Played(t0=2, t1=1, t3=1), seeds(4), n=2, step=5, seed=0)
    assert chosen[0].subject_id == "t2"
    assert chosen[1].subject_id in {"t1", "t3"}
    assert [c.index for c in chosen] == [0, 1]
    assert "0 times" in chosen[0].why


def test_it_is_pure_and_its_ties_depend_on_the_step() -> None:
    runs = [tuple(c.subject_id for c in uniform(Played(), seeds(50), n=5, step=s, seed=0)) for s in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_held_out_seeds_are_never_chosen() -> None:
    chosen = uniform(Played(), seeds(2, held_out=50), n=10, step=0, seed=0)
    assert {c.subject_id for c in chosen} == {"t0", "t1"}


def test_a_refill_takes_other_seeds_first() -> None:
    chosen = uniform(Played(), seeds(3), n=2, step=0, seed=0, first=2, taken={"t0"})
    assert {c.subject_id for c in chosen} == {"t1", "t2"}
    assert [c.index for c in chosen] == [2, 3]


def test_nothing_to_train_on_is_refused() -> None:
    with pytest.raises(UserError, match="held out"):
        uniform(Played(), seeds(0, held_out=3), n=1, step=0, seed=0)

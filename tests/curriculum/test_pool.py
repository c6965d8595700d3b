"""Draws and ranks of known tasks, by themselves; in a curriculum: `test_frontier`."""

from __future__ import annotations

from math import isfinite

import pytest

from selfplay.curriculum import pool
from selfplay.curriculum.history import Seen, look
from tests.curriculum.past import Past, seeds, task


def seen(*tasks: object, step: int = 6) -> Seen:
    past = Past(tasks=tasks, moved=dict.fromkeys(range(step), 1.0))  # type: ignore[arg-type]
    return look(past, seeds(2), step=step, staleness=0, window=64, patience=50)


def names(found: object) -> list[str]:
    return [one.task.id for one in found]  # type: ignore[attr-defined]


def test_a_draw_follows_its_weights_and_nothing_else() -> None:
    weights = [("a", 3.0), ("b", 1.0), ("never", 0.0)]
    picks = [pool.pick(weights, 1, key=("k", i))[0] for i in range(2000)]
    assert picks.count("a") / 2000 == pytest.approx(0.75, abs=0.04)
    assert "never" not in picks
    assert pool.pick(weights, 3, key=("k",))[-1] == "never"
    assert pool.pick(weights, 0, key=("k",)) == pool.pick([], 3, key=("k",)) == ()
    assert len(pool.pick(weights, 99, key=("k",))) == 3


def test_another_name_changes_no_other_draw() -> None:
    weights = [(f"t{i}", 1.0 + i) for i in range(20)]
    whole = pool.pick(weights, 20, key=("k",))
    less = pool.pick([pair for pair in weights if pair[0] != "t7"], 19, key=("k",))
    assert less == tuple(name for name in whole if name != "t7")


def test_fractions_stay_inside_and_gumbel_is_finite() -> None:
    found = [pool.fraction("f", i) for i in range(2000)]
    assert 0.0 < min(found) < max(found) < 1.0
    assert sum(found) / 2000 == pytest.approx(0.5, abs=0.03)
    assert all(isfinite(pool.gumbel("f", i)) for i in range(2000))


@pytest.mark.parametrize(("value", "low", "high"), [(2.25, 2, 3), (0.0, 0, 0), (4.0, 4, 4)])
def test_rounding_keeps_the_mean(value: float, low: int, high: int) -> None:
    found = [pool.rounded(value, "r", i) for i in range(2000)]
    assert set(found) == {low, high}
    assert sum(found) / 2000 == pytest.approx(value, abs=0.05)


def test_hopeless_is_what_whole_groups_failed() -> None:
    by_name = {one.task.id: one for one in seen(task("none", (1, 0), (2, 0)), task("some", (1, 0), (2, 1))).candidates}
    assert pool.hopeless(by_name["none"], 2)
    assert not pool.hopeless(by_name["none"], 3), "two plays are not three"
    assert not pool.hopeless(by_name["none"], 0), "0: never"
    assert not pool.hopeless(by_name["some"], 1)


def test_the_shelf_holds_the_hopeless_until_hints_fail_as_often() -> None:
    found = seen(task("new", (4, 0)), task("old", (1, 0)), task("hinted", (1, 0), (2, 0, True)), task("fine", (1, 4)))
    assert names(pool.on_probation(found, taken=(), give_up=1)) == ["old", "new"]
    assert names(pool.on_probation(found, taken=("old",), give_up=1)) == ["new"]
    assert pool.on_probation(found, taken=(), give_up=0) == ()


def test_what_may_be_replayed() -> None:
    found = seen(task("once", (1, 4)), task("thrice", (1, 4), (2, 4), (3, 4)), task("failed", (1, 0)))

    def may(**other: object) -> list[str]:
        given = {"taken": (), "max_replays": 0, "retire": 1.0, "give_up": 0, **other}
        return sorted(names(pool.replayable(found, **given)))  # type: ignore[arg-type]

    assert may() == ["failed", "once", "thrice"]
    assert may(max_replays=2) == ["failed", "once"]
    assert may(give_up=1) == ["once", "thrice"]
    assert may(taken=("once",)) == ["failed", "thrice"]
    assert may(retire=0.0) == []


def test_doubts_and_plays_take_their_share_of_a_rank() -> None:
    found = seen(task("a", (1, 4)), task("b", (1, 4))).candidates
    plain = pool.ranked(found, target=0.5)
    assert [(one.candidate.task.id, one.rank, one.of) for one in plain] == [("a", 1, 2), ("b", 2, 2)], "ties by id"
    doubted = pool.ranked(found, target=0.5, doubts={"a": 1.0})
    assert [(one.candidate.task.id, one.score) for one in doubted] == [("b", plain[1].score), ("a", 0.0)]
    faded = pool.ranked(found, target=0.5, fade=0.5)
    assert [one.score for one in faded] == [plain[0].score / 2, plain[1].score / 2]
    assert pool.ranked((), target=0.5) == ()

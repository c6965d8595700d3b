"""What a task cost: sums over the steps that are known, and none where no task was accepted."""

from __future__ import annotations

import pytest

from selfplay.ledger import StepRow, Tally
from selfplay.ledger.watching import Spent
from selfplay.views.cost import cost_of, cost_words, stage_seconds


def row(step: int, **seconds: float) -> StepRow:
    tallies = {"propose/a": Tally(tokens=100), "attempt/b": Tally(tokens=50), "evaluate/b": Tally(tokens=7)}
    return StepRow(step=step, opened_at=0.0, closed_at=1.0, stage_seconds=seconds, counts={}, tallies=tallies)


ROWS = (row(0, sampling=2.0, verification=4.0), row(1, sampling=3.0))
SPENT = {
    0: Spent(tasks=1, replies=10, tools=2.0, calls=8, deciding=3.0, refused={}),
    1: Spent(tasks=3, replies=6, tools=1.0, calls=2, deciding=6.0, refused={}),
}


def test_a_share_of_everything() -> None:
    assert stage_seconds(ROWS) == {"sampling": 5.0, "verification": 4.0}
    price = cost_of(ROWS, SPENT)
    assert price == pytest.approx(
        {
            **{"replies": 4.0, "calls": 2.5, "tokens": 75.0, "sandbox_seconds": 3.0},
            **{"tool_seconds": 0.75, "deciding_seconds": 2.25, "verification_seconds": 1.0, "seconds": 2.25},
        }
    )
    assert price is not None
    said = "4.0 replies, 75 tokens, 2.5 calls of tools, 3.0 s in sandboxes (0.8 s in tools, 2.2 s deciding)"
    assert cost_words(price) == said
    assert "calls of tools" not in cost_words({**price, "calls": 0.0})


def test_none_without_a_task() -> None:
    assert cost_of(ROWS, {0: Spent(replies=10, refused={})}) is None
    assert cost_of((), {}) is None

"""When a run is evaluated; evaluations themselves: `tests/test_evaluation.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from selfplay.evaluation.during import Plan, owed
from selfplay.ledger import Ledger


@pytest.mark.parametrize(
    ("every", "due"), [(0, []), (1, [0, 1, 2, 3, 4, 5, 6]), (2, [0, 2, 4, 6]), (3, [0, 3, 6]), (9, [0])]
)
def test_the_first_is_before_step_0_and_then_every_so_many(every: int, due: list[int]) -> None:
    plan = Plan(every=every, tasks=2, attempts=2)
    assert [done for done in range(7) if plan.due(done)] == due


def test_what_is_due_and_was_not_played_is_owed(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "run", config_digest="d", config={}, seed=0, game="echo") as ledger:
        plan = Plan(every=2, tasks=2, attempts=2)
        assert [done for done in range(5) if owed(ledger, plan, done)] == [0, 2, 4]
        assert not owed(ledger, Plan(every=0, tasks=2, attempts=2), 0)

"""What a role was paid earlier: the memory of estimators that compare a reward with the past.

Groups are committed with the step that closes, so an open step never shows. The cost does not grow with the run:
the newest rows are read off an index.

Not here: what is made of it (`learner.estimators`).
"""

from __future__ import annotations

from selfplay.ledger.bulk import Ask

# note: CROSS JOIN keeps SQLite from starting at the members, of which it would read all.
REWARDS = (
    "SELECT m.reward AS reward FROM groups g CROSS JOIN group_members m ON m.group_id = g.id "
    "WHERE g.step < ? AND g.role = ? ORDER BY g.step DESC, g.rowid DESC, m.position DESC LIMIT ?"
)


def past_rewards(ask: Ask, before: int, role: str, limit: int) -> tuple[float, ...]:
    """The newest rewards of `role` in steps below `before`, at most `limit`, oldest first, in recorded order."""
    return tuple(row["reward"] for row in reversed(ask(REWARDS, before, role, limit)))

"""Version 5 of the schema: an attempt may be decided once more, in a later step, when a child is made of it.

The attempt belongs to a closed step by then, so the guard of verdicts lets through what a choice of an open step named:
a mint about that attempt. The view of states owes attempts on children, and on tasks that are replayed.

Not here: earlier versions (`schema.py` to `fourth.py`), what a child is (`games`).
"""

from __future__ import annotations

from selfplay.ledger import second

ATTEMPT = "json_extract(c.terms, '$.attempt')"
"""The failed attempt of which a choice `c` of mode `mutate` wants a child."""

_CLOSED = "(SELECT max(step) FROM steps)"
_LATER = f"""NEW.stage = 'mint' AND EXISTS (
        SELECT 1 FROM trajectories t
        JOIN choices c ON c.mode = 'mutate' AND c.subject_id = t.subject_id AND c.step > {_CLOSED}
        WHERE t.id = NEW.trajectory_id AND t.stage = 'attempt' AND {ATTEMPT} = t.id)"""
_CHOSEN = f"""
        UNION SELECT c.subject_id FROM choices c WHERE c.step = {second.OPEN} AND c.mode = 'replay'
        UNION SELECT v.task_id FROM choices c JOIN verdicts v ON v.trajectory_id = {ATTEMPT} AND v.stage = 'mint'
        WHERE c.step = {second.OPEN} AND c.mode = 'mutate' AND v.task_id IS NOT NULL"""


def statements() -> list[str]:
    """The SQL of version 5, a statement each."""
    return [
        "DROP TRIGGER verdicts_closed",
        "CREATE TRIGGER verdicts_closed BEFORE INSERT ON verdicts WHEN "
        f"(SELECT step FROM trajectories WHERE id = NEW.trajectory_id AND stage <> 'evaluate') <= {_CLOSED} "
        f"AND NOT ({_LATER}) BEGIN SELECT RAISE(ABORT, 'it belongs to a closed step'); END",
        "DROP VIEW trajectory_states",
        second.view(also=_CHOSEN),
    ]

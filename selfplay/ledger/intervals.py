"""Who was busy when, during one closed step: read off the clocks of plays, decisions and updates.

A row says when it was committed and how long its work took; a commit comes at most 50 ms after the work, but a task's
verdict waits for those of the proposals before it, so that a decision that made a task may be shown later than it was.
Neighbouring steps count as well, since they may be played at the same time.

Not here: drawing (`views.plots`), sums over steps (`watching.spent`).
"""

from __future__ import annotations

from selfplay.ledger.bulk import Ask
from selfplay.types import record

NEIGHBOURS = 8
"""Steps before and after that may overlap with one."""


@record
class Busy:
    """One piece of work."""

    what: str
    """`plays of ROLE`, `mint`, `judge`, `update`."""
    begin: float
    """Unix seconds."""
    end: float


@record
class Window:
    """A closed step, and all work that overlaps with it."""

    step: int
    opened: float
    """When its first choice was committed, Unix seconds."""
    closed: float
    busy: tuple[Busy, ...]
    """In the order in which it began."""


def of_step(ask: Ask, step: int) -> Window | None:
    """What was under way between the opening and the closing of `step`; None where it is not closed."""
    rows = ask("SELECT opened_at, at FROM steps WHERE step = ?", step)
    if not rows or rows[0]["opened_at"] is None:
        return None
    opened, closed = float(rows[0]["opened_at"]), float(rows[0]["at"])
    found = [
        Busy(what=row["what"], begin=row["at"] - row["seconds"], end=row["at"])
        for sql in _BUSY
        for row in ask(sql, step - NEIGHBOURS, step + NEIGHBOURS)
        if row["seconds"] > 0
    ]
    inside = [one for one in found if one.begin < closed and one.end > opened]
    return Window(step=step, opened=opened, closed=closed, busy=tuple(sorted(inside, key=lambda one: one.begin)))


# note: CROSS JOIN keeps SQLite from starting at the verdicts, of which it would read all.
_BUSY = (
    "SELECT 'plays of ' || role AS what, at, seconds FROM trajectories WHERE step BETWEEN ? AND ?",
    "SELECT v.stage AS what, v.at AS at, v.seconds AS seconds FROM trajectories t "
    "CROSS JOIN verdicts v ON v.trajectory_id = t.id WHERE t.step BETWEEN ? AND ? AND v.stage <> 'grade'",
    "SELECT 'update' AS what, at, seconds FROM updates WHERE step BETWEEN ? AND ? AND phase = 'play'",
)
